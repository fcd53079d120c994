"""Random well-formed performatives with hostile values against a whole node: it raises nothing, holds its bounds, and
serves who comes afterwards."""

from typing import Any

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from amqp.joined import wire
from holdfast.amqp.wire.frames import EMPTY_FRAME
from holdfast.amqp.wire.performatives import (
    Accepted,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Modified,
    Rejected,
    Released,
)
from holdfast.engine import events
from holdfast.peers.limits.refusals import REFUSALS_MAX
from holdfast.settings.limits import Limits
from support import today
from support.hostile_values import PERFORMATIVES, frames, payloads, some, spoilt
from support.raw import HELLO, Raw, credit, receives, sends, transfer
from support.rig import Rig

LIMITS = Limits(
    connections_max=8,
    address_connections_max=6,
    handshakes_max=3,
    queues_max=12,
    links_max=6,
    sessions_max=3,
    credit=10,
    unsettled_max=5,
    incoming_unsettled_max=50,
    message_bytes_max=2_000,
    partial_bytes_max=3_000,
    terms_bytes_max=65_536,
    output_bytes_max=65_536,
    subscriptions_max=4,
    queue_subscriptions_max=2,
    producers_max=5,
    ranges_max=4,
    requests_max=5,
    annotation_bytes_max=1_024,
    attaches_burst=50,
    attaches_per_s=100,
)


