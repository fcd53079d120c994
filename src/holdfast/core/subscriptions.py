"""Durable subscriptions of links: what they are called, and when they end (AMQP 1.0 §2.6.6, §3.5.6; AMQP JMS mapping).

Rules of this file: a subscription belongs to a container: two programs may call theirs alike. One whose source has the
capability `global` belongs to its queue and is called as its link is. It outlives links, sessions and connections that
are lost, detached or ended; a detach with closed=true of its own link deletes it.
"""

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from holdfast.amqp import conditions
from holdfast.amqp.connection import Sender
from holdfast.amqp.performatives import Source
from holdfast.amqp.types import Symbol
from holdfast.broker.cursor import Cursor
from holdfast.core.egress import Egress
from holdfast.core.endings import end_subscription
from holdfast.core.peer import Peer
from holdfast.core.places import Refusal
from holdfast.names import check_name

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

GLOBAL: Final = Symbol("global")

_PLAIN: Final = " !#$&'()*+,:;=?[]"
"""What of a container-id stays as it is, beside letters, digits and `_.-~`; the rest is percent-encoded."""


def name_of(peer: Peer, link: Sender, capabilities: Any) -> str:
    """The name of the subscription that the link speaks of: `CONTAINER/LINK`, or LINK where it is global.

    ConfigError where that is no name.
    """
    if GLOBAL in _symbols(capabilities):
        return check_name(link.name)
    opened: Any = peer.amqp.remote_open
    return check_name(f"{quote(opened.container_id, safe=_PLAIN)}/{link.name}")


def _symbols(capabilities: Any) -> list[Any]:
    """A field that may hold one symbol or several (§1.6.22)."""
    if capabilities is None:
        return []
    return [capabilities] if isinstance(capabilities, str) else list(capabilities)


def is_durable(source: Source) -> bool:
    """Whether an attach with this source asks for a subscription."""
    return bool(source.durable) and str(source.expiry_policy) == "never"


class SubscriptionLink(Egress):
    """The answer to an attach without a source: the peer asks for its subscription, to look or to delete it.

    Nothing is sent on it.
    """

    def __init__(self, core: "NodeCore", peer: Peer, link: Sender, found: list[Cursor]) -> None:
        super().__init__(core, peer, link)
        self._found = found

    def credited(self) -> None:
        if self.link.drain and not self.link.detached:
            self.link.drained()
            self.peer.touch()

    def gone(self, unsettled: list[Any]) -> None:
        if self.link.closed_by_peer:
            for cursor in self._found:
                if not cursor.takers:  # else it is read again: whoever reads it keeps it
                    end_subscription(self.core, cursor)


def look_up(core: "NodeCore", peer: Peer, link: Sender) -> None:
    """Answers an attach with a null source (AMQP JMS mapping, "unsubscribe")."""
    attach = link.remote_attach
    name = name_of(peer, link, attach.desired_capabilities if attach is not None else None)
    found = [
        cursor
        for _, queue in sorted(core.catalog.queues.items())
        if (cursor := queue.named.get(name)) is not None and cursor.mode == "copy"
    ]
    if not found:
        raise Refusal(conditions.NOT_FOUND, f"no subscription {name!r} of a link")
    for cursor in found:
        if cursor.takers:
            text = f"subscription {name!r} on queue {cursor.queue.name!r} has a reader"
            raise Refusal(conditions.RESOURCE_LOCKED, text)
    link.context = SubscriptionLink(core, peer, link, found)
    link.accept(source=Source(address=found[0].queue.name, durable=2, expiry_policy=Symbol("never")))
