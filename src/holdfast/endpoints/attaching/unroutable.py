"""Links for unknown nodes, whose messages become dead letters (`unknown_destination = "dead-letter"`).

Rules of this file: such a message gets no identity, because it would never arrive at its destination. The address is
resolved again for each message: as soon as the node is known, messages are sent to it.
"""

from holdfast.amqp.connection import Delivery, Receiver
from holdfast.broker.entries.host_names import destination_of
from holdfast.broker.stored.producers import Producer
from holdfast.endpoints.addresses.resolver import ResolvedAddress
from holdfast.endpoints.producer import ProducerLink, ProducerParts
from holdfast.endpoints.transactions.work import Prepared
from holdfast.links.large_receives import Stream
from holdfast.peers.peer import Peer


class UnroutableLink(ProducerLink):
    """A client's sender to a queue at a node that is not known."""

    def __init__(
        self,
        parts: ProducerParts,
        peer: Peer,
        link: Receiver,
        found: ResolvedAddress,
        *,
        producer: Producer | None = None,
    ) -> None:
        assert found.unknown is not None
        super().__init__(parts, peer, link, found.queue, to=found.to, unknown=found.unknown, producer=producer)

    def take(self, delivery: Delivery, *, large: Stream | None) -> bool:
        self._look_again()
        return super().take(delivery, large=large)

    def prepare(self, delivery: Delivery, *, large: Stream | None) -> Prepared:
        self._look_again()
        return super().prepare(delivery, large=large)

    def _look_again(self) -> None:
        """The node may have become known."""
        node = self.unknown
        if node is not None and self.parts.resolver.knows(node):
            self.parts.links.producers_of(self.queue).pop(self, None)
            self.unknown, self.destination = None, destination_of(self.queue.host, node)
            self.queue = self.parts.resolver.transmission(self.destination)
            self.parts.links.producers_of(self.queue)[self] = None
