"""The publisher annotation of messages to a topic, for subscriptions with a no-local filter.

Rules of this file: only digests are stored and shown, never a container's name. A connection is identified by its
number in this run of the node.
"""

from hashlib import blake2b
from typing import Final

from holdfast.broker.entries.annotate import PUBLISHER_BYTES, publisher_items
from holdfast.engine.clock import Clock
from holdfast.peers.peer import Peer

HALF: Final = PUBLISHER_BYTES // 2


class Publishers:
    """Computes digests of connections and containers."""

    def __init__(self, clock: Clock) -> None:
        self._life = f"{clock.steady_ms} {clock.wall_ms}"

    def connection(self, peer: Peer) -> bytes:
        """The digest of that connection, which no later run of the node uses again."""
        return _digest(f"{self._life} {peer.number}")

    def container(self, peer: Peer) -> bytes:
        """The digest of the container at its other end; for a JMS client that is its client ID."""
        opened = peer.amqp.remote_open
        return _digest("" if opened is None else opened.container_id)

    def items(self, peer: Peer) -> bytes:
        """The annotation of what it publishes, encoded."""
        return publisher_items(self.connection(peer) + self.container(peer))


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=HALF).digest()
