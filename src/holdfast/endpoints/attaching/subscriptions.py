"""Durable subscriptions of links: when they end (AMQP 1.0 §3.5.6; AMQP JMS mapping, "unsubscribe").

Rules of this file: a subscription belongs to its queue and has the name of its link, whatever the container. It
outlives links and connections however they end; a link without a source looks it up, and deletes it when it is closed.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.access.actions import RECEIVE
from holdfast.amqp.connection import Sender
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Source
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries.kinds import QueueKind
from holdfast.endpoints.addresses.link_refusal import Refusal, may
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.endpoints.subscription_ends import named
from holdfast.links.outgoing import Egress
from holdfast.names import check_name
from holdfast.peers.authorise import Authoriser
from holdfast.peers.peer import Peer
from holdfast.state.catalog import Catalog

NEVER: Final = Symbol("never")


class SubscriptionLink(Egress):
    """The answer to an attach without a source, by which a peer looks up or deletes its subscription. Nothing is sent
    on it.
    """

    def __init__(self, peer: Peer, link: Sender, found: list[Cursor], end: Callable[[Peer, Cursor], None]) -> None:
        super().__init__(peer, link)
        self._found = found
        self._end = end

    def credited(self) -> None:
        if self.link.drain and not self.link.detached:
            self.link.drained()
            self.peer.touch()

    def gone(self, unsettled: list[Any]) -> None:
        if self.link.closed_by_peer:
            for cursor in self._found:
                if not cursor.consumers:  # otherwise another link reads it now, and it stays
                    self._end(self.peer, cursor)


class LinkSubscriptions:
    """Looks up and ends the subscriptions that links made."""

    def __init__(self, catalog: Catalog, resume: Resumption, authoriser: Authoriser) -> None:
        self._catalog = catalog
        self._resume = resume
        self._authoriser = authoriser

    def look_up(self, peer: Peer, link: Sender) -> None:
        """Answers an attach with a null source (AMQP JMS mapping, "unsubscribe")."""
        name = check_name(link.name)
        opened = peer.amqp.remote_open
        plain = name.partition("|")[0]
        own = f"{'' if opened is None else opened.container_id}|{plain}"  # as topic_attach.py calls it
        found = [
            cursor
            for queue in self._catalog.of_host(peer.host)
            for known in (dict.fromkeys((own, plain, name)) if queue.kind is QueueKind.TOPIC else (name,))
            if (cursor := queue.named.get(known)) is not None
            and cursor.mode == "copy"
            and may(self._authoriser, peer, RECEIVE, queue.name)  # to others it is as if it were not there
        ]
        found.sort(key=lambda cursor: cursor.queue.name)
        if not found:
            raise Refusal(conditions.NOT_FOUND, f"no subscription {name!r} that was created by a link")
        for cursor in found:
            if cursor.consumers:
                text = f"subscription {name!r} on queue {cursor.queue.name!r} has a reader"
                raise Refusal(conditions.RESOURCE_LOCKED, text)
        link.context = SubscriptionLink(peer, link, found, self._end)
        link.accept(source=Source(address=found[0].queue.name, durable=2, expiry_policy=NEVER))

    def _end(self, peer: Peer, cursor: Cursor) -> None:
        """Deletes the named cursor, which has no reader, and the messages that it kept; stored with the turn's batch.
        Idempotent."""
        queue = self._catalog.queues.get(cursor.queue.key)
        if queue is not None and queue.named.get(cursor.name) is cursor:
            self._resume.release(queue, cursor)
            queue.remove_cursor(cursor.name)
            peer.log("INFO", f"{named(cursor)} has ended: its peer closed it")
