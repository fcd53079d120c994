"""Frames instead of bytes: the same engines, driven the same way, in either form (direct.py).

Rules of this file: whatever is compared is compared whole, with the types in it, and in order. A random script is
cut down by Hypothesis to the few steps that tell the two forms apart.
"""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqp.joined import NOW
from amqp.spelling import spelt
from holdfast.amqp import fast
from holdfast.amqp.codec import encode
from holdfast.amqp.connection import Connection, LinkAttached, Outcomes, ProtocolFailed, Receiver, Sender, Settings
from holdfast.amqp.connection import Delivery as Arrived
from holdfast.amqp.direct import BYTES, DIRECT, Frame
from holdfast.amqp.frames import AMQP_HEADER
from holdfast.amqp.link import Link
from holdfast.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Declared,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
    decode_composite,
)
from holdfast.amqp.plain import plain_disposition, plain_flow, plain_transfer
from holdfast.amqp.session import Session
from holdfast.amqp.types import Described, Symbol, Ulong
from holdfast.errors import LocalProtocolError, RemoteProtocolError

Step = tuple[str, int, int, int]


def shown(frame: Frame) -> Any:
    """All of a frame. The numbers of the parsers by hand are bare, those of the codec are typed."""
    told: Any
    if isinstance(frame.fields, RemoteProtocolError):
        told = repr(frame.fields)
    elif frame.code:
        told = [item if isinstance(item, int | bytes) else spelt(item) for item in frame.fields]
    else:
        told = spelt(frame.fields)
    return len(frame), frame.channel, frame.code, told, frame.payload


def read(data: bytes) -> list[Any]:
    """What is in these bytes: headers and SASL frames as they are, frames as `shown`, read by the codec alone."""
    found: list[Any] = []
    at = 0
    while at < len(data):
        size = 8 if data[at : at + 4] == b"AMQP" else int.from_bytes(data[at : at + 4], "big")
        whole = data[at : at + size]
        at += size
        if whole[:4] == b"AMQP" or whole[5] == 1:
            found.append(whole)
            continue
        channel = int.from_bytes(whole[6:8], "big")
        try:
            found.append(shown(read_frame(channel, whole[8:])))
        except RemoteProtocolError as error:
            found.append((size, channel, b"", repr(error), whole[8:]))
    return found


def read_frame(channel: int, body: bytes) -> Frame:
    """By the codec alone."""
    value: Any = None
    code, payload = body[:3], b""
    if code == fast.TRANSFER:
        value = plain_transfer(body, 0, len(body))
        payload = body[value[-1] :]
        value = (*value[:-1], 0)
    elif code == fast.DISPOSITION:
        value = plain_disposition(body)
    elif code == fast.FLOW:
        value = plain_flow(body)
    else:
        code = b""
        if body:
            value, _ = decode_composite(body)
    return Frame(8 + len(body), channel, code, value, payload)


