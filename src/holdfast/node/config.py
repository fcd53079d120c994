"""Makes the settings of core and driver from a node's TOML and options (docs/configuration.md).

Rules of this file: TOML comes from `node/toml.py`; every mistake is a ConfigError of one line that names the file, the
key, what is wrong and what is expected. Relative paths start at the directory in which the node is started. Passwords
are read from files, once, and never shown.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from holdfast.dialling import is_local, is_loopback
from holdfast.errors import ConfigError
from holdfast.federation.modes import DYNAMIC, TO
from holdfast.federation.settings import Entry
from holdfast.names import HostPort, parse_host_port, without_scheme
from holdfast.node import access
from holdfast.node.config_schema import LISTS, NAMED_BY, TABLES
from holdfast.node.logs import DEFAULT_LOG, LogSettings
from holdfast.node.passwords import password_in as _password
from holdfast.node.tls import NO_TLS, TlsFiles
from holdfast.node.toml import read_toml
from holdfast.node.topology import load_topology, neighbours_of, node_of, roles_of
from holdfast.pacing.settings import PacingConfig
from holdfast.routing.settings import RoutingConfig
from holdfast.routing.topology import Topology
from holdfast.schema import TEXT, TEXTS, check_document
from holdfast.settings.hosts import UserConfig, VhostConfig
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import DeadLettersConfig, LinkConfig, QueueConfig, TriggerConfig
from holdfast.settings.remotes import Fetch, RemoteConfig
from holdfast.settings.subscriptions import SubscriptionConfig
from holdfast.steps import parsing, tables
from holdfast.text_files import read_text
from holdfast.units import MIB

LISTEN_DEFAULT: Final = "127.0.0.1:5672"
ADMIN_EXAMPLE: Final = "127.0.0.1:9464"
STORE_BYTES_MAX: Final = 16 * 1024 * MIB
STORE_BYTES_MIN: Final = 4 * MIB
DEAD_LETTERS_SHARE: Final = 16
"""Where nothing is said, dead letters may take that part of what the store may grow to, by its bound and by its disk,
and at most the default of DeadLettersConfig."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The settings of a node. `core` is for the NodeCore, the rest for the driver. `listen` in the order given, and
    `listen_tls`, where TLS is spoken, by `tls`; port 0 means any free port. `store_bytes_max` bounds the store's file,
    in bytes; `store_must_exist`: no new store is created.
    """

    core: NodeConfig
    listen: tuple[HostPort, ...]
    data: Path
    telemetry_file: Path | None = None
    audit_file: Path | None = None
    store_bytes_max: int = STORE_BYTES_MAX
    store_must_exist: bool = False
    listen_tls: tuple[HostPort, ...] = ()
    tls: TlsFiles = NO_TLS
    users_file: Path | None = None
    """Of users beside those of the configuration (node/users_file.py)."""
    log: LogSettings = DEFAULT_LOG
    admin: HostPort | None = None
    """Where the admin port listens; None: there is none."""
    dead_letters_bounded: bool = False
    """Whether `[dead_letters] bytes_max` was given; else `on_disk` sets it."""

    def on_disk(self, bytes_most: int) -> "NodeSettings":
        """The same settings for a store that may grow to `bytes_most`, on which the bound of dead letters depends."""
        if self.dead_letters_bounded:
            return self
        letters = self.core.dead_letters
        bytes_max = min(letters.bytes_max, max(1, bytes_most // DEAD_LETTERS_SHARE))
        return replace(self, core=replace(self.core, dead_letters=replace(letters, bytes_max=bytes_max)))

    def validate(self) -> None:
        """Raises ConfigError at the first key that is wrong."""
        self.core.validate()
        self.tls.validate()
        self.log.validate()
        listens = (*self.listen, *self.listen_tls)
        if not listens:
            raise ConfigError("invalid value [] for node listen; expected at least one HOST:PORT")
        if self.listen_tls and self.tls.certificate is None:
            raise ConfigError(f"node listen has amqps://{self.listen_tls[0]} without [tls] certificate_file; give one")
        for index, where in enumerate(listens):
            if where.port and where in listens[:index]:
                raise ConfigError(f"node listen has {where} twice; list it once")
            if not self.core.has_users and not is_local(where.host):
                raise ConfigError(
                    f"node listen has {where} without a [[user]]; add a user, or listen on loopback only "
                    "(127.0.0.1, ::1, localhost)"
                )
        if self.store_bytes_max < STORE_BYTES_MIN:
            text = f"invalid value {self.store_bytes_max} for store bytes_max; expected {STORE_BYTES_MIN} or more"
            raise ConfigError(text)
        users = {user.name for user in self.core.users if not user.vhost}
        for neighbour in self.core.neighbours:
            named = neighbour.remote is None and neighbour.user is not None and not self.core.has_users_file
            if named and neighbour.user not in users:
                raise ConfigError(
                    f"invalid value {neighbour.user!r} for neighbour {neighbour.name!r} user; expected, without a "
                    f"remote, the name of a [[user]] ({', '.join(sorted(users)) or 'there is none'})"
                )


def parse_local(key: str, text: str) -> HostPort:
    """`HOST`, `HOST:PORT` or either with an IPv6 address (in brackets beside a port); ConfigError that names `key`."""
    whole = text
    if ":" not in text or (text.startswith("[") and text.endswith("]")):
        whole = f"{text}:0"
    elif _is_ipv6(text):
        whole = f"[{text}]:0"
    try:
        return parse_host_port(key, whole, port_min=0)
    except ConfigError:
        expected = "HOST, HOST:PORT, [IPV6] or [IPV6]:PORT"
        raise ConfigError(f"invalid value {text!r} for {key}; expected {expected}") from None


def _is_ipv6(text: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, text.partition("%")[0])
    except OSError:
        return False
    return True


def load_settings(
    path: Path | None,
    *,
    name: str | None = None,
    listen: Sequence[str] | None = None,
    data: Path | None = None,
) -> NodeSettings:
    """The settings of `path` (None: no file, any address becomes a durable queue), options before the file.

    Raises ConfigError.
    """
    if path is None:
        return _settings({}, create_queues=True, name=name, listen=listen, data=data)
    try:
        return _settings(read_toml(path), create_queues=False, name=name, listen=listen, data=data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


# ------------------------------------------------------------------------------------ from TOML to settings


def _dialled(where: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a neighbour or remote, with those that say where and how it is dialled."""
    given = dict(table)
    if "local" in given and "source" in given:
        raise ConfigError(f"{where} has both local and source, which mean the same; keep local")
    for key in {"local", "source"} & given.keys():
        given["local"] = str(parse_local(f"{where} {key}", given.pop(key)))
    if "remote" in given:
        given["tls"], address = without_scheme(given["remote"])
        given["remote"] = str(parse_host_port(f"{where} remote", address, port_min=1))
        file = given.pop("password_file", None)
        if ("user" in given) != (file is not None):
            missing = "password_file" if file is None else "user"
            raise ConfigError(f"{where} has no {missing}; give user and password_file together")
        given["password"] = None if file is None else _password(where, file)
    return given


