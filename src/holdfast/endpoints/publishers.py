"""Who published a message to a topic, as the message is told beside it for subscriptions with a no-local filter.

Rules of this file: digests alone are stored and shown, never a container's own name. A connection is known by its
number in this life of the node.
"""

from hashlib import blake2b
from typing import Final

from holdfast.broker.entries.annotate import PUBLISHER_BYTES, publisher_items
from holdfast.engine.clock import Clock
from holdfast.peers.peer import Peer

HALF: Final = PUBLISHER_BYTES // 2


class Publishers:
    """Tells connections and containers apart."""

    def __init__(self, clock: Clock) -> None:
        self._life = f"{clock.steady_ms} {clock.wall_ms}"

    def connection(self, peer: Peer) -> bytes:
        """That connection, which no later life of the node has."""
        return _digest(f"{self._life} {peer.number}")

    def container(self, peer: Peer) -> bytes:
        """The container at its other end: of a JMS client, its client ID."""
        opened = peer.amqp.remote_open
        return _digest("" if opened is None else opened.container_id)

    def items(self, peer: Peer) -> bytes:
        """The annotation of what it publishes, encoded."""
        return publisher_items(self.connection(peer) + self.container(peer))


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=HALF).digest()
