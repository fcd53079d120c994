"""The directory of a fleet: the authority's key, the register of sites, the topology, and each version of all
configurations.

Rules of this file: one process changes a fleet at a time (`changing`); a change is on disk before it is announced. The
key is in a private file, and encrypted if it was given a passphrase.
"""

import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from holdfast import durable
from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet import authority as ca
from holdfast.fleet import private_files
from holdfast.fleet.authority import Authority, Certificate, Request, Revoked
from holdfast.fleet.provision import Provision, seal
from holdfast.fleet.register import (
    CERTIFICATES_MAX,
    REGISTER_BYTES_MAX,
    CertificateRecord,
    Register,
    Site,
    parse_register,
)
from holdfast.names import HostPort
from holdfast.node.toml import read_toml
from holdfast.node.topology import load_topology
from holdfast.routing.topology import Topology, topology_of

KEY_BYTES_MAX: Final = 64 * 1024
TOPOLOGY_BYTES_MAX: Final = 2 * 1024 * 1024
CONFIG_BYTES_MAX: Final = 512 * 1024


class Busy(HoldfastError):
    """Another command changes the fleet."""


class FleetDirectory:
    """The files of a fleet, made by `create`. ConfigError if there is no fleet."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        self.key_file = directory / "ca.key"
        self.authority_file = directory / "ca.pem"
        self.register_file = directory / "fleet.json"
        self.topology_file = directory / "topology.toml"
        self.sites = directory / "sites"
        self.versions = directory / "versions"
        if not self.register_file.exists():
            raise ConfigError(f"{directory} is no fleet's directory; make one with `holdfast fleet init`")

    # ------------------------------------------------------------------------------------------- the register

    def register(self) -> Register:
        data = private_files.read_private(self.register_file, "the register of sites", REGISTER_BYTES_MAX)
        try:
            return parse_register(data.decode())
        except UnicodeDecodeError:
            raise ConfigError(
                f"{self.register_file}: it is damaged; put back a copy of the fleet's directory"
            ) from None
        except ConfigError as error:
            raise ConfigError(f"{self.register_file}: {error}") from None

    @contextmanager
    def changing(self, *, waits: bool = True) -> Iterator[Register]:
        """The register, which is written if the block ends without an exception. `waits`: until no other command
        changes the fleet; otherwise Busy."""
        with ExitStack() as stack:
            try:
                stack.enter_context(durable.changing(self.path, waits=waits))
            except BlockingIOError:
                raise Busy(f"another command has been changing {self.path}") from None
            register = self.register()
            yield register
            private_files.write(self.register_file, register.as_json().encode(), private_files.PRIVATE)

    # ------------------------------------------------------------------------------------------ the authority

    def authority(self, passphrase: bytes | None) -> Authority:
        """The authority. ConfigError if the key cannot be used, for example because the passphrase is missing."""
        data = private_files.read_private(self.key_file, "the authority's key", KEY_BYTES_MAX)
        try:
            key = ca.read_key(data, passphrase)
        except TypeError:
            text = (
                "has a passphrase; give --passphrase-file FILE"
                if passphrase is None
                else "has no passphrase; give none"
            )
            raise ConfigError(f"{self.key_file}: the authority's key {text}") from None
        except ValueError:
            what = "the passphrase is wrong" if passphrase is not None else "it is no key in PEM"
            raise ConfigError(f"{self.key_file}: {what}; give the one of `holdfast fleet init`") from None
        except UnsupportedAlgorithm:
            text = "it is a key of another kind than P-256; give the one of `holdfast fleet init`"
            raise ConfigError(f"{self.key_file}: {text}") from None
        return Authority(key, self.authority_certificate())

    def has_passphrase(self) -> bool:
        data = private_files.read_private(self.key_file, "the authority's key", KEY_BYTES_MAX)
        return b"ENCRYPTED" in data.split(b"\n", 1)[0]

    def authority_certificate(self) -> x509.Certificate:
        data = private_files.read(self.authority_file, "the authority's certificate", KEY_BYTES_MAX)
        try:
            return x509.load_pem_x509_certificate(data)
        except ValueError:
            raise ConfigError(f"{self.authority_file} is no certificate in PEM; put back that of the fleet") from None

    # ------------------------------------------------------------------------------------------- configuration

    def topology(self) -> Topology:
        """The topology that the operator edits."""
        return load_topology(self.topology_file)

    def version_files(self, version: int) -> Path:
        return self.versions / str(version)

    def topology_of(self, register: Register) -> Topology:
        """The current topology: that of the last push, or that of `init` before the first push."""
        if not register.version:
            return self.topology()
        return topology_of(read_toml(self.version_files(register.version) / "topology.toml"))

    def hosts_of(self, register: Register, node: str) -> list[str]:
        """The hosts that a node's certificate must name. HoldfastError for a node that is not in the topology."""
        found = self.topology_of(register).node(node)
        if found is None:
            raise HoldfastError(f"node {node!r} is in no topology of this fleet; add it and `holdfast fleet push`")
        return [] if found.address is None else [found.address.host]


