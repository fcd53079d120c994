"""Who may log in with a password: the users of the node's file, those of a file of users, which may change while the
node runs, and neighbours that this node dials.

Rules of this file: a user of the node's own file, and that of a neighbour with a password, have precedence over one of
the same name that the other file has: whoever writes that file makes nobody a neighbour.
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
    """What is compared with the password of a name that is not known: it takes as long as that of one that is. Making
    it does, too, so that only nodes with a file of users do."""
    return make("nobody", bytes(16))


class Accounts:
    """`known`: by name, what a login must show to know. `has_users`: nobody else comes in."""

    def __init__(
        self,
        users: Sequence[UserConfig],
        neighbours: Iterable[NeighbourConfig],
        clock: Clock,
        *,
        has_file: bool,
    ) -> None:
        """`has_file`: there is a file of users; before it was read, and while it has none, nobody comes in by it."""
        self._configured: dict[HostedName, tuple[str | None, str | None]] = {}
        """By user of the node's own file: the password, and the name in the certificate."""
        self._users: dict[HostedName, str] = {}
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
        """The node's own file has these now; returns its users of before that are gone, or log in in another way."""
        before = self._configured
        self._configured = {user.key: (user.password, user.certificate) for user in users}
        self._users = {user.key: user.password for user in users if user.password is not None}
        self._neighbours = {
            hosted(DEFAULT_HOST, item.user): item.password for item in neighbours if item.user and item.password
        }
        self.has_users = bool(users) or self.has_file
        self._know()
        return [key for key, shows in before.items() if self._configured.get(key) != shows]

    def change(self, stored: Iterable[StoredUser], seed: bytes = b"") -> list[HostedName]:
        """The file of users has these now; returns those of before that are gone, or have another password. `seed`: the
        file's, from which what is derived comes; b"" for a secret of this process."""
        before = self._stored
        self._seed = seed
        self._stored = {user.key: self._kept(before.get(user.key), user.credential) for user in stored}
        self._know()
        return [key for key, kept in before.items() if not self._is_own(key) and self._stored.get(key) is not kept]

    def _is_own(self, name: HostedName) -> bool:
        """Whether the node's own file has that user."""
        return name in self._users or name in self._neighbours

    def _kept(self, before: Kept | None, credential: Credential) -> Kept:
        return before if before is not None and before.credential == credential else Kept(credential, self.checks)

    def _know(self) -> None:
        self.known = {**self._stored, **self._cleared(self._neighbours), **self._cleared(self._users)}

    def _cleared(self, passwords: Mapping[HostedName, str]) -> dict[HostedName, Known]:
        """Passwords that are kept as they are, with salts once there is a secret."""
        return {name: Clear(password, self.salt(name)) for name, password in passwords.items()}

    def salt(self, name: HostedName) -> bytes:
        """Of a user whose password is kept as it is, and of a name that is none: always the same."""
        return self.derived(f"salt {name!r}")[:SALT_BYTES]

    def derived(self, what: str) -> bytes:
        """Bytes that nobody can tell who does not know the secret."""
        return digest(self._seed or self.checks.secret, what.encode("utf-8", "surrogatepass"), "sha512")

    def looks_stored(self, name: HostedName) -> bool:
        """Whether its password is checked against keys, which takes its time."""
        return isinstance(self.known[name], Kept)

    def hide(self, secret: bytes) -> None:
        """There is a secret from now on; nobody else knows it."""
        self.checks.secret = secret
        self._know()

    def stored_names(self) -> list[HostedName]:
        """The users of that file alone."""
        return [key for key in self._stored if not self._is_own(key)]
