"""Invariants of requests and their answers (docs/adr/0020).

Rules of this file: reads, never changes; BrokenInvariant says what contradicts what.
"""

from holdfast.engine.invariants import must
from holdfast.management.requests import ReplyLink
from holdfast.peers.connections import Connections


def answers(connections: Connections) -> None:
    """Answers are counted for the connection that they wait for."""
    for peer in connections.values():
        replies = sum(len(item) for link in peer.egress if isinstance(link, ReplyLink) for item in link.waiting)
        must(peer.reply_bytes == replies, f"connection {peer.number}: bytes of answers", peer.reply_bytes, replies)
