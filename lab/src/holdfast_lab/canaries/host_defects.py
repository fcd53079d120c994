"""Canaries in virtual hosts: one place ignores the host.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.broker.entries.host_names import node_of
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _dead_letters_of_all(original: Function) -> Function:
    """What consumers reject becomes a dead letter of the default host."""

    def dead_letter(self: Any, host: str, value: bytes, reason: str, place: str, notes: Any = ()) -> Any:
        return original(self, "", value, reason, place, dict(notes))

    return dead_letter


def _delayed_of_all(original: Function) -> Function:
    """A delayed message waits with those of the default host, and is delivered to the queue of that name there."""

    def hold(self: Any, queue: Any, value: bytes) -> Any:
        found = self.by_host.get("")
        if found is None or not queue.host:
            return original(self, queue, value)
        return found.hold(queue, value)

    return hold


def _any_queue(original: Function) -> Function:
    """A name with a NUL finds the queue of another host."""

    def find(self: Any, host: str, name: str) -> Any:
        return self.queues.get(name) if "\0" in name else original(self, host, name)

    return find


def _forgotten_at_a_hop(original: Function) -> Function:
    """The next node is told the destination's node alone."""

    def attach(self: Any, peer: Any, session: Any) -> Any:
        whole = self.destination
        self.destination = node_of(whole)
        try:
            return original(self, peer, session)
        finally:
            self.destination = whole

    return attach


HOST_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="dead-letters-of-all",
        sentence="A dead letter of one virtual host comes to the default host's.",
        target="custody.dead_lettering:DeadLettering.dead_letter",
        signature="(self, host: str, value: bytes, reason: str, place: str, notes: collections.abc.Mapping"
        "[holdfast.amqp.wire.types.Symbol, object] = mappingproxy({})) -> int",
        broken=_dead_letters_of_all,
        expected="was sent in virtual host",
    ),
    Canary(
        name="delayed-of-all",
        sentence="Where the default host delays messages too, those of another one are delivered in the default host.",
        target="custody.delays:Delays.hold",
        signature="(self, queue: holdfast.broker.queue.Queue, value: bytes) -> int | None",
        broken=_delayed_of_all,
        expected="was sent in virtual host",
    ),
    Canary(
        name="any-queue",
        sentence="A request of management that names another virtual host's queue by the key of the store is answered.",
        target="state.catalog:Catalog.find",
        signature="(self, host: str, name: str) -> holdfast.broker.queue.Queue | None",
        broken=_any_queue,
        expected="was told of queue",
    ),
    Canary(
        name="host-lost-on-the-way",
        sentence="A node passes messages of a virtual host on as the default host's.",
        target="custody.hop.sender:CustodySender.attach",
        signature="(self, peer: holdfast.peers.peer.Peer, session: holdfast.amqp.session.session.Session) -> None",
        broken=_forgotten_at_a_hop,
        expected="was sent in virtual host",
    ),
)
