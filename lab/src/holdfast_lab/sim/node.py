"""The driver of a NodeCore in virtual time: it is to the world what node/runtime.py is to sockets.

Rules of this file: decides nothing for the core. Every event that has come by the time a turn begins goes to the core,
then exactly one TurnEnded; commands are done in the order given (docs/ARCHITECTURE.md, "How a core is driven").
"""

from collections.abc import Callable
from typing import Any, Final, Protocol
from uuid import UUID

from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast.engine.port import Batch
from holdfast.errors import StorageFull
from holdfast.links.disk import RETRY_S
from holdfast.peering.liveness import MISSES_MAX
from holdfast.peers.authorise import Authoriser
from holdfast.peers.neighbours import features
from holdfast.peers.neighbours.session_states import State
from holdfast.settings.node import NodeConfig
from holdfast_lab.base.client_history import Violation
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.judge.reloaded import check_reloaded, is_stored
from holdfast_lab.judge.roused import check_punctual, check_roused, is_at_rest
from holdfast_lab.sim.clock import SimClock
from holdfast_lab.sim.defects import Defects
from holdfast_lab.sim.network import End, SimNetwork, Waiting
from holdfast_lab.sim.paged_store import PagedStore
from holdfast_lab.sim.reads import Readable, SimReads
from holdfast_lab.sim.store import Fate, SimStore
from holdfast_lab.sim.world import Timer, World

TURN_S: Final = 0.000_1
"""From the first event to the turn that takes it: what else comes meanwhile is one batch with it."""

CHECK_EVERY: Final = 61
"""Of a node's turns, one in so many ends with a check of its invariants."""

ROUSE_EVERY: Final = 5
"""Of a node's turns, one in so many begins, and another one ends, with a check that it does nothing when it is
roused."""

RARE: Final = (
    events.CommitRefused, events.ConnectFailed, events.ConnectionLost, events.ForwardingChanged, events.Stopping,
)  # fmt: skip
"""Events after which much is undone, given back or begun anew."""
RARE_TURNS: Final = 2
"""The turn of such an event, and as many turns as make two, end with a check too."""

CHECK_ENTRIES_MAX: Final = 1_000
"""Entries that such a check reads."""

REPORTS_OUTPUT_SHARE: Final = 0.7
"""Where what is written comes in pieces, the nodes whose system can say how far their output has come."""
EARLY_S: Final = 0.001
"""Beside two turns, what `_check_silence` allows: a turn begins later than its events came."""

BUSY_TURNS_MAX: Final = 300
BUSY_S: Final = 0.001
"""A node that takes more turns than these and than its queues have entries for readers, one so soon after the other,
and to which nothing comes, is busy with nothing: a turn may hand out as little as one entry. `BUSY_S`: beside two
turns."""

Arrival = events.Event | Readable | Callable[[NodeCore], None]
"""What a turn takes, in the order in which it came."""


class Observer(Protocol):
    """Observes a node from outside: the checkers."""

    def started(self, node: "SimNode") -> None: ...
    def applied(self, node: "SimNode", batch: Batch) -> None: ...
    def disk_changed(self, node: "SimNode") -> None: ...
    def opened(self, node: "SimNode", end: End) -> None: ...
    def heard(self, node: "SimNode", end: End, data: bytes) -> None: ...
    def said(self, node: "SimNode", end: End, data: bytes) -> None: ...
    def gone(self, node: "SimNode", end: End) -> None: ...


class Speech(Protocol):
    """Alters what a node sends and receives: a liar (`holdfast_lab/runs/liar.py`)."""

    def said(self, end: End, data: bytes) -> bytes: ...
    def heard(self, end: End, data: bytes) -> bytes: ...


