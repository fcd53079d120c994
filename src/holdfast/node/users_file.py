"""The file of users: reading it at start and when it changes, and writing it as a whole (docs/security.md).

Rules of this file: only its owner may read the file. A node that cannot read a changed file keeps the users that it
has, says so once, and tries again. While the node runs, the file is read in threads.
"""

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast import durable
from holdfast.engine.events import Event, UsersChanged, UsersFileProblem
from holdfast.errors import ConfigError
from holdfast.node.watching import Watch
from holdfast.peers.user_list import BYTES_MAX, SEED_BYTES, UserList, parse, render
from holdfast.regular_files import read_regular

LOOK_S: Final = 2.0
"""How often a node looks whether the file has changed."""

_MODE: Final = 0o600

Signature = tuple[int, ...]
"""What differs between two states of a file."""


def read(path: Path) -> UserList:
    """What the file has; ConfigError that names it where it cannot be read, is no such file, or may be read by others
    than its owner."""
    try:
        data, mode = read_regular(path, BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"users_file {str(path)!r} cannot be read ({error.strerror}); give a readable file") from None
    if mode & 0o077:
        text = f"users_file {str(path)!r} may be read by others (mode {mode:04o})"
        raise ConfigError(f"{text}; make it private: chmod 600")
    if len(data) > BYTES_MAX:
        raise ConfigError(f"users_file {str(path)!r} has more than {BYTES_MAX} bytes; remove users")
    try:
        return parse(data.decode())
    except UnicodeDecodeError:
        raise ConfigError(f"users_file {str(path)!r} is not in UTF-8; make it with `holdfast user add`") from None
    except ConfigError as error:
        raise ConfigError(f"users_file {str(path)!r}: {error}") from None


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Keeps other processes from changing a file of users in that directory meanwhile."""
    with durable.changing(Path(os.path.realpath(path)).parent):
        yield


def write(path: Path, users: UserList) -> None:
    """Puts a file with these users in the place of the file: a reader sees the old or the new file, and only the owner
    may read it. A file without a seed is given one. OSError, ConfigError."""
    text = render(users if users.seed else users._replace(seed=os.urandom(SEED_BYTES)))
    durable.replace_file(path, text.encode(), _MODE)


def _signature(path: Path) -> Signature | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


class UsersWatch:
    """Informs the core when the file has changed."""

    def __init__(self, loop: AbstractEventLoop, path: Path, feed: Callable[[Event], None]) -> None:
        self._path = path
        self._feed = feed
        self._seen: Signature | None = None
        """Of the file that was read last."""
        self._told = ""
        """Why the file could not be read at the last look."""
        self._problem = ""
        """What was reported of it last."""
        self._users: UserList | None = None
        self._watch: Watch[UserList | str] = Watch(loop, "holdfast-users", LOOK_S, self.look, self._found)

    def start(self) -> None:
        """Reports the present file, and checks it periodically. ConfigError where it cannot be read."""
        self._seen = _signature(self._path)
        self.use(read(self._path))
        self._watch.start()

    def look(self) -> UserList | str | None:
        """In the thread: what a changed file has, or why it cannot be read, or an empty text if it can be again
        and is as it was; None for nothing new."""
        signature, before = _signature(self._path), self._told
        if signature == self._seen:
            self._told = ""
            return "" if before else None
        try:
            users = read(self._path)
        except ConfigError as error:
            self._told = str(error)
            return None if before == self._told else self._told
        self._seen, self._told = signature, ""
        return users

    def _found(self, found: UserList | str) -> None:
        if isinstance(found, str):
            self._report(found)
        else:
            self.use(found)

    def use(self, users: UserList) -> None:
        """Reports these users, which were read, if they are others than before."""
        self._report("")
        if users != self._users:
            self._users = users
            told = tuple((user.vhost, user.name, user.credential.as_text()) for user in users.users)
            self._feed(UsersChanged(users=told, seed=users.seed))

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._feed(UsersFileProblem(problem=problem))

    def close(self) -> None:
        """Looks no more."""
        self._watch.close()
