"""One connection of a hostile client: the state of its sessions and links, and the framing of what it sends.

Rules of this file: follows the protocol far enough that later acts mean something (credit, handles, delivery-ids), and
checks nothing. What it says next is drawn from `acts.py`.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from holdfast.amqp.wire.composites import decode_composite
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.frames import AMQP_HEADER, EMPTY_FRAME, frame, frame_with_payload
from holdfast.amqp.wire.performatives import Attach, Begin, Close, Detach, End, Flow, Open, Source, Target, Transfer
from holdfast.errors import RemoteProtocolError

UINT_MAX: Final = 2**32 - 1
WINDOWS: Final = (0, 1, 2, 5_000, 2**31 - 1, UINT_MAX)
FIRST_IDS: Final = (0, 0, 1, 2**31 - 2, UINT_MAX - 2, UINT_MAX)
FRAMES: Final = (512, 513, 4_096, 65_536, UINT_MAX)
HANDLES: Final = (0, 1, 7, 255, UINT_MAX, UINT_MAX)
CHANNELS: Final = (0, 1, 7, 65_535, 65_535)
HEARD_MAX: Final = 500
"""Deliveries of a session that it remembers."""
ANSWERED: Final = 0.9
"""Of the detaches that the node says, those that are answered."""
SHARED: Final = "hostile"
"""A container-id, and the beginning of links' names, that several clients use at a time."""
CHAOS: Final = 0
HELD: Final = 1
"""Its two lasting sessions. On `HELD` it shares a queue with honest consumers and settles nothing for good."""


@dataclass(frozen=True, slots=True)
class Places:
    """Addresses: queues of its own, queues of others that it may send to and browse, one that it may also hold messages
    of, and nodes that it may name."""

    own: tuple[str, ...]
    shared: tuple[str, ...] = ()
    held: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(slots=True)
class Link:
    """`credit`: deliveries that it may still send; of a link that receives always 0."""

    name: str
    handle: int
    receives: bool
    address: Any
    credit: int = 0
    sent: int = 0
    seen: int = 0
    abandoned: bool = False
    """A delivery on it was begun, and is never finished."""


@dataclass(slots=True)
class Session:
    """`heard`: (delivery-id, handle) of what came and may be unsettled."""

    channel: int
    next_id: int
    window: int
    links: dict[int, Link] = field(default_factory=dict)
    heard: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=HEARD_MAX))
    expected: int = 0
    """The next-incoming-id that an honest client would say."""


