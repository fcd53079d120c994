"""A node's TOML and command line options, made into what core and driver are told (docs/configuration.md).

Rules of this file: the only place where TOML is read; every mistake is a ConfigError of one line that names
the file, the key, what was found and what is accepted. Paths are taken from the directory the node is started
in. Passwords are read from files, once, and never shown.
"""

import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.core.config import Limits, NeighbourConfig, NodeConfig, QueueConfig, UserConfig
from holdfast.errors import ConfigError
from holdfast.units import MIB

LISTEN_DEFAULT: Final = "127.0.0.1:5672"
STORE_BYTES_MAX: Final = 16 * 1024 * MIB
STORE_BYTES_MIN: Final = 4 * MIB
PASSWORD_BYTES_MAX: Final = 1024


class HostPort(NamedTuple):
    """Where to listen or dial; `host` without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """All that a node is told at start. `core` for the NodeCore; the rest is the driver's.

    `listen` in the order given; port 0 is any free one. `store_bytes_max` bounds the store's file, in bytes.
    """

    core: NodeConfig
    listen: tuple[HostPort, ...]
    data: Path
    telemetry_file: Path | None = None
    store_bytes_max: int = STORE_BYTES_MAX

    def validate(self) -> None:
        """Raises ConfigError at the first key that is wrong."""
        self.core.validate()
        if not self.listen:
            raise ConfigError("node listen: found none, accepted is at least one HOST:PORT")
        for index, where in enumerate(self.listen):
            if where.port and where in self.listen[:index]:
                raise ConfigError(f"node listen: found {where} twice, accepted is once")
            if not self.core.users and where.host != "localhost" and not is_loopback(where.host):
                raise ConfigError(
                    f"node listen: found {where} without a [[user]], accepted without users is loopback "
                    "(127.0.0.1, ::1, localhost)"
                )
        if self.store_bytes_max < STORE_BYTES_MIN:
            raise ConfigError(f"store bytes_max: found {self.store_bytes_max}, accepted is {STORE_BYTES_MIN} or more")
        users = {user.name for user in self.core.users}
        for neighbour in self.core.neighbours:
            if neighbour.remote is None and neighbour.user is not None and neighbour.user not in users:
                raise ConfigError(
                    f"neighbour {neighbour.name!r} user: found {neighbour.user!r}, accepted without a remote "
                    f"is the name of a [[user]] ({', '.join(sorted(users)) or 'there is none'})"
                )


def is_loopback(host: str) -> bool:
    """Whether `host` is a numeric loopback address: 127.0.0.0/8, also mapped into IPv6, or ::1."""
    host = host.partition("%")[0].removeprefix("::ffff:")
    try:
        return socket.inet_pton(socket.AF_INET, host)[0] == 127
    except OSError:
        pass
    try:
        return socket.inet_pton(socket.AF_INET6, host) == bytes(15) + b"\x01"
    except OSError:
        return False


def parse_host_port(key: str, text: str, *, port_min: int) -> HostPort:
    """`HOST:PORT` or `[IPV6]:PORT`; ConfigError that names `key`."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not (colon and host and host.isprintable() and " " not in host and port.isascii() and port.isdigit()):
        raise ConfigError(f"{key}: found {text!r}, accepted is HOST:PORT or [IPV6]:PORT")
    if not port_min <= int(port) <= 65_535:
        raise ConfigError(f"{key}: found port {port}, accepted is {port_min} to 65535")
    return HostPort(host, int(port))


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
        return _settings(_read_toml(path), create_queues=False, name=name, listen=listen, data=data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


# ----------------------------------------------------------------------------------------------- the schema


class _Kind(NamedTuple):
    """What a key accepts: in words, and as a test of the value that TOML gave."""

    accepted: str
    fits: Callable[[Any], bool]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return (_is_whole(value) or isinstance(value, float)) and math.isfinite(value)  # type: ignore[arg-type]  # tested just before


_TEXT = _Kind("text in quotes, not empty", lambda value: isinstance(value, str) and value != "")
_TEXTS = _Kind(
    "a list of texts in quotes",
    lambda value: isinstance(value, list) and all(isinstance(entry, str) for entry in value),
)
_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_COUNT = _Kind("a whole number above 0", lambda value: _is_whole(value) and 0 < value < 2**63)
_NUMBER = _Kind("a number", _is_number)
_SECONDS = _Kind("a number of seconds above 0", lambda value: _is_number(value) and value > 0)

_TABLES: Final[Mapping[str, Mapping[str, _Kind]]] = {
    "node": {"name": _TEXT, "data": _TEXT, "listen": _TEXTS, "roles": _TEXTS, "create_queues": _FLAG},
    "store": {"bytes_max": _COUNT},
    "telemetry": {"file": _TEXT, "messages": _FLAG, "interval_s": _SECONDS},
    "limits": {field.name: _SECONDS if field.type is float else _COUNT for field in fields(Limits)},
}
_LISTS: Final[Mapping[str, Mapping[str, _Kind]]] = {
    "neighbour": {
        "name": _TEXT,
        "remote": _TEXT,
        "keepalive_s": _SECONDS,
        "hold_time_s": _SECONDS,
        "user": _TEXT,
        "password_file": _TEXT,
    },
    "queue": {
        "name": _TEXT,
        "bytes_max": _COUNT,
        "messages_max": _COUNT,
        "when_full": _TEXT,
        "order": _TEXT,
        "order_wait_s": _NUMBER,
        "durable": _FLAG,
    },
    "user": {"name": _TEXT, "password_file": _TEXT},
    "route": {"destination": _TEXT, "via": _TEXT},
}
_NAMED_BY: Final[Mapping[str, str]] = {"route": "destination"}
"""The key by which an entry of a list is told from the others; `name` in all lists but these."""


def _found(value: object) -> str:
    """`value` as TOML would write it, cut to what fits a line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _check_keys(where: str, table: Mapping[str, Any], kinds: Mapping[str, _Kind]) -> None:
    for key, value in table.items():
        kind = kinds.get(key)
        if kind is None:
            raise ConfigError(f"{where} {key}: unknown key, accepted are {', '.join(kinds)}")
        if not kind.fits(value):
            raise ConfigError(f"{where} {key}: found {_found(value)}, accepted is {kind.accepted}")


def _check_tables(document: Mapping[str, Any]) -> None:
    """Unknown keys and wrong types of the whole document; ConfigError at the first."""
    for name, value in document.items():
        if name in _TABLES:
            if not isinstance(value, dict):
                raise ConfigError(f"{name}: found {_found(value)}, accepted is a table, [{name}]")
            _check_keys(name, value, _TABLES[name])
        elif name in _LISTS:
            if not (isinstance(value, list) and all(isinstance(entry, dict) for entry in value)):
                raise ConfigError(f"{name}: found {_found(value)}, accepted is a list of tables, [[{name}]]")
            for number, entry in enumerate(value, 1):
                key = _NAMED_BY.get(name, "name")
                given = entry.get(key)
                where = f"{name} {given!r}" if isinstance(given, str) else f"{name} number {number}"
                _check_keys(where, entry, _LISTS[name])
                if given is None:
                    raise ConfigError(f"{where} {key}: missing, accepted is {_TEXT.accepted}")
        else:
            accepted = [f"[{table}]" for table in _TABLES] + [f"[[{table}]]" for table in _LISTS]
            raise ConfigError(f"{name}: unknown key, accepted are {', '.join(accepted)}")


# ------------------------------------------------------------------------------------ from TOML to settings


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib  # a node without a file does without it

    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}), accepted is a TOML file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"found byte {error.start} that is not UTF-8, accepted is TOML in UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"not TOML: {error}") from None


def _password(where: str, file: str) -> str:
    """The first line of `file`, without its end."""
    key = f"{where} password_file"
    try:
        with open(file, "rb") as stream:
            first = stream.read(PASSWORD_BYTES_MAX + 2).split(b"\n", 1)[0].removesuffix(b"\r")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{key}: cannot read {file!r} ({reason}), accepted is a readable file") from None
    if not first or len(first) > PASSWORD_BYTES_MAX or b"\0" in first:
        raise ConfigError(
            f"{key}: found {len(first)} bytes in the first line of {file!r}, accepted is a password of 1 to "
            f"{PASSWORD_BYTES_MAX} bytes without NUL"
        )
    try:
        return first.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{key}: found {file!r} not in UTF-8, accepted is UTF-8") from None


def _neighbour(table: Mapping[str, Any]) -> NeighbourConfig:
    given = dict(table)
    where = f"neighbour {given['name']!r}"
    file = given.pop("password_file", None)
    remote = given.get("remote")
    if remote is not None:
        given["remote"] = str(parse_host_port(f"{where} remote", remote, port_min=1))
        if ("user" in given) != (file is not None):
            missing = "password_file" if file is None else "user"
            raise ConfigError(f"{where} {missing}: missing, accepted is user and password_file together")
    elif file is not None:
        raise ConfigError(
            f"{where} password_file: found without a remote, accepted is a [[user]] with this password_file, "
            "named here by user"
        )
    return NeighbourConfig(**given, password=None if file is None else _password(where, file))


def _user(table: Mapping[str, Any]) -> UserConfig:
    name = table["name"]
    where = f"user {name!r}"
    if not (name and name.isprintable()):
        raise ConfigError(f"{where}: accepted is a name of printable characters, not empty")
    if "password_file" not in table:
        raise ConfigError(f"{where} password_file: missing, accepted is a readable file")
    return UserConfig(name=name, password=_password(where, table["password_file"]))


def _route(table: Mapping[str, Any]) -> tuple[str, str]:
    destination = table["destination"]
    if "via" not in table:
        raise ConfigError(f"route {destination!r} via: missing, accepted is the name of a [[neighbour]]")
    return destination, table["via"]


def _settings(
    document: Mapping[str, Any],
    *,
    create_queues: bool,
    name: str | None,
    listen: Sequence[str] | None,
    data: Path | None,
) -> NodeSettings:
    _check_tables(document)
    node = document.get("node", {})
    telemetry = document.get("telemetry", {})
    name = name if name is not None else node.get("name", socket.gethostname())
    core = NodeConfig(
        name=name,
        roles=tuple(node.get("roles", ("client",))),
        neighbours=tuple(_neighbour(table) for table in document.get("neighbour", ())),
        forwarding=tuple(_route(table) for table in document.get("route", ())),
        queues=tuple(QueueConfig(**table) for table in document.get("queue", ())),
        users=tuple(_user(table) for table in document.get("user", ())),
        create_queues=node.get("create_queues", create_queues),
        telemetry="file" in telemetry,
        telemetry_messages=telemetry.get("messages", False),
        telemetry_interval_s=telemetry.get("interval_s", 1.0),
        limits=Limits(**document.get("limits", {})),
    )
    if data is None:
        data = Path(node.get("data", f"./{name.replace(os.sep, '_')}.holdfast"))
    file = telemetry.get("file")
    addresses = listen if listen else node.get("listen", [LISTEN_DEFAULT])
    settings = NodeSettings(
        core=core,
        listen=tuple(parse_host_port("node listen", address, port_min=0) for address in addresses),
        data=data,
        telemetry_file=None if file is None else Path(file),
        store_bytes_max=document.get("store", {}).get("bytes_max", STORE_BYTES_MAX),
    )
    settings.validate()
    return settings