def _neighbour(table: Mapping[str, Any]) -> NeighbourConfig:
    where = f"neighbour {table['name']!r}"
    given = _dialled(where, table)
    given["hosts"] = tuple(given.get("hosts", ()))
    if "password_file" in given:
        raise ConfigError(
            f"{where} has password_file without remote; give a [[user]] this password_file, and name it here by user"
        )
    return NeighbourConfig(**given)


def _remote(table: Mapping[str, Any]) -> RemoteConfig:
    where = f"remote {table['name']!r}"
    if "remote" not in table:
        raise ConfigError(f"{where} has no remote; expected HOST:PORT or amqps://HOST:PORT")
    given = _dialled(where, table)
    given["addresses"] = tuple(given.get("addresses", {}).items())
    given["fetch"] = tuple(Fetch(item["from"], item["to"]) for item in given.get("fetch", ()))
    return RemoteConfig(**given)


def _user(table: Mapping[str, Any]) -> UserConfig:
    name = table["name"]
    where = f"user {name!r}"
    if not (name and name.isprintable()):
        raise ConfigError(f"invalid name of {where}; expected printable characters, not empty")
    if "password_file" not in table and "certificate" not in table:
        raise ConfigError(f"{where} has no password_file and no certificate; expected a readable file, or a name")
    rest = {key: value for key, value in table.items() if key != "password_file"}
    password = _password(where, table["password_file"]) if "password_file" in table else None
    return UserConfig(password=password, **rest)


