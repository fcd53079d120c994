"""`amqp://user:password@host:port/VHOST` and `amqps://…`, percent-encoded (docs/client.md).

Rules of this file: pure; a password is in no repr, no text and no error.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from holdfast.errors import ConfigError
from holdfast.names import host_problem

VHOST_PREFIX: Final = "vhost:"
"""The prefix of a virtual host's name in the hostname of a connection, so that it is not taken for a machine's."""

PORTS: Final = {"amqp": 5672, "amqps": 5671}
_FORM: Final = "expected amqp://[user:password@]host[:port][/VHOST] or amqps://…"
_PLACE: Final = re.compile(r"(?:[^:/?#]*://)?(?:\[[^\]]*\]|[^:/?#]*)(?::\d{0,5}(?=$|[/?#]))?(?:/[^:?#]*)?")
"""Scheme, host, port and path of a URL without a login: as much of it as can be no password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """Where a node listens, the user that logs in, and the virtual host there, None for that user's. `str` and `repr`
    leave the password out.

    Raises ConfigError for a host that cannot be one.
    """

    host: str
    port: int
    tls: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    vhost: str | None = None

    def __post_init__(self) -> None:
        problem = host_problem(self.host)
        if problem is not None:
            text = f"invalid host {self.host[:80]!r} in a URL, with {problem}; expected a name or an address"
            raise ConfigError(text)
        if self.vhost is not None and not (self.vhost and self.vhost.isprintable()):
            raise ConfigError(f"invalid virtual host {self.vhost[:80]!r}; expected printable characters, not empty")

    def __str__(self) -> str:
        return self._text(self.host, "")

    def with_login(self) -> str:
        """The URL as text that `parse_url` reads, with the password: for a program, never for a person."""
        login = ""
        if self.user is not None:
            password = "" if self.password is None else f":{quote(self.password, safe='')}"
            login = f"{quote(self.user, safe='')}{password}@"
        return self._text(quote(self.host, safe=":"), login)

    def _text(self, host: str, login: str) -> str:
        shown = f"[{host}]" if ":" in host else host
        path = "" if self.vhost is None else f"/{quote(self.vhost, safe='')}"
        return f"{'amqps' if self.tls else 'amqp'}://{login}{shown}:{self.port}{path}"

    @property
    def hostname(self) -> str:
        """What a connection says that it is for (AMQP 1.0 §2.7.1)."""
        return self.host if self.vhost is None else f"{VHOST_PREFIX}{self.vhost}"

    def with_password(self, password: str) -> "Url":
        """The same URL with another password."""
        return replace(self, password=password)


def parse_url(text: str) -> Url:
    """Reads `amqp://[user:password@]host[:port][/VHOST]`, or `amqps://…`; user, password and virtual host are
    percent-encoded.

    Raises ConfigError, which never shows a password.
    """
    shown = _shown(text)
    try:
        parts = urlsplit(text)
        port = parts.port
        host = parts.hostname
    except ValueError:
        raise ConfigError(f"invalid URL {shown!r}, without a valid host or port; {_FORM}") from None
    if parts.scheme not in PORTS:
        problem = f"with scheme {parts.scheme[:20]!r}" if "://" in text else "without a scheme"
        raise ConfigError(f"invalid URL {shown!r}, {problem}; {_FORM}")
    if not host:
        raise ConfigError(f"invalid URL {shown!r}, without a host; {_FORM}")
    if port == 0 or parts.netloc.endswith(":"):
        problem = "without a port after the colon" if port is None else "with port 0"
        raise ConfigError(f"invalid URL {shown!r}, {problem}; expected 1 to 65535")
    vhost = unquote(parts.path[1:])
    if "/" in parts.path[1:] or parts.query or parts.fragment or not vhost.isprintable():
        text = f"invalid URL {shown!r}, with more after the port than a virtual host; {_FORM}"
        raise ConfigError(f"{text}; give the queue as an argument of its own")
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password is not None else None
    if user is None and password is not None:
        raise ConfigError(f"invalid URL {shown!r}, with a password and no user; {_FORM}")
    if "\0" in (user or "") or "\0" in (password or ""):
        raise ConfigError(f"invalid URL {shown!r}, with a NUL in user or password; expected text without NUL")
    return Url(
        host=unquote(host),
        port=port or PORTS[parts.scheme],
        tls=parts.scheme == "amqps",
        user=user,
        password=password,
        vhost=vhost or None,
    )


def _shown(text: str) -> str:
    """What errors show of a URL: what is behind its login. Where there is no "@", the host may have been left out, and
    what looks like a port and is none may be the password."""
    _, login, place = text.rpartition("@")
    if login:
        return place
    match = _PLACE.match(text)
    assert match is not None, "each part of it may be missing"
    return text if match.end() == len(text) else f"{text[: match.end() + 1]}…"