class World:
    """A client and a server in one of the forms; `log` is all that anybody could see of them."""

    def __init__(self, terms: tuple[dict[str, Any], dict[str, Any]], *, decoded: bool) -> None:
        self.decoded = decoded
        self.now = NOW
        self.log: list[Any] = []
        self.sides = (
            Connection(
                Settings(container_id="c", decoded=decoded, **terms[0]), server=False, now=NOW
            ),
            Connection(
                Settings(container_id="s", decoded=decoded, **terms[1]),
                server=True, now=NOW, authenticate=lambda _, user, password: user == password,
            ),
        )  # fmt: skip
        self.links: list[Any] = []
        self.asked: list[Any] = []
        self.deliveries: list[Arrived] = []
        self.outcomes: list[Outcomes] = []
        self.names = 0

    def carry(self, side: int) -> bool:
        """One flight from that side to the other."""
        here, there = self.sides[side], self.sides[1 - side]
        chunks = here.take_output(self.now)
        if not chunks:
            return False
        self.log.append(("flight", side, sum(map(len, chunks))))
        if self.decoded:
            for chunk in chunks:
                self.log += [shown(chunk)] if isinstance(chunk, Frame) else read(chunk)
            self.hear(1 - side, there.receive_frames(chunks, self.now))
        else:
            data = b"".join(chunks)
            self.log += read(data)
            self.hear(1 - side, there.receive(data, self.now))
        return True

    def hear(self, side: int, events: Sequence[Any]) -> None:
        for event in events:
            self.log.append((side, spelt(event)))
            if isinstance(event, LinkAttached) and event.remote_initiated:
                self.asked.append(event.link)
            elif isinstance(event, Arrived):
                self.deliveries.append(event)
            elif isinstance(event, Outcomes):
                self.outcomes.append(event)

    def rest(self) -> None:
        while self.carry(0) | self.carry(1):
            pass

    def look(self) -> None:
        """The parts of the engines' state on which what they do next depends."""
        for side in self.sides:
            self.log.append((side.state, side.closed, side.authenticated_user, side.next_deadline(), side.links))
            for session in side.sessions:
                self.log.append(
                    (
                        session.window_out, session.next_incoming_id, session.next_outgoing_id, len(session.backlog),
                        list(session.unsettled_in), list(session.unsettled_out),
                    )
                )  # fmt: skip
        for link in self.links:
            self.log.append((repr(link), link.attached, link.over, link.credit, spelt(link.remote_attach)))
            self.log.append((link.resumes, link.resumes_only, link.closed))
            if isinstance(link, Sender):
                self.log.append((link.next_tag, spelt(link.unsettled_tags()), spelt(link.suspended)))

    # ------------------------------------------------------------------------------------------------- steps

    def do(self, steps: Sequence[Step]) -> list[Any]:
        for what, which, size, flags in steps:
            self.log.append(what)
            try:
                getattr(self, f"do_{what}")(which, size, flags)
            except LocalProtocolError as error:
                self.log.append(str(error))
            self.look()
        self.rest()
        self.look()
        return self.log

    def session(self, which: int) -> Session | None:
        found = [session for side in self.sides for session in side.sessions]
        return found[which % len(found)] if found else None

    def link(self, kind: type, which: int) -> Any:
        found = [link for link in self.links if isinstance(link, kind)]
        return found[which % len(found)] if found else None

    def do_carry(self, which: int, size: int, flags: int) -> None:
        self.carry(which % 2)

    def do_rest(self, which: int, size: int, flags: int) -> None:
        self.rest()

    def do_begin(self, which: int, size: int, flags: int) -> None:
        self.sides[which % 2].begin()

    def do_attach(self, which: int, size: int, flags: int) -> None:
        session = self.session(which)
        if session is None:
            return
        self.names += 1
        terms: dict[str, Any] = {
            "snd_settle_mode": flags % 3, "rcv_settle_mode": flags % 2,
            "properties": {Symbol("size"): Ulong(size), Symbol("more"): [1, "x", Symbol("y"), None]},
            "desired_capabilities": ("one", "two")[: flags % 3] or None,
            "max_message_size": size if flags % 5 == 0 else None,
            "unsettled": MAPS[flags % 4],
        }  # fmt: skip
        filters = {Symbol("f"): Described(Symbol("holdfast:x"), Ulong(size))}
        source = Source(address="q", filter=filters, outcomes=[Symbol("amqp:accepted:list")])
        if flags % 4 == 0:
            source.default_outcome = Modified(delivery_failed=True)
        attach = session.attach_sender if flags % 2 else session.attach_receiver
        link = attach(f"link {self.names}", source, Target("here"), **terms)
        if isinstance(link, Sender) and flags % 3 == 0:
            link.use_tags(session.tag_offset(2**32 - 1 - size))
        self.links.append(link)

    def do_answer(self, which: int, size: int, flags: int) -> None:
        if self.asked:
            link = self.asked.pop(0)
            if flags % 7 == 6:
                link.refuse("amqp:not-allowed", "x" * size)
            else:
                link.accept(properties={Symbol("n"): size} if flags % 2 else None, unsettled=MAPS[size % 4])
                self.links.append(link)

    def do_grant(self, which: int, size: int, flags: int) -> None:
        link = self.link(Receiver, which)
        if link is not None:
            link.grant(size % 50, drain=flags % 3 == 0)

    def do_drained(self, which: int, size: int, flags: int) -> None:
        link = self.link(Sender, which)
        if link is not None:
            link.drained()

    def do_send(self, which: int, size: int, flags: int) -> None:
        link = self.link(Sender, which)
        if link is None:
            return
        body = bytes(range(256)) * (size // 256) + bytes(size % 256)
        parts = (body, [body[:7], body[7:]], [body], [], [b"", body[:1], body[1:2], body[2:], b""])[flags % 5]
        state = (None, None, None, None, Received(1, 2))[size % 5]
        for number in range(1 + flags % 6):
            link.send(
                parts, context=(size, number), settled=flags % 3 == 0, message_format=flags // 40, state=state
            )  # fmt: skip

    def do_resume(self, which: int, size: int, flags: int) -> None:
        link = self.link(Sender, which)
        if link is not None:
            tag = bytes(flags % 33)
            if flags % 3 == 0:
                link.resume(tag, bytes(size), context=size, state=Received(flags, size))
            else:
                settled = flags % 3 == 1
                link.resume(tag, context=size, state=outcome(size, flags), settled=settled, aborted=not settled)

    def do_settle(self, which: int, size: int, flags: int) -> None:
        if not self.deliveries:
            return
        first = self.deliveries[which % len(self.deliveries)]
        first.link.settle(first.delivery_id, (first.delivery_id + size % 9) & 0xFFFFFFFF, outcome(size, flags))

    def do_settle_back(self, which: int, size: int, flags: int) -> None:
        if self.outcomes:
            told = self.outcomes[which % len(self.outcomes)]
            told.link.settle(told.first, told.last, told.state)

    def do_detach(self, which: int, size: int, flags: int) -> None:
        link = self.link(Link, which)
        if link is not None:
            link.detach(closed=flags % 3 > 0, error=None if flags % 2 else error_of(size))

    def do_end(self, which: int, size: int, flags: int) -> None:
        session = self.session(which)
        if session is not None:
            session.end(None if flags % 2 else error_of(size))

    def do_close(self, which: int, size: int, flags: int) -> None:
        self.sides[which % 2].close(None if flags % 2 else error_of(size))

    def do_lose(self, which: int, size: int, flags: int) -> None:
        self.hear(which % 2, self.sides[which % 2].transport_lost())

    def do_time(self, which: int, size: int, flags: int) -> None:
        self.now += (size % 100) / 40
        for number, side in enumerate(self.sides):
            self.hear(number, side.tick(self.now))

    def do_cheat(self, which: int, size: int, flags: int) -> None:
        """What no engine of ours does by itself: it believes to have what the peer has not given."""
        session = self.session(which)
        sender = self.link(Sender, which)
        if flags % 3 == 0 and session is not None:
            session.window_out += 100
        elif flags % 3 == 1 and sender is not None:
            sender.credit += 3
        elif sender is not None:
            sender._payload_max = 200_000
            self.sides[which % 2].frame_size_out = 200_000

    def do_blunder(self, which: int, size: int, flags: int) -> None:
        """A performative that has no place, on a channel that may have none."""
        side = self.sides[which % 2]
        if side.usable:
            side.write(which % 3, BLUNDERS[flags % len(BLUNDERS)])

    def do_empty(self, which: int, size: int, flags: int) -> None:
        side = self.sides[which % 2]
        side.output.append(side.form.empty)


MAPS: tuple[dict[bytes, Any] | None, ...] = (
    None, {}, {b"": None, b"x": Accepted()}, {bytes((number,)) * 30: Received(number, 7) for number in range(40)},
)  # fmt: skip
"""The last fits no frame of 512 or 600 bytes."""


def error_of(size: int) -> Error:
    return Error(Symbol("amqp:internal-error"), "y" * size, {Symbol("why"): size})


def outcome(size: int, flags: int) -> Any:
    return (
        None, Accepted(), Accepted(), Accepted(), Released(), Rejected(), Rejected(error_of(size)), Modified(),
        Modified(True, False, {Symbol("x-opt-n"): size}), Declared(b"txn"), Received(3, 4),
    )[flags % 11]  # fmt: skip


BLUNDERS: tuple[Any, ...] = (
    Transfer(77, 5, b"tag"), Transfer(0), Transfer(0, 3, b"t" * 40), Transfer(0, 9, b"t", aborted=True),
    Flow(None, 5, 0, 5), Flow(4_000_000, 5, 0, 5), Flow(0, 5, 0, 5, 99, 0, 1), Flow(0, 5, 0, 5, echo=True),
    Disposition(True, 9, 3), Disposition(True, 0, 90, True, Accepted()), Disposition(False, 0, 90, True),
    Attach("again", 0, False, 2, 0, Source("x"), Target("y"), initial_delivery_count=0),
    Attach("far", 5000, True), Detach(55, True), Begin(None, 0, 5, 5), Begin(9, 0, 5, 5), End(), Open("twice"),
    Accepted(), Source("x"), Transfer(0, 1, b"t", state=Source("no state")), Error(Symbol("x")),
    Attach("odd", 3, True, source="odd"), Disposition(True, 0, 0, True, "odd"),
)  # fmt: skip
"""Each ends a link, a session, the connection, or nothing."""

STEPS = st.tuples(
    st.sampled_from(
        (
            "carry", "carry", "rest", "rest", "begin", "attach", "attach", "answer", "answer", "grant", "grant",
            "drained", "send", "send", "send", "resume", "settle", "settle", "settle", "settle_back", "detach", "end",
            "close", "lose", "time", "cheat", "blunder", "empty",
        )
    ),
    st.integers(0, 30),
    st.one_of(st.integers(0, 60), st.sampled_from((255, 256, 480, 512, 1024, 3000, 70_000))),
    st.integers(0, 119),
)  # fmt: skip
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "max_frame_size": st.sampled_from((512, 600, 4096)),
        "incoming_window": st.sampled_from((2, 3, 16)),
        "idle_time_out_s": st.sampled_from((1.0, 3.0)),
        "max_message_size": st.sampled_from((100, 2000)),
        "unsettled_max": st.just(4),
        "handle_max": st.just(1),
        "links_max": st.just(2),
        "channel_max": st.just(1),
        "first_transfer_id": st.sampled_from((200, 2**32 - 3)),
        "properties": st.just({Symbol("product"): "Holdfast", Symbol("n"): Ulong(3)}),
        "offered_capabilities": st.just(("a", "b")),
    },
)
LOGIN = st.sampled_from(
    (
        ({}, {}),
        ({}, {"sasl_required": True}),
        ({"mechanism": "ANONYMOUS"}, {"mechanisms": ("PLAIN",)}),
        ({"mechanism": "PLAIN", "user": "u", "password": "u"}, {"sasl_required": True}),
        ({"mechanism": "PLAIN", "user": "u", "password": "wrong"}, {}),
    )
)
OPENING: list[Step] = [("begin", 0, 0, 0), ("rest", 0, 0, 0)]
OPENING += [("attach", 0, 9, 1), ("attach", 1, 9, 2), ("attach", 0, 9, 3), ("rest", 0, 0, 0)]
OPENING += [("answer", 0, 0, 1)] * 3 + [("rest", 0, 0, 0)]
OPENING += [("grant", number, 20, 1) for number in range(3)] + [("rest", 0, 0, 0)]


