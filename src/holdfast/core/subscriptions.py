"""Durable subscriptions of links: when they end (AMQP 1.0 §3.5.6; AMQP JMS mapping, "unsubscribe").

Rules of this file: a subscription belongs to its queue and is called as its link is, whatever the container. It
outlives links and connections however they end; a link without a source asks for it, and deletes it when it is closed.
"""

from typing import TYPE_CHECKING, Any, Final

from holdfast.amqp import conditions
from holdfast.amqp.connection import Sender
from holdfast.amqp.performatives import Source
from holdfast.amqp.types import Symbol
from holdfast.broker.cursor import Cursor
from holdfast.core.outgoing import Egress
from holdfast.core.peer import Peer
from holdfast.core.places import Refusal
from holdfast.names import check_name

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

NEVER: Final = Symbol("never")


class SubscriptionLink(Egress):
    """The answer to an attach without a source: the peer asks for its subscription, to look or to delete it.

    Nothing is sent on it.
    """

    def __init__(self, core: "NodeCore", peer: Peer, link: Sender, found: list[Cursor]) -> None:
        super().__init__(peer, link)
        self.core = core
        self._found = found

    def credited(self) -> None:
        if self.link.drain and not self.link.detached:
            self.link.drained()
            self.peer.touch()

    def gone(self, unsettled: list[Any]) -> None:
        if self.link.closed_by_peer:
            for cursor in self._found:
                if not cursor.takers:  # else it is read again: whoever reads it keeps it
                    _end(self.core, cursor)


def _end(core: "NodeCore", cursor: Cursor) -> None:
    """The named cursor, which has no reader, goes with what it kept; stored with the turn's batch. Idempotent."""
    queue = core.catalog.queues.get(cursor.queue.name)
    if queue is not None and queue.named.get(cursor.name) is cursor:
        core.resume.release(queue, cursor)
        queue.remove_cursor(cursor.name)


def look_up(core: "NodeCore", peer: Peer, link: Sender) -> None:
    """Answers an attach with a null source (AMQP JMS mapping, "unsubscribe")."""
    name = check_name(link.name)
    found = [
        cursor
        for queue in core.catalog.queues.values()
        if (cursor := queue.named.get(name)) is not None and cursor.mode == "copy"
    ]
    found.sort(key=lambda cursor: cursor.queue.name)
    if not found:
        raise Refusal(conditions.NOT_FOUND, f"no subscription {name!r} that a link made")
    for cursor in found:
        if cursor.takers:
            text = f"subscription {name!r} on queue {cursor.queue.name!r} has a reader"
            raise Refusal(conditions.RESOURCE_LOCKED, text)
    link.context = SubscriptionLink(core, peer, link, found)
    link.accept(source=Source(address=found[0].queue.name, durable=2, expiry_policy=NEVER))
