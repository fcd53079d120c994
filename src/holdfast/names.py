"""Names of nodes, queues and listeners.

Rules of this file: pure; an invalid name is a ConfigError of one line.
"""

import re
from typing import Final, NamedTuple

from holdfast.errors import ConfigError

NAME_BYTES_MAX: Final = 200
"""A queue's or node's name in UTF-8; the store's keys end at 511 bytes and hold two names."""

HOST_BYTES_MAX: Final = 63
"""A virtual host's name in UTF-8: the store's keys hold it beside a queue's, twice beside a transmission queue's."""

TLS_SCHEME: Final = "amqps://"
"""The prefix of HOST:PORT for TLS."""

DESTINATION_BYTES_MAX: Final = HOST_BYTES_MAX + 1 + NAME_BYTES_MAX
"""The maximum size of the destination of a message in custody, NODE or HOST@NODE, in UTF-8."""

LABEL_MAX: Final = 63
"""Characters between two dots of a host's name, as it is asked for (RFC 1035, 2.3.4)."""

DEAD_LETTERS: Final = "$dead-letters"
"""The queue of messages that could not be delivered."""

_DOTS: Final = re.compile("[.\u3002\uff0e\uff61]")
"""Characters that IDNA treats as a dot (RFC 3490, 3.1)."""
_PRINTABLE: Final = re.compile(r"[^\x00-\x1f\x7f@\ud800-\udfff]+")


class HostPort(NamedTuple):
    """Where to listen or dial; `host` without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def check_name(name: str) -> str:
    """`name`, if it is valid for a queue or node; otherwise ConfigError that says what is expected."""
    if (
        not name
        or len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX
        or not _PRINTABLE.fullmatch(name)
        or name.startswith("$")
    ):
        raise ConfigError(
            f"invalid name {name[:60]!r}; expected 1 to {NAME_BYTES_MAX} bytes without control characters and '@', "
            "not beginning with '$'"
        )
    return name


def host_problem(host: str) -> str | None:
    """What is wrong with the form of a host, which IDNA or a socket would refuse before any lookup, as words after "a
    host with"; None if nothing is. Without brackets.
    """
    labels = _DOTS.split(host)
    if not host.isprintable() or " " in host:
        return "a space or a character that is not printed"
    if not host or "" in labels[:-1]:
        return "an empty label"
    try:
        if max(map(len, labels)) <= LABEL_MAX and (host.isascii() or host.encode("idna")):
            return None
    except UnicodeError as error:
        if "too long" not in str(error):
            return "a label that IDNA refuses"
    return f"a label above {LABEL_MAX} characters"


def parse_host_port(key: str, text: str, *, port_min: int) -> HostPort:
    """`HOST:PORT` or `[IPV6]:PORT`; ConfigError that names `key`."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not (colon and host and host.isprintable() and " " not in host and port.isascii() and port.isdigit()):
        raise ConfigError(f"invalid value {text!r} for {key}; expected HOST:PORT or [IPV6]:PORT")
    if problem := host_problem(host):
        raise ConfigError(f"invalid value {text!r} for {key}, a host with {problem}; expected HOST:PORT or [IPV6]:PORT")
    if len(port) > 9 or not port_min <= int(port) <= 65_535:
        raise ConfigError(f"invalid port {port[:20]} for {key}; expected {port_min} to 65535")
    return HostPort(host, int(port))


def without_scheme(text: str) -> tuple[bool, str]:
    """Whether the address uses TLS, and its HOST:PORT. `amqp://` means no TLS."""
    if text.startswith(TLS_SCHEME):
        return True, text.removeprefix(TLS_SCHEME)
    return False, text.removeprefix("amqp://")