def alike(terms: tuple[dict[str, Any], dict[str, Any]], steps: Sequence[Step]) -> list[Any]:
    """What both forms tell; they tell the same."""
    spoken, direct = (World(terms, decoded=decoded).do(steps) for decoded in (False, True))
    for number, (one, other) in enumerate(zip(spoken, direct, strict=False)):
        assert one == other, (number, spoken[max(0, number - 3) : number])
    assert len(spoken) == len(direct)
    return spoken


@given(
    steps=st.lists(STEPS, max_size=40), client=TERMS, server=TERMS, login=LOGIN | st.just(({}, {})),
    opened=st.booleans() | st.just(True),
)  # fmt: skip
def test_either_form_tells_the_same(
    steps: list[Step], client: dict[str, Any], server: dict[str, Any], login: Any, opened: bool
) -> None:
    alike(({**client, **login[0]}, {**server, **login[1]}), [*OPENING, *steps] if opened else steps)


def test_a_story_with_all_in_it() -> None:
    story = [*OPENING]
    for size in (0, 1, 255, 256, 400, 500, 511, 512, 1024, 3000, 70_000):
        story += [("send", 0, size, flags) for flags in (0, 1, 2, 4, 41)] + [("rest", 0, 0, 0)]
        story += [("settle", size, size, flags) for flags in range(11)]
        story += [("rest", 0, 0, 0), ("settle_back", size, 0, 0), ("grant", 0, 40, 1), ("grant", 1, 40, 3)]
    story += [("time", 0, 80, 0), ("rest", 0, 0, 0), ("empty", 1, 0, 0)]
    story += [("detach", 0, 900, 2), ("rest", 0, 0, 0), ("end", 0, 0, 1), ("rest", 0, 0, 0), ("close", 1, 300, 0)]
    log = alike(({"max_frame_size": 512, "idle_time_out_s": 3.0}, {"incoming_window": 8}), story)
    payloads = {len(dict(enumerate(item[1][1]))[5][1]) for item in log if item[0] in (0, 1) and is_delivery(item)}
    assert {0, 1, 512, 3000, 70_000} <= payloads
    assert (8, 0, b"", ("NoneType", None), b"") in log, "an empty frame"


