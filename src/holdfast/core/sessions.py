"""Sessions with neighbours: a BGP-like state table over AMQP's open (traffic-control §3.2, figure 5; CUSTODY,
"The session").

Rules of this file: the table below is the machine; nothing else changes a state. Established is a control link
attached both ways and the peer's word on our receipts heard. The hold time is the smaller of both sides'; the
control link's probe keeps it, and whatever else arrives.
"""

from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from holdfast.amqp.codec import encode
from holdfast.amqp.connection import Delivery, Receiver, Sender
from holdfast.amqp.message import Message
from holdfast.amqp.performatives import Source, Target
from holdfast.amqp.types import Symbol, Ulong
from holdfast.core.config import NeighbourConfig
from holdfast.core.egress import Egress
from holdfast.core.hops import CustodySender
from holdfast.core.ingress import Ingress
from holdfast.core.peer import Peer
from holdfast.errors import RemoteProtocolError
from holdfast.names import NAME_BYTES_MAX

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

CONTROL_ADDRESS: Final = "$holdfast/control"
CAPABILITY: Final = "holdfast:custody"
STORE: Final = Symbol("holdfast:store")
HOLD_TIME: Final = Symbol("holdfast:hold-time")

RETRY_S: Final = (0.1, 5.0)
"""The first and the longest back-off of a dial, before its jitter: many peers come back at once when a site heals."""

CONTROL_CREDIT: Final = 200
RECEIPTS_MAX: Final = 1_000
"""Marks told in one control message."""


class State(Enum):
    """As BGP's finite state machine names them (RFC 4271 §8.2.2)."""

    IDLE = "Idle"
    CONNECT = "Connect"
    OPEN_SENT = "OpenSent"
    OPEN_CONFIRM = "OpenConfirm"
    ESTABLISHED = "Established"


class Happened(Enum):
    """What moves a session."""

    DIALLED = "dialled"
    CONNECTED = "connected"
    ACCEPTED = "accepted"
    OPENED = "opened"
    CONTROL_UP = "control up"
    LOST = "lost"


TRANSITIONS: Final = {
    (State.IDLE, Happened.DIALLED): State.CONNECT,
    (State.IDLE, Happened.ACCEPTED): State.OPEN_CONFIRM,
    (State.CONNECT, Happened.CONNECTED): State.OPEN_SENT,
    (State.CONNECT, Happened.ACCEPTED): State.OPEN_CONFIRM,
    (State.CONNECT, Happened.LOST): State.IDLE,
    (State.OPEN_SENT, Happened.OPENED): State.OPEN_CONFIRM,
    (State.OPEN_SENT, Happened.ACCEPTED): State.OPEN_CONFIRM,
    (State.OPEN_SENT, Happened.LOST): State.IDLE,
    (State.OPEN_CONFIRM, Happened.CONTROL_UP): State.ESTABLISHED,
    (State.OPEN_CONFIRM, Happened.ACCEPTED): State.OPEN_CONFIRM,
    (State.OPEN_CONFIRM, Happened.LOST): State.IDLE,
    (State.ESTABLISHED, Happened.ACCEPTED): State.OPEN_CONFIRM,
    (State.ESTABLISHED, Happened.LOST): State.IDLE,
}