class HostileClient:
    """`opening()`, then `act()` as often as wanted; `hear` handles the bytes of the node. `over`: one side has
    closed."""

    def __init__(
        self, random: Random, places: Places, *, name: str, acts: dict[str, Any], rude_share: float = 0.1
    ) -> None:
        self.random = random
        self.places = places
        self.name = name
        self.said: Counter[str] = Counter()
        """How often each act was done."""
        self.over = False
        self.sessions: dict[int, Session] = {}
        self.frame_bytes_max = 512
        """What the node takes; §2.3.1 until it says."""
        self.addresses: list[str] = []
        """Dynamic addresses that it was given."""
        self._mild = [name for name, act in acts.items() if not act.rude]
        self._rude = [name for name, act in acts.items() if act.rude]
        self._acts = acts
        self._rude_share = rude_share
        self._names = 0
        self._ends_said: Counter[int] = Counter()
        """By channel: ends of ours whose answer is still to come."""
        self._due = b""
        """Answers to what the node has ended: said before the next act."""
        self._unread = b""
        self._theirs: dict[int, int] = {}
        self._links: dict[tuple[int, int], Link] = {}

    # ------------------------------------------------------------------------------------------------ saying

    def opening(self) -> bytes:
        """Protocol header, open and the sessions, with limits that are drawn."""
        draw = self.random.choice
        opened = Open(
            self.name if draw((True, True, False)) else SHARED,
            max_frame_size=draw(FRAMES),
            channel_max=draw(CHANNELS),
            idle_time_out=draw((None, None, None, 0, 30_000, UINT_MAX)),
        )
        return b"".join(
            (AMQP_HEADER, self.frames(opened), self.begin(CHAOS), self.begin(HELD) if self.places.held else b"")
        )

    def act(self) -> tuple[str, bytes]:
        """The name of what it does next, and the bytes to write."""
        rude = self._rude and self.random.random() < self._rude_share
        name = self.random.choice(self._rude if rude or not self._mild else self._mild)
        self.said[name] += 1
        due, self._due = self._due, b""
        return name, due + (self._acts[name](self) or EMPTY_FRAME)

    def frames(self, *performatives: Any, channel: int = CHAOS) -> bytes:
        """Each in a frame of its own."""
        return b"".join(frame(channel, encode(item)) for item in performatives)

    def begin(self, channel: int, **terms: Any) -> bytes:
        """Begins a session with drawn windows, also where there is one already."""
        first, window = self.random.choice(FIRST_IDS), self.random.choice(WINDOWS)
        self.sessions[channel] = Session(channel, first, window)
        begun = Begin(None, first, window, self.random.choice(WINDOWS), self.random.choice(HANDLES))
        for key, value in terms.items():
            setattr(begun, key, value)
        self.sessions[channel].next_id = begun.next_outgoing_id
        return self.frames(begun, channel=channel)

    def end(self, channel: int) -> bytes:
        """Ends that session, where there is one."""
        if self.sessions.pop(channel, None) is None:
            return b""
        self._ends_said[channel] += 1
        return self.frames(End(), channel=channel)

    def session(self, channel: int = CHAOS) -> Session:
        """That session; one that was never begun is only imagined."""
        return self.sessions.setdefault(channel, Session(channel, 0, 5_000))

    def new_name(self) -> str:
        """A link's name; one of the last few again now and then, or one that other hostile clients have too."""
        if self.random.random() < 0.1:
            return f"{SHARED}-{self.random.randrange(5)}"
        if self._names and self.random.random() < 0.15:
            return f"{self.name}-{self.random.randint(max(1, self._names - 5), self._names)}"
        self._names += 1
        return f"{self.name}-{self._names}"

    def free_handle(self, session: Session) -> int:
        """The lowest handle that no link has."""
        return next(handle for handle in range(len(session.links) + 1) if handle not in session.links)

    def attach(self, receives: bool, *, channel: int = CHAOS, **terms: Any) -> tuple[Link, bytes]:
        """A link, and its attach. `terms` are fields of the attach beside those that it has anyway."""
        session = self.session(channel)
        terms.setdefault("name", self.new_name())
        terms.setdefault("handle", self.free_handle(session))
        if receives:
            terms.setdefault("source", Source(self.random.choice(self.places.own)))
            terms.setdefault("target", Target("here"))
        else:
            terms.setdefault("source", Source("here"))
            terms.setdefault("target", Target(self.random.choice(self.places.own)))
            terms.setdefault("initial_delivery_count", self.random.choice(FIRST_IDS))
        address = getattr(terms["source"] if receives else terms["target"], "address", None)
        link = Link(terms["name"], terms["handle"], receives, address)
        link.sent = terms.get("initial_delivery_count") or 0
        session.links[link.handle] = link
        return link, self.frames(Attach(role=receives, **terms), channel=channel)

    def detach(self, link: Link, *, channel: int = CHAOS, closed: bool = True) -> bytes:
        self.session(channel).links.pop(link.handle, None)
        return self.frames(Detach(link.handle, closed), channel=channel)

    def flow(self, link: Link | None = None, *, channel: int = CHAOS, **terms: Any) -> bytes:
        """A flow of the session, or of a link, with correct fields except those in `terms`."""
        session = self.session(channel)
        flow = Flow(session.expected, session.window, session.next_id, 5_000)
        if link is not None:
            flow.handle = link.handle
            flow.delivery_count = link.seen if link.receives else link.sent
        for key, value in terms.items():
            setattr(flow, key, value)
        return self.frames(flow, channel=channel)

    def transfer(self, link: Link, payload: bytes, *, channel: int = CHAOS, **terms: Any) -> bytes:
        """One delivery in as many frames as it needs; with `more` its last frame is still to come."""
        session = self.session(channel)
        number = terms.pop("delivery_id", session.next_id)
        session.next_id = (number + 1) % 2**32
        link.sent = (link.sent + 1) % 2**32
        link.credit -= 1
        more = terms.pop("more", False)
        tag = terms.pop("delivery_tag", b"%d" % number)
        room = max(64, self.frame_bytes_max - 200)
        parts = [payload[at : at + room] for at in range(0, len(payload), room)] or [b""]
        found = []
        for place, part in enumerate(parts):
            told = Transfer(link.handle, more=more or place < len(parts) - 1, **terms)
            if place == 0:
                told.delivery_id, told.delivery_tag, told.message_format = number, tag, 0
            found.append(frame_with_payload(channel, encode(told), part))
        return b"".join(found)

    def pick(self, *, receives: bool, channel: int = CHAOS, credit: bool = False) -> Link | None:
        """A link of that kind, with credit where it is wanted; none that was abandoned."""
        links = [
            link
            for link in self.session(channel).links.values()
            if link.receives == receives and not link.abandoned and (not credit or link.credit > 0)
        ]
        return self.random.choice(links) if links else None

    def named(self, name: str) -> Link | None:
        """The link of that name."""
        return next((link for link in self.session().links.values() if link.name == name), None)

    # ------------------------------------------------------------------------------------------------ hearing

    def hear(self, data: bytes) -> None:
        """What the node says: credit, answers to attaches, deliveries."""
        for channel, said in self._read(data):
            ours = self._theirs.get(channel, channel)
            if isinstance(said, Open):
                self.frame_bytes_max = max(512, said.max_frame_size)
            elif isinstance(said, Begin) and said.remote_channel is not None:
                self._theirs[channel] = said.remote_channel
                self.session(said.remote_channel).expected = said.next_outgoing_id
            elif isinstance(said, Attach):
                self._attached(ours, channel, said)
            elif isinstance(said, Flow) and said.handle is not None:
                link = self._links.get((channel, said.handle))
                if link is not None and not link.receives:
                    count = said.delivery_count if said.delivery_count is not None else link.sent
                    link.credit = min(10_000, (count + (said.link_credit or 0) - link.sent) % 2**32)
            elif isinstance(said, Transfer):
                self._delivered(ours, channel, said)
            elif isinstance(said, Detach):
                link = self._links.pop((channel, said.handle), None)
                links = self.session(ours).links
                # Now and then the node waits for the answer in vain, and the handle stays in use (§2.6.4).
                if link is not None and links.get(link.handle) is link and self.random.random() < ANSWERED:
                    self._due += self.detach(link, channel=ours)
            elif isinstance(said, End):
                if self._ends_said[ours]:
                    self._ends_said[ours] -= 1
                else:
                    self.sessions.pop(ours, None)
                    self._due += self.frames(End(), channel=ours) + self.begin(ours)
                self._links = {place: link for place, link in self._links.items() if place[0] != channel}
            elif isinstance(said, Close):
                self.over = True

    def _attached(self, ours: int, channel: int, said: Attach) -> None:
        for link in self.session(ours).links.values():
            if link.name == said.name and link.receives != said.role:
                self._links[channel, said.handle] = link
                given = getattr(said.source if link.receives else said.target, "address", None)
                if link.address is None and isinstance(given, str):
                    self.addresses.append(given)
                    link.address = given

    def _delivered(self, ours: int, channel: int, said: Transfer) -> None:
        session = self.session(ours)
        session.expected = (session.expected + 1) % 2**32
        link = self._links.get((channel, said.handle))
        if said.delivery_id is not None and link is not None:
            link.seen = (link.seen + 1) % 2**32
            if not said.settled:
                session.heard.append((said.delivery_id, link.handle))

    def _read(self, data: bytes) -> Iterator[tuple[int, Any]]:
        data = self._unread + data
        at = 0
        while len(data) - at >= 8:
            size = 8 if data[at : at + 4] == b"AMQP" else int.from_bytes(data[at : at + 4], "big")
            if len(data) - at < size:
                break
            whole = data[at : at + size]
            at += size
            if size > 8 and whole[5] == 0:
                try:
                    yield int.from_bytes(whole[6:8], "big"), decode_composite(whole, whole[4] * 4)[0]
                except RemoteProtocolError:  # a state that only the node's store knows: no matter
                    continue
        self._unread = data[at:]
