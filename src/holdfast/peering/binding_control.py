"""Federation in a node: the bindings of its topics reach its neighbours, and theirs come here, over control links and
the disk (docs/federation.md, docs/adr/0081).

Rules of this file: what bindings are, and what is said of them, is decided in `federation/`; this file knows when. A
set is stored in the batch of the turn that changed it, and said once that is on disk; with the turn it is undone. A
node that has no entry, and whose neighbours forward it nothing, holds nothing, and nothing costs it anything.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from holdfast.engine.clock import Clock
from holdfast.errors import ConfigError
from holdfast.federation import stored
from holdfast.federation.aliases import Malformed
from holdfast.federation.confirming import Answer
from holdfast.federation.federation import CREDIT_KEPT, Federation
from holdfast.federation.index import Asks, unasked
from holdfast.federation.keeping import SET
from holdfast.federation.messages import DYNAMIC, KINDS, Federate, Message
from holdfast.federation.parents import Routes
from holdfast.federation.relaying import Choice
from holdfast.federation.rows import Row
from holdfast.federation.settings import Entry, check_entries
from holdfast.peers.neighbours.features import BINDINGS
from holdfast.peers.neighbours.session_port import ControlKinds, Session
from holdfast.routing.paths import Edges
from holdfast.routing.topology import MICRO
from holdfast.settings.node import NodeConfig
from holdfast.state.room import Room
from holdfast.state.tables import Tables
from holdfast.state.turns import Turn, Turns, Undone

EFFORT_A_TURN: Final = 2_000
"""What is taken in of one neighbour in one turn, in units of small messages (`Federation.effort`)."""

WAITING_MAX: Final = 1_000
"""Messages of one neighbour that wait for a later turn; one more ends its session."""

MESSAGES_A_TURN: Final = 64
"""That one neighbour is told in one turn."""

Bound = Iterable[tuple[str, Iterable[Row]]]
"""Topics, and all that this node's clients want of each."""


