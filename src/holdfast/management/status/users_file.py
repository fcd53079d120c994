"""The file of users: whether it can be used.

Rules of this file: the driver reads the file; this file keeps what it said last.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.engine.events import UsersFileLookedAt
from holdfast.engine.log import Log

USERS_FILE: Final = "users_file"


class UsersFile:
    """Logs at once that the file cannot be used, and reports it until it can be."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._problem = ""

    def read(self, event: UsersFileLookedAt) -> None:
        """The driver has found the file unusable, or usable again."""
        self._problem = event.problem
        for _, text in self.conditions():
            self._log.write("WARNING", text, about=USERS_FILE)

    def conditions(self) -> Iterator[tuple[str, str]]:
        """A key that identifies the condition, and the line of `status`; none while all is well."""
        if self._problem:
            yield USERS_FILE, f"{self._problem}; the previous users are kept"
