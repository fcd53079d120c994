"""Containment of failures: an exception that one peer's bytes cause disconnects that peer, and never ends the node
(docs/adr/0019).

Rules of this file: except for `run`, `finish`, `tick` and `next_deadline`, this code only runs after an exception. The
peers of a failure follow from its traceback: every peer that a running function was called on, or with. Afterwards
`NodeCore.validate` checks everything. A `BrokenInvariant`, an error of the store, and a failed assertion about shared
state end the node before the next commit.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol
from holdfast.engine import events
from holdfast.engine.back_off import back_off_s
from holdfast.engine.clock import Clock
from holdfast.engine.effects import described, effect_of
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.errors import BrokenInvariant, StorageError
from holdfast.links.ingress import Ingress
from holdfast.links.outgoing import Egress
from holdfast.links.whose import frames_of, links_in, module_of, peer_of, peers_in, place_of
from holdfast.peers.connections import Connections
from holdfast.peers.peer import Peer, PeerLink
from holdfast.state.turns import Turns

PROTOCOL: Final = "holdfast.amqp."

DEFECT: Final = "please report this as a defect of Holdfast"
RETRY_S: Final = (1.0, 60.0)
"""How long a part of the node pauses after its own failure; it grows with each failure up to the second value."""

ENTRIES_MAX: Final = 10_000
"""The maximum number of entries that the check after a failure reads from the store; the sums of deeper queues are not
checked."""

COUNTED_MAX: Final = 1_000
"""The number of recent connections that ended because of a failure that are remembered: a further failure before their
transport is gone is attributed to them."""

ATTEMPTS_MAX: Final = 10_000
"""The maximum number of failures contained in one event; each one disconnects a peer or pauses a part."""


class Recovery(Protocol):
    """The repair of state that a failure may have left half changed (core/recovery.py)."""

    def take_back_gathered(self, ended: Collection[Peer]) -> None: ...
    def forget(self, peer: Peer, links: Sequence[PeerLink]) -> None: ...
    def take_stock(self) -> None: ...
    def wake_all(self) -> None: ...


class Containment:
    """Disconnects the peers that a failure belongs to, or pauses the part that failed, and undoes the turn."""

    def __init__(
        self,
        clock: Clock,
        turns: Turns,
        outbox: Outbox,
        log: Log,
        connections: Connections,
        recovery: Recovery,
    ) -> None:
        self._clock = clock
        self._turns = turns
        self._outbox = outbox
        self._log = log
        self._connections = connections
        self._recovery = recovery
        self.peers_ended = 0
        self._counted: deque[int] = deque(maxlen=COUNTED_MAX)
        self.parts_failed = 0
        """The number of failures of work on behalf of no single peer."""
        self.resting: dict[object, float] = {}
        """Part that failed → when its pause ends."""
        self._failures: dict[object, tuple[float, int]] = {}
        """Part → the time of its last failure, and the number of failures without a longer run between them."""
        self._unfinished: dict[Callable[[], None], bool] = {}
        """Steps that failed, and rest; whether each decides, as `finish` says."""
        self.unchecked = False
        """A failure was contained in this event, and the invariants have not been checked yet."""

    # ------------------------------------------------------------------------------------------------ the failure

    def failed(self, error: Exception, *owners: object, changed: bool = True) -> bool:
        """Disconnects the peers that the failure belongs to, including `owners`. False if it belongs to none.
        `changed`: the failed work had changed the turn, so it is undone. Raises BrokenInvariant if the node must end.
        """
        peers = dict.fromkeys(peer for owner in owners if (peer := peer_of(self._connections, owner)) is not None)
        frames = frames_of(error)
        for frame in frames:
            peers.update(dict.fromkeys(peers_in(self._connections, frame)))
        if isinstance(error, (BrokenInvariant, StorageError)):
            raise error
        if isinstance(error, AssertionError) and not (frames and any(peers_in(self._connections, frames[-1]))):
            raise BrokenInvariant(f"assertion failed at {place_of(frames)}: {error}") from error
        self.unchecked = True
        recovery = self._recovery
        try:
            if changed:
                recovery.take_back_gathered(peers)
            sound = not any(module_of(frame).startswith(PROTOCOL) for frame in frames[-1:])
            links = links_in(frames)
            for peer in peers:
                self._end(peer, links, error, place_of(frames), sound=sound)
            recovery.take_stock()
            recovery.wake_all()
        except BrokenInvariant:
            raise
        except Exception as second:
            raise BrokenInvariant(
                f"{place_of(frames_of(second))}: what failed could not be undone: {second!r}"
            ) from error
        return bool(peers)

    def part_failed(self, part: object, error: Exception, *, changed: bool = True) -> None:
        """As `failed`, for work on behalf of no single peer. The part is paused, unless the failure belongs to a
        peer."""
        if self.failed(error, part, changed=changed):
            return
        self.parts_failed += 1
        rest_s = self._rest(part)
        place = place_of(frames_of(error))
        text = f"{_name(part)}: {_told(error)} at {place}; tried again in {rest_s:g} s"
        self._log.write("ERROR", f"{text}; {DEFECT}", about=place)

    def _rest(self, part: object) -> float:
        """The part rests, for longer each time; for how many seconds."""
        now = self._clock.now
        self._failures = {key: found for key, found in self._failures.items() if now - found[0] <= 2 * RETRY_S[1]}
        times = self._failures.get(part, (now, 0))[1]
        self._failures[part] = now, times + 1
        rest_s = back_off_s(RETRY_S, times)
        self.resting[part] = now + rest_s
        return rest_s

    def run(self, part: object, work: Callable[..., None], *given: Any, gathers: bool = True) -> None:
        """Runs work on behalf of no single peer, unless it is paused. `gathers`: whether it may add anything to the
        turn."""
        if part in self.resting:
            return
        before = self._turns.gathered.extent() if gathers else ()
        try:
            work(*given)
        except Exception as error:
            self.part_failed(part, error, changed=gathers and self._turns.gathered.extent() != before)

    def finish(self, step: Callable[[], None], *, undoing: bool = False, decides: bool = False) -> None:
        """Runs a step that must not be skipped: if it fails, and that belongs to no peer, it is tried again after a
        pause. `undoing`: the turn is being undone already. `decides`: it is tried again whomever the failure belongs
        to, because it settles the state of entries of the node, which nothing else would release.
        """
        turn = self._turns.gathered
        before = turn.extent()
        try:
            step()
        except Exception as error:
            changed = self._turns.gathered is not turn or turn.extent() != before
            self.part_failed(step, error, changed=changed and not undoing)
            if decides and step not in self.resting:
                self._rest(step)
            if step in self.resting:
                self._unfinished[step] = decides

    def next_deadline(self) -> float | None:
        """When the first paused part is tried again."""
        return min(self.resting.values(), default=None)

    def tick(self, now: float) -> None:
        over = [part for part, at in self.resting.items() if at <= now]
        for part in over:
            del self.resting[part]
        if over:
            self._recovery.wake_all()
        for step in [step for step in self._unfinished if step not in self.resting]:
            self.finish(step, decides=self._unfinished.pop(step))

    def opening_failed(self, event: events.ConnectionOpened, error: Exception) -> None:
        """A connection could not be set up: the transport is closed, and what was created for it is dropped."""
        known = self._connections.get(event.connection)
        self.failed(error, known)
        if known is None:
            place = place_of(frames_of(error))
            self._log.write(
                "ERROR", f"{event.peer}: {_told(error)} at {place}; the connection is ended; {DEFECT}", about=place
            )
            self.count(event.connection)
            self._outbox.put(events.CloseConnection(connection=event.connection, abort=True))

    # ------------------------------------------------------------------------------------------------ its peer

    def count(self, connection: int) -> None:
        """Counts a connection that ends because of a failure; 0: one that was not opened."""
        if connection not in self._counted:
            self.peers_ended += 1
            if connection:
                self._counted.append(connection)

    def _end(self, peer: Peer, links: list[Ingress | Egress], error: Exception, place: str, *, sound: bool) -> None:
        """Ends the connection, with a close frame if `sound` (the engine can still write one), and forgets the peer.
        `links` were being changed.
        """
        self.count(peer.number)
        self._log.write(
            "ERROR", f"{peer.name}: {_told(error)} at {place}; the connection is ended; {DEFECT}", about=place
        )
        if not self._connections.holds(peer):  # it was just ending
            self._recovery.forget(peer, links)
            return
        del self._connections[peer.number]
        chunks: list[bytes | memoryview] = []
        try:
            if sound:
                peer.amqp.transport_lost(
                    Error(Symbol(conditions.INTERNAL_ERROR), "the node failed to handle what came; see its log")
                )
                chunks = peer.amqp.take_output(self._clock.now)
            else:
                peer.amqp.transport_lost()
        except Exception:
            chunks = []  # it cannot be told: the transport is closed without a close frame
        if chunks:
            self._outbox.put(events.SendBytes(connection=peer.number, chunks=chunks))
        self._outbox.put(events.CloseConnection(connection=peer.number, abort=not chunks))
        self._recovery.forget(peer, links)


def _told(error: Exception) -> str:
    return f"failure {type(error).__name__}: {error}"[:300]


def _name(part: object) -> str:
    if isinstance(part, str):
        return part
    effect = effect_of(part)
    if effect is not None:
        return described([effect])
    if callable(part):
        return "a step"
    name = getattr(part, "name", None)
    return f"{type(part).__name__} {name}" if isinstance(name, str) else type(part).__name__
