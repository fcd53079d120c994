"""Federation in a node: the bindings of its topics reach its neighbours, and theirs come here, over control links and
the disk (docs/federation.md, docs/adr/0081).

Rules of this file: `federation/` decides what bindings are and what is sent; this file decides when. A set is stored in
the batch of the turn that changed it, sent once that is on disk, and undone with the turn. A node without entries, to
which no neighbour forwards a topic, holds no state and does no work.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from holdfast.engine.clock import Clock
from holdfast.federation import stored
from holdfast.federation.confirming import Answer
from holdfast.federation.federation import Federation
from holdfast.federation.index import Asks, unasked
from holdfast.federation.keeping import SET
from holdfast.federation.messages import KINDS, ROWS_MAX
from holdfast.federation.modes import DYNAMIC
from holdfast.federation.relaying import Choice
from holdfast.federation.rows import Row
from holdfast.federation.settings import KEYS_MAX, Bounds, Entry
from holdfast.peering.binding_entries import BindingEntries, Permits
from holdfast.peering.binding_messages import BindingMessages
from holdfast.peering.binding_routes import BindingRoutes, Network
from holdfast.peers.limits.memory import SETS_PART, Memory
from holdfast.peers.neighbours.features import BINDINGS
from holdfast.peers.neighbours.session_port import ControlKinds, Session
from holdfast.settings.node import NodeConfig
from holdfast.state.room import Room
from holdfast.state.tables import Tables
from holdfast.state.turns import Turn, Turns, Undone

PAUSE_S: Final = 0.02
PAUSE_A_ROW_S: Final = 4e-6
PAUSED_ROWS: Final = range(3, ROWS_MAX + 1)
"""After a commit with 3 to ROWS_MAX rows of sets, the next commit that is needed for sets alone is delayed, longer for
larger sets: many clients bind at once, and each version costs every node a commit and a copy of the set. Fewer rows are
a single client's change; more are part of a change that continues."""

Bound = Iterable[tuple[str, Iterable[Row]]]
"""Topics, each with all bindings of this node's clients."""


