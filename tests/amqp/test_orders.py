"""Attach, detach, end and close in every order, from either side, crossing on the way (§2.4.3, §2.5.4, §2.6.1 to
§2.6.6; CLIENTS 37)."""

from itertools import chain, combinations, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp.joined import NOW, client, hear, performatives, server, wire
from holdfast.amqp.connection import (
    Connection,
    ConnectionClosed,
    Delivery,
    LinkAttached,
    LinkDetached,
    ProtocolFailed,
    Receiver,
    Sender,
    Session,
    SessionBegun,
    SessionEnded,
)
from holdfast.amqp.wire.frames import AMQP_HEADER
from holdfast.amqp.wire.performatives import Attach, Begin, Close, Detach, End, Error, Open, Source, Target
from holdfast.errors import LocalProtocolError
from support import today


class Side:
    """An engine, and what its user was told; whatever the peer asks for waits in `asked` until a step answers it."""

    def __init__(self, engine: Connection) -> None:
        self.engine = engine
        self.inbox = bytearray()
        self.asked: list[Sender | Receiver] = []
        self.links: list[Sender | Receiver] = []
        self.sessions: list[Session] = []
        self.told: list[Any] = []

    def take(self, data: bytes) -> None:
        for event in self.engine.receive(data, NOW):
            self.told.append(event)
            assert not isinstance(event, ProtocolFailed), event
            if isinstance(event, SessionBegun) and event.session not in self.sessions:
                self.sessions.append(event.session)
            elif isinstance(event, LinkAttached) and event.remote_initiated:
                assert isinstance(event.link, (Sender, Receiver))
                self.asked.append(event.link)
                self.links.append(event.link)
            elif isinstance(event, Delivery):
                event.link.settle(event.delivery_id, event.delivery_id, None)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]


class World:
    """Two sides and the bytes between them."""

    def __init__(self) -> None:
        self.sides = Side(client()), Side(server())
        self.settle()

    def write(self) -> None:
        for side, other in (self.sides, self.sides[::-1]):
            other.inbox += b"".join(side.engine.take_output(NOW))

    def move(self, to: int, share: float) -> None:
        """A share of what is under way arrives."""
        self.write()
        side = self.sides[to]
        size = int(len(side.inbox) * share)
        data = bytes(side.inbox[:size])
        del side.inbox[:size]
        if data:
            side.take(data)

    def settle(self) -> None:
        for _ in range(1_000):
            self.write()
            if not any(side.inbox for side in self.sides):
                return
            for to in (0, 1):
                self.move(to, 1.0)
        raise AssertionError("the two sides never come to rest")

    def do(self, step: tuple[Any, ...]) -> None:
        what, at, which, flag = step
        side = self.sides[at]
        try:
            if what == "begin":
                side.sessions.append(side.engine.begin())
            elif what == "attach" and side.sessions:
                session = side.sessions[which % len(side.sessions)]
                kind = session.attach_sender if flag else session.attach_receiver
                side.links.append(kind(f"n{which % 2}", Source("q"), Target("q")))
            elif what == "answer" and side.asked:
                link = side.asked.pop(which % len(side.asked))
                if flag:
                    link.accept()
                else:
                    link.refuse("amqp:not-found", "no")
            elif what == "detach" and side.links:
                side.links[which % len(side.links)].detach(closed=flag, error=None if flag else Error("a:b"))
            elif what == "end" and side.sessions:
                side.sessions[which % len(side.sessions)].end(None if flag else Error("a:b"))
            elif what == "close":
                side.engine.close(None if flag else Error("a:b"))
            elif what == "use" and side.links:
                link = side.links[which % len(side.links)]
                if isinstance(link, Receiver) and link.attached:
                    link.grant(which)
                elif isinstance(link, Sender) and link.sendable:
                    link.send(b"\x00\x53\x75\xa0\x00", context=which, settled=flag)
            elif what == "move":
                self.move(at, (which + 1) / 8)
        except LocalProtocolError:
            pass  # the step may not be taken now: a name that is in use, a connection that is over


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "begin",
                "attach",
                "attach",
                "attach",
                "answer",
                "answer",
                "detach",
                "detach",
                "end",
                "use",
                "move",
                "move",
            ]
        ),
        st.integers(0, 1),
        st.integers(0, 7),
        st.booleans(),
    ),
    max_size=60,
)


def alive(side: Side) -> dict[tuple[int, bool, str], Any]:
    """The links that are up, by (client's channel, whether the client sends, name)."""
    found = {}
    for session in side.engine.sessions:
        channel = session.remote_channel if side.engine.server else session.channel
        for link in session.links.values():
            if link.attached:
                assert channel is not None
                found[channel, link.role is side.engine.server, link.name] = link
    return found


@today.examples(130)
@given(STEPS, st.sampled_from([0, 1, None]))
def test_both_sides_agree_on_what_is_left(steps: list[tuple[Any, ...]], closer: int | None) -> None:
    world = World()
    world.do(("begin", 0, 0, True))
    for step in steps:
        world.do(step)
    world.settle()
    for side in world.sides:  # what nobody has answered yet
        for link in side.asked:
            if not link.attach_sent:
                link.accept()
    world.settle()
    one, two = world.sides
    assert alive(one).keys() == alive(two).keys()
    for side in world.sides:
        over = [event.link for event in side.of(LinkDetached)]
        assert len(over) == len(set(map(id, over))), "told twice"
        assert all(link.detached for link in over)
        ended = [event.session for event in side.of(SessionEnded)]
        assert len(ended) == len(set(map(id, ended)))
        for session in side.engine.sessions:
            assert all(not link.detached for link in session.links.values()), "a handle is kept for nobody"
            assert len(session.links) == len(session.remote_links)
        for link in side.links:
            assert link.detached == any(link is other for other in over)
        assert side.engine.links == sum(len(session.links) for session in side.engine.sessions)
    if closer is None:
        return
    world.do(("close", closer, 0, True))
    world.settle()
    for side in world.sides:
        assert side.engine.closed and len(side.of(ConnectionClosed)) == 1
        assert all(link.detached for link in side.links) and side.engine.links == 0
        assert {id(event.session) for event in side.of(SessionEnded)} >= {id(s) for s in side.sessions if s.over}


