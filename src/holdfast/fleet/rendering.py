"""The configuration of each node, from the topology and the operator's additions for all sites or for one. Rules of
this file: relative paths in a configuration are relative to the site's directory, where the node is started. Every
mistake is a ConfigError that names the operator's file.
"""

import copy
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any, Final

from holdfast.dialling import is_local
from holdfast.errors import ConfigError
from holdfast.fleet.toml_text import document_text
from holdfast.node.config import LISTEN_DEFAULT, NodeSettings, load_settings
from holdfast.node.config_schema import LISTS, NAMED_BY, TABLES
from holdfast.node.topology import neighbours_of
from holdfast.routing.topology import Topology, TopologyNode
from holdfast.schema import check_document
from holdfast.settings.neighbours import NeighbourConfig

FLEETS_OWN: Final = {
    "node": ("name",),
    "tls": ("certificate_file", "key_file", "ca_file", "crl_file"),
    "topology": ("file",),
}
"""Keys that an operator's file may not have, because the fleet sets them."""

Document = dict[str, Any]


def node_document(
    topology: Topology, topology_file: str, node: TopologyNode, additions: list[tuple[str, Document]]
) -> Document:
    """The node's configuration. `additions`: the operator's files; a later one wins. ConfigError for a mistake in one
    of them."""
    # one without an address there is for clients on its own machine
    listen = [LISTEN_DEFAULT] if node.address is None else [f"amqps://{node.address}"]
    document: Document = {
        "node": {"name": node.name, "data": "store", "listen": listen},
        "tls": {
            "certificate_file": "node.pem",
            "ca_file": "ca.pem",
            "crl_file": "crl.pem",
            "client_certificates": "optional",
        },
        "topology": {"file": topology_file},
    }
    for file, added in additions:
        _check(file, added)
        _merge(document, added)
    users = _users_of_neighbours(topology, topology_file, node.name, document)
    if users:
        document["user"] = [*document.get("user", []), *users]
    if node.address is not None and not document.get("user") and "users_file" not in document["node"]:
        # Nobody comes in yet, and without any user the node would let everybody in, or refuse to start.
        document["user"] = [{"name": node.name, "certificate": node.name}]
    return document


def config_text(document: Document, node: str, version: int) -> str:
    head = f"# Node {node!a}, version {version} of the fleet's configuration."  # one line, whatever the name has
    return f"{head} Do not edit: the next one takes its place.\n\n{document_text(document)}"


def settings_of(document: Document, topology_text: str) -> NodeSettings:
    """Loads it as its node will. ConfigError for what the node would refuse.

    Files with passwords are at the site alone: their names are not looked at here.
    """
    checked = copy.deepcopy(document)
    with tempfile.TemporaryDirectory(prefix="holdfast-fleet-") as place, chdir(place):
        Path("password").write_text("not a password of anybody\n")
        for entries in checked.values():
            for entry in entries if isinstance(entries, list) else [entries]:
                if "password_file" in entry:
                    entry["password_file"] = "password"
        Path(checked["topology"]["file"]).write_text(topology_text, encoding="utf-8")
        file = Path("config.toml")
        file.write_text(document_text(checked), encoding="utf-8")
        try:
            return load_settings(file)
        except ConfigError as error:
            raise ConfigError(str(error).removeprefix(f"{file}: ")) from None


def leaves_out_address(settings: NodeSettings, node: TopologyNode) -> bool:
    """Whether no TLS listener of the node can accept the connections that neighbours make to its address in the
    topology."""
    address = node.address
    if address is None:
        return False
    listens = (where.host for where in settings.listen_tls if where.port == address.port)
    return not any(is_local(address.host) or not is_local(host) for host in listens)


def _check(file: str, added: Document) -> None:
    try:
        check_document(added, tables=TABLES, lists=LISTS, named_by=NAMED_BY)
        for table, keys in FLEETS_OWN.items():
            for key in keys:
                if key in added.get(table, {}):
                    raise ConfigError(f"{table} {key} is the fleet's to write; remove it")
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def _merge(document: Document, added: Document) -> None:
    """Merges: keys of a table replace earlier ones; entries of a list replace the entry with the same name."""
    for name, value in added.items():
        if isinstance(value, Mapping):
            document[name] = {**document.get(name, {}), **value}
            continue
        named_by = NAMED_BY.get(name, "name")
        new = {entry.get(named_by) for entry in value}
        kept = [entry for entry in document.get(name, []) if entry.get(named_by) not in new]
        document[name] = [*kept, *value]


def _users_of_neighbours(topology: Topology, topology_file: str, node: str, document: Document) -> list[Document]:
    """Neighbours that connect to the node log in with their certificates, unless the operator configures otherwise."""
    entries = document.get("neighbour", [])
    given = [
        NeighbourConfig(name=entry["name"], remote=entry.get("remote"), user=entry.get("user")) for entry in entries
    ]
    known = {user["name"] for user in document.get("user", []) if not user.get("vhost")}
    dialling = [
        each.name
        for each in neighbours_of(topology, topology_file, node, given)
        if each.remote is None and each.user is None
    ]
    return [{"name": name, "certificate": name} for name in dialling if name not in known]