class SimNode:
    """A node with its disk and its clocks; `start` and `crash` may be called any number of times."""

    def __init__(
        self,
        world: World,
        network: SimNetwork,
        config: NodeConfig,
        observer: Observer,
        *,
        turn_s: float = TURN_S,
        paged: bool = False,
        authoriser: Authoriser | None = None,
    ) -> None:
        """`authoriser`: as the core's. `paged`: LMDB's store has what is committed too, and each read of the node is
        compared with it."""
        self.world = world
        self.network = network
        self.config = config
        self.name = config.name
        self.observer = observer
        self.turn_s = turn_s
        self.seeds: SeedTree = world.seeds.child(f"node/{config.name}")
        self.clock = SimClock(offset_s=self.seeds.stream("clock").uniform(0.0, 100_000.0))
        self._mint = self.seeds.stream("mint")
        self._paged = paged
        self._authoriser = authoriser
        self._measures = network.piece_bytes > 0 and self.seeds.stream("measures").random() < REPORTS_OUTPUT_SHARE
        self.store = self._new_store()
        self.core: NodeCore | None = None
        self.lives = 0
        self._contained_before = 0
        self.on_session: Callable[[dict[str, Any]], None] = lambda fields: None
        self.on_log: Callable[[str], None] = lambda text: None
        self.on_turn: list[Callable[[SimNode], None]] = []
        self.records: list[tuple[float, str, dict[str, Any]]] = []
        self.offers: tuple[str, ...] = features.ALL
        """The features that it offers its neighbours, from its next start on."""
        self._refused_at: list[float] = []
        """When commits were refused, by its own clock, since the last that was not, in this life."""
        self.defects: Defects | None = None
        """What makes its own functions raise."""
        self.liar: Speech | None = None
        """Who alters what this node says and hears; nobody watches it then."""
        self.keep_records: tuple[str, ...] = ("session", "loss", "node")
        self._inbox: list[Arrival] = []
        self._ends: dict[int, End] = {}
        self._reads = SimReads(self._feed, self._post)
        self._came_at: dict[int, float] = {}
        """By connection: when anything last came, by the node's own clock."""
        self._session_of: dict[str, int] = {}
        """By neighbour: the connection of its session."""
        self._number = self._turns = 0
        self._busy = 0
        """Turns since anything came, or since the node has rested."""
        self._last_turn_at = 0.0
        self._checks = 0
        """So many turns, beginning with this one, end with a check of the invariants, whichever they are."""
        self._compares = False
        """The next turn after which all is stored ends with a comparison of memory and disk."""
        self._turn: Timer | None = None
        self._timer: Timer | None = None
        network.add(self)

    @property
    def listening(self) -> bool:
        return self.core is not None and not self.core.stopping

    @property
    def up(self) -> bool:
        return self.core is not None

    @property
    def contained(self) -> int:
        """Failures of its own code that the node contained, over all its lives."""
        return self._contained_before + self._contained_now()

    def _contained_now(self) -> int:
        """Of this life alone."""
        if self.core is None:
            return 0
        return self.core.containment.peers_ended + self.core.containment.parts_failed

    def _new_store(self) -> SimStore:
        number = self._mint.getrandbits(32)
        made = PagedStore if self._paged else SimStore
        return made(self.world, self.seeds.stream(f"store/{number}"), self._uuid, self._applied)

    def _uuid(self) -> UUID:
        return UUID(int=self._mint.getrandbits(128), version=4)

    def _applied(self, batch: Batch) -> None:
        self.observer.applied(self, batch)

    # ------------------------------------------------------------------------------------------------ life

    def start(self) -> None:
        assert self.core is None
        self.lives += 1
        now = self.world.now
        self.world.note(self.name, "start", f"life {self.lives}")
        self.store.open_again()
        self._reads = SimReads(self._feed, self._post)
        self.core = NodeCore(
            self.config,
            self.store,
            rng=self.seeds.stream(f"core/{self.lives}"),
            wall_ms=self.clock.wall_ms(now),
            now=self.clock.monotonic(now),
            authoriser=self._authoriser,
        )
        self.core.doors.offers = self.offers
        self._checks = RARE_TURNS
        self.observer.started(self)
        self._do(self._take_commands())
        self._wake()

    def _take_commands(self) -> list[events.Command]:
        assert self.core is not None
        commands = self.core.outbox.take()
        return commands

    def crash(self, *, power: bool = False) -> Fate:
        """kill -9, or with `power` the whole machine: then nobody is told."""
        self.check_reloaded()
        fate = self.store.crash()
        self.world.note(self.name, "power" if power else "crash", fate.value)
        self._end()
        self.network.host_gone(self, told=not power)
        return fate

    def _end(self) -> None:
        self._contained_before += self._contained_now()
        self.core = None
        self._refused_at.clear()
        self._inbox.clear()
        for end in self._ends.values():
            self.observer.gone(self, end)
        self._ends.clear()
        for timer in (self._turn, self._timer):
            if timer is not None:
                timer.cancel()
        self._turn = self._timer = None

    def stop(self) -> None:
        """As `kill -TERM`: the node ends by itself once all peers are informed."""
        self.post(events.Stopping())

    def replace_disk(self) -> None:
        """A new disk, empty; the node must be down."""
        assert self.core is None
        self.world.note(self.name, "disk", "replaced")
        self.store.take_away()
        self.store = self._new_store()
        self.observer.disk_changed(self)

    # ------------------------------------------------------------------------------------------------ turns

    def post(self, event: events.Event) -> None:
        """Adds an event, which the next turn takes."""
        self._post(event)

    def call(self, function: Callable[[NodeCore], None]) -> None:
        """Has the next turn call it, as a request that came would be carried out."""
        self._post(function)

    def _post(self, event: Arrival) -> None:
        if self.core is not None:
            self._inbox.append(event)
            self._wake()

    def _wake(self) -> None:
        if self._turn is None:
            self._turn = self.world.after(self.turn_s, self._run_turn)

    def _run_turn(self) -> None:
        self._turn = None
        core = self.core
        if core is None:
            return
        now = self.clock.monotonic(self.world.now)
        inbox, self._inbox = self._inbox, []
        self._check_busy(now, came=bool(inbox) or self._reads.put_off_bytes > 0)
        if self._turns % ROUSE_EVERY == 0 and is_at_rest(core, now):
            check_punctual(core, now, self.clock.wall_ms(self.world.now), self._reads.told_bytes)
        self._reads.begin_turn()
        for event in inbox:
            if isinstance(event, Readable):
                self._reads.read(event.connection)
                continue
            if callable(event):
                event(core)
                continue
            if isinstance(event, events.ConnectionLost):
                self._reads.lost(event.connection)
            if isinstance(event, RARE):
                self._checks = RARE_TURNS
                self._compares = True
            self._feed(event)
        if self.core is not core:
            return
        deadline = core.next_deadline()
        if deadline is not None and deadline <= now + 1e-9:
            self._feed(events.TimerFired())
        wall_ms = self.clock.wall_ms(self.world.now)
        self._feed(events.TurnEnded(wall_ms=wall_ms, put_off_bytes=self._reads.tell()))
        if self.core is core:
            if self._reads.end_turn():
                self._wake()
            self._arm(now)
            self._turns += 1
            if self._checks or self._turns % CHECK_EVERY == 0:
                self._checks = max(0, self._checks - 1)
                self.validate()
            if self._compares and is_stored(core):
                self._compares = False
                check_reloaded(core)
            if self._turns % ROUSE_EVERY == 0 and is_at_rest(core, now):
                check_roused(core, now, wall_ms, self._reads.told_bytes)
        for call in [*self.on_turn] if self.on_turn else ():
            call(self)

    def _feed(self, event: events.Event) -> None:
        """Hands the event to the core, unless the core has ended in this turn."""
        core, now = self.core, self.clock.monotonic(self.world.now)
        if core is not None:
            self._do(core.handle(event, now) if self.defects is None else self.defects.handle(core, event, now))

    def _arm(self, now: float) -> None:
        assert self.core is not None
        deadline = self.core.next_deadline()
        if self._timer is not None:
            if deadline is not None and self._timer.call is not None and self._timer.when == self.clock.world(deadline):
                return
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            # A microsecond late rather than early: the two scales are floats.
            at = max(self.clock.world(max(deadline, now)), self.world.now) + 1e-6
            self._timer = self.world.at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._wake()

    def validate(self) -> None:
        """Checks the invariants of a node that is up; between two turns."""
        if self.core is not None:
            self.core.validate(entries_max=CHECK_ENTRIES_MAX)

    def check_reloaded(self) -> None:
        """Checks that a start now would find what the node knows, if all of it is stored; between two turns."""
        if self.core is not None and is_stored(self.core):
            check_reloaded(self.core)

    # ------------------------------------------------------------------------------------------------ commands

    def _do(self, commands: list[events.Command]) -> None:
        for command in commands:
            if isinstance(command, events.SendBytes):
                end = self._ends.get(command.connection)
                if end is not None:
                    data = b"".join(command.chunks)
                    if self.liar is None:
                        self.observer.said(self, end, data)
                    else:
                        data = self.liar.said(end, data)
                    end.send(data)
            elif isinstance(command, events.Commit):
                self._check_rest()
                self.store.begin(command.batch, self._commit_done(command.number))
            elif isinstance(command, events.Record):
                self._record(command)
            elif isinstance(command, events.CloseConnection):
                end = self._ends.pop(command.connection, None)
                if end is not None:
                    self.observer.gone(self, end)
                    self._reads.closed(command.connection)
                    end.close(abort=command.abort)
            elif isinstance(command, events.PauseReading):
                self._reads.stop(command.connection)
            elif isinstance(command, events.ResumeReading):
                self._reads.go_on(command.connection)
            elif isinstance(command, events.MeasureOutput):
                self._measure(command.connection)
            elif isinstance(command, events.Connect):
                self._dial(command.neighbour)
            elif isinstance(command, events.Log):
                self.on_log(command.text)
                loud = command.level in ("WARNING", "ERROR")
                (self.world.note if loud else self.world.remark)(self.name, "log", f"{command.level} {command.text}")
            elif isinstance(command, events.ConfigDecided):
                self.world.note(self.name, "reload", "taken up" if command.accepted else "refused")
            else:
                self.world.note(self.name, "stopped")
                if self.core is not None and self.core.turns.in_flight is not None:
                    raise Violation(f"{self.name} says that it has stopped, and waits for its disk")
                self._end()
                self.network.host_gone(self, told=True)

    def _measure(self, number: int) -> None:
        end = self._ends.get(number)
        if end is not None and self._measures:
            arrived, written = end.connection.measured(end)
            self.post(events.OutputMeasured(connection=number, acknowledged_bytes=arrived, written_bytes=written))

    def _record(self, command: events.Record) -> None:
        if command.kind == "session":
            self._check_silence(command.fields)
        if command.kind in self.keep_records:
            self.world.note(self.name, command.kind, " ".join(f"{k}={v}" for k, v in command.fields.items()))
            self.records.append((self.world.elapsed_s, command.kind, command.fields))
            if command.kind == "session":
                self.on_session(command.fields)

    def _check_rest(self) -> None:
        """Violation where a node whose disk has refused two commits in a row does not wait before it tries again."""
        refused = len(self._refused_at)
        since_s = self.clock.monotonic(self.world.now) - max(self._refused_at, default=0.0)
        if refused > 1 and since_s < RETRY_S - EARLY_S:
            raise Violation(f"{self.name} tries a full disk again {since_s:.3f} s after it refused {refused} commits")

    def _readable_entries(self) -> int:
        assert self.core is not None
        return sum(queue.messages * len(list(queue.cursors)) for queue in self.core.catalog.queues.values())

    def _check_busy(self, now: float, *, came: bool) -> None:
        """Violation where a node takes one turn after the other for nothing: in the world it would use up a core."""
        rested = now - self._last_turn_at > BUSY_S + 2 * self.turn_s
        self._last_turn_at = now
        self._busy = 0 if came or rested else self._busy + 1
        # Counting entries costs: first the cheap test.
        if self._busy > BUSY_TURNS_MAX and self._busy > BUSY_TURNS_MAX + self._readable_entries():
            raise Violation(f"{self.name} takes one turn after the other, and nothing comes")

    def _check_silence(self, fields: dict[str, Any]) -> None:
        """Violation where a neighbour was given up although bytes of it had come within the hold time or, where probes
        were missed, within `probe_s`. Not asked of a node whose own code has failed."""
        assert self.core is not None
        name = fields["neighbour"]
        if name not in self.core.neighbours:  # it was removed by a reload, which ended the session
            return
        peer = self.core.neighbours[name].peer
        if peer is not None:
            self._session_of[name] = peer.number
        silent_s = {"nothing": "hold_time_s", f"{MISSES_MAX}": "probe_s"}.get(fields["reason"].partition(" ")[0])
        if silent_s is None or fields["state"] != State.IDLE.value or self._contained_now():
            return
        config = self.core.neighbours[name].config
        heard_s = self.clock.monotonic(self.world.now) - self._came_at.get(self._session_of.get(name, 0), 0.0)
        if heard_s < getattr(config, silent_s) - EARLY_S - 2 * self.turn_s:
            raise Violation(
                f"{self.name} gave {name} up ({fields['reason']}), which it had heard {heard_s:.3f} s before"
            )

    def _commit_done(self, number: int) -> Callable[[Exception | None], None]:
        def done(error: Exception | None) -> None:
            if error is None:
                self._refused_at.clear()
                self.post(events.Committed(number=number, room_bytes=self.store.room_bytes()))
            elif isinstance(error, StorageFull):
                self.world.note(self.name, "commit refused")
                self._refused_at.append(self.clock.monotonic(self.world.now))
                self.post(events.CommitRefused(number=number, room_bytes=self.store.room_bytes()))
            else:  # a second try would lie (docs/GUARANTEES.md): the node ends
                self.world.note(self.name, "disk", str(error))
                self._end()
                self.network.host_gone(self, told=True)

        return done

    # ------------------------------------------------------------------------------------------------ connections

    def _dial(self, neighbour: str) -> None:
        life = self.lives

        def failed(reason: str) -> None:
            if self.lives == life:
                self.post(events.ConnectFailed(neighbour=neighbour, reason=reason))

        self.network.dial(_Dial(self, life), self.name, neighbour, neighbour=neighbour, failed=failed)

    def opened(self, end: End, *, dialled: bool) -> None:
        self._number += 1
        end.number = self._number
        end.holder = self
        self._ends[end.number] = end
        self._reads.opened(end.number)
        self.observer.opened(self, end)
        exposed = any(item.name == end.peer and item.password for item in self.config.neighbours)
        self.post(
            events.ConnectionOpened(
                connection=end.number,
                peer=end.peer,
                loopback=not exposed,
                neighbour=end.neighbour if dialled else None,
                nonce=f"{self.name} {self.lives} {end.number}".encode() if exposed else b"",
            )
        )

    def received(self, end: End, data: bytes) -> None:
        if end.number not in self._ends:
            return
        self._came_at[end.number] = self.clock.monotonic(self.world.now)
        if self.liar is None:
            self.observer.heard(self, end, data)
        else:
            data = self.liar.heard(end, data)
        self._reads.came(end.number, data)

    def lost(self, end: End, reason: str) -> None:
        if self._ends.pop(end.number, None) is not None:
            self.observer.gone(self, end)
            self.post(events.ConnectionLost(connection=end.number, reason=reason))

    def writing(self, end: End, *, paused: bool) -> None:
        if end.number in self._ends:
            kind = events.WritingPaused if paused else events.WritingResumed
            self.post(kind(connection=end.number))


class _Dial(Waiting):
    """A dial of one life: what it brings after a crash is hung up at once."""

    def __init__(self, node: SimNode, life: int) -> None:
        self.node = node
        self.life = life

    def opened(self, end: End, *, dialled: bool) -> None:
        if self.node.lives == self.life and self.node.core is not None:
            self.node.opened(end, dialled=dialled)
        else:
            end.close(abort=True)
