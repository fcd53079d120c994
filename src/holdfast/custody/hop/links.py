"""The custody links to one neighbour: which session each is on, and which destinations wait for a link.

Rules of this file: a peer says how many links a session takes (handle-max, AMQP 1.0 §2.7.2) and how many sessions a
connection (channel-max, §2.7.1); neither is exceeded. Destinations beyond that take turns: a link
that has nothing to send gives its place up at once, one that has after TURN_S. Source: docs/adr/0028-hop-links.md.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Final
from uuid import UUID

from holdfast.amqp.connection import Sender, Session
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.queue import Queue
from holdfast.custody.hop.state import HopState
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.peers.peer import REASON_CHARACTERS_MAX, Peer
from holdfast.settings.limits import Limits

SESSIONS_MAX: Final = 16
"""Sessions that a node begins on one connection for its links; two suffice for the links to a usual neighbour."""

KEY_BYTES_MAX: Final = 390
"""A hop's key, made of two names: what a key of the store's small tables holds (engine/port.py), with its kind."""

TURN_S: Final = 1.0
"""How long a destination keeps its link while others wait for one."""

YIELD_S: Final = 5.0
"""How long a link that gives up its place waits for the answers to its transfers."""

LOOK_S: Final = 0.25
"""How often the links are checked while a destination waits."""

REFUSED_S: Final = 30.0
"""How long, after a neighbour refused a link, the number of links that it had then is the limit."""

SPELT_OUT_BYTES: Final = 48
"""A longer destination is only in the link's properties, so that the attach fits the smallest frame."""

WARN_S: Final = 60.0
"""The shortest time between two warnings that destinations take turns."""


def name_and_source(destination: str, epoch: UUID) -> tuple[str, str | None]:
    """A custody link's name and its source's address."""
    if len(destination.encode()) > SPELT_OUT_BYTES:
        return f"custody:{epoch.hex}", None
    return f"custody:{destination}:{epoch.hex}", f"@{destination}"


def hop_key(neighbour: str, destination: str) -> bytes:
    """The key of a receiver's state in the store."""
    key = f"{neighbour}\0{destination}".encode()
    return key if len(key) <= KEY_BYTES_MAX else sha256(key).digest()


def control_session(peer: Peer) -> Session | None:
    """The session of the control link; None if the peer begins it and has not done so yet. The side that dials begins
    one at once. On a connection with a single channel it is the only session.
    """
    engine = peer.amqp
    sessions = [session for session in engine.sessions if session.usable]
    spare = 0 if peer.dialled or sessions else 1
    if engine.channels - len(engine.sessions) > spare:
        return engine.begin()
    return sessions[0] if sessions else None


class TakesTurns:
    """The part of a custody sender that gives up its link so that another destination can have one."""

    clock: Clock
    hop: HopState
    destination: str
    queue: Queue
    peer: Peer | None
    link: Sender | None
    in_doubt: dict[int, int]
    retry_at: float | None
    open: bool
    active: bool
    large: object | None
    """The large message that is being sent; None if there is none."""
    wants: Callable[[], int]
    room_bytes: Final = READ_BYTES
    deferred: Final = False

    def __init__(self) -> None:
        self.yields_at: float | None = None
        """Since when it has sent nothing more, so that another destination gets its link."""

    def attach(self, peer: Peer, session: Session) -> None:
        """Attaches its link in that session."""
        raise AssertionError("custody/hop/sender.py attaches")

    def will_want(self) -> int:
        """Its connection has used up its budget of the turn."""
        return self.wants()

    @property
    def may_attach(self) -> bool:
        """Whether it has no link and may attach one."""
        return self.active and self.link is None and self.retry_at is None and self.hop.takes(self.destination)

    @property
    def has_work(self) -> bool:
        """Whether a link would have something to send, or to ask."""
        return self.queue.messages > 0 or bool(self.in_doubt)

    @property
    def is_idle(self) -> bool:
        """Whether its link has nothing to send and waits for no answer, so that others may have its place."""
        return self.open and not self.in_doubt and (not self.active or not self.queue.messages)

    def begin_to_yield(self, now: float) -> None:
        """Others wait for its place: sends nothing more, and detaches once everything is answered."""
        self.yields_at = now
        self.open = False
        if not self.in_doubt:
            self.give_up_link()

    def give_up_link(self) -> None:
        """Detaches, so that another destination gets the handle. Transfers in doubt are resolved at the next attach. A
        large message is sent to its end first: restarted each turn it would never finish."""
        link = self.link
        if link is None or not link.attached or self.large is not None:
            return
        if self.yields_at is None:
            self.yields_at = self.clock.now
        self.open = False
        link.detach(closed=True)
        if self.peer is not None:
            self.peer.touch()


