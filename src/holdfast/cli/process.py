"""What the command needs of its process before a verb runs, and at its end.

Rules of this file: it is quick, and only about descriptors and signals.
"""

import os
import resource
import signal
import sys
from typing import Final

from holdfast.errors import ConfigError, HoldfastError
from holdfast.lines import say

FILES_MIN: Final = 32
"""Open files that the smallest verb may need: a loop, a connection, a store, and what Python loads meanwhile."""


def open_standard_files() -> None:
    """Makes sure that descriptors 0 to 2 are open: otherwise a socket or a store that is opened later would be standard
    output. Reading from one that was closed gives nothing, and writing to it is lost, as before.
    """
    for number, way in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDWR)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, way)  # the lowest that is free
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115  # until the process ends
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def prepare() -> None:
    """Ctrl-C raises KeyboardInterrupt from now on. Raises ConfigError if there are too few file descriptors."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    need_files(FILES_MIN)


def need_files(least: int) -> None:
    """Raises this process's limit of open files to `least`, where it is lower. ConfigError if the system does not let
    it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= least:
        return
    if hard != resource.RLIM_INFINITY and hard < least:
        raise ConfigError(f"the limit of open files is {hard}; raise it to at least {least} (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))


def flush_output() -> None:
    """Flushes standard output. HoldfastError if it accepts no more, BrokenPipeError if its reader is gone."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise HoldfastError(f"standard output: {error.strerror}") from None


def drop_output() -> None:
    """Standard output accepts no more: prevents a second error from the interpreter's last flush."""
    _drop(1)


def complain(text: str) -> None:
    """Prints a line on standard error. If that fails, only the exit code tells."""
    try:
        say(text, file=sys.stderr)
    except OSError:
        _drop(2)


def flush_errors() -> None:
    """Makes sure that the interpreter's last flush of standard error does not change the exit code."""
    try:
        sys.stderr.flush()
    except OSError:
        _drop(2)


def _drop(number: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def is_starved(error: BaseException) -> bool:
    """Whether the error means that the process gets no more memory, or no more threads, which also need memory."""
    text = str(error)
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, RuntimeError) and "can't start new thread" in text)
        or (isinstance(error, ImportError) and ("failed to map" in text or "allocate memory" in text))
    )