def is_delivery(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], tuple) and item[1][0] == "Delivery"


def test_every_blunder_ends_as_much_in_either_form() -> None:
    ends = set()
    for number in range(len(BLUNDERS)):
        for after in ([], [("end", 0, 0, 1)], [("close", 1, 0, 1)]):
            steps = [*OPENING, *after, ("blunder", 0, 0, number), ("send", 0, 5, 1), ("rest", 0, 0, 0)]
            for item in alike(({}, {}), steps):
                ends |= {kind for kind in ("LinkDetached", "SessionEnded", "ProtocolFailed") if kind in repr(item)}
    for flags in range(3):
        for size in (10, 70_000):
            flood = [("cheat", 0, 0, flags), ("grant", 0, 0, 1)] + [("send", 0, size, 5)] * 9
            alike(({}, {"incoming_window": 4}), [*OPENING, *flood, ("rest", 0, 0, 0)])
    assert ends == {"LinkDetached", "SessionEnded", "ProtocolFailed"}


# ------------------------------------------------------------------------------------------------ one by one


def test_a_frame_is_as_long_as_its_bytes() -> None:
    for channel, handle, size in ((0, 0, 0), (3, 200, 1), (65535, 300, 70_000)):
        ours, bare = DIRECT.transfers(channel, handle), BYTES.transfers(channel, handle)
        output: list[Any] = []
        tail = DIRECT.tail(output)
        tail.append(ours.head(size, 2**32 - 1, True))
        tail += (bytes(size),)
        (frame,) = output
        assert len(frame) == len(bare.head(size, 2**32 - 1, True)) + size
        assert shown(frame) == read(bare.head(size, 2**32 - 1, True) + bytes(size))[0]
        for made, told in (
            (ours.first(size, 7, False), bare.first(size, 7, False)),
            (ours.following(size, True), bare.following(size, True)),
            (ours.following(size, False), bare.following(size, False)),
        ):
            made.payload = bytes(size)
            assert len(made) == len(told) + size and shown(made) == read(told + bytes(size))[0]
    for state in (None, Accepted(), Released(), Rejected(), Rejected(Error(Symbol("x"))), Modified()):
        told, made = (form.disposition(1, True, 5, 2**31, True, state) for form in (BYTES, DIRECT))
        assert (told is None) == (made is None)
        if isinstance(told, bytes) and isinstance(made, Frame):
            assert [shown(made)] == read(told)