def _route(table: Mapping[str, Any]) -> tuple[str, str]:
    destination = table["destination"]
    if "via" not in table:
        raise ConfigError(f"route {destination!r} has no via; expected the name of a [[neighbour]]")
    return destination, table["via"]


def _federation(table: Mapping[str, Any]) -> Entry:
    if "neighbour" not in table:
        expected = "expected the name of a [[neighbour]] or a [[remote]]"
        raise ConfigError(f"federation {table['topic']!r} has no neighbour; {expected}")
    return Entry(
        table["topic"], table["neighbour"], table.get("mode", DYNAMIC), tuple(table.get("patterns", ())),
        table.get("direction", TO),
    )  # fmt: skip


def _vhost(table: Mapping[str, Any]) -> VhostConfig:
    return VhostConfig(**{**table, "aliases": tuple(table.get("aliases", ()))})


def _subscription(table: Mapping[str, Any]) -> SubscriptionConfig:
    if "topic" not in table:
        raise ConfigError(f"subscription {table['name']!r} has no topic; expected {TEXT.expected}")
    return SubscriptionConfig(**table)


def _link(table: Mapping[str, Any]) -> LinkConfig:
    for key in ("from", "to"):
        if key not in table:
            raise ConfigError(f"link {table['name']!r} has no {key}; expected {TEXT.expected}")
    rest = {key: value for key, value in table.items() if key not in ("from", "to", "steps")}
    where = f"link {table['name']!r}"
    steps = parsing.as_text(tables.with_tables(table.get("steps", []), where, read_text), where)
    parsing.steps_of(steps, where)  # errors in them name the file
    return LinkConfig(source=table["from"], target=table["to"], steps=steps, **rest)


def _trigger(table: Mapping[str, Any]) -> TriggerConfig:
    for key, kind in (("queue", TEXT), ("command", TEXTS)):
        if key not in table:
            raise ConfigError(f"trigger {table['name']!r} has no {key}; expected {kind.expected}")
    return TriggerConfig(**{**table, "command": tuple(table["command"])})


def _joined(
    document: Mapping[str, Any], name: str
) -> tuple[tuple[str, ...], tuple[NeighbourConfig, ...], Topology | None]:
    """Roles, neighbours and topology of the node `name`, from its own file and the topology file."""
    roles = document.get("node", {}).get("roles")
    neighbours = tuple(_neighbour(table) for table in document.get("neighbour", ()))
    if "topology" not in document:
        return ("client",) if roles is None else tuple(roles), neighbours, None
    if "file" not in document["topology"]:
        raise ConfigError(f"topology has no file; expected {TEXT.expected}")
    file = document["topology"]["file"]
    topology = load_topology(Path(file))
    node = node_of(topology, file, name)
    return roles_of(node, file, roles), neighbours_of(topology, file, name, neighbours), topology


def _own_addresses(listens: Sequence[HostPort]) -> tuple[str, ...]:
    """The hosts that mean this node after the `@` of an address: each listener's host, alone and with its port, unless
    the system chooses the port (amqp-illustrations, "Message Relay"). A wildcard is not a host."""
    named: dict[str, None] = {}
    for where in listens:
        hosts = [] if where.host in ("0.0.0.0", "::") else [where.host]
        if is_loopback(where.host) or not hosts:
            hosts.append("localhost")
        for host in hosts:
            named[host] = None
            if where.port:
                named[str(HostPort(host, where.port))] = None
    return tuple(named)


def _tls(table: Mapping[str, Any]) -> TlsFiles:
    files: dict[str, Any] = {
        name: Path(table[key])
        for name, key in (
            ("certificate", "certificate_file"),
            ("key", "key_file"),
            ("authorities", "ca_file"),
            ("revoked", "crl_file"),
        )
        if key in table
    }
    rest = {key: table[key] for key in ("client_certificates", "version_min") if key in table}
    return TlsFiles(**files, **rest)


