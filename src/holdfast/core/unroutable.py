"""Messages for nodes of which nothing is known, where they become dead letters (`unknown_destination = "dead-letter"`).

Rules of this file: such a message gets no identity, since none would ever come to its destination. What a link means
is asked anew with each message: as soon as the node is known, all goes its way.
"""

from typing import TYPE_CHECKING

from holdfast.amqp.connection import Deliveries, Delivery, Receiver
from holdfast.core.endings import dead_letter
from holdfast.core.ingress import Ingress, ProducerLink
from holdfast.core.places import Place, transmission

if TYPE_CHECKING:
    from holdfast.broker.producers import Producer
    from holdfast.core.node import NodeCore
    from holdfast.core.peer import Peer


class UnroutableLink(ProducerLink):
    """A client's sender to a queue at a node that is not known."""

    def __init__(
        self, core: "NodeCore", peer: "Peer", link: Receiver, found: Place, *, producer: "Producer | None" = None
    ) -> None:
        assert found.unknown is not None
        super().__init__(core, peer, link, found.queue, to=found.to, producer=producer)
        self.unknown: str | None = found.unknown

    def delivered_all(self, run: Deliveries) -> None:
        Ingress.delivered_all(self, run)

    def take(self, delivery: Delivery, *, large: bool) -> bool:
        node = self.unknown
        if node is not None and self.core.forwarding.knows(node):
            self.core.producers_of(self.queue).pop(self, None)
            self.unknown, self.destination = None, node
            self.queue = transmission(self.core, node)
            self.core.producers_of(self.queue)[self] = None
        return super().take(delivery, large=large)

    def keep(self, value: bytes, size: int) -> int:
        node = self.unknown
        return super().keep(value, size) if node is None else bury(self.core, value, self.to, node)


def bury(core: "NodeCore", value: bytes, to: str, node: str) -> int:
    """The message as a dead letter with the reason; its sequence there."""
    core.forwarding.dead_lettered += 1
    return dead_letter(core, value, f"{core.config.name!r} has no route to {node!r}", f"{to}@{node}")
