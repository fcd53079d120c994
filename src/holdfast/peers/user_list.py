"""The users of a file: who they are, and the keys of their passwords (docs/security.md).

Rules of this file: pure. Nothing of a password or a key is in an error, or in what a repr shows.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, InHost, shown
from holdfast.errors import ConfigError
from holdfast.peers import credentials
from holdfast.peers.credentials import Credential

VERSION: Final = 1
USERS_MAX: Final = 2_000
"""Users of one file: it is read as a whole when it changes."""
BYTES_MAX: Final = 4 * 1024 * 1024
NAME_BYTES_MAX: Final = 255
"""Bytes of a user's name (RFC 4616 has no bound)."""

SEED_BYTES: Final = 32
"""Bytes of the seed from which a node derives salts of unknown names; kept in the file, they stay the same over
restarts."""

_KEYS: Final = ("name", "vhost", "credential")


@dataclass(frozen=True, slots=True)
class StoredUser(InHost):
    """A user of the file."""

    name: str
    vhost: str
    credential: Credential


def check_user(name: str) -> str:
    """`name`, if a user can be called so; ConfigError otherwise."""
    if not name or not name.isprintable() or len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        expected = f"expected 1 to {NAME_BYTES_MAX} bytes of printable characters"
        raise ConfigError(f"invalid name {name[:60]!r} of a user; {expected}")
    return name


class UserList(NamedTuple):
    """What a file of users has. `seed`: SEED_BYTES random bytes; b"" in a file that an earlier version wrote."""

    users: tuple[StoredUser, ...]
    seed: bytes = b""

    def __repr__(self) -> str:
        return f"UserList({len(self.users)} users)"


def parse(text: str) -> UserList:
    """What a file's text says; ConfigError, of one line, where it is no such file."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not a file of users: {str(error)[:80]}; make it with `holdfast user add`") from None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ConfigError(f"not a file of users of version {VERSION}; make it with `holdfast user add`")
    rows = document.get("users")
    if not isinstance(rows, list) or len(rows) > USERS_MAX:
        raise ConfigError(f"invalid users; expected a list of at most {USERS_MAX}")
    found = tuple(_user(number, row) for number, row in enumerate(rows, 1))
    seen: set[HostedName] = set()
    for user in found:
        if user.key in seen:
            raise ConfigError(f"user {shown(user.vhost, user.name)} is listed twice; list it once")
        seen.add(user.key)
    return UserList(found, _seed(document.get("seed", "")))


def _seed(told: object) -> bytes:
    try:
        found = b64decode(told, validate=True) if isinstance(told, str) else None
    except ValueError:
        found = None
    if found is None or len(found) not in (0, SEED_BYTES):
        raise ConfigError(f"invalid seed; expected {SEED_BYTES} bytes in base 64, as `holdfast user` writes it")
    return found


def _user(number: int, row: Any) -> StoredUser:
    if not isinstance(row, dict) or not all(isinstance(row.get(key, ""), str) for key in _KEYS):
        raise ConfigError(f"invalid user number {number}; expected an object with {', '.join(_KEYS)}")
    name = check_user(row.get("name", ""))
    try:
        return StoredUser(name, row.get("vhost", DEFAULT_HOST), credentials.parse(row.get("credential", "")))
    except ConfigError as error:
        raise ConfigError(f"user {name!r}: {error}") from None


def render(told: UserList) -> str:
    """The text of a file that has that; `parse` reads it."""
    users, seed = told
    if len(users) > USERS_MAX:
        raise ConfigError(f"there are {len(users)} users; the limit is {USERS_MAX}")
    rows = [
        {
            "name": user.name,
            **({"vhost": user.vhost} if user.vhost else {}),
            "credential": user.credential.as_text(),
        }
        for user in users
    ]
    document = {"version": VERSION, **({"seed": b64encode(seed).decode()} if seed else {}), "users": rows}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
