"""NodeCore: the whole logic of one node, without input or output (docs/ARCHITECTURE.md).

Rules of this file: `handle(event, now) -> commands` and `next_deadline()` are the whole surface; no clock, no socket,
no randomness of its own. One turn of the loop is one batch: gather, commit, then settle. Nothing iterates over a set if
its order could have an effect.
"""

from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

from holdfast.core import invariants, turn_end
from holdfast.core.offering import offer
from holdfast.core.parts import Parts
from holdfast.core.recovery import Recovery
from holdfast.core.undo import refuse
from holdfast.core.wake import wanted
from holdfast.engine import events
from holdfast.errors import BrokenInvariant
from holdfast.links.containment import ATTEMPTS_MAX, ENTRIES_MAX
from holdfast.peering.clocks import calendar_ms
from holdfast.peers.authorise import Authoriser
from holdfast.peers.peer import Peer
from holdfast.settings.node import NodeConfig
from holdfast.state.tables import Tables
from holdfast.state.turns import Extent

COMMITS_FAILED_MAX: Final = 3
"""How often in a row the end of a turn may fail without a peer to blame; then the node ends, because it can store
nothing."""


DueT = TypeVar("DueT")


class NodeCore(Parts):
    """A node. The driver hands events in and carries the commands out, in order."""

    def __init__(
        self,
        config: NodeConfig,
        store: Tables,
        *,
        rng: Random,
        wall_ms: int,
        now: float,
        authoriser: Authoriser | None = None,
    ) -> None:
        """`authoriser`: decides what each client may do; None: the rules of `config` and of each reload (ConfigRead);
        without rules everything is allowed."""
        super().__init__(config, store, rng=rng, wall_ms=wall_ms, now=now, recovery=Recovery, authoriser=authoriser)

    # ------------------------------------------------------------------------------------------------ surface

    def handle(self, event: events.Event, now: float) -> list[events.Command]:
        """Handles the event; the driver carries out the returned commands in order."""
        self.turns.event += 1
        if now != self.clock.now:
            self._tell_time(now)
        if self.failure is not None:
            (error, self.failure), (part, self.asked) = (self.failure, None), (self.asked, None)
            self.containment.part_failed(part or "deadlines", error, changed=False)
        if isinstance(event, events.BytesReceived):
            peer = self.connections.get(event.connection)
            if peer is not None:
                before = self.turns.gathered.extent()
                try:
                    self._received(peer, event, now)
                except Exception as error:
                    # What a neighbour brings may change a row that the turn has already: that shows in no size.
                    changed = peer.neighbour is not None or self.turns.gathered.extent() != before
                    self.containment.failed(error, peer, changed=changed)
        elif isinstance(event, events.TurnEnded):
            self._end_turn(event)
        elif isinstance(event, events.Committed):
            self._committed(event)
        else:
            self._handle_rare(event)
        if self.containment.unchecked:
            self.containment.unchecked = False
            self.validate(entries_max=ENTRIES_MAX)
        return self.outbox.take()

    def _received(self, peer: Peer, event: events.BytesReceived, now: float) -> None:
        if peer.neighbour is not None:
            peer.neighbour.heard_at = now
            peer.neighbour.stir()
        self.pressure.heard(peer, len(event.data))
        self.dispatch.deliver(peer, peer.amqp.receive(event.data, now))
        if peer.amqp.deadline_sooner:
            self.deadlines.watch(peer)
        if peer.late:
            peer.amqp.wait(now)
        if peer.amqp.resumes_at is not None:
            self.guard.waits(peer)
        peer.touch()

    def validate(self, *, entries_max: int | None = None) -> None:
        """Checks every invariant of what the node holds (core/invariants.py); BrokenInvariant where one is broken.

        It may be called after any event. `entries_max`: how many entries it reads from the store, None for all.
        """
        invariants.check(self, entries_max=entries_max)

    def next_deadline(self) -> float | None:
        """When `TimerFired` is wanted at the latest, on `now`'s scale. It may come sooner than anything is due."""
        try:
            return wanted(self)
        except Exception as error:  # contained with the event that this brings about
            self.failure = error
            return self.clock.now

    def _handle_rare(self, event: events.Event) -> None:
        """Handles every event but bytes and the end of a turn or a commit."""
        if isinstance(event, events.TimerFired):
            self._tick()
        elif isinstance(event, events.CommitRefused):
            try:
                refuse(self, event.room_bytes)
            except Exception as error:
                raise BrokenInvariant(f"a refused turn could not be undone: {error!r}") from error
        elif isinstance(event, events.Stopping):
            if not self.stopping:
                self.stopping = True
                self.shutdown.begin()
        else:
            peer = self.connections.get(getattr(event, "connection", 0))
            try:
                self.driver_events.happened(event)
            except Exception as error:
                if isinstance(event, events.ConnectionOpened):
                    self.containment.opening_failed(event, error)
                    if event.neighbour is not None:
                        self._dial_failed(event.neighbour)
                elif isinstance(event, events.ConnectFailed):
                    self.containment.part_failed(self.driver_events.dialled(event.neighbour), error)
                    self._dial_failed(event.neighbour)
                else:
                    self.containment.part_failed(peer or type(event).__name__, error)

    def _dial_failed(self, name: str) -> None:
        session = self.driver_events.dialled(name)
        if session is not None:
            session.recover(dial_over=True)

    # ------------------------------------------------------------------------------------------------ turn

    def _end_turn(self, event: events.TurnEnded) -> None:
        self.clock.wall_ms = calendar_ms(event.wall_ms)
        self.pressure.put_off_bytes = event.put_off_bytes
        if event.resident_bytes is not None:
            self.resident_bytes = event.resident_bytes
        if event.unsent:
            self.memory.unsent(event.unsent)
        if event.cpu_s is not None:
            self.turn_times.note(event.cpu_s, event.kinds, self.clock.now)
        self.work.turns += 1
        self.work.offered_bytes = self.work.offered_count = 0
        for _ in range(ATTEMPTS_MAX):
            turn, before = self.turns.gathered, self.turns.gathered.extent()
            try:
                self._work(before)
                break
            except Exception as error:  # the turn goes on without whoever failed
                changed = self.turns.gathered is not turn or turn.extent() != before
                if not self.containment.failed(error, changed=changed):
                    self.commits_failed += 1
                    if self.commits_failed >= COMMITS_FAILED_MAX:
                        text = f"the turn cannot be handed over: {error!r}; it has {self.turns.gathered.describe()}"
                        raise BrokenInvariant(text) from error
        self.containment.run(self.pressure, self.pressure.relieve, gathers=False)
        if self.bindings.active:
            self.containment.run(self.bindings, self.bindings.speak)
        turn_end.flush(self)
        turn_end.account(self)
        self.jobs.settlements.begin_turn()
        self.turn_ended = self.turns.event

    def _work(self, extent: Extent) -> None:
        """Does the turn's work and begins its commit. `extent`: the extent of the gathered turn before this work."""
        if self.links.requests:
            self.requests.serve()
            extent = None
        if self.dynamic_nodes.due:
            self.containment.run(self.dynamic_nodes, self.dynamic_nodes.sweep)
            extent = None
        for _ in range(4):  # a turn that needs no disk may make more to offer
            offer(self, extent)
            if self.topic_bindings.is_due:
                self.containment.run(self.topic_bindings, self.topic_bindings.tell)
            if self.turns.in_flight is not None or not self._begin_commit():
                break
            extent = None

    def _begin_commit(self) -> bool:
        """Hands over the gathered turn. True if it needs no disk and is complete."""
        return turn_end.begin(self)

    def _committed(self, event: events.Committed) -> None:
        turn = self.turns.in_flight
        assert turn is not None and event.number == self.turns.number
        self.turns.in_flight = None
        self.work.retires_in_flight = []
        self.room.bytes = event.room_bytes
        try:
            self.disk.answered()
        except Exception as error:  # the turn is on disk all the same
            self.containment.part_failed(self.disk, error, changed=False)
        self.links.room_may_be_back()
        turn_end.completed(self, turn)

    # ------------------------------------------------------------------------------------------------ time

    def _tell_time(self, now: float) -> None:
        """Sets the clock before an event is handled."""
        self.clock.now = now
        steady_ms = self.steady_at_start_ms + int((now - self.started_at) * 1000)
        self.clock.wall_ms += steady_ms - self.clock.steady_ms
        self.clock.steady_ms = steady_ms

    def _tick(self) -> None:
        now = self.clock.now
        for peer in self._due(self.deadlines, self.deadlines.take_due):
            if peer.number in self.connections:  # what another one's end brought may have ended this one
                try:
                    self._tick_one(peer)
                except Exception as error:
                    self.containment.failed(error, peer)
        parts = iter([*self._due(self.due_times, self.due_times.take_due), *(part for _, part in self.timed)])
        part: object = self.deadlines
        before = self.turns.gathered.extent()
        for _ in range(ATTEMPTS_MAX):
            try:
                for part in parts:
                    if part not in self.containment.resting:
                        part.tick(now)
                break
            except Exception as error:
                self.containment.part_failed(part, error, changed=self.turns.gathered.extent() != before)
        self.containment.run(self.meter, self._tick_meter)

    def _due(self, part: object, take_due: Callable[[float], list[DueT]]) -> list[DueT]:
        try:
            return take_due(self.clock.now)
        except Exception as error:
            self.containment.part_failed(part, error, changed=False)
            return []

    def _tick_one(self, peer: Peer) -> None:
        if peer.pauses:  # what it said meanwhile lies unread
            peer.amqp.reading_paused(self.clock.now)
        self.dispatch.deliver(peer, peer.amqp.tick(self.clock.now))
        peer.touch()
        self.deadlines.watch(peer)

    def _tick_meter(self) -> None:
        if (
            self.meter.tick(self.clock.now) and self.turns.in_flight is None
        ):  # space may be back while nothing was committed
            self.room.measure()
            self.links.room_may_be_back()