def create(directory: Path, topology: Path, service: HostPort, passphrase: bytes | None) -> str:
    """Makes a fleet's directory; returns the fingerprint of its authority. ConfigError if it cannot."""
    checked = load_topology(topology)
    check_topology(checked, str(topology))
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory} is not empty; give a new directory")
    text = private_files.read(topology, "the topology", TOPOLOGY_BYTES_MAX)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)
    for name in ("sites", "versions"):
        (directory / name).mkdir()
    key, certificate = ca.new_authority(time.time())
    private_files.write(directory / "ca.key", ca.key_pem(key, passphrase), private_files.PRIVATE)
    private_files.write(directory / "ca.pem", Authority(key, certificate).pem.encode())
    private_files.write(directory / "topology.toml", text)
    register = Register(str(service), sites={node.name: Site() for node in checked.nodes})
    private_files.write(directory / "fleet.json", register.as_json().encode(), private_files.PRIVATE)
    return ca.fingerprint(certificate)


def check_topology(topology: Topology, file: str) -> None:
    """ConfigError if the nodes could not use mutual TLS, or if a node's name cannot be in a certificate."""
    for node in topology.nodes:
        where = f"{file}: node {node.name!r}"
        if node.address is not None and not node.tls:
            raise ConfigError(f"{where} has address {node.address} without TLS; write amqps://{node.address}")
        if len(node.name.encode()) > ca.NAME_BYTES_MAX or not node.name.isprintable():
            expected = f"expected at most {ca.NAME_BYTES_MAX} bytes, all of them printable characters"
            raise ConfigError(f"{where} has a name that no certificate can have; {expected}")
        if node.name == ca.SERVICE_NAME:
            raise ConfigError(f"{where} has the name of the fleet's service; give it another")


def certify(
    fleet: FleetDirectory, register: Register, authority: Authority, node: str, request: Request, now_s: float
) -> CertificateRecord:
    """Makes a certificate for the request, and registers it. If the site asks again for the same key because it got no
    answer, it gets the same certificate. HoldfastError if the site has too many."""
    register.forget_ended(now_s)
    site = register.sites.setdefault(node, Site())
    hosts = fleet.hosts_of(register, node)
    known = site.of_key(request.key_hash, now_s)
    if known is not None and known.hosts == hosts:
        return known
    if sum(each.ends_s > now_s for each in site.certificates) >= CERTIFICATES_MAX:
        text = f"site {node!r} has {CERTIFICATES_MAX} certificates that have not ended"
        raise HoldfastError(f"{text}; look why it asks so often, and `holdfast fleet revoke {node}`")
    made: Certificate = authority.certify(node, hosts, request, now_s)
    record = CertificateRecord(f"{made.serial:x}", made.key_hash, int(now_s), made.ends_s, hosts, made.pem)
    site.certificates.append(record)
    return record


def provision_for(
    fleet: FleetDirectory, register: Register, authority: Authority, node: str, certificate: str, now_s: float
) -> str:
    """The site's current provision, sealed. `certificate`: the certificate to include, or empty."""
    revoked = [Revoked(int(each.serial, 16), each.revoked_s) for each in register.revoked()]
    topology_file = topology = config = ""
    if register.version:
        directory = fleet.version_files(register.version)
        name = config_name(fleet.topology_of(register), node)
        if name:
            topology = private_files.read(directory / "topology.toml", "the topology", TOPOLOGY_BYTES_MAX).decode()
            config = private_files.read(directory / name, "the configuration", CONFIG_BYTES_MAX).decode()
            topology_file = topology_name(topology)
    provision = Provision(
        node=node,
        version=register.version,
        crl_number=register.crl_number,
        certificate=certificate,
        authority=authority.pem,
        revocations=authority.revocations(revoked, register.crl_number, now_s),
        topology_file=topology_file,
        topology=topology,
        config=config,
        service=register.service,
    )
    return seal(provision, authority)


def config_name(topology: Topology, node: str) -> str:
    """The file name of a node's configuration in a version of that topology. It has the node's number, because a node's
    name may not be a valid file name. Empty for a node that is not in the topology."""
    found = topology.node(node)
    return "" if found is None else f"node-{found.number}.toml"


def topology_name(text: str) -> str:
    """The name of a topology's file at a site. Each topology has its own name, so that the new file and the previous
    one both exist until the configuration has changed."""
    return f"topology-{hashlib.sha256(text.encode()).hexdigest()[:8]}.toml"
