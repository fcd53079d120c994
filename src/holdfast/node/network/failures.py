"""Errors of single connections in the driver: each connection is ended and counted; a bounded number is logged with a
traceback.

Rules of this file: one for each node's process. The core counts (`failures` of `status`).
"""

import logging
import math
import time
from collections.abc import Callable
from typing import Final

from holdfast.engine.events import DriverFailed, Event
from holdfast.node.network.transport import Peer
from holdfast.node.socket_errors import describe

INTERVAL_S: Final = 1.0
"""Of failures of single connections no more than one is logged in that time, with where it came from."""

_log = logging.getLogger(__name__)


class Failures:
    """Ends connections that failed in the driver, and reports them to the log and to the core by `feed`."""

    def __init__(self, feed: Callable[[Event], None]) -> None:
        self._feed = feed
        self._told_at = -math.inf

    def end(self, peer: Peer, error: Exception) -> None:
        """A callback of one connection, or a command for it, has failed: that connection ends."""
        now = time.monotonic()
        if now >= self._told_at + INTERVAL_S:
            self._told_at = now
            _log.error("%s: %s; the connection is ended", peer.peer_name, describe(error), exc_info=error)
        peer.transport.abort()
        self._feed(DriverFailed(connection=peer.connection))
