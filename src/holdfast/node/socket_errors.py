"""What a person reads of a socket that failed: why a node cannot listen somewhere, and errors in the system's words.

Rules of this file: one line, with the key, what was found, and what is accepted.
"""

import errno
import os
import socket

from holdfast.errors import ConfigError, HoldfastError
from holdfast.names import HostPort


def describe(error: Exception) -> str:
    """An error for the operator, in the system's words if it has any."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def cannot_listen(key: str, where: HostPort, error: OSError) -> HoldfastError:
    """The error of a node that cannot listen at `where`, as `key` says: a ConfigError if the file is to be changed."""
    if error.errno == errno.EADDRINUSE:
        return HoldfastError(
            f"{key.removeprefix('node ')} {where}: the port is in use already; choose another, or 0 for any"
        )
    expected = "an address of this machine"
    if error.errno in (errno.EACCES, errno.EPERM):
        expected = "a port that this user may open (1024 and above, unless the system says otherwise)"
    return ConfigError(f"invalid value {where} for {key} ({describe(error)}); expected {expected}")