@today.examples(70)
@given(
    STEPS, st.lists(st.tuples(st.just("close"), st.integers(0, 1), st.just(0), st.booleans()), min_size=1, max_size=3)
)
def test_closing_at_any_moment(steps: list[tuple[Any, ...]], closes: list[tuple[Any, ...]]) -> None:
    world = World()
    world.do(("begin", 0, 0, True))
    for step in chain(steps, closes, steps[:3]):
        world.do(step)
    world.settle()
    for side in world.sides:
        assert side.engine.closed and len(side.of(ConnectionClosed)) == 1
        assert all(link.detached for link in side.links)


# ------------------------------------------------------------------------------------------------- one flight

ENDINGS = [
    order
    for size in range(6)
    for order in permutations(["detach 0", "detach 1", "detach 2", "end", "close"], size)
    if "close" not in order[:-1] and "end" not in order[: -1 - ("close" in order)]
]


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("order", ENDINGS)
def test_each_is_answered_by_its_own_kind_in_its_own_order(order: tuple[str, ...], closed: bool) -> None:
    """All in one segment, behind the attaches, as clients do that are in a hurry."""
    side = server()
    attaches = [
        Attach("l", 0, False, source=Source("here"), target=Target("q"), initial_delivery_count=0),
        Attach("l", 1, True, source=Source("q"), target=Target("here")),
        Attach("m", 2, True, source=Source("q"), target=Target("here")),
    ]
    told = hear(side, AMQP_HEADER + wire(Open("c"), Begin(None, 0, 9, 9), *attaches))
    for event in told:
        if isinstance(event, LinkAttached):
            event.link.accept()
    side.take_output(NOW)
    frames: dict[str, Any] = {
        "detach 0": Detach(0, closed), "detach 1": Detach(1, closed), "detach 2": Detach(2, closed),
        "end": End(), "close": Close(),
    }  # fmt: skip
    events = hear(side, wire(*(frames[what] for what in order)))
    answers = [value for _, value, _ in performatives(b"".join(side.take_output(NOW)))]
    assert answers == [frames[what] for what in order]
    over = 3 if "end" in order or "close" in order else len(order)
    assert len([event for event in events if isinstance(event, LinkDetached)]) == over
    assert len([event for event in events if isinstance(event, SessionEnded)]) == ("end" in order or "close" in order)
    assert side.closed is ("close" in order)


FRAMES_AGAIN = list(
    chain.from_iterable(combinations(["same handle", "same name", "other way"], size) for size in range(4))
)


@pytest.mark.parametrize("again", FRAMES_AGAIN)
@pytest.mark.parametrize("closed", [True, False])
def test_a_name_and_a_handle_are_free_behind_the_detach(again: tuple[str, ...], closed: bool) -> None:
    """The next attach is in the same segment as the detach, before any answer."""
    side = server()
    (_, _, first) = hear(
        side,
        AMQP_HEADER
        + wire(Open("c"), Begin(None, 0, 9, 9), Attach("l", 0, True, source=Source("q"), target=Target("h"))),
    )
    first.link.accept()
    handle = 0 if "same handle" in again else 7
    name = "l" if "same name" in again else "m"
    events = hear(side, wire(Detach(0, closed), Attach(name, handle, "other way" not in again, target=Target("h"),
                                                       source=Source("q"), initial_delivery_count=0)))  # fmt: skip
    assert [type(event) for event in events] == [LinkDetached, LinkAttached]
    assert events[0].error is None
    events[1].link.accept()
    assert events[1].link.attached and side.links == 1


@pytest.mark.parametrize("detached_by", ["nobody", "us", "the peer"])
def test_the_same_name_again_on_one_session_and_on_another(detached_by: str) -> None:
    """On one session the newer link steals (§2.6.1); on another session both live (docs/amqp.md, "Link names")."""
    side = server()
    attach = Attach("l", 0, True, source=Source("q"), target=Target("h"))
    told = hear(
        side, AMQP_HEADER + wire(Open("c"), Begin(None, 0, 9, 9), attach) + wire(Begin(None, 0, 9, 9), channel=1)
    )
    first = told[2].link
    first.accept()
    if detached_by == "us":
        first.detach(error=Error("a:b"))
    elif detached_by == "the peer":
        hear(side, wire(Detach(0, True)))
    side.take_output(NOW)
    events = hear(side, wire(Attach("l", 1, True, source=Source("q"), target=Target("h"))))
    stolen = [event.error.condition for event in events if isinstance(event, LinkDetached)]
    assert stolen == ([] if detached_by == "the peer" else ["amqp:link:stolen"])
    second = events[-1].link
    second.accept()
    (other,) = hear(side, wire(attach, channel=1))
    other.link.accept()
    assert second.attached and other.link.attached and not first.attached
