"""The users that may log in with a password: those of the node's file, those of a file of users, which may change while
the node runs, and neighbours that this node dials.

Rules of this file: a user of the node's own file, and the user of a neighbour with a password, have precedence over one
of the same name in the file of users, so that this file cannot make a client a neighbour.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hmac import digest

from holdfast.amqp.login.exchanges import Known
from holdfast.amqp.login.keys import SALT_BYTES, Clear
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, hosted
from holdfast.engine.clock import Clock
from holdfast.peers.credentials import Credential, make
from holdfast.peers.kept import Checks, Kept
from holdfast.peers.user_list import StoredUser
from holdfast.settings.hosts import UserConfig
from holdfast.settings.neighbours import NeighbourConfig


@cache
def nobody() -> Credential:
    """A credential that is checked for unknown names, so that the check takes as long as for a user. Creating it takes
    as long, too, so only nodes with a file of users do that."""
    return make("nobody", bytes(16))


class Accounts:
    """`known`: credentials by name. `has_users`: whether every client must log in."""

    def __init__(
        self,
        users: Sequence[UserConfig],
        neighbours: Iterable[NeighbourConfig],
        clock: Clock,
        *,
        has_file: bool,
    ) -> None:
        """`has_file`: whether there is a file of users; until it was read it has no users."""
        self._users: dict[HostedName, str] = {}
        self._certificates: dict[HostedName, str] = {}
        self._neighbours: dict[HostedName, str] = {}
        self.checks = Checks(clock)
        self.nobody = Kept(nobody(), self.checks) if has_file else None
        self.has_file = has_file
        self.has_users = False
        self._stored: Mapping[HostedName, Kept] = {}
        self._seed = b""
        self.known: dict[HostedName, Known] = {}
        self.configure(users, neighbours)

    def __contains__(self, name: object) -> bool:
        return name in self.known

    def configure(self, users: Sequence[UserConfig], neighbours: Iterable[NeighbourConfig]) -> list[HostedName]:
        """Sets the users and neighbours of the node's own file; returns the former users that were removed or log in in
        another way."""
        before = self._logins()
        self._users = {user.key: user.password for user in users if user.password is not None}
        self._certificates = {user.key: user.certificate for user in users if user.certificate is not None}
        self._neighbours = {
            hosted(DEFAULT_HOST, item.user): item.password for item in neighbours if item.user and item.password
        }
        self.has_users = bool(users) or self.has_file
        self._know()
        return self._changed(before)

    def change(self, stored: Iterable[StoredUser], seed: bytes = b"") -> list[HostedName]:
        """Sets the users of the file of users; returns former users that were removed or have another password. `seed`:
        the file's, for derived salts and keys; b"" for a secret of this process."""
        before, kept = self._logins(), self._stored
        self._seed = seed
        self._stored = {user.key: self._kept(kept.get(user.key), user.credential) for user in stored}
        self._know()
        return self._changed(before)

    def _logins(self) -> dict[HostedName, tuple[object, str | None]]:
        """By user: what its password is compared with, and the name in its certificate. The password of a neighbour
        counts as much as a user's, because anybody who has it can log in."""
        passwords = {**self._stored, **self._neighbours, **self._users}
        certificates = self._certificates
        return {key: (passwords.get(key), certificates.get(key)) for key in {**passwords, **certificates}}

    def _changed(self, before: Mapping[HostedName, object]) -> list[HostedName]:
        """The former users that are none any more, or log in in another way."""
        now = self._logins()
        return [key for key, login in before.items() if now.get(key) != login]

    def _is_own(self, name: HostedName) -> bool:
        """Whether the node's own file has that user."""
        return name in self._users or name in self._neighbours

    def _kept(self, before: Kept | None, credential: Credential) -> Kept:
        return before if before is not None and before.credential == credential else Kept(credential, self.checks)

    def _know(self) -> None:
        self.known = {**self._stored, **self._cleared(self._neighbours), **self._cleared(self._users)}

    def _cleared(self, passwords: Mapping[HostedName, str]) -> dict[HostedName, Known]:
        """The users with plain passwords, with salts once there is a secret."""
        return {name: Clear(password, self.salt(name)) for name, password in passwords.items()}

    def salt(self, name: HostedName) -> bytes:
        """The salt of a user with a plain password, or of an unknown name: always the same for a name."""
        return self.derived(f"salt {name!r}")[:SALT_BYTES]

    def derived(self, what: str) -> bytes:
        """Bytes that cannot be computed without the secret."""
        return digest(self._seed or self.checks.secret, what.encode("utf-8", "surrogatepass"), "sha512")

    def looks_stored(self, name: HostedName) -> bool:
        """Whether its password is checked against stored keys, which takes milliseconds."""
        return isinstance(self.known[name], Kept)

    def hide(self, secret: bytes) -> None:
        """Creates the secret, which never leaves the process."""
        self.checks.secret = secret
        self._know()

    def stored_names(self) -> list[HostedName]:
        """The users of the file of users only."""
        return [key for key in self._stored if not self._is_own(key)]
