"""Who may log in with a password: the users of the node's file, those of a file of users, which may change while the
node runs, and neighbours that this node dials.

Rules of this file: a user of the node's own file has precedence over one of the same name that the other file has.
"""

from collections.abc import Iterable, Mapping, Sequence

from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, hosted
from holdfast.peers.credentials import Credential, make
from holdfast.peers.user_list import StoredUser
from holdfast.settings.hosts import UserConfig
from holdfast.settings.neighbours import NeighbourConfig

Known = str | Credential
"""A password, or what is kept of one."""

NOBODY = make("nobody", bytes(16))
"""What is compared with the password of a name that is not known: it takes as long as that of one that is."""


class Accounts:
    """`known`: by name, what a login must show to know. `has_users`: nobody else comes in."""

    def __init__(
        self,
        users: Sequence[UserConfig],
        neighbours: Iterable[NeighbourConfig],
        *,
        has_file: bool,
    ) -> None:
        """`has_file`: there is a file of users; before it was read, and while it has none, nobody comes in by it."""
        self._users: dict[HostedName, Known] = {user.key: user.password for user in users if user.password is not None}
        self._neighbours: dict[HostedName, Known] = {
            hosted(DEFAULT_HOST, item.user): item.password for item in neighbours if item.user and item.password
        }
        self.has_file = has_file
        self.has_users = bool(users) or has_file
        self._stored: Mapping[HostedName, Credential] = {}
        self.known: dict[HostedName, Known] = {}
        self.change(())

    def __contains__(self, name: object) -> bool:
        return name in self.known

    def change(self, stored: Iterable[StoredUser]) -> list[HostedName]:
        """The file of users has these now; returns those of before that are gone, or have another password."""
        before, self._stored = self._stored, {user.key: user.credential for user in stored}
        self.known = {**self._neighbours, **self._stored, **self._users}
        return [
            key for key, credential in before.items() if key not in self._users and self._stored.get(key) != credential
        ]

    def stored_names(self) -> list[HostedName]:
        """The users of that file alone."""
        return [key for key in self._stored if key not in self._users]