def test_what_is_passed_is_not_the_senders_own() -> None:
    """As with bytes, nobody sees what a peer does with its objects later."""
    world = World(({}, {}), decoded=True)
    world.do(OPENING)
    link = world.links[0]
    assert link.local_attach is not None and link.local_attach.source.address == "q"
    link.local_attach.source.address = "changed"
    body = bytearray(b"before")
    sender = next(item for item in world.links if isinstance(item, Sender))
    sender.send([b"x", memoryview(body)], context=None)  # type: ignore[list-item]  # stored entries come as views
    body[:] = b"behind"
    world.rest()
    assert world.deliveries[-1].payload == b"xbefore" and type(world.deliveries[-1].payload) is bytes
    assert all(item.remote_attach.source.address == "q" for item in world.links)


def test_frames_out_of_place_are_a_peers_fault() -> None:
    empty, opened = DIRECT.empty, DIRECT.frame(0, encode(Open("x")))
    for chunks in ([opened], [AMQP_HEADER, b"AMQ"], [AMQP_HEADER, opened, b"\0\0\0"], [b"AMQP\3\1\0\0", empty]):
        side = Connection(Settings(container_id="s", decoded=True), server=True, now=NOW)
        assert isinstance(side.receive_frames(chunks, NOW)[-1], ProtocolFailed)
        assert side.closed and side.receive_frames([empty], NOW) == []


def test_what_nobody_can_decode_is_told_by_the_reader() -> None:
    frame = DIRECT.frame(0, encode(Begin(None, 0, 5, 5)))
    assert isinstance(frame, Frame) and isinstance(frame.fields, Begin)
    broken = DIRECT.frame(0, b"\x00\x53\x99\x45")
    assert isinstance(broken, Frame) and isinstance(broken.fields, RemoteProtocolError) and len(broken) == 12
