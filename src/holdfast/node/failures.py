"""What is logged of single connections that fail in the driver: a bounded number of tracebacks.

Rules of this file: one for each node's process; whoever calls it ends the connection.
"""

import logging
import math
import time
from typing import Final

from holdfast.node.transport import Peer, describe

INTERVAL_S: Final = 1.0
"""Of failures of single connections no more than one is logged in that time, with where it came from."""

_log = logging.getLogger(__name__)


class Failures:
    """Of the connections of a node."""

    def __init__(self) -> None:
        self._told_at = -math.inf

    def end(self, peer: Peer, error: Exception) -> None:
        """A callback of one connection, or what the core wants done with it, has failed: that connection ends."""
        now = time.monotonic()
        if now >= self._told_at + INTERVAL_S:
            self._told_at = now
            _log.error("%s: %s; the connection is ended", peer.peer_name, describe(error), exc_info=error)
        peer.transport.abort()
