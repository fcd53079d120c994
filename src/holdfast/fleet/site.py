"""The directory of a site: its key, its certificate, and what its fleet has given it. The node runs in it. Rules of
this file: the key is made here and never leaves; key and certificate are one file, so that both change at once. A
configuration that the node would refuse replaces nothing.
"""

import json
from contextlib import chdir
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast import durable
from holdfast.errors import ConfigError
from holdfast.fleet import authority as ca
from holdfast.fleet import private_files
from holdfast.fleet.provision import PROVISION_BYTES_MAX, Provision, authority_in, unseal
from holdfast.node import users_file
from holdfast.node.config import load_settings
from holdfast.schema import is_whole_within

FILE_BYTES_MAX: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteState:
    """What the site knows about its fleet. `fingerprint`: of the authority; it stays the same until the directory is
    removed. `service`: HOST:PORT, empty if there is none. The numbers are those of what is installed. `applied`: the
    version that the node has, or will start with; another one than `version` until it has been reloaded."""

    node: str
    fingerprint: str
    service: str = ""
    version: int = 0
    crl_number: int = 0
    applied: int = 0


def _state_of(given: object) -> SiteState:
    """ValueError where it is none. A later version may have added fields: there is a way back from an upgrade."""
    if not isinstance(given, dict):
        raise ValueError
    known = {field.name: given[field.name] for field in fields(SiteState) if field.name in given}
    for name, value in known.items():
        is_number = name in ("version", "crl_number", "applied")
        if not (is_whole_within(value, 0, 1 << 53) if is_number else isinstance(value, str)):
            raise ValueError
    if not {"node", "fingerprint"} <= known.keys():
        raise ValueError
    return SiteState(**{"applied": known.get("version", 0)} | known)


class AuthorityKey:
    """Verifies an authority's signatures."""

    def __init__(self, certificate: x509.Certificate) -> None:
        self._key = certificate.public_key()

    def verified(self, signature: bytes, data: bytes) -> bool:
        assert isinstance(self._key, ec.EllipticCurvePublicKey)
        try:
            self._key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


def trusted(pem: str, fingerprint: str) -> x509.Certificate:
    """The authority's certificate, if it has this fingerprint; otherwise ConfigError."""
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        raise ConfigError(
            "what came as the fleet's authority is no certificate; look who answers at its address"
        ) from None
    if ca.fingerprint(certificate) != fingerprint or not isinstance(
        certificate.public_key(), ec.EllipticCurvePublicKey
    ):
        text = f"the authority has fingerprint {ca.fingerprint(certificate)}, expected {fingerprint}"
        raise ConfigError(f"{text}: somebody else answers, or the token is of another fleet")
    return certificate