class Node(RuleBasedStateMachine):
    """Up to a few peers that say what they like; the node's disk is now and then slow."""

    @initialize()
    def start(self) -> None:
        self.rig = Rig()
        self.node = self.rig.node("hub", limits=LIMITS)
        self.peers = [Raw(self.rig, self.node)]
        self.say(HELLO)

    def say(self, data: bytes, peer: int = -1) -> None:
        raw = self.peers[peer % len(self.peers)]
        if raw.alive:
            self.node.handle(events.BytesReceived(connection=raw.number, data=data))

    @rule(hello=st.sampled_from([HELLO, HELLO[:9], HELLO[:30], b""]))
    def connect(self, hello: bytes) -> None:
        self.peers.append(Raw(self.rig, self.node))
        self.peers = [raw for raw in self.peers if raw.alive][-6:] or [Raw(self.rig, self.node)]
        self.say(hello)

    @rule(data=frames(), peer=st.integers(0, 5))
    def any_frame(self, data: bytes, peer: int) -> None:
        self.say(data, peer)

    @rule(data=spoilt(frames()), peer=st.integers(0, 5))
    def spoilt_frame(self, data: bytes, peer: int) -> None:
        self.say(data, peer)

    @rule(kind=st.sampled_from(PERFORMATIVES[2:7]), data=st.data(), peer=st.integers(0, 5))
    def of_a_link(self, kind: type, data: st.DataObject, peer: int) -> None:
        """On channel 0, where links are."""
        value = data.draw(some(kind))
        self.say(wire((value, data.draw(payloads)) if kind is PERFORMATIVES[4] else value), peer)

    @rule(
        address=st.sampled_from(["work", "other", "work@hub", "$management", "$dead-letters"]),
        handle=st.integers(0, 5),
        back=st.booleans(),
    )
    def attach(self, address: str, handle: int, back: bool) -> None:
        self.say(wire(receives(address, handle=handle) if back else sends(address, handle=handle)))
        self.say(wire(credit(10, handle=handle)) if back else transfer(0, handle=handle))

    @rule(first=st.integers(0, 60), payload=payloads, handle=st.integers(0, 5), count=st.integers(1, 12))
    def send(self, first: int, payload: bytes, handle: int, count: int) -> None:
        self.say(b"".join(transfer(first + number, payload, handle=handle) for number in range(count)))

    @rule(
        first=st.integers(0, 20),
        count=st.integers(0, 2**31 - 1),
        state=st.sampled_from([Accepted(), Released(), Rejected(), Modified(True, True, {"x": "y" * 400}), None]),
        settled=st.booleans(),
    )
    def dispose(self, first: int, count: int, state: Any, settled: bool) -> None:
        self.say(wire(Disposition(True, first, (first + count) & 0xFFFFFFFF, settled, state)))

    @rule(what=st.sampled_from([Detach(0, True), Detach(1, False), End(), Close(), Begin(None, 5, 5, 5)]))
    def end(self, what: Any) -> None:
        self.say(wire(what))

    @rule(peer=st.integers(0, 5), reads=st.booleans())
    def read_or_not(self, peer: int, reads: bool) -> None:
        raw = self.peers[peer % len(self.peers)]
        if raw.alive:
            event = events.WritingResumed if reads else events.WritingPaused
            self.node.handle(event(connection=raw.number))

    @rule()
    def turn(self) -> None:
        self.rig.settle()

    @rule(seconds=st.sampled_from([0.1, 1.0, 11.0, 70.0]))
    def pass_time(self, seconds: float) -> None:
        self.rig.run(seconds)

    @rule(held=st.booleans())
    def disk(self, held: bool) -> None:
        self.node.hold_commits = held

    @rule(times=st.integers(1, 2))
    def full_disk(self, times: int) -> None:
        self.node.refuse = times

    @rule(peer=st.integers(0, 5))
    def cut(self, peer: int) -> None:
        self.peers[peer % len(self.peers)].end.wire.cut()

    @invariant()
    def bounds_hold(self) -> None:
        core = self.node.core
        assert core is not None
        assert len(core.refusals.due) <= REFUSALS_MAX
        served = len(core.connections) - len(core.refusals.due)
        assert served <= LIMITS.connections_max + LIMITS.reserved_connections_max
        assert len(core.guard.half_open) <= LIMITS.handshakes_max
        assert sum(core.guard.by_address.values()) == served
        assert len(core.catalog.queues) <= LIMITS.queues_max
        assert len(core.catalog.producers) <= LIMITS.producers_max + LIMITS.links_max * LIMITS.connections_max
        for peer in core.connections.values():
            engine = peer.amqp
            assert engine.links <= LIMITS.links_max and len(engine.sessions) <= LIMITS.sessions_max
            assert 0 <= engine.partial_bytes <= LIMITS.partial_bytes_max
            assert engine.terms_bytes >= 0 and (engine.closed or engine.terms_bytes <= LIMITS.terms_bytes_max)
            assert peer.unread_bytes <= LIMITS.output_bytes_max and peer.reply_bytes >= 0
            assert len(peer.egress) <= LIMITS.links_max
            for session in engine.sessions:
                assert len(session.unsettled_in) <= LIMITS.incoming_unsettled_max
        assert all(len(queue.named) <= LIMITS.queue_subscriptions_max for queue in core.catalog.queues.values())

    def teardown(self) -> None:
        """Another client is served; when all have gone, nothing of them is left."""
        if not hasattr(self, "node"):
            return
        self.node.hold_commits = False
        self.node.refuse = 0
        self.rig.settle()
        for raw in self.peers:
            raw.end.wire.cut()
        self.rig.run(1.0)
        core = self.node.core
        assert core is not None
        for number in list(core.connections):
            self.node.handle(events.ConnectionLost(connection=number, reason="cut"))
        self.rig.settle()
        assert not (core.guard.half_open or core.guard.by_address or core.links.requests or core.links.reply_links)
        assert not any(queue.shared.consumers for queue in core.catalog.queues.values())
        client = self.rig.client(self.node, container_id="healthy")
        link = client.sender("work" if "work" in core.catalog.queues else next(iter(core.catalog.queues), "work"))
        self.rig.settle()
        client.send(link, "still here")
        self.rig.settle()
        assert [type(state).__name__ for _, state in client.outcomes] == ["Accepted"]
        self.say(EMPTY_FRAME)


Node.TestCase.settings = settings(
    max_examples=today.drawn(7), stateful_step_count=30, suppress_health_check=list(HealthCheck), deadline=None
)
TestPerformatives = seed(today.number)(Node).TestCase