def _log(table: Mapping[str, Any]) -> LogSettings:
    return LogSettings(**{**table, "file": Path(table["file"])} if "file" in table else table)


def _admin(table: Mapping[str, Any]) -> HostPort:
    if "listen" not in table:
        raise ConfigError(f"admin has no listen; expected HOST:PORT, as {ADMIN_EXAMPLE}")
    return parse_host_port("admin listen", table["listen"], port_min=0)


def _pacing(table: dict[str, Any]) -> PacingConfig:
    shares = tuple((client, float(share)) for client, share in table.get("shares", {}).items())
    host_shares = tuple((host, float(share)) for host, share in table.get("host_shares", {}).items())
    lists = {key: tuple(table.get(key, ())) for key in ("roots", "hosts")}
    return PacingConfig(**(table | {"shares": shares, "host_shares": host_shares} | lists))


def _settings(
    document: Mapping[str, Any],
    *,
    create_queues: bool,
    name: str | None,
    listen: Sequence[str] | None,
    data: Path | None,
) -> NodeSettings:
    check_document(document, tables=TABLES, lists=LISTS, named_by=NAMED_BY)
    node = document.get("node", {})
    telemetry = document.get("telemetry", {})
    audit = document.get("audit", {})
    name = name if name is not None else node.get("name", socket.gethostname())
    roles, neighbours, topology = _joined(document, name)
    store_bytes_max = document.get("store", {}).get("bytes_max", STORE_BYTES_MAX)
    addresses = listen if listen else node.get("listen", [LISTEN_DEFAULT])
    told = [without_scheme(address) for address in addresses]
    places = [(tls, parse_host_port("node listen", address, port_min=0)) for tls, address in told]
    listens = tuple(where for _, where in places)
    core = NodeConfig(
        name=name,
        roles=roles,
        neighbours=neighbours,
        remotes=tuple(_remote(table) for table in document.get("remote", ())),
        topology=topology,
        forwarding=tuple(_route(table) for table in document.get("route", ())),
        queues=tuple(QueueConfig(**table) for table in document.get("queue", ())),
        subscriptions=tuple(_subscription(table) for table in document.get("subscription", ())),
        links=tuple(_link(table) for table in document.get("link", ())),
        triggers=tuple(_trigger(table) for table in document.get("trigger", ())),
        users=tuple(_user(table) for table in document.get("user", ())),
        vhosts=tuple(_vhost(table) for table in document.get("vhost", ())),
        hostnames=tuple(node.get("hostnames", ())),
        has_users_file="users_file" in node,
        plain_without_tls=node.get("plain_without_tls", False),
        create_queues=node.get("create_queues", create_queues),
        unknown_destination=node.get("unknown_destination", "refuse"),
        own_addresses=_own_addresses(listens),
        telemetry="file" in telemetry,
        audit="file" in audit,
        telemetry_messages=telemetry.get("messages", False),
        telemetry_interval_s=telemetry.get("interval_s", 1.0),
        dead_letters=DeadLettersConfig(**document.get("dead_letters", {})),
        limits=Limits(**document.get("limits", {})),
        routing=RoutingConfig(**document.get("routing", {})),
        pacing=_pacing(document.get("pacing", {})),
        federation=tuple(_federation(table) for table in document.get("federation", ())),
        access=access.access_of(document),
    )
    if data is None:
        data = Path(node.get("data", f"./{name.replace(os.sep, '_')}.holdfast"))
    file = telemetry.get("file")
    settings = NodeSettings(
        core=core,
        listen=tuple(where for tls, where in places if not tls),
        listen_tls=tuple(where for tls, where in places if tls),
        tls=_tls(document.get("tls", {})),
        log=_log(document.get("log", {})),
        admin=_admin(document["admin"]) if "admin" in document else None,
        data=data,
        telemetry_file=None if file is None else Path(file),
        audit_file=Path(audit["file"]) if "file" in audit else None,
        store_bytes_max=store_bytes_max,
        users_file=Path(node["users_file"]) if "users_file" in node else None,
        store_must_exist=document.get("store", {}).get("must_exist", False),
        dead_letters_bounded="bytes_max" in document.get("dead_letters", {}),
    )
    settings.validate()
    return settings
