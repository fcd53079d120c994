"""Versions of the configuration of all sites: made by a push, kept, and rolled back.

Rules of this file: a version is made as a whole, after everything in it was checked, and never changes; a rollback
makes a new version with the content of an earlier one, so that numbers only increase.
"""

import shutil
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet import private_files
from holdfast.fleet.directory import TOPOLOGY_BYTES_MAX, FleetDirectory, check_topology, config_name, topology_name
from holdfast.fleet.register import Register, Site
from holdfast.fleet.rendering import Document, config_text, leaves_out_address, node_document, settings_of
from holdfast.node.toml import read_toml
from holdfast.routing.topology import Topology, topology_of

KEPT_VERSIONS: Final = 50
"""The number of versions that are kept; older ones are removed."""


class Pushed(NamedTuple):
    """`version`: the current one. `changed`: the nodes whose configuration differs from the previous version; `joined`
    and `left`: nodes that were added to the topology or removed from it. `warnings`: lines about what is allowed, and
    probably a mistake."""

    version: int
    changed: list[str]
    joined: list[str]
    left: list[str]
    warnings: list[str]


def push(fleet: FleetDirectory) -> Pushed:
    """Makes a version of the topology and the operator's files, if that changes anything. ConfigError for anything that
    a node or `holdfast topology check` would refuse; nothing is changed then."""
    topology = fleet.topology()
    check_topology(topology, str(fleet.topology_file))
    text = private_files.read(fleet.topology_file, "the topology", TOPOLOGY_BYTES_MAX).decode()
    documents, warnings = _documents(fleet, topology, text)
    with fleet.changing() as register:
        files = {config_name(topology, name): (name, document) for name, document in documents.items()}
        before = fleet.topology_of(register) if register.version else None
        changed = [name for name, document in documents.items() if document != _document_before(fleet, register, name)]
        known = set() if before is None else {node.name for node in before.nodes}
        joined = [] if before is None else [name for name in documents if name not in known]
        left = sorted(known - documents.keys())
        if not changed and not left:
            return Pushed(register.version, [], [], [], warnings)
        version = _next(fleet)
        _write(
            fleet.version_files(version),
            text,
            {file: config_text(document, name, version) for file, (name, document) in files.items()},
        )
        _take(fleet, register, topology, version)
        return Pushed(version, changed, joined, left, warnings)


def roll_back(fleet: FleetDirectory, to: int | None) -> Pushed:
    """Makes a version with the content of version `to`; None: of the previous version."""
    with fleet.changing() as register:
        target = register.version - 1 if to is None else to
        source = fleet.version_files(target)
        if target < 1 or not source.exists():
            known = ", ".join(map(str, versions(fleet))) or "none"
            raise HoldfastError(f"there is no version {target} of the configuration; kept are: {known}")
        text = (source / "topology.toml").read_text(encoding="utf-8")
        topology = topology_of(read_toml(source / "topology.toml"))
        documents = {node.name: read_toml(source / config_name(topology, node.name)) for node in topology.nodes}
        changed = [name for name, document in documents.items() if document != _document_before(fleet, register, name)]
        left = sorted({node.name for node in fleet.topology_of(register).nodes} - documents.keys())
        version = _next(fleet)
        configs = {
            config_name(topology, name): config_text(document, name, version) for name, document in documents.items()
        }
        _write(fleet.version_files(version), text, configs)
        _take(fleet, register, topology, version)
        return Pushed(version, changed, [], left, [])


def versions(fleet: FleetDirectory) -> list[int]:
    """The numbers of the versions that are kept, in ascending order."""
    return sorted(int(place.name) for place in fleet.versions.iterdir() if place.name.isdecimal())


def _documents(fleet: FleetDirectory, topology: Topology, text: str) -> tuple[dict[str, Document], list[str]]:
    """The configuration of each node, checked as the node will check it; and warnings."""
    common = _addition(fleet.sites / "common.toml")
    names = {node.name for node in topology.nodes}
    for file in sorted(fleet.sites.glob("*.toml")):
        if file.name != "common.toml" and file.name.removesuffix(".toml") not in names:
            raise ConfigError(f"{file} is for no node of {fleet.topology_file}; remove it, or correct its name")
    documents, warnings = {}, []
    for node in topology.nodes:
        own = [] if "/" in node.name else _addition(fleet.sites / f"{node.name}.toml")
        document = node_document(topology, topology_name(text), node, [*common, *own])
        files = " and ".join(file for file, _ in [*common, *own]) or str(fleet.topology_file)
        where = f"node {node.name!r} ({files})"
        try:
            settings = settings_of(document, text)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        if leaves_out_address(settings, node):
            what = f"node listen has no entry for amqps://{node.address}, the address that its neighbours dial"
            warnings.append(f"{where}: {what}; add it, unless a router forwards to another port")
        documents[node.name] = document
    return documents, warnings


def _addition(file: Path) -> list[tuple[str, Document]]:
    if not file.exists():
        return []
    try:
        return [(str(file), read_toml(file))]
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def _document_before(fleet: FleetDirectory, register: Register, node: str) -> Document | None:
    if not register.version:
        return None
    name = config_name(fleet.topology_of(register), node)
    return read_toml(fleet.version_files(register.version) / name) if name else None


def _next(fleet: FleetDirectory) -> int:
    return max(versions(fleet), default=0) + 1


def _write(place: Path, topology: str, configs: dict[str, str]) -> None:
    new = place.with_name(f".{place.name}.new")
    shutil.rmtree(new, ignore_errors=True)  # of a push that was ended
    new.mkdir(mode=0o700)
    private_files.write(new / "topology.toml", topology.encode())
    for name, text in configs.items():
        private_files.write(new / name, text.encode())
    new.rename(place)


def _take(fleet: FleetDirectory, register: Register, topology: Topology, version: int) -> None:
    register.version = version
    for node in topology.nodes:
        register.sites.setdefault(node.name, Site())
    for old in versions(fleet)[:-KEPT_VERSIONS]:
        shutil.rmtree(fleet.version_files(old))
