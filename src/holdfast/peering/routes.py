"""Routing in a node: session events and control messages in, forwarding tables out (docs/routing.md). Rules of this
file: `routing/` decides; this file knows when. All changes of one turn are one record of our own, one computation, and
one message to each neighbour. What cannot be sent is tried again later. Everything from a neighbour is checked, and
costs bounded work and memory. Source: esb-dynamic-routing §4; docs/adr/0015-routing.md.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from random import Random
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.entry import TRACE_MAX
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.names.identity import Identities
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.links.disk import Disk
from holdfast.peering.route_upkeep import Upkeep
from holdfast.peers.neighbours.session_port import ControlKinds, Session
from holdfast.routing import supers
from holdfast.routing.configured import configured, file_changed, links_changed
from holdfast.routing.cost import MeasuredCost
from holdfast.routing.linkstate import SUMMARY_ROWS_MAX, LinkStates
from holdfast.routing.paths import Edges, Graph, Path
from holdfast.routing.records import VERSION_END, VERSION_HIGH, Known
from holdfast.routing.rows import SUMMARY_FIELDS, is_summary_row, read_names
from holdfast.routing.topology import DRAINED_MICRO, MICRO, Topology
from holdfast.schema import is_whole_within
from holdfast.settings.node import NodeConfig

RETRY_S: Final = 0.1
"""Seconds after which a message that found no credit is tried again."""
ASK_S: Final = 1.0
"""Seconds between two requests for synchronisation, and between two answers."""

ANSWERS: Final = 6
"""Kinds of events that `may_answer` distinguishes."""

LOG_S: Final = 10.0
"""How often a line in the log reports malformed rows of a neighbour."""

EARLY_MAX: Final = 64
EARLY_ROWS_MAX: Final = EARLY_MAX * SUMMARY_ROWS_MAX
"""Messages of a summary, and their rows, that are kept if they arrive before the session is up on our side."""


class Routes:
    """The control plane of a node with a topology; a `Timed` part of it."""

    def __init__(
        self,
        config: NodeConfig,
        topology: Topology,
        clock: Clock,
        rng: Random,
        log: Log,
        identities: Identities,
        forwarding: Forwarding,
        disk: Disk,
        neighbours: Mapping[str, Session],
        kinds: ControlKinds,
        *,
        version: int,
        advertised_uuid: Callable[[], UUID],
        nodes_left: Callable[[], None],
        is_draining: Callable[[], bool],
        drained: Callable[[Set[str]], None],
    ) -> None:
        """`version`: of the first record after this start, above those of earlier runs. `advertised_uuid`: our store's
        UUID as this node advertises it. `nodes_left`: called when nodes may have left the network. `is_draining`:
        whether this node is drained. `drained`: called with other nodes that were drained."""
        self.clock = clock
        self._log = log
        self._identities = identities
        self._forwarding = forwarding
        self._disk = disk
        self._neighbours = neighbours
        self._kinds = kinds
        self._first_version = version
        self._told_uuid = advertised_uuid
        self._is_draining = is_draining
        self._drained = drained
        self.measured: dict[str, MeasuredCost] = {}
        """By neighbour, if costs are measured."""
        self.config = config.routing
        self.name = config.name
        self.topology = topology
        self.file = file = configured(config.name, config.roles, topology, neighbours)
        self.costs = dict(file.costs)
        """Our links out, with the cost of each as it is now, in millionths."""
        self.states: LinkStates = LinkStates(
            config.name, file.edges, supers=file.supers,
            records_max=self.config.records_max, neighbours_max=self.config.neighbours_max,
        )  # fmt: skip
        self.states.malformed = self.malformed
        self.supers = supers.Supers(self.config.heartbeat_s)
        self.up: dict[str, None] = {}
        """Neighbours whose link is up."""
        self.unsure = dict.fromkeys(self.costs)
        """Neighbours whose link was neither up nor failed since this start."""
        self.registered = False
        self.register_at = clock.now + self.config.registration_s
        self.leaving = False
        self.acting: str | None = None
        """The acting super node as our table has it."""
        self.stamps = 0
        self.heartbeat_at = clock.now
        self.table: dict[str, str] = {}
        self.version = 0
        """Counts the computations of the table."""
        self.changed_at = clock.now
        """When a next hop last became another one."""
        self.paths: dict[str, Path] = {}
        self.graph = Graph({})
        self._to_us: dict[str, Path] | None = None
        self.drained: frozenset[str] = frozenset()
        """Other nodes that are drained, as our table has it."""
        self._stores: dict[UUID, str] = {}
        self._stores_of = -1
        """The count of record changes at which `_stores` was built."""
        self._static = dict(config.forwarding)
        self._wake_at: float | None = clock.now
        self._due_at: float | None = clock.now
        """Read in every turn, so it is computed only when something changes. After a heartbeat it may be too early,
        once."""
        self._untold: dict[str, bool] = {}
        """Neighbours that must get our summary, and whether they are asked for theirs."""
        self._telling: dict[str, deque[dict[str, Any]]] = {}
        """The rest of a summary that was begun."""
        self._early: dict[str, list[dict[Any, Any]]] = {}
        """By neighbour, the messages of a summary that arrived before the session was up on our side."""
        self._asked_at: float | None = None
        self._answered: dict[tuple[str, str], float] = {}
        """Answers of the last ASK_S, with the recipient and the time; the oldest first."""
        self._logged_at: dict[str, float] = {}
        self._hears = {
            "links": self._on_links,
            "known": self._on_known,
            "heartbeat": self._on_heartbeat,
            "resync": self._on_resync,
        }
        self._computed: Callable[[], None] = lambda: None
        self.upkeep = Upkeep(self, clock, rng, log, neighbours, nodes_left)
        self._hears |= self.upkeep.hears
        kinds.add(self._hears)
        self._compute()

    # ------------------------------------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        return self._due_at

    def _next(self) -> float | None:
        moments = [self._wake_at, None if self.leaving else self.upkeep.refresh_at]
        if not self.leaving:
            moments.append(self.heartbeat_at if self.registered else self.register_at)
            if self.acting == self.name:
                moments.append(self.supers.next_deadline())
        return min((at for at in moments if at is not None), default=None)

    def tick(self, now: float) -> None:
        """Combines the turn's changes into one record of our own, one table, and one message to each neighbour."""
        if self._due_at is None or now < self._due_at:
            return
        if not self.leaving:
            if not self.registered and (not self.unsure or now >= self.register_at):
                self.registered = True
                self.heartbeat_at = now
                self._say()
            elif self.registered and self._have_news():
                if self.states.must_reoriginate:
                    self._ask_neighbours()
                self._say()
        self._wake_at = None
        if self.states.changed:
            self._compute()
        if self.acting == self.name and not self.leaving:
            self._act(now)
        else:
            self.supers.seen.clear()
        if self.registered and now >= self.heartbeat_at and not self.leaving:
            self.heartbeat_at = now + self.config.heartbeat_s
            self._send_heartbeat()
        if not self.leaving and not self.upkeep.tick(now):
            self._wake_at = now + RETRY_S
        if self.states.changed:
            self._compute()
        self._tell_all()
        self._due_at = self._next()

    def wake(self) -> None:
        self._wake_at = self._due_at = self.clock.now

    # ------------------------------------------------------------------------------------------------ sessions

    def link_up(self, neighbour: Session) -> None:
        """The session is up: routes may use the link, and records are sent."""
        name = neighbour.name
        self.states.up(name)
        self._untold[name] = False
        for fields in self._early.pop(name, ()):
            self._on_known(neighbour, fields)
        self.unsure.pop(name, None)
        if name in self.costs and not self._disk.takes_nothing:
            self.up[name] = None
        self.wake()

    def disk_changed(self) -> None:
        """Our disk stalls or answers again. While it stalls no route uses our links, though sessions are up and records
        are sent."""
        self.up.clear()
        if not self._disk.takes_nothing:
            links = [neighbour.name for neighbour in self._neighbours.values() if neighbour.offered]
            self.up.update(dict.fromkeys(name for name in links if name in self.costs))
        self.wake()

    def link_down(self, neighbour: Session) -> None:
        """The session has ended, or a dial has failed."""
        name = neighbour.name
        self.states.down(name)
        self._untold.pop(name, None)
        self._telling.pop(name, None)
        self._early.pop(name, None)
        self.unsure.pop(name, None)
        self.up.pop(name, None)
        self.wake()

    def cost_measured(self, neighbour: Session, round_trip_s: float, loss_share: float, backlog_bytes: int) -> None:
        """Called at each keepalive while the link may be used. `loss_share`: of the probes since the last call, 0 to
        1."""
        name = neighbour.name
        if self.config.cost != "measured" or name not in self.costs:
            return
        if name not in self.measured:
            self.measured[name] = MeasuredCost(self.costs[name], bandwidth_bps=self.file.bandwidths.get(name, 0))
        cost = self.measured[name].measured(self.clock.now, round_trip_s, loss_share, backlog_bytes)
        if cost is not None:
            self.set_cost(name, cost)

    def join(self, neighbour: Session) -> None:
        """Without a topology file: adds a link to that neighbour, over which messages for other nodes may go."""
        name = neighbour.name
        if name not in self.costs:
            self.costs[name] = MICRO
            self.states.changed = True
            if neighbour.offered and not self._disk.takes_nothing:
                self.up[name] = None
            self.wake()

    def set_cost(self, neighbour: str, cost_micro: int) -> None:
        """Sets the cost of the link to that neighbour, in millionths."""
        if neighbour in self.costs and self.costs[neighbour] != cost_micro:
            self.costs[neighbour] = cost_micro
            self.wake()

    def take_up(self, config: NodeConfig, topology: Topology) -> None:
        """Another topology file, once the neighbours are those that it makes: advertises our links, and computes the
        table in this turn."""
        before, self.topology, self._static = self.file, topology, dict(config.forwarding)
        self.file = configured(self.name, config.roles, topology, self._neighbours)
        links_changed(self.costs, self.measured, before, self.file)
        file_changed(self.states, self.file)
        self.disk_changed()
        if not self.leaving:
            if not self.registered:
                self.unsure |= {to: None for to in self.costs if to not in before.costs}
            elif self._have_news():
                self._say()
            self._compute()

    def leave(self) -> None:
        """The node is stopping: informs its neighbours before their connections close."""
        if self.leaving:
            return
        self._say(left=True)
        self.leaving = True
        for kind in self._hears:
            self._kinds.pop(kind, None)
        self._tell_all()
        self._wake_at = self._due_at = None

    # ------------------------------------------------------------------------------------------------ own words

    def _links(self) -> dict[str, int | None]:
        more = DRAINED_MICRO if self._is_draining() else 0
        return {name: cost + more if name in self.up else None for name, cost in self.costs.items()}

    def _have_news(self) -> bool:
        own = self.states.own
        if own is None or own.gone or self.states.must_reoriginate or own.record.version >= VERSION_HIGH:
            return True
        said = own.record.store, own.record.is_super, dict(own.record.links)
        return said != (self._told_uuid(), self.file.is_super, self._links())

    def _say(self, *, left: bool = False) -> None:
        self.states.originate(
            self._links(),
            version=self._first_version,
            store=self._told_uuid(),
            left=left,
            is_super=self.file.is_super,
        )

    # ------------------------------------------------------------------------------------------------ the table

    def _compute(self) -> None:
        self.states.changed = False
        self.version += 1
        self._to_us = None
        self.graph = Graph(self.states.edges())
        self.paths = self.graph.paths_from(self.name)
        known = self.states.known
        numbers = {name: self.file.number(name) for name, item in known.items() if item.record.is_super}
        before = self.acting
        self.acting = supers.acting(numbers, lambda name: not known[name].gone and self.reaches(name))
        if before != self.acting and self.version > 1:
            self._log.write("INFO", f"routing: the acting super node is {self.acting or 'out of reach'}, was {before}")
        table = {name: path.next_hop for name, path in self.paths.items()} | self._static
        if table != self.table:
            self.table = table
            self.changed_at = self.clock.now
            self._forwarding.change(table)
        before_drained = self.drained
        self.drained = frozenset(name for name, item in known.items() if name != self.name and item.record.drained)
        if not self.drained <= before_drained:
            self._drained(self.drained - before_drained)
        self._computed()

    def followed_by(self, computed: Callable[[], None], forgot: Callable[[str], None]) -> None:
        """Registers functions that are called when the table was computed, and when a node left for good."""
        self._computed, self.upkeep.forgot = computed, forgot

    def reaches(self, name: str) -> bool:
        return name == self.name or name in self.paths

    def knows(self, name: str) -> bool:
        """Whether it is a node of this network, reachable or not: messages for it may wait here."""
        return name in self.states.known or name in self.paths

    def is_drained(self, name: str) -> bool:
        """Whether that node says that it takes no new messages."""
        return name in self.drained

    @property
    def edges(self) -> Edges:
        """The links over which messages go now, with the cost of each."""
        return self.states.edges()

    @property
    def nodes(self) -> Iterable[str]:
        """Every known node, reachable or not."""
        return (*self.states.known, *self.paths, *self.table)

    def shortest_from(self, origin: str) -> tuple[str, ...] | None:
        """The nodes of the shortest path from `origin` to this node, with both ends, as our table has it."""
        path = self._paths_to_us().get(origin)
        return None if path is None else path.nodes

    def _paths_to_us(self) -> dict[str, Path]:
        if self._to_us is None:
            self._to_us = self.graph.paths_to(self.name)
        return self._to_us

    def name_of_store(self, store: UUID) -> str | None:
        """The node that says it has this store."""
        if store == self._identities.store_uuid:
            return self.name
        if self._stores_of != self.states.words:
            self._stores_of = self.states.words
            records = (known.record for known in self.states.known.values())
            self._stores = {record.store: record.name for record in records if record.store is not None}
        return self._stores.get(store)

    # ------------------------------------------------------------------------------------------------ super node

    def _act(self, now: float) -> None:
        """As the acting super node: stamps new records, and declares silent nodes lost."""
        states = self.states
        for name in list(states.unstamped):
            self.stamps += 1
            states.stamp(name, self.name, self.stamps)
        self._expect(now)
        for name in self.supers.overdue(now):
            if states.lose(name, self.name):
                seconds = self.supers.called_lost(name)
                text = f"routing: node {name} is lost: no heartbeat for {seconds:g} s, so no route leads over it"
                self._log.write("WARNING", f"{text}; check whether it runs, and its links")
        if states.changed:
            self._compute()
            self._expect(now)

    def _expect(self, now: float) -> None:
        """Heartbeats are expected from nodes that can be reached and can reach us: a node that is cut off is not
        lost."""
        to_us = self._paths_to_us()
        self.supers.expect(
            {
                name: known.record.version
                for name, known in self.states.known.items()
                if known.record.version and not known.gone and name in self.paths and name in to_us
            },
            now,
        )

    def _send_heartbeat(self, *, sync: bool = False) -> None:
        if self.acting is None or self.acting == self.name:
            return
        fields = {
            "kind": "heartbeat",
            "from": self.name,
            "to": self.acting,
            "trace": [self.name],
            "digest": Ulong(self.states.digest),
            "sync": sync,
        }
        self._neighbours[self.paths[self.acting].next_hop].send(fields)

    def _on_heartbeat(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        trace = read_names(fields.get("trace"), TRACE_MAX)
        origin, target, digest = fields.get("from"), fields.get("to"), fields.get("digest")
        if (
            not trace
            or origin != trace[0]
            or not isinstance(target, str)
            or not is_whole_within(digest, 0, VERSION_END)
        ):
            self.malformed(neighbour.name, "invalid heartbeat; expected from, to, a trace of names, and a digest")
            return
        if self.name in trace:
            return  # it went round while tables changed; the next one goes another way
        if target != self.name:
            path = self.paths.get(target)
            if path is not None and len(trace) < TRACE_MAX:
                passed = {"trace": [*trace, self.name], "sync": bool(fields.get("sync"))}
                told = {"kind": "heartbeat", "from": trace[0], "to": str(target), "digest": Ulong(digest)}
                self._neighbours[path.next_hop].send(told | passed)
            return
        shortest = self.shortest_from(trace[0]) == (*trace, self.name)
        same = digest == self.states.digest
        stays = self.supers.heard(trace[0], trace, shortest=shortest, same=same, now=self.clock.now)
        if stays or (fields.get("sync") is True and not same and self.may_answer("sync", trace[0])):
            self._resync(trace[0], [])

    # ------------------------------------------------------------------------------------------------ synchronisation

    def ask_sync(self, reason: str) -> None:
        """Tables seem to differ: asks the super node, or without one the neighbours, for their records. At most once in
        ASK_S."""
        now = self.clock.now
        if self.leaving or (self._asked_at is not None and now < self._asked_at + ASK_S):
            return
        self._asked_at = now
        self._log.write("DEBUG", f"routing: synchronisation asked for: {reason}")
        if self.acting is not None and self.acting != self.name:
            self._send_heartbeat(sync=True)
        else:
            self._ask_neighbours()
            self.wake()

    def _ask_neighbours(self) -> None:
        """Sends our summary to the neighbours, and asks for theirs."""
        self._untold.update(dict.fromkeys(self.states.told, True))

    def compare_with(self, neighbour: str) -> None:
        """Our tables differ: sends our summary to the neighbour, and asks for its own."""
        if neighbour in self.states.told and self.may_answer("summary", neighbour):
            self._untold[neighbour] = True
            self.wake()

    def may_answer(self, what: str, name: str) -> bool:
        """True at most once in ASK_S for each kind and node; the number that is remembered is bounded."""
        now = self.clock.now
        answered = self._answered
        while answered and answered[next(iter(answered))] <= now - ASK_S:
            del answered[next(iter(answered))]
        if (what, name) in answered or len(answered) >= ANSWERS * self.states.records_max:
            return False
        answered[what, name] = now
        return True

    def _resync(self, name: str, trace: list[str]) -> None:
        """Sends all records again along the path to that node."""
        path = self.paths.get(name)
        if path is not None and len(trace) < TRACE_MAX:
            self._tell_anew(path.next_hop)
            told = {"kind": "resync", "node": name, "trace": [*trace, self.name]}
            self._neighbours[path.next_hop].send(told)

    def _tell_anew(self, neighbour: str) -> None:
        """Sends all our records to it again, once in ASK_S, for all nodes behind it."""
        if self.may_answer("all", neighbour):
            self.states.forget(neighbour)
            self.wake()

    def _on_resync(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        trace = read_names(fields.get("trace"), TRACE_MAX)
        name = fields.get("node")
        if not trace or not isinstance(name, str):
            self.malformed(neighbour.name, "invalid resync; expected a node and a trace of names")
            return
        if self.name in trace or not self.may_answer("resync", trace[0]):
            return
        self._tell_anew(neighbour.name)  # it may be that they lack what we have
        if name != self.name:
            self._resync(str(name), trace)

    def _on_links(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        rows = fields.get("rows")
        if not isinstance(rows, list):
            self.malformed(neighbour.name, "invalid link states; expected a list of rows")
            return
        self.states.receive(neighbour.name, rows)
        self.wake()

    def _on_known(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        rows = fields.get("rows")
        if not isinstance(rows, list):
            self.malformed(neighbour.name, "invalid summary; expected a list of rows")
            return
        name = neighbour.name
        if name not in self.states.told:
            early = self._early.setdefault(name, [])
            if fields.get("first") is True:  # what came before it was a session's that is over
                early.clear()
            # Of each no more is kept than is understood, lest their number bounds nothing.
            plain = [row[:SUMMARY_FIELDS] for row in rows if is_summary_row(row)]
            if len(early) < EARLY_MAX and len(plain) + sum(len(kept["rows"]) for kept in early) <= EARLY_ROWS_MAX:
                early.append({"rows": plain} | {key: fields.get(key) is True for key in ("first", "last", "ask")})
            return
        last = fields.get("last") is True
        self.states.receive_summary(name, rows, first=fields.get("first") is True, last=last)
        telling = name in self._untold or name in self._telling
        if last and fields.get("ask") is True and not telling and self.may_answer("summary", name):
            self._untold[name] = False
        self.wake()

    # ------------------------------------------------------------------------------------------------ telling

    def _tell_all(self) -> None:
        toward = None
        if self.acting is not None and self.acting != self.name:
            toward = self.paths[self.acting].next_hop
        floods = self.leaving or self.acting is None

        def may(known: Known) -> bool:
            """Stamped records go to every neighbour; others only towards the super node, while it is reachable."""
            return known.stamp is not None or known.lost_by is not None or floods or to_super

        for name in list(self.states.told):
            to_super = name == toward
            if not self._tell(self._neighbours[name], may):
                self._wake_at = self.clock.now + RETRY_S

    def _tell(self, neighbour: Session, may: Callable[[Known], bool]) -> bool:
        name = neighbour.name
        while name in self._telling or name in self._untold:  # in both: asked for anew while credit was waited for
            if name not in self._telling:
                self._telling[name] = self._summary(ask=self._untold.pop(name))
            rest = self._telling[name]
            while rest:
                if not neighbour.send(rest[0]):
                    return False
                rest.popleft()
            del self._telling[name]
        while True:
            rows, editions = self.states.to_tell(name, may)
            if not rows:
                return True
            if not neighbour.send({"kind": "links", "rows": rows}):
                return False
            self.states.was_told(name, editions)

    def _summary(self, *, ask: bool) -> deque[dict[str, Any]]:
        """Our summary, as messages. `ask`: whether theirs is requested."""
        messages = self.states.summary()
        return deque(
            {"kind": "known", "rows": rows, "first": place == 1, "last": place == len(messages), "ask": ask}
            for place, rows in enumerate(messages, 1)
        )

    # ------------------------------------------------------------------------------------------------ reports

    def malformed(self, neighbour: str, text: str) -> None:
        now = self.clock.now
        if now >= self._logged_at.get(neighbour, -LOG_S) + LOG_S:
            self._logged_at[neighbour] = now
            told = f"neighbour {neighbour}: dropped an invalid routing message: {text}"
            self._log.write("WARNING", f"{told}; compare the versions of both nodes", about=neighbour)

    @property
    def synchronised(self) -> bool:
        """Whether nothing is known to be missing: our own record was sent, and all neighbours have every record that we
        have."""
        own = self.states.own
        if not self.registered or own is None or (self.acting is not None and own.stamp is None):
            return False
        return not any(self.states.waits(name) for name in self.states.told)