class Neighbour:
    """One configured neighbour: its session's state, and the custody senders towards it, which outlive sessions."""

    def __init__(self, core: "NodeCore", config: NeighbourConfig) -> None:
        self.core = core
        self.config = config
        self.state = State.IDLE
        self.peer: Peer | None = None
        self.control: Sender | None = None
        self.heard_hello = False
        self.attempts = 0
        self.dialling = False
        self.dial_at: float | None = core.now if config.remote is not None else None
        self.hold_time_s = config.hold_time_s
        self.heard_at = core.now
        self.probe_at = 0.0
        self.probe_number = 0
        self.probe_sent: dict[int, float] = {}
        self.round_trip_s: float | None = None
        self.opened_at = 0.0
        self.flaps = 0
        self.senders: dict[str, CustodySender] = {}
        self.told: dict[tuple[str, UUID], int] = {}
        """(destination, origin) -> the last mark told in this session."""
        self.brings: dict[tuple[UUID, str], None] = {}
        """(origin, destination) of what it was the last to bring."""
        self.version: int | None = None
        """The version of its forwarding table, as it last told."""

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def established(self) -> bool:
        return self.state is State.ESTABLISHED

    def _move(self, happened: Happened, reason: str = "") -> None:
        before = self.state
        self.state = TRANSITIONS[before, happened]
        if before is not self.state:
            fields = {"neighbour": self.name, "state": self.state.value, "previous": before.value, "reason": reason}
            self.core.record("session", fields)
            level = "INFO" if State.ESTABLISHED in (before, self.state) else "DEBUG"
            self.core.log(level, f"neighbour {self.name}: {before.value} -> {self.state.value} {reason}".rstrip())

    # ------------------------------------------------------------------------------------------------ dialling

    def tick(self, now: float) -> None:
        """Dials, probes, and ends what has been silent for the hold time."""
        if self.dial_at is not None and now >= self.dial_at and self.state is State.IDLE and not self.dialling:
            self.dial_at = None
            self.dialling = True
            self._move(Happened.DIALLED)
            self.core.connect(self.name)
        peer = self.peer
        if peer is None:
            return
        if peer.pauses:  # what it said meanwhile lies unread
            self.heard_at = now
        if now - self.heard_at >= self.hold_time_s:
            self.core.drop(peer, f"nothing heard for {self.hold_time_s:g} s")
            return
        if self.control is not None and self.control.attached and now >= self.probe_at:
            self.probe_at = now + self.config.keepalive_s
            self._probe(now)
        for sender in self.senders.values():
            sender.tick(now)

    def next_deadline(self) -> float | None:
        if self.peer is None:
            return None if self.dialling else self.dial_at
        deadline = self.heard_at + self.hold_time_s
        if self.control is not None and self.control.attached:
            deadline = min(deadline, self.probe_at)
        for sender in self.senders.values():
            at = sender.next_deadline() if self.established else None
            if at is not None:
                deadline = min(deadline, at)
        return deadline

    def connect_failed(self, reason: str) -> None:
        self.dialling = False
        if self.state is State.CONNECT:
            self._move(Happened.LOST, reason)
            if self.core.routing is not None:
                self.core.routing.link_down(self, reason)
        self._dial_later()

    def _dial_later(self) -> None:
        if self.config.remote is None or self.core.stopping:
            return
        first, longest = RETRY_S
        delay = min(longest, first * 2.0 ** min(self.attempts, 10))
        self.attempts += 1
        self.dial_at = self.core.now + delay * self.core.rng.uniform(0.5, 1.0)

    # ------------------------------------------------------------------------------------------------ opening

    def connected(self, peer: Peer) -> None:
        """Our dial came through; open, begin and the control link go out in one flight."""
        self.dialling = False
        if self.state is not State.CONNECT:  # they reached us meanwhile
            self.core.drop(peer, "the neighbour reached us first")
            return
        self._move(Happened.CONNECTED)
        self._hold(peer)

    def opened(self, peer: Peer, properties: dict[Any, Any]) -> None:
        """The peer's open: on a connection that we dialled, or that we now know to be this neighbour's."""
        if peer is self.peer:
            self._move(Happened.OPENED)
        else:
            if self.peer is not None and not self._yields_to(peer):
                self.core.drop(peer, "a session with this neighbour is up")
                return
            old, self.peer = self.peer, None
            self._move(Happened.ACCEPTED)
            if old is not None:
                self._forget_links()
                self.core.drop(old, "the neighbour came on a new connection")
            self._hold(peer)
        peer.neighbour = self
        theirs = properties.get(HOLD_TIME)
        self.hold_time_s = self.config.hold_time_s
        if isinstance(theirs, int) and theirs > 0:
            self.hold_time_s = max(min(self.hold_time_s, theirs / 1000), 0.1)
        store = properties.get(STORE)
        if isinstance(store, UUID):
            self.core.forwarding.neighbour_store(self, store)

    def _yields_to(self, peer: Peer) -> bool:
        """Of two connections that cross, both sides keep the one that the lower name dialled; else the newer."""
        assert self.peer is not None
        if self.peer.dialled == peer.dialled:
            return True
        dialled_by_us = peer.dialled
        ours_is_lower = self.core.config.name < self.name
        return dialled_by_us == ours_is_lower or self.core.now - self.heard_at > self.config.keepalive_s

    def _hold(self, peer: Peer) -> None:
        self.peer = peer
        peer.neighbour = self
        self.heard_at = self.opened_at = self.core.now
        self.heard_hello = False
        self.told.clear()
        self.probe_sent.clear()
        session = self.core.session_of(peer)
        self.control = session.attach_sender(
            f"control:{self.core.config.name}",
            Source(address=CONTROL_ADDRESS),
            Target(address=CONTROL_ADDRESS),
            snd_settle_mode=1,
        )
        self.control.context = ControlSender(self.core, peer, self.control, self)
        peer.touch()

    def control_attached(self) -> None:
        """Our control link was answered: tell what we are and what we have of theirs, before anything else."""
        self.told.clear()
        version = Ulong(self.core.forwarding.version)
        self._tell_marks({"kind": "hello", "store": self.core.store_uuid, "version": version})
        self.probe_at = self.core.now
        self._maybe_established()

    def _maybe_established(self) -> None:
        if self.state is State.OPEN_CONFIRM and self.heard_hello and self.control is not None and self.control.attached:
            self.attempts = 0
            self._move(Happened.CONTROL_UP)
            self.core.forwarding.established(self)
            if self.core.routing is not None:
                self.core.routing.link_up(self)

    def sender_to(self, destination: str) -> None:
        """Makes sure that the transmission queue for `destination` has its pump towards this neighbour."""
        sender = self.senders.get(destination)
        if sender is None:
            queue = self.core.catalog.transmission(destination)
            sender = self.senders[destination] = CustodySender(self.core, self, destination, queue)
        sender.go(self.peer if self.established else None)

    # ------------------------------------------------------------------------------------------------ losing

    def lost(self, peer: Peer, reason: str) -> None:
        """The connection is gone."""
        if peer is not self.peer:
            return
        self.peer = None
        self._forget_links()
        self.flaps += 1
        self._move(Happened.LOST, reason)
        self._dial_later()

    def _forget_links(self) -> None:
        if self.core.routing is not None:
            self.core.routing.link_down(self, "the connection is gone")
        self.control = None
        for sender in self.senders.values():
            sender.lost()
            sender.retry_at = None

    # ------------------------------------------------------------------------------------------------ control

    def send(self, fields: dict[str, Any]) -> bool:
        """One control message; False where the link has no credit and it is dropped, to be said again or not."""
        control = self.control
        if control is None or not control.attached or control.credit < 1 or self.peer is None:
            return False
        control.send(b"\x00\x53\x77" + encode(fields), context=None, settled=True)
        self.peer.touch()
        return True

    def tell_version(self) -> None:
        """Our forwarding table is another one: what we sent back may be tried again."""
        self.send({"kind": "table", "version": Ulong(self.core.forwarding.version)})

    def _probe(self, now: float) -> None:
        self.probe_number += 1
        self.probe_sent[self.probe_number] = now
        while len(self.probe_sent) > 16:
            del self.probe_sent[next(iter(self.probe_sent))]
        version = Ulong(self.core.forwarding.version)  # again: what told of a change may have been dropped
        self.send({"kind": "probe", "number": Ulong(self.probe_number), "version": version})
        self._tell_marks({"kind": "marks"})

    def _tell_marks(self, fields: dict[str, Any]) -> None:
        """(destination, origin, mark) of what came by this neighbour, and which it has not been told."""
        at_first = fields["kind"] == "hello"
        rows = self.core.forwarding.marks_for(self, RECEIPTS_MAX, at_first=at_first)
        marks = [[destination, origin, Ulong(mark)] for destination, origin, mark in rows]
        if (rows or at_first) and self.send(fields | {"marks": marks}):
            self.told.update({(destination, origin): mark for destination, origin, mark in rows})

    def hear(self, fields: dict[Any, Any]) -> None:
        """A control message of the peer's. Unknown kinds are passed over: a newer neighbour may say more."""
        kind = fields.get("kind")
        if kind in ("hello", "probe", "table"):
            self._hear_version(fields.get("version"))
        if kind == "probe":
            number = fields.get("number")
            self.send({"kind": "echo", "number": number if isinstance(number, int) else None})
        elif kind == "echo":
            number = fields.get("number")
            sent = self.probe_sent.pop(number, None) if isinstance(number, int) else None
            if sent is not None:
                self.round_trip_s = self.core.now - sent
        elif kind in ("hello", "marks"):
            marks = fields.get("marks")
            for pair in marks[:RECEIPTS_MAX] if isinstance(marks, list) else []:
                if isinstance(pair, list) and len(pair) == 3:
                    destination, origin, mark = pair
                    if isinstance(destination, str) and isinstance(origin, UUID) and isinstance(mark, int):
                        self._hear_mark(str(destination), origin, int(mark))
            store = fields.get("store")
            if kind == "hello" and isinstance(store, UUID):
                self.core.forwarding.neighbour_store(self, store)
            if kind == "hello":
                self.heard_hello = True
                self._maybe_established()
        elif self.core.routing is not None:
            self.core.routing.hear(self, fields)

    def _hear_mark(self, destination: str, origin: UUID, mark: int) -> None:
        if len(destination.encode("utf-8", "replace")) <= NAME_BYTES_MAX and mark < 2**63:
            self.core.forwarding.hear_mark(self, destination, origin, mark)

    def _hear_version(self, version: object) -> None:
        if isinstance(version, int) and version != self.version:
            self.version = int(version)
            self.core.forwarding.version_heard(self)


class ControlSender(Egress):
    """Our control link."""

    def __init__(self, core: "NodeCore", peer: Peer, link: Sender, neighbour: Neighbour) -> None:
        super().__init__(core, peer, link)
        self.neighbour = neighbour
        self.greeted = False

    def credited(self) -> None:
        if not self.greeted and self.link.credit > 0 and self.neighbour.control is self.link:
            self.greeted = True
            self.neighbour.control_attached()

    def gone(self, unsettled: list[Any]) -> None:
        if self.neighbour.control is self.link:
            self.core.drop(self.peer, "the control link was detached")


class ControlReceiver(Ingress):
    """The peer's control link."""

    def __init__(self, core: "NodeCore", peer: Peer, link: Receiver, neighbour: Neighbour) -> None:
        super().__init__(core, peer, link)
        self.neighbour = neighbour

    def delivered(self, delivery: Delivery) -> None:
        try:
            fields = Message.decode(delivery.payload).value
        except RemoteProtocolError as error:
            self.core.log("WARNING", f"neighbour {self.neighbour.name}: control message: {error.description}")
            fields = None
        if isinstance(fields, dict) and self.neighbour.peer is self.peer:
            self.neighbour.hear(fields)
        self.top_up(CONTROL_CREDIT)