class SiteDirectory:
    """The files of a site in `directory`, which is created by the first write."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        self.state_file = directory / "site.json"
        self.authority_file = directory / "ca.pem"
        self.identity_file = directory / "node.pem"
        self.revocations_file = directory / "crl.pem"
        self.config_file = directory / "config.toml"
        self._before_file = directory / "config.before.toml"
        self._next_key_file = directory / "next.key"

    def state(self) -> SiteState | None:
        """The state; None before the first provision."""
        if not self.state_file.exists():
            return None
        data = private_files.read(self.state_file, "what the site knows of its fleet", FILE_BYTES_MAX)
        try:
            return _state_of(json.loads(data))
        except (ValueError, RecursionError):
            raise ConfigError(
                f"{self.state_file} is damaged; remove the directory's files and enrol the site again"
            ) from None

    def known(self) -> SiteState:
        """The state of a site that is enrolled; ConfigError if it is not."""
        state = self.state()
        if state is None:
            raise ConfigError(
                f"{self.path} is no enrolled site's; use `holdfast fleet enrol`, or `request` and `install`"
            )
        return state

    def fleets_key(self) -> AuthorityKey:
        """The key by which the site verifies its fleet's signatures."""
        return AuthorityKey(self.authority())

    def authority(self) -> x509.Certificate:
        """The fleet's certificate, by which the site verifies its service."""
        known = self.known()
        data = private_files.read(self.authority_file, "the fleet's authority", FILE_BYTES_MAX)
        try:
            return trusted(data.decode("latin-1"), known.fingerprint)
        except ConfigError:
            raise ConfigError(
                f"{self.authority_file} is not the authority that the site was enrolled with; enrol the site again"
            ) from None

    # ------------------------------------------------------------------------------------------ keys, requests

    def request(self) -> str:
        """A signing request in PEM for the site's next key. It is for the same key at each call until a certificate for
        it is installed."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self._next_key_file.exists():
            private_files.write(self._next_key_file, ca.key_pem(ca.new_key()), private_files.PRIVATE)
        key = self._key_in(self._next_key_file)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a site of a holdfast fleet")])
        made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM).decode()

    def sign(self, data: bytes) -> bytes:
        """Signs with the key of the site's certificate."""
        return self._key_in(self.identity_file).sign(data, ec.ECDSA(hashes.SHA256()))

    def certificate(self) -> x509.Certificate:
        """The site's certificate."""
        data = private_files.read_private(self.identity_file, "the site's certificate and key", FILE_BYTES_MAX)
        try:
            return x509.load_pem_x509_certificate(data)
        except ValueError:
            raise ConfigError(f"{self.identity_file} has no certificate in PEM; enrol the site again") from None

    def _key_in(self, file: Path) -> ec.EllipticCurvePrivateKey:
        data = private_files.read_private(file, "the site's key", FILE_BYTES_MAX)
        try:
            return ca.read_key(data, None)
        except (ValueError, TypeError):
            raise ConfigError(f"{file} has no key in PEM; enrol the site again") from None
        except UnsupportedAlgorithm:
            raise ConfigError(f"{file} has a key of another kind than P-256; enrol the site again") from None

    # -------------------------------------------------------------------------------------------- installation

    def install(self, text: str, fingerprint: str | None, now_s: float, *, reloads: bool = False) -> Provision:
        """Checks a sealed provision, and puts its files into place; returns what it was. ConfigError where it is not
        for this site, or older than what it has: nothing has changed then. ConfigError too where the node would refuse
        the configuration: that of before stays, and all else is in place.

        `fingerprint`: of the authority, for a site that does not know it yet. `reloads`: the caller has the node take
        up the configuration, and calls `has_applied` or `restore` then.
        """
        if len(text) > PROVISION_BYTES_MAX:
            raise ConfigError(f"the provision has more than {PROVISION_BYTES_MAX} characters; ask for it again")
        self.path.mkdir(parents=True, exist_ok=True)
        with durable.changing(self.path):
            state = self.state()
            known = state.fingerprint if state is not None else fingerprint
            if known is None:
                raise ConfigError(
                    "the site knows no fleet yet; give --fingerprint, as `holdfast fleet init` printed it"
                )
            authority = trusted(authority_in(text), known)
            provision = unseal(text, AuthorityKey(authority))
            self._compare(provision, state)
            identity = self._identity(provision, authority, now_s)
            self._put(provision, identity, state or SiteState(node=provision.node, fingerprint=known))
            if provision.config:
                self._configure(provision, reloads=reloads)
        return provision

    def has_applied(self) -> None:
        """The node has taken up the configuration that is installed."""
        with durable.changing(self.path):
            known = self.known()
            self._save(replace(known, applied=known.version))

    def restore(self, version: int) -> None:
        """Restores the configuration that the site had before `install`, which was of this version."""
        with durable.changing(self.path):
            if self._before_file.exists():
                private_files.write(self.config_file, _content(self._before_file))
            self._save(replace(self.known(), version=version, applied=version))

    def _compare(self, provision: Provision, state: SiteState | None) -> None:
        if state is None:
            return
        if provision.node != state.node:
            raise ConfigError(f"the provision is for node {provision.node!r}, and this site is {state.node!r}")
        if provision.crl_number < state.crl_number or provision.version < state.version:
            raise ConfigError("the provision is older than what the site has; ask the fleet for a new one")

    def _identity(self, provision: Provision, authority: x509.Certificate, now_s: float) -> bytes | None:
        """The content of the file with key and certificate; None if the provision has no certificate."""
        if not provision.certificate:
            if not self.identity_file.exists():
                raise ConfigError(
                    "the provision has no certificate, and the site has none yet; send the fleet a request"
                )
            return None
        try:
            certificate = x509.load_pem_x509_certificate(provision.certificate.encode())
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            raise ConfigError("the provision's certificate is not of the fleet's authority; ask for it again") from None
        starts, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        clock = datetime.fromtimestamp(now_s, timezone.utc)
        if not starts <= clock <= ends:
            good = f"good from {starts:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M}"
            text = f"this machine's clock says {clock:%Y-%m-%d %H:%M} UTC, and the certificate is {good}"
            raise ConfigError(f"{text}; set the clock, or ask for a new certificate")
        for file in (self._next_key_file, self.identity_file):
            if file.exists():
                key = self._key_in(file)
                if key.public_key() == certificate.public_key():
                    return ca.key_pem(key) + provision.certificate.encode()
        raise ConfigError(
            "the provision's certificate is for another key than this site's; send the fleet a new request"
        )

    def _configure(self, provision: Provision, *, reloads: bool) -> None:
        """Puts the configuration where the node reads it at its next start or reload. It is first checked in this
        directory, as the node will read it."""
        name = provision.topology_file
        if "/" in name or not name.startswith("topology-"):
            raise ConfigError("the provision's topology has no name of a topology's file; ask for it again")
        private_files.write(self.path / name, provision.topology.encode())
        new = self.path / "config.new.toml"
        private_files.write(new, provision.config.encode())
        try:
            with chdir(self.path):
                settings = load_settings(Path(new.name))
                if settings.users_file is not None:
                    users_file.read(settings.users_file)
            if settings.core.name != provision.node:
                raise ConfigError(f"it is for node {settings.core.name!r}, and this site is {provision.node!r}")
        except ConfigError as error:
            reason = str(error).removeprefix(f"{new.name}: ")
            raise ConfigError(f"configuration {provision.version} cannot be used here: {reason}") from None
        finally:
            new.unlink()
        now, known = _content(self.config_file), self.known()
        if now and now != provision.config.encode():  # the same: of an installation that was ended
            private_files.write(self._before_file, now)
        private_files.write(self.config_file, provision.config.encode())
        applied = known.applied if reloads else provision.version
        self._save(replace(known, version=provision.version, applied=applied))
        before = _content(self._before_file)
        for old in self.path.glob("topology-*.toml"):
            if old.name != name and old.name.encode() not in before:
                old.unlink()

    def _put(self, provision: Provision, identity: bytes | None, state: SiteState) -> None:
        private_files.write(self.authority_file, provision.authority.encode())
        private_files.write(self.revocations_file, provision.revocations.encode())
        if identity is not None:
            private_files.write(self.identity_file, identity, private_files.PRIVATE)
            self._next_key_file.unlink(missing_ok=True)
        self._save(replace(state, service=provision.service, crl_number=provision.crl_number))

    def _save(self, state: SiteState) -> None:
        private_files.write(self.state_file, json.dumps(asdict(state), ensure_ascii=False).encode())


def _content(file: Path) -> bytes:
    return private_files.read(file, "the configuration", FILE_BYTES_MAX) if file.exists() else b""