class HopLinks:
    """The places for custody links on the connection that the neighbour has now."""

    def __init__(self, limits: Limits, clock: Clock, log: Log, hop: HopState) -> None:
        self._limits = limits
        self._clock = clock
        self._log = log
        self._hop = hop
        self.peer: Peer | None = None
        self.sessions: list[Session] = []
        self.holding: dict[TakesTurns, float] = {}
        """Senders that have a link or were granted one, and since when."""
        self.ready: dict[TakesTurns, None] = {}
        """Senders with something to send and no link, the one that has waited longest first."""
        self.due_at: float | None = None
        self._refused_at: float | None = None
        self._refused_count = 0
        self._warned_at: float | None = None
        self._refusals: dict[TakesTurns, str] = {}
        """Senders whose last attach the neighbour refused on this connection, with the reason."""

    def begin(self, peer: Peer, session: Session) -> None:
        """A connection whose control link is on `session`."""
        self.end()
        self.peer = peer
        self.sessions = [session]

    def end(self) -> None:
        """The connection has ended."""
        self.peer = None
        self.sessions = []
        self.holding.clear()
        self.ready.clear()
        self._refusals.clear()
        self.due_at = self._refused_at = None

    # ------------------------------------------------------------------------------------------------ places

    @property
    def _most(self) -> int:
        """Links that this node may have on the connection; the rest of `links_max` is for the neighbour's."""
        limits = self._limits
        most = min(limits.neighbour_links_max, max(1, limits.links_max // 2 - 1))
        return most if self._refused_at is None else max(1, min(most, self._refused_count))

    def _free_in(self, session: Session, engine_channels: int) -> int:
        """Links of ours that the session takes beyond those it has. Each has a handle of both sides'."""
        ours = session.connection.settings.handle_max
        if session.remote_channel is None:  # not answered yet: as the first one, which is
            theirs = self.sessions[0].handle_max_out if session is not self.sessions[0] else 0
        else:
            theirs = session.handle_max_out
        most = min(ours, theirs) + 1
        free = most - len(session.links)
        if engine_channels == 1:  # both sides' links share the only session: half of it is the neighbour's
            free = min(free, most // 2 - 1 - len(self.holding))
        return free

    def _place(self) -> Session | None:
        """The session for one more link; None where there is no place."""
        peer = self.peer
        if peer is None or not peer.amqp.usable or len(self.holding) >= self._most:
            return None
        engine = peer.amqp
        self.sessions = [session for session in self.sessions if session.usable]
        if not self.sessions:
            return None
        for session in self.sessions:
            if self._free_in(session, engine.channels) > 0:
                return session
        # One channel stays free: the neighbour may begin a session at the same moment.
        if len(self.sessions) < SESSIONS_MAX and engine.channels - len(engine.sessions) >= 2:
            session = engine.begin()
            self.sessions.append(session)
            return session if self._free_in(session, engine.channels) > 0 else None
        return None

    # ------------------------------------------------------------------------------------------------ who has one

    def ask(self, sender: TakesTurns) -> None:
        """The sender has no link and needs one: attaches it now, or when its turn comes."""
        peer = self.peer
        if peer is None or sender in self.holding:
            return
        session = self._place() if not self.ready or sender in self.ready else None
        if session is not None:
            self._give(sender, session, peer)
        elif sender.has_work:
            self.ready[sender] = None
            self._look_soon()

    def note_work(self, sender: TakesTurns) -> None:
        """A sender without a link has something to send."""
        if self.peer is not None and sender not in self.holding and sender not in self.ready and sender.may_attach:
            self.ready[sender] = None
            self._look_soon()

    def _look_soon(self) -> None:
        self.due_at = self._clock.now if self.due_at is None else min(self.due_at, self._clock.now + LOOK_S)
        self._hop.stir()

    def _give(self, sender: TakesTurns, session: Session, peer: Peer) -> None:
        self.ready.pop(sender, None)
        self.holding[sender] = self._clock.now
        sender.attach(peer, session)

    def gone(self, sender: TakesTurns, error: Error | None) -> None:
        """Its link has ended, and its place is free. `error`: with which the neighbour refused the link."""
        self.holding.pop(sender, None)
        self._refusals.pop(sender, None)
        if error is not None:
            self._refusals[sender] = error.text[:REASON_CHARACTERS_MAX]
        if error is not None and error.condition == conditions.RESOURCE_LIMIT_EXCEEDED:
            self._refused_at, self._refused_count = self._clock.now, len(self.holding)
        if self.ready:
            self.due_at = self._clock.now
            self._hop.stir()

    # ------------------------------------------------------------------------------------------------ time

    def tick(self, now: float) -> None:
        """Gives free places to senders that wait, and asks others to give up theirs."""
        if self.due_at is None or now < self.due_at:
            return
        self.due_at = None
        if self._refused_at is not None and now >= self._refused_at + REFUSED_S:
            self._refused_at = None
        peer = self.peer
        for sender in list(self.ready):
            if not sender.may_attach or not sender.has_work:
                del self.ready[sender]
                continue
            session = self._place()
            if session is None or peer is None:
                break
            self._give(sender, session, peer)
        if self.ready:
            self._warn(now)
            self._take_turns(now)
            self.due_at = now + LOOK_S

    def _take_turns(self, now: float) -> None:
        wanted = len(self.ready)
        for sender, since in list(self.holding.items()):
            if wanted <= 0:
                break
            if sender.yields_at is not None:
                if now >= sender.yields_at + YIELD_S:
                    sender.give_up_link()
                wanted -= 1
            elif sender.is_idle:
                sender.give_up_link()
                wanted -= 1
            elif now >= since + TURN_S:
                sender.begin_to_yield(now)
                wanted -= 1

    def refusals(self) -> Iterator[tuple[str, str]]:
        """Destinations with waiting messages for which the neighbour accepts nothing, each with a line for the
        operator."""
        for sender, reason in list(self._refusals.items()):
            if sender.open or not sender.active:
                del self._refusals[sender]
            elif sender.has_work:
                waiting = sender.queue.messages - sender.queue.tombstones
                text = f"it takes nothing for {sender.destination!r}, {waiting} messages wait: {reason}"
                yield sender.destination, f"neighbour {self._hop.name}: {text}; compare the routes of both nodes"

    def _warn(self, now: float) -> None:
        if self._warned_at is not None and now < self._warned_at + WARN_S:
            return
        self._warned_at = now
        self._log.write("WARNING", self.describe())

    def describe(self) -> str:
        """The warning while destinations wait for a link."""
        return (
            f"neighbour {self._hop.name}: {len(self.ready)} destinations wait for a custody link, "
            f"{len(self.holding)} have one, the most that are allowed: they take turns; raise session_links_max or "
            "sessions_max there, or neighbour_links_max or links_max here"
        )
