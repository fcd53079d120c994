"""Passes the events of an engine to the links that they are for.

Rules of this file: it only knows that our link is the `context` of its engine link. A peer's attach, its open, and the
answer to our attach go to registered handlers.
"""

from collections.abc import Callable, Container

from holdfast.amqp import connection as amqp
from holdfast.amqp.effort import OUTCOME, OUTCOME_ALIKE
from holdfast.amqp.session.events import DeliveryBegun
from holdfast.amqp.wire.performatives import Accepted, Released
from holdfast.links.ingress import Ingress
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Peer

Attached = Callable[[Peer, amqp.Receiver | amqp.Sender], None]


class Dispatch:
    """One for each node; `join` must be called before the first event."""

    _connections: Container[int]
    _attach: Attached
    _answered: Callable[[amqp.Link], None]
    _opened: Callable[[Peer, amqp.Opened], None]
    _ended: Callable[[amqp.Link], None]

    def __init__(self, links: LinkTables) -> None:
        self._links = links

    def join(
        self,
        connections: Container[int],
        *,
        attach: Attached,
        answered: Callable[[amqp.Link], None],
        opened: Callable[[Peer, amqp.Opened], None],
        ended: Callable[[amqp.Link], None],
    ) -> None:
        """`attach` answers a peer's attach. `answered` is called when a peer answered one of ours, `ended` when a link
        has ended, whether its attach was answered or not."""
        self._connections = connections
        self._attach = attach
        self._answered = answered
        self._opened = opened
        self._ended = ended

    def deliver(self, peer: Peer, told: list[amqp.ConnEvent]) -> None:
        """Passes on all events of the peer's engine, in order."""
        for event in told:
            if isinstance(event, amqp.Delivery):
                link = event.link.context
                if link is not None:
                    link.delivered(event)
            elif isinstance(event, amqp.Deliveries):
                link = event.link.context
                if link is not None:
                    link.delivered_all(event)
            elif isinstance(event, (amqp.DeliveryPart, amqp.DeliveryAborted)):
                link = event.link.context
                if link is not None:
                    link.part(event) if isinstance(event, amqp.DeliveryPart) else link.aborted()
            elif isinstance(event, DeliveryBegun):
                link = event.link.context
                if link is not None:
                    link.begun(event)
            elif isinstance(event, amqp.Outcomes):
                link = event.link.context
                if link is not None:
                    link.outcomes(event.contexts, event.state, event.settled, event.first, event.last)
                    alike = isinstance(event.state, (Accepted, Released))
                    peer.amqp.took((OUTCOME_ALIKE if alike else OUTCOME) + len(event.contexts))
            elif isinstance(event, amqp.CreditChanged):
                link = event.link.context
                if link is not None:
                    link.credited()
            elif isinstance(event, amqp.Drained):
                link = event.link.context
                if link is not None:
                    link.drained()
            elif isinstance(event, amqp.LinkAttached):
                if peer.number not in self._connections:
                    continue
                if event.remote_initiated:
                    assert isinstance(event.link, (amqp.Receiver, amqp.Sender))
                    self._attach(peer, event.link)
                else:
                    self._answered(event.link)
            elif isinstance(event, amqp.LinkDetached):
                self._detached(peer, event)
            elif isinstance(event, amqp.Opened):
                self._opened(peer, event)
            elif isinstance(event, amqp.SessionBegun):
                if peer.neighbour is not None:
                    peer.neighbour.session_begun(peer)
                elif peer.remote is not None:
                    peer.remote.session_begun(peer)
            elif isinstance(event, amqp.ConnectionClosed):
                peer.closed(event.error)
            elif isinstance(event, amqp.ProtocolFailed):
                peer.log("WARNING", f"{_named(peer)}connection closed: {event.error.text}")
                peer.failed(event.error)
                if peer.audit is not None:
                    peer.audit.failed(peer, event.error)

    def _detached(self, peer: Peer, event: amqp.LinkDetached) -> None:
        link = event.link.context
        self._ended(event.link)
        if event.error is not None and peer.neighbour is not None and peer.amqp.usable:
            peer.log("WARNING", f"it ended the link {event.link.name}: {event.error.text}")
        if isinstance(event.link, amqp.Receiver) and (lost := event.link.lost_settled):
            text = f"settled messages that came after this node had ended the link are lost: {lost}"
            peer.log("WARNING", f"link {event.link.name}: {text}; their sender should not settle them")
        if link is None:
            return
        event.link.context = None
        peer.egress.pop(link, None)
        if isinstance(link, Ingress):
            link.gone()
        else:
            link.gone(event.unsettled)
            self._links.drains.pop(link, None)
        peer.touch()


def _named(peer: Peer) -> str:
    """What the operator calls it, before it has said its own name."""
    if peer.remote is not None:
        return f"remote {peer.remote.name}: "
    return "" if peer.neighbour is None else f"neighbour {peer.neighbour.name}: "
