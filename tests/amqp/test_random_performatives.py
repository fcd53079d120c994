"""Whatever comes, the engine raises nothing, holds no more than its bounds, and means the same however it is cut."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqp.joined import NOW, server, wire
from holdfast.amqp.connection import (
    Connection,
    Delivery,
    LinkAttached,
    LinkDetached,
    Outcomes,
    ProtocolFailed,
    Receiver,
)
from holdfast.amqp.wire.frames import AMQP_HEADER
from holdfast.amqp.wire.performatives import Attach, Begin, Flow, Open, Source, Target
from support import today
from support.hostile_values import frames, spoilt

HELLO = AMQP_HEADER + wire(
    Open("c"), Begin(None, 0, 100, 100),
    Attach("to", 0, False, source=Source(), target=Target("q"), initial_delivery_count=0),
    Attach("from", 1, True, source=Source("q"), target=Target("x")),
    Flow(0, 100, 0, 100, 1, 0, 10),
)  # fmt: skip
BOUNDS: dict[str, Any] = {
    "sessions_max": 3, "channel_max": 2, "links_max": 5, "unsettled_max": 10, "max_message_size": 1_000,
    "partial_bytes_max": 1_500, "terms_bytes_max": 20_000, "incoming_window": 20,
}  # fmt: skip
conversations = st.lists(frames() | spoilt(frames()), max_size=8).map(b"".join)


def told(event: Any) -> tuple[Any, ...]:
    """An event as what can be compared between two engines."""
    link = getattr(event, "link", None)
    rest: tuple[Any, ...] = ()
    if isinstance(event, Delivery):
        rest = (event.delivery_id, event.tag, event.payload, event.settled, repr(event.state))
    elif isinstance(event, Outcomes):
        rest = (event.contexts, repr(event.state), event.settled, event.first, event.last)
    elif isinstance(event, LinkDetached):
        rest = (event.closed, repr(event.error), event.unsettled)
    elif isinstance(event, ProtocolFailed):
        rest = (event.error.condition,)
    return type(event).__name__, getattr(link, "name", None), getattr(link, "role", None), *rest


def opened() -> Connection:
    """A server with a link each way: it has granted 5 deliveries, and sent 3."""
    side = server(**BOUNDS)
    for event in side.receive(HELLO, NOW):
        if isinstance(event, LinkAttached):
            event.link.accept()
            if isinstance(event.link, Receiver):
                event.link.grant(5)
    side.receive(wire(Flow(0, 100, 0, 100, 1, 0, 10)), NOW)
    for session in side.sessions:
        for link in session.links.values():
            if not link.role:
                for number in range(3):
                    link.send(b"\x00\x53\x75\xa0\x01m", context=number)  # type: ignore[attr-defined]  # by its role
    side.take_output(NOW)
    return side


def bounded(side: Connection) -> None:
    """What a peer made it hold is within what it was told."""
    limits = side.settings
    assert len(side.sessions) <= limits.sessions_max
    assert 0 <= side.links <= limits.links_max
    assert 0 <= side.partial_bytes <= limits.partial_bytes_max
    assert side.terms_bytes >= 0 and (side.closed or side.terms_bytes <= limits.terms_bytes_max)
    assert len(side._rest) < limits.max_frame_size
    for session in side.sessions:
        assert len(session.unsettled_in) <= limits.unsettled_max
        assert len(session.unsettled_out) <= 3
        assert len(session.backlog) <= 3 + len(session.links)
        assert len(session.remote_links) <= limits.handle_max + 1
    if side.closed:
        assert side.links == side.partial_bytes == 0 and side.next_deadline() is None


@today.examples(10)
@given(conversations)
def test_nothing_is_raised_and_bounds_hold(said: bytes) -> None:
    side = opened()
    events = side.receive(said, NOW)
    bounded(side)
    assert sum(isinstance(event, ProtocolFailed) for event in events) <= 1
    assert side.closed or not any(isinstance(event, ProtocolFailed) for event in events)
    side.take_output(NOW)
    assert side.closed or side.receive(b"", NOW) == []


@today.examples(10)
@given(conversations, st.integers(1, 40))
def test_the_cut_changes_nothing(said: bytes, step: int) -> None:
    whole, cut = opened(), opened()
    expected = [told(event) for event in whole.receive(said, NOW)]
    found = [told(event) for at in range(0, len(said), step) for event in cut.receive(said[at : at + step], NOW)]
    assert found == expected
    assert b"".join(cut.take_output(NOW)) == b"".join(whole.take_output(NOW))
    assert (cut.state, cut.closed, cut.links, cut.terms_bytes) == (
        whole.state, whole.closed, whole.links, whole.terms_bytes,
    )  # fmt: skip


@today.examples(7)
@given(conversations, st.integers(1, 40))
def test_what_has_to_wait_means_the_same(said: bytes, step: int) -> None:
    """A peer that asks for more than it may is answered later, in the same order, with the same words."""
    whole = opened()
    expected = [told(event) for event in whole.receive(said, NOW)]
    slow = opened()
    from holdfast.amqp.effort import Effort

    slow._effort = Effort(1_000, 300, NOW)
    now = NOW
    found = []
    for at in range(0, len(said), step):
        found += [told(event) for event in slow.receive(said[at : at + step], now)]
    for _ in range(10_000):
        if slow.resumes_at is None:
            break
        now = max(now, slow.resumes_at)
        found += [told(event) for event in slow.resume(now)]
    assert slow.resumes_at is None or slow.closed
    assert found == expected
    assert b"".join(slow.take_output(now)) == b"".join(whole.take_output(NOW))