class Network(Protocol):
    """The node's routing."""

    def followed_by(self, computed: Callable[[], None], forgot: Callable[[str], None]) -> None:
        """Calls them when the table was computed, and when a node left for good."""

    @property
    def edges(self) -> Edges:
        """The links over which messages go now, with the cost of each."""


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
        *,
        life: int,
        via: Callable[[str], str],
    ) -> None:
        """`life`: wall milliseconds at this start. `via`: the neighbour to which messages for that node go next."""
        self._config = config
        self._name = config.name
        self._clock = clock
        self._turns = turns
        self._room = room
        self._neighbours = neighbours
        self._life = life
        self.via = via
        self._stored = stored.sets_of(store.table(stored.TABLE))
        self.created = stored.entries_of(store.table(stored.ENTRIES))
        """Entries that requests made, by topic and neighbour."""
        self.federation: Federation | None = None
        self.bound: Callable[[], Bound] = tuple
        """All that the clients of this node want, by topic: asked when federation begins."""
        self.answered: Callable[[Answer], None] = lambda answer: None
        """Hears the answers to `confirm`."""
        self.learned: Callable[[], None] = lambda: None
        """Called when `learns` may have become False."""
        self._learns_until: float | None = None
        """Of a store that was empty at this start, while it is not known what other nodes want."""
        self._network: Network | None = None
        self._spread: Callable[[Iterable[str]], None] | None = None
        self._spread_over: dict[str, None] = {}
        """The neighbours over which topics are forwarded, in either direction, that `_spread` was told."""
        self._may_spread = True
        self.active: list[Federation] = []
        """What has deadlines; empty without federation."""
        self.eager: dict[str, None] = {}
        """Neighbours to whom something may have to be said."""
        self.unsent: dict[str, dict[str, Any]] = {}
        """What was taken to be said, and found no credit: at most one message for each neighbour."""
        self.waiting: dict[str, deque[Message]] = {}
        """By neighbour: what it said beyond what one turn takes in."""
        self._spent: dict[str, int] = {}
        """By neighbour: the effort of this turn."""
        self._unsettled = False
        self.written: Turn | None = None
        """The turn that has the records of the commit that is under way, or is about to be."""
        self._rerouted = True
        self._due_at: float | None = None
        """When federation acts next; None where that is to be asked again."""
        kinds.add(dict.fromkeys(KINDS, self._hear))
        of_others = any(kind == SET and of[0] != self._name for kind, *of in self._stored)
        if not of_others and any(entry.mode == DYNAMIC for entry in config.federation):
            self._learns_until = clock.now + config.routing.registration_s
        if self.entries or of_others:
            self._begin()  # of what it has itself it tells when somebody forwards it something

    # ------------------------------------------------------------------------------------------------ its beginning

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All that hold: of the configuration, then those that requests made."""
        configured = self._config.federation
        taken = {(entry.topic, entry.neighbour) for entry in configured}
        made = (
            entry
            for key, entry in self.created.items()
            if key not in taken and entry.neighbour in self._neighbours_named
        )
        return (*configured, *made)

    @property
    def _neighbours_named(self) -> set[str]:
        return {neighbour.name for neighbour in self._config.neighbours}

    def configure(self, config: NodeConfig) -> None:
        """The file has other entries, or other neighbours, from now on."""
        before = self.entries
        self._config = config
        if self.entries != before:
            self._configure()

    def is_configured(self, entry: Entry) -> bool:
        """Whether the configuration file has it."""
        return entry in self._config.federation

    def is_up(self, neighbour: str) -> bool:
        """Whether there is a session with it."""
        return self._neighbours[neighbour].established

    def _begin(self) -> Federation:
        now = self._clock.now
        rows, self._stored = self._stored, {}
        federation = self.federation = Federation(self._name, self._life, now, rows=rows)
        self.active.append(federation)
        federation.configure(self.entries, now)
        for topic, wanted in self.bound():
            federation.bind(topic, wanted, now)
        for name, session in self._neighbours.items():
            if session.established and BINDINGS in session.features:
                federation.up(name, now)
        self._rerouted = True
        self._moved()
        return federation

    def _moved(self) -> None:
        """Federation was told something: others may have to be, and who waited for a confirmation."""
        if self.federation is not None:
            self.eager.update(dict.fromkeys(self.federation.neighbours))
            for answer in self.federation.answers():
                self.answered(answer)
            if self._is_learning():
                self.learned()
        self._due_at = None

    # ------------------------------------------------------------------------------------------------ entries

    def add(self, entry: Entry) -> bool:
        """An entry that holds from now on, over restarts too. False where it is there. Raises ConfigError."""
        entry.validate()
        key = entry.topic, entry.neighbour
        present = next((one for one in self.entries if (one.topic, one.neighbour) == key), None)
        if present == entry:
            return False
        if present is not None:
            raise ConfigError(f"topic {entry.topic!r} goes to {entry.neighbour!r} in another way; remove that first")
        check_entries((*self.entries, entry), self._name, self._neighbours_named)
        self._change(key, entry)
        return True

    def remove(self, topic: str, neighbour: str) -> None:
        """That entry, which a request made, does not hold any more."""
        self._change((topic, neighbour), None)

    def _change(self, key: tuple[str, str], entry: Entry | None) -> None:
        turn = self._turns.gathered
        place = stored.ENTRIES, stored.entry_key(*key)
        turn.changes += 1
        turn.batch.puts.pop(place, None)
        turn.batch.deletes[:] = [each for each in turn.batch.deletes if each != place]
        if entry is None:
            turn.batch.deletes.append(place)
            self.created.pop(key, None)
        else:
            turn.batch.puts[place] = stored.pack_entry(entry)
            self.created[key] = entry
        self._configure()

    def _configure(self) -> None:
        if self.federation is None:
            self._begin()
        else:
            self.federation.configure(self.entries, self._clock.now)
            self._moved()
        self._may_spread = True

    # ------------------------------------------------------------------------------------------------ topics

    def bind(self, topic: str, rows: Iterable[Row]) -> None:
        """All that this node's clients want of a topic, from now on. Nothing where there is no federation: it asks
        (`bound`) when it begins."""
        if self.federation is not None:
            self.federation.bind(topic, rows, self._clock.now)
            self._moved()

    def confirm(self, topic: str, row: Row, wait_s: float) -> int | None:
        """Asks who has stored what `row` wants, which `bind` was told; `answered` hears of it, with this number, in
        this turn or later. None without federation: nobody else has the topic."""
        if self.federation is None:
            return None
        token = self.federation.confirm(topic, row, self._clock.now, wait_s)
        self._moved()
        return token

    def cancel(self, token: int) -> None:
        """Who asked for that confirmation is gone."""
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
        """Whether messages of the topic wait: this node began with an empty store, and has not heard yet what the nodes
        want to which its entries lead. At most `registration_s`."""
        return self._is_learning() and self.federation is not None and not self.federation.following.has_all(topic)

    def _is_learning(self) -> bool:
        if self._learns_until is not None and self._clock.now >= self._learns_until:
            self._learns_until = None
        return self._learns_until is not None

    # ------------------------------------------------------------------------------------------------ routes

    def spreads(self, spread: Callable[[Iterable[str]], None]) -> None:
        """Who is told the neighbours over which topics are forwarded, in either direction: those there are now, and
        those that come."""
        self._spread = spread
        self._tell_spread()

    def _tell_spread(self) -> None:
        federation = self.federation
        if federation is None or self._spread is None:
            return
        names = [entry.neighbour for entry in self.entries]
        names += [name for name, neighbour in federation.neighbours.items() if neighbour.modes]
        new = [name for name in dict.fromkeys(names) if name not in self._spread_over]
        if new:
            self._spread_over.update(dict.fromkeys(new))
            self._spread(new)

    def routed_by(self, network: Network) -> None:
        """There is routing."""
        self._network = network
        network.followed_by(self.rerouted, self._forgot)
        self._rerouted = True

    def rerouted(self) -> None:
        """Routing, or what this node may send to, is another one."""
        self._rerouted = True

    def _forgot(self, name: str) -> None:
        """A node left for good: what it wanted goes."""
        if self.federation is not None:
            self.federation.forget(name, self._clock.now)
            self._moved()

    def _route(self) -> None:
        if not self._rerouted or self.federation is None:
            return
        self._rerouted = False
        if self._network is not None:
            up: Edges = self._network.edges
        else:
            up = {self._name: {name: MICRO for name, one in self._neighbours.items() if one.offered}}
        routes = Routes(up)
        if routes != self.federation.routes:
            self.federation.route(routes, self._clock.now)
            self._moved()

    # ------------------------------------------------------------------------------------------------ sessions

    def established(self, session: Session) -> None:
        """The session is up."""
        self.unsent.pop(session.name, None)
        if self.federation is not None and BINDINGS in session.features:
            self.federation.up(session.name, self._clock.now)
            self._rerouted = True
            self._moved()

    def lost(self, session: Session) -> None:
        """The session is gone; it need not have been up."""
        for of_sessions in (self.eager, self.unsent, self.waiting):
            of_sessions.pop(session.name, None)
        if self.federation is not None:
            self.federation.down(session.name, self._clock.now)
            self._rerouted = True
            self._moved()

    def credited(self, session: Session) -> None:
        """Its control link has credit."""
        if self.federation is not None and session.name in self.federation.neighbours:
            self.eager[session.name] = None

    def _hear(self, session: Session, fields: dict[Any, Any]) -> None:
        if BINDINGS not in session.features or not session.established:
            return
        federation = self.federation
        if federation is None:
            if not fields.get("rows") or fields.get("kind") != "federate":
                return  # it forwards nothing here, so there is nothing to say
            federation = self._begin()
        name = session.name
        try:
            message = federation.read(name, fields)
            if message is None:
                return
            waiting = self.waiting.get(name)
            if waiting is None and self._spent.get(name, 0) < EFFORT_A_TURN:
                self._apply(federation, name, message)
            elif waiting is None or len(waiting) < WAITING_MAX:
                self.waiting.setdefault(name, deque()).append(message)
            else:
                raise Malformed(f"more than {WAITING_MAX} wait; expected them at the rate at which they are read")
        except Malformed as error:
            self._end(session, error)

    def _apply(self, federation: Federation, name: str, message: Message) -> None:
        self._spent[name] = self._spent.get(name, 0) + federation.effort(name, message)
        self._may_spread = self._may_spread or isinstance(message, Federate)
        self._unsettled = True
        federation.apply(name, message)

    def _end(self, session: Session, error: Malformed) -> None:
        session.drop(f"invalid message of federation: {error}")
        self.lost(session)

    def _settle(self) -> None:
        """Applies what waits, as far as a turn allows, and what follows from all that was applied."""
        self._spent.clear()
        federation = self.federation
        for name in list(self.waiting):
            waiting = self.waiting[name]
            try:
                while waiting and federation is not None and self._spent.get(name, 0) < EFFORT_A_TURN:
                    self._apply(federation, name, waiting.popleft())
            except Malformed as error:
                self._end(self._neighbours[name], error)
            if not waiting:
                self.waiting.pop(name, None)
        if self._unsettled and federation is not None:
            self._unsettled = False
            federation.settle(self._clock.now)
            self._moved()

    def speak(self) -> None:
        """Says what is to be said, as far as there is credit."""
        self._settle()
        if self._may_spread:
            self._may_spread = False
            self._tell_spread()
        self._route()
        now = self._clock.now
        for name in list(self.eager):
            if not self._tell(self._neighbours[name], now):
                self.eager.pop(name, None)

    def _tell(self, session: Session, now: float) -> bool:
        """Whether there is more to say, and credit for it."""
        federation, name = self.federation, session.name
        self._due_at = None
        for _ in range(MESSAGES_A_TURN):
            message = self.unsent.pop(name, None)
            if message is None and federation is not None:
                message = next(iter(federation.take(name, CREDIT_KEPT + 1, now)), None)
            if message is None:
                return False
            if not session.send(message):
                self.unsent[name] = message
                return False
        return True

    # ------------------------------------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        if self.federation is None:
            return None
        now = self._clock.now
        if self.eager or self._rerouted or self._may_spread or self._unsettled or self.waiting:
            return now
        if self._due_at is None:
            self._due_at = self.federation.next_deadline(now)
        return self._due_at if self._learns_until is None else min(self._due_at, self._learns_until)

    def tick(self, now: float) -> None:
        if self._learns_until is not None and not self._is_learning():
            self.learned()
        if self.federation is not None and (self._due_at is None or now >= self._due_at):
            self.federation.tick(now)
            self._moved()

    # ------------------------------------------------------------------------------------------------ turns

    @property
    def is_due(self) -> bool:
        """Whether the commit that begins now has something of it."""
        return self.federation is not None and self.federation.has_records and self._room.bytes > 0

    def before_commit(self, turn: Turn) -> None:
        """Adds the sets that were changed."""
        if not self.is_due or self.federation is None:
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
        for key, value in rows:
            if value is None:
                turn.batch.deletes.append((stored.TABLE, key))
            else:
                turn.batch.puts[stored.TABLE, key] = value

    def committed(self, turn: Turn) -> None:
        """That turn is on disk: what it stored may be said."""
        if self.federation is not None and turn is self.written:
            self.written = None
            self.federation.committed(self._clock.now)
            self._moved()

    def undo(self, undone: Undone) -> None:
        """Reverts the sets of those turns. Entries stay, as all that requests changed: the next turn stores them."""
        if self.federation is None:
            return
        if any(turn is self.written for turn in undone.turns):
            self.written = None
            self.federation.refused(self._clock.now)
        else:
            self.federation.undone(self._clock.now)
        self._moved()

    def recover(self) -> None:
        """After a failure: what is derived from the sets is made anew, and all is told again that it may have kept
        from federation."""
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
        for of_sessions in (self.eager, self.unsent, self.waiting):
            for name in [name for name in of_sessions if name not in federation.neighbours]:
                del of_sessions[name]
        federation.configure(self.entries, now)
        for topic, wanted in self.bound():
            federation.bind(topic, wanted, now)
        self._rerouted = self._may_spread = True
        self._moved()
