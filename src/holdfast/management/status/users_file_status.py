"""The file of users: whether it can be used, and whether all of its users can log in.

Rules of this file: the driver reads the file; this file keeps what it said last.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.engine.events import UsersChanged, UsersFileProblem
from holdfast.engine.log import Log
from holdfast.management.status.condition import Condition

USERS_FILE: Final = "users_file"
HOSTS_TOLD_MAX: Final = 10
"""Unknown virtual hosts that one line names."""


class UsersFileStatus:
    """Logs at once that the file cannot be used, and reports it until it can be. `hosts`: the virtual hosts of the
    node."""

    def __init__(self, log: Log, hosts: Iterable[str]) -> None:
        self._log = log
        self._hosts = {DEFAULT_HOST, *hosts}
        self._problem = ""

    def read(self, event: UsersFileProblem) -> None:
        """The driver has found the file unusable, or usable again."""
        self._problem = event.problem
        for condition in self.conditions():
            self._log.write("WARNING", condition.text, about=USERS_FILE)

    def changed(self, event: UsersChanged) -> None:
        """The file has these users."""
        lost = [host for host, _, _ in event.users if host not in self._hosts]
        if lost:
            names = ", ".join(map(repr, sorted(set(lost))[:HOSTS_TOLD_MAX]))
            text = f"{len(lost)} users are of virtual hosts that this node does not have, and cannot log in: {names}"
            self._log.write("WARNING", f"users_file: {text}; add a [[vhost]], or remove them", about=USERS_FILE)

    def conditions(self) -> Iterator[Condition]:
        """None while all is well. `read` has logged it."""
        if self._problem:
            yield Condition(USERS_FILE, f"{self._problem}; the previous users are kept", logged_by_source=True)