class BindingControl:
    """`federation` None: nothing is configured or stored, and no neighbour forwards anything to this node."""

    def __init__(
        self,
        config: NodeConfig,
        store: Tables,
        clock: Clock,
        turns: Turns,
        room: Room,
        neighbours: Mapping[str, Session],
        kinds: ControlKinds,
        memory: Memory,
        *,
        life: int,
        via: Callable[[str], str],
        permits: Permits,
    ) -> None:
        """`life`: wall milliseconds at this start. `via`: the next hop for a node."""
        self._name = config.name
        self._clock = clock
        self._turns = turns
        self._room = room
        self._neighbours = neighbours
        self._life = life
        self.via = via
        self._stored = stored.sets_of(store.table(stored.TABLE))
        self.made = BindingEntries(config, store, turns, permits)
        self.messages = BindingMessages(neighbours, self.lost, memory)
        self._bounds = Bounds(keys_max=KEYS_MAX, bytes_max=memory.total.held_max // SETS_PART)
        self._account = memory.sets
        memory.held_in(self._account, lambda: 0 if self.federation is None else self.federation.held_bytes)
        self._routes = BindingRoutes(config.name, neighbours)
        self.federation: Federation | None = None
        self.bound: Callable[[], Bound] = tuple
        """All bindings of this node's clients, by topic; read when federation begins."""
        self.answered: Callable[[Answer], None] = lambda answer: None
        """Receives the answers to `confirm`."""
        self.remote_is_up: Callable[[str], bool] = lambda name: False
        """Whether that is a remote with which there is a session."""
        self.learned: Callable[[], None] = lambda: None
        """Called when publishers that wait may go on."""
        self.made.moved()
        self._learns_until: float | None = None
        """If the store was empty at this start: until when messages wait for other nodes' bindings."""
        self.active: list[Federation] = []
        """What has deadlines; empty without federation."""
        self.written: Turn | None = None
        """The turn that has the records of the commit that is under way, or is about to be."""
        self._paused_until = 0.0
        self._due_at: float | None = None
        """When federation acts next; None if it must be asked again."""
        kinds.add(dict.fromkeys(KINDS, self._hear))
        of_others = any(kind == SET and of[0] != self._name for kind, *of in self._stored)
        if not of_others and any(entry.mode == DYNAMIC for entry in config.federation):
            self._learns_until = clock.now + config.routing.registration_s
        if self.entries or of_others:
            self._begin()  # it sends its own bindings once a neighbour forwards it a topic

    # ------------------------------------------------------------------------------------------------ its beginning

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries in force."""
        return self.made.all

    def configure(self, config: NodeConfig) -> None:
        """Sets the entries and neighbours of the file."""
        self.made.configure(config)
        if self.made.moved():
            self._configure()

    @property
    def left_out(self) -> int:
        """How many sets of other nodes are not taken, as there are too many."""
        return 0 if self.federation is None else self.federation.following.left_out

    def is_up(self, neighbour: str) -> bool:
        """Whether there is a session with it."""
        session = self._neighbours.get(neighbour)
        return session is not None and session.established

    def _begin(self) -> Federation:
        now = self._clock.now
        rows, self._stored = self._stored, {}
        federation = self.federation = Federation(self._name, self._life, now, bounds=self._bounds, rows=rows)
        self.active.append(federation)
        federation.configure(self.entries, now)
        for topic, wanted in self.bound():
            federation.bind(topic, wanted, now)
        for name, session in self._neighbours.items():
            if session.established and BINDINGS in session.features:
                federation.up(name, now)
        self._routes.rerouted = True
        self._moved()
        return federation

    def _moved(self) -> None:
        """Federation's input changed: neighbours, and attaches that wait for a confirmation, may have to be
        informed."""
        if self.federation is not None:
            self._account.hold(self.federation.held_bytes)
            self.messages.eager.update(dict.fromkeys(self.federation.neighbours))
            for answer in self.federation.answers():
                self.answered(answer)
            if self._is_learning():
                self.learned()
        self._due_at = None

    # ------------------------------------------------------------------------------------------------ entries

    def add(self, entry: Entry) -> bool:
        """Adds an entry, which is stored; False if it exists. Raises ConfigError."""
        is_new = self.made.add(entry)
        if self.made.moved():
            self._configure()
        return is_new

    def remove(self, topic: str, neighbour: str) -> None:
        """Removes an entry that a request created, or that the neighbour asks for until it does so again."""
        self.made.remove(topic, neighbour)
        if self.made.moved():
            self._configure()

    def _configure(self) -> None:
        if self.federation is None:
            self._begin()
        else:
            self.federation.configure(self.entries, self._clock.now)
            self._moved()
            self.learned()  # a full queue may not be on their messages' way any more
        self._routes.may_spread = True

    def _take_asks(self, federation: Federation) -> None:
        """Neighbours may have said what they ask for."""
        for name, neighbour in list(federation.neighbours.items()):
            asks = neighbour.take_asks()
            if asks is not None:
                self.made.ask(name, asks)
        if self.made.moved():
            self._configure()

    # ------------------------------------------------------------------------------------------------ topics

    def bind(self, topic: str, rows: Iterable[Row]) -> None:
        """Sets the bindings of this node's clients for a topic. Does nothing without federation, which reads them
        (`bound`) when it begins."""
        if self.federation is not None:
            self.federation.bind(topic, rows, self._clock.now)
            self._moved()

    def rebind(self, topic: str, add: Collection[Row], remove: Collection[Row]) -> None:
        """As `bind`, where only these rows come and go."""
        if self.federation is not None:
            self.federation.rebind(topic, add, remove, self._clock.now)
            self._moved()

    def confirm(self, topic: str, row: Row, wait_s: float) -> int | None:
        """Asks which nodes have stored the binding `row`, which `bind` has set; `answered` is called with the returned
        number, in this turn or later. None without federation: no other node has the topic."""
        if self.federation is None:
            return None
        token = self.federation.confirm(topic, row, self._clock.now, wait_s)
        self._moved()
        return token

    def cancel(self, token: int) -> None:
        """The link that asked for that confirmation has ended."""
        if self.federation is not None:
            self.federation.cancel(token)

    def choose(
        self,
        topic: str,
        subject: str | None,
        asks: Asks = unasked,
        *,
        tags: tuple[str, ...] = (),
        anew: bool = True,
    ) -> Choice:
        """Where a message of a topic goes from here, as `Federation.choose`."""
        if self.federation is None:
            return Choice((), (), tags)
        self._route()
        return self.federation.choose(topic, subject, asks, tags=tags, anew=anew)

    def learns(self, topic: str) -> bool:
        """Whether messages of the topic wait, because this node started with an empty store and has not received the
        bindings of the nodes behind its entries. It waits at most `registration_s`."""
        return self._is_learning() and self.federation is not None and not self.federation.following.has_all(topic)

    def _is_learning(self) -> bool:
        return self._learns_until is not None and self._clock.now < self._learns_until

    # ------------------------------------------------------------------------------------------------ routes

    def spreads(self, spread: Callable[[Iterable[str]], None]) -> None:
        """Registers a function that is called with the neighbours over which topics are forwarded, in either direction:
        the present ones, and each new one."""
        self._routes.spreads(spread)
        if self.federation is not None:
            self._routes.tell_spread(self.federation, self.entries)

    def routed_by(self, network: Network) -> None:
        """There is routing."""
        self._routes.routed_by(network, self._forgot)

    def _forgot(self, name: str) -> None:
        """A node left for good: removes its bindings."""
        if self.federation is not None:
            self.federation.forget(name, self._clock.now)
            self._moved()

    def _route(self) -> None:
        if self.federation is not None and self._routes.tell(self.federation, self._clock.now):
            self._moved()

    # ------------------------------------------------------------------------------------------------ sessions

    def established(self, session: Session) -> None:
        """The session is up."""
        self.messages.begin(session.name)
        if self.federation is not None and BINDINGS in session.features:
            self.federation.up(session.name, self._clock.now)
            self._routes.rerouted = True
            self._moved()

    def lost(self, session: Session) -> None:
        """The session has ended, or was never up."""
        self.messages.forget(session.name)
        if self.federation is not None:
            self.federation.down(session.name, self._clock.now)
            self._routes.rerouted = True
            self._moved()

    def credited(self, session: Session) -> None:
        """Its control link has credit."""
        if self.federation is not None and session.name in self.federation.neighbours:
            self.messages.eager[session.name] = None

    def _hear(self, session: Session, fields: dict[Any, Any]) -> None:
        if BINDINGS not in session.features or not session.established:
            return
        federation = self.federation
        if federation is None:
            if not (fields.get("rows") or fields.get("asks")) or fields.get("kind") != "federate":
                return  # it forwards nothing here and asks for nothing, so there is nothing to say
            federation = self._begin()
        self.messages.receive(federation, session, fields)

    def speak(self) -> None:
        """Applies received messages and sends what is due, as far as the turn's share and the credit allow."""
        federation, now = self.federation, self._clock.now
        if federation is None:
            return
        if self.messages.settle(federation, now):
            self._moved()
        if self._routes.may_spread or self.messages.heard_modes:
            self._routes.may_spread = self.messages.heard_modes = False
            self._take_asks(federation)
            self._routes.tell_spread(federation, self.entries)
        self._route()
        if self.messages.eager:
            self._due_at = None
            self.messages.send(federation, now)
            self._account.hold(federation.held_bytes)  # what parts of sets take that are made to be sent

    # ------------------------------------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        if self.federation is None:
            return None
        now = self._clock.now
        routes = self._routes
        if self.messages.is_due or routes.rerouted or routes.may_spread:
            return now
        if self._due_at is None:
            self._due_at = self.federation.next_deadline(now, self.messages.unsent)
        times = [self._due_at]
        if self._learns_until is not None:
            times.append(self._learns_until)
        if self._paused_until > now and self._has_rows:
            times.append(self._paused_until)
        return min(times)

    def tick(self, now: float) -> None:
        if self._learns_until is not None and not self._is_learning():
            self._learns_until = None
            self.learned()
        if self.federation is not None and (self._due_at is None or now >= self._due_at):
            self.federation.tick(now)
            self._moved()

    # ------------------------------------------------------------------------------------------------ turns

    @property
    def _has_rows(self) -> bool:
        """Whether the next commit has rows of it."""
        return self.federation is not None and self.federation.has_records and self._room.bytes > 0

    @property
    def is_due(self) -> bool:
        """Whether there is to be a commit, because sets have changed."""
        return self._has_rows and self._clock.now >= self._paused_until

    def before_commit(self, turn: Turn) -> None:
        """Adds the sets that were changed."""
        if not self._has_rows or self.federation is None:
            return
        writes = self.federation.records(self._clock.now)
        if not writes:
            return
        try:
            rows = [stored.row_of(write) for write in writes]
        except Exception:
            self.federation.refused(self._clock.now)
            raise
        self.written = turn
        pause_s = PAUSE_S + PAUSE_A_ROW_S * self.federation.sets.rows_under_way
        self._paused_until = self._clock.now + pause_s if len(rows) in PAUSED_ROWS else 0.0
        for key, value in rows:
            if value is None:
                turn.batch.deletes.append((stored.TABLE, key))
            else:
                turn.batch.puts[stored.TABLE, key] = value

    def committed(self, turn: Turn) -> None:
        """That turn is on disk: what it stored may be sent."""
        if self.federation is not None and turn is self.written:
            self.written = None
            self.federation.committed(self._clock.now)
            self._moved()

    def undo(self, undone: Undone) -> None:
        """Reverts the sets of those turns. Entries stay: the next turn stores them, as every change by a request."""
        if self.federation is None:
            return
        if any(turn is self.written for turn in undone.turns):
            self.written = None
            self.federation.refused(self._clock.now)
        else:
            self.federation.undone(self._clock.now)
        self._moved()

    def recover(self) -> None:
        """After a failure: rebuilds what is derived from the sets, and repeats everything that federation may have
        missed."""
        federation, now = self.federation, self._clock.now
        if federation is None:
            return
        federation.sets.rebuild()
        for name, session in self._neighbours.items():
            is_up = session.established and BINDINGS in session.features
            if is_up and name not in federation.neighbours:
                federation.up(name, now)
            elif not is_up and name in federation.neighbours:
                federation.down(name, now)
        self.messages.keep_only(federation)
        federation.configure(self.entries, now)
        for topic, wanted in self.bound():
            federation.bind(topic, wanted, now)
        self._routes.rerouted = self._routes.may_spread = True
        self._moved()
