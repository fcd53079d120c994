"""Holds a run whose nodes compute their own routes to docs/adr/0015-routing.md: tables, circles, and what news costs.

Rules of this file: looks on from outside, and changes nothing of what a node does. Which links are up it knows from
the network, not from nodes; what tables have to be, from `judge/oracle.py`. A broken promise is a Violation in the
moment in which it shows; what is found while a node's own code runs, at the end of that event.
"""

from collections import Counter
from collections.abc import Callable
from heapq import nlargest
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.entries import entry
from holdfast.custody.sent_back import RETURN_S
from holdfast.engine.port import Batch
from holdfast.peering.sessions import RETRY_S, Neighbour
from holdfast.routing import supers
from holdfast_lab.base.client_history import Violation
from holdfast_lab.judge import oracle
from holdfast_lab.judge.checkers import TRANSMISSION
from holdfast_lab.plan.networks import Topology
from holdfast_lab.sim.network import CONNECT_TIME_OUT_S
from holdfast_lab.sim.node import SimNode
from holdfast_lab.sim.sim_bed import SimBed

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

STILL_S: Final = 5.0
"""Once tables are right they stay right, and nodes tell each other no more records, for so long."""
FULL_LINKS: Final = 4
"""Links on one way that are thought full at the same time."""
TOLD_MAX: Final = 4
"""How often one form of a record may be told to one neighbour in one session, between two synchronisations: once, and
again where an older word of the neighbour's crosses it. What the neighbour asks for is told each time."""
LOOK_S: Final = 2.0
"""After a cut tables are compared so often, until they are right or something else disturbs them."""
COPIES_MORE: Final = 1
"""Beside the copies that lie on disks one more may be on its way when tables come to rest."""
WORDS_MORE: Final = 8
"""What a node may say of itself beyond two words for each change of its sessions: challenges by what others still
have of an earlier life."""

Identity = tuple[str, bytes, bool]
"""Destination, identity as entries hold it, and whether it is a tombstone: who travels."""
Pair = tuple[str, str]


EXCHANGES: Final = 3
"""Comparisons of all neighbours after which tables that were made wrong are right (docs/adr/0029)."""


def _late_s(topology: Topology) -> float:
    """How long what passes a few full links waits at most: seconds that the longest queues take to drain."""
    drains = (shape.queue_bytes / shape.rate for link in topology.links for shape in link.shapes if shape.rate)
    return sum(nlargest(FULL_LINKS, drains))


def watch_routes(bed: SimBed) -> "RoutingWatch | None":
    """Watches what the nodes make of their links from now on, where they compute their own routes; none has started."""
    if bed.topology.routing is None:
        return None
    watch = RoutingWatch(bed)
    bed.observers.append(watch)
    for node in bed.sim_nodes.values():
        node.on_turn.append(watch.turned)
    return watch


class RoutingWatch:
    """Watches the routing of one run. The bed reports turns, batches and starts, `Faults` reports disturbances."""

    def __init__(self, bed: SimBed) -> None:
        self.bed = bed
        topology = bed.topology
        self.edges = topology.map().edges()
        """Every direction that messages may take, and its cost."""
        self.numbers = {name: number for number, name in enumerate(topology.nodes, 1)}
        self.pairs = list(dict.fromkeys((min(pair), max(pair)) for pair in ((k.one, k.other) for k in topology.links)))
        assert topology.routing is not None
        routing = topology.routing
        self.measures = routing.cost == "measured"
        slowest_s = max((link.there.delay_s + link.there.jitter_s for link in topology.links), default=0.0)
        beats = supers.MISSED + supers.DIFFERS
        self.settle_s = (
            2 * topology.hold_time_s
            + 2 * (CONNECT_TIME_OUT_S + RETRY_S[1])
            + routing.registration_s
            + 2 * beats * routing.heartbeat_s
            + 2 * slowest_s * min(len(topology.nodes), 32)
            + 4 * _late_s(topology)
        )
        """Tables are right when nothing was disturbed for so long: a loss noticed, a dial that had to wait, news told,
        and once more by heartbeats where it was not; where thin links are full, also what is late behind it and makes
        verdicts that are taken back, until all may be silent for so long (docs/routing.md, "Heartbeats")."""
        self.changes = 0
        """Tables that changed, all nodes together."""
        self.changed_at = bed.now()
        self.messages: Counter[str] = Counter()
        """Control messages of the routing, by kind."""
        self.rows = 0
        self.words: Counter[str] = Counter()
        """By node: versions of its record that it told."""
        self.turns_of_sessions: Counter[str] = Counter()
        self.convergences: list[float] = []
        """From a cut until a message came by another way."""
        self.recoveries: list[float] = []
        """From a cut until the last node changed its table for it, where nothing else came in between."""
        self.looks = 0
        """How often the tables of a disturbed network were compared while it was left alone."""
        self.spoils = 0
        """Tables that were made wrong."""
        self.cost_changes = 0
        """Costs that were told because they were measured."""
        self._versions: dict[str, int] = {}
        self._stores: dict[bytes, str] = {}
        self._newest: dict[str, int] = {}
        self._told: dict[Pair, Counter[Any]] = {}
        self._spoke_at = bed.now()
        self._places: dict[tuple[str, int, int], Identity] = {}
        self._copies: Counter[Identity] = Counter()
        self._passed: dict[tuple[Identity, str], tuple[int, float, int, int]] = {}
        """(changes, when, copies there were, times) of what came to a node since tables last changed."""
        self._paths: dict[Pair, tuple[str, ...]] = {}
        self._awaited: dict[Pair, tuple[float, Pair]] = {}
        self._undisturbed_from = bed.now()
        self._look_number = 0
        self._new_files: set[str] = set()
        """Nodes that are about to read another topology file, which may make neighbours."""
        self._listened: dict[Pair, Neighbour] = {}

    # ------------------------------------------------------------------------------------------------ nodes

    def started(self, node: SimNode) -> None:
        """The node has started again: its table is that of the file."""
        core = node.core
        assert core is not None
        self._stores[core.identities.store_uuid.bytes] = node.name
        self._versions[node.name] = core.forwarding.version
        self._change()
        self.turns_of_sessions[node.name] += 2  # it registers, and may have to go past its earlier life's word
        for neighbour in core.neighbours.values():
            self._listen(node.name, neighbour)
        if self.measures:
            self._follow_costs(node.name, core)

    def _follow_costs(self, name: str, core: "NodeCore") -> None:
        """Each cost that is told is one word more, and news that must spread."""
        assert core.routing is not None
        costs, set_cost = core.routing.costs, core.routing.set_cost

        def changed(neighbour: str, cost_micro: int) -> None:
            before = costs.get(neighbour)
            set_cost(neighbour, cost_micro)
            if costs.get(neighbour) != before:
                self.cost_changes += 1
                self.turns_of_sessions[name] += 1
                self.disturbed(0.0)

        setattr(core.routing, "set_cost", changed)  # noqa: B010  # as in `_listen`

    def _listen(self, name: str, neighbour: Neighbour) -> None:
        send = neighbour.send
        self._listened[name, neighbour.name] = neighbour

        def heard(fields: dict[str, Any], **how: Any) -> bool:
            sent = send(fields, **how)
            if sent:
                self.bed.world.judge(self._said, name, neighbour.name, fields)
            return sent

        setattr(neighbour, "send", heard)  # noqa: B010  # this one object's, as long as its node lives

    def turned(self, node: SimNode) -> None:
        """A turn is over."""
        core = node.core
        if core is not None and core.forwarding.version != self._versions[node.name]:
            self._versions[node.name] = core.forwarding.version
            self._stores[core.identities.store_uuid.bytes] = node.name
            self._change()
        if core is not None and node.name in self._new_files:
            self._new_files.remove(node.name)
            for neighbour in core.neighbours.values():
                if self._listened[node.name, neighbour.name] is not neighbour:
                    self._listen(node.name, neighbour)

    def file_changed(self, node: SimNode) -> None:
        """The node has another topology file, of which it says what its links cost, in one word."""
        assert node.config.topology is not None
        self.edges[node.name] = node.config.topology.edges()[node.name]
        self.turns_of_sessions[node.name] += 1
        self._new_files.add(node.name)

    def _change(self) -> None:
        self.changes += 1
        self.changed_at = self.bed.now()

    # ------------------------------------------------------------------------------------------------ what is told

    def _said(self, name: str, neighbour: str, fields: dict[str, Any]) -> None:
        kind = fields["kind"]
        if kind == "hello":
            self._told.pop((name, neighbour), None)
            self.turns_of_sessions[name] += 2  # one that comes up, and its end
        if kind not in ("links", "known", "resync", "heartbeat"):
            return
        self.messages[kind] += 1
        if kind == "heartbeat":
            return
        self._spoke_at = self.bed.now()
        if kind == "resync":
            self._told.pop((name, neighbour), None)
            self._told.pop((neighbour, name), None)
        elif kind == "known" and fields["ask"]:
            self._told.pop((neighbour, name), None)  # on a full, thin link several are asked for before one comes
        elif kind == "links":
            told = self._told.setdefault((name, neighbour), Counter())
            for row in fields["rows"]:
                self._row(name, neighbour, row, told)

    def _row(self, name: str, neighbour: str, row: list[Any], told: Counter[Any]) -> None:
        self.rows += 1
        subject, version = str(row[0]), int(row[1])
        form = subject, version, int(row[2]), tuple(row[4])
        told[form] += 1
        if told[form] > TOLD_MAX * (1 + (EXCHANGES if self.spoils else 0)):  # a summary that crossed costs one more
            raise Violation(
                f"{name} told {neighbour} version {version} of {subject}'s links {told[form]} times in one session"
            )
        if subject == name and version > self._newest.get(name, 0):
            self._newest[name] = version
            self.words[name] += 1
            accepted = self.turns_of_sessions[name] + WORDS_MORE
            if self.words[name] > accepted:
                raise Violation(
                    f"{name} said {self.words[name]} words of its links, its sessions account for {accepted}"
                )

    # ------------------------------------------------------------------------------------------------ messages

    def disk_changed(self, node: SimNode) -> None:
        """Another disk: what lay on the old one is no copy any more."""
        for place in [place for place in self._places if place[0] == node.name]:
            self._copies[self._places.pop(place)] -= 1

    def applied(self, node: SimNode, batch: Batch) -> None:
        """A batch is on that node's disk, and the ledger has it."""
        names = self.bed.ledger.disk(node.name, node.store).names
        for queue_id, sequence, value in batch.appends:
            if not value[1] & entry.CUSTODY:
                continue
            queue = names[queue_id]
            if queue[0] == TRANSMISSION:
                place = node.name, queue_id, sequence
                if place not in self._places:
                    who = queue, value[entry.FIXED_BYTES : entry.FIXED_BYTES + 24], bool(value[1] & entry.TOMBSTONE)
                    self._travels(node.name, who)
                    self._places[place] = who
                    self._copies[who] += 1
            elif not value[1] & entry.TOMBSTONE:
                trace = entry.unpack(value).trace
                if trace:
                    self._arrived(node.name, trace)
        for queue_id, sequence in batch.retires:
            who_left = self._places.pop((node.name, queue_id, sequence), None)
            if who_left is not None:
                self._copies[who_left] -= 1
                if not self._copies[who_left]:
                    del self._copies[who_left]

    def _travels(self, name: str, who: Identity) -> None:
        """It came to a node on its way: once, and once more where it went round because two tables differed. From
        then on it lies until a table changes (CUSTODY, "Trace"), or is tried again after RETURN_S."""
        now = self.bed.now()
        changes, since, copies, times = self._passed.get((who, name), (-1, now, 0, 0))
        if changes != self.changes or now - since >= RETURN_S[1]:
            changes, since, copies, times = self.changes, now, max(1, self._copies.get(who, 0)), 0
        times += 1
        self._passed[who, name] = changes, since, copies, times
        if times > 2 * (copies + COPIES_MORE):
            number = int.from_bytes(who[1][16:], "big")
            raise Violation(
                f"message {number} for {who[0][1:]} goes in circles: it came to {name} {times} times since tables "
                f"last changed, {now - since:.3f} s ago"
            )

    def _arrived(self, name: str, trace: bytes) -> None:
        stores = [trace[at : at + 16] for at in range(0, len(trace), 16)]
        path = (*(self._stores.get(store, "?") for store in stores), name)
        pair = path[0], name
        self._paths[pair] = path
        cut_at, link = self._awaited.get(pair, (0.0, ("", "")))
        if cut_at and not _uses(path, link):
            del self._awaited[pair]
            self.convergences.append(self.bed.now() - cut_at)

    # ------------------------------------------------------------------------------------------------ faults

    def cut(self, link: Pair) -> None:
        """From now on it carries nothing: whose messages came over it are awaited by another way."""
        for pair, path in self._paths.items():
            if _uses(path, link) and pair not in self._awaited:
                self._awaited[pair] = self.bed.now(), link
        self.bed.world.after(LOOK_S, self._recovered, self._look_number, self.bed.now())

    def _recovered(self, number: int, cut_at: float) -> None:
        if number != self._look_number:  # disturbed since
            return
        if self.wrong():
            self.bed.world.after(LOOK_S, self._recovered, number, cut_at)
        elif self.changed_at > cut_at:
            self.recoveries.append(self.changed_at - cut_at)

    def healed(self) -> None:
        """What comes from now on may come by the old way again."""
        self._awaited.clear()

    def disturbed(self, seconds: float) -> None:
        """Something failed, came back, or does so for so long; then tables have `settle_s` to become right."""
        self._undisturbed_from = max(self._undisturbed_from, self.bed.now() + seconds)
        self._look_number += 1
        self.bed.world.at(self._undisturbed_from + self.settle_s, self._look, self._look_number)

    def spoilt(self) -> None:
        """A node's table was made wrong: tables have some comparisons more to become right, and every node may have to
        say its word anew for each of them."""
        assert self.bed.topology.routing is not None
        if not self.spoils:
            self.settle_s += EXCHANGES * self.bed.topology.routing.refresh_s
        self.spoils += 1
        self._told.clear()
        for name in self.bed.topology.nodes:
            self.turns_of_sessions[name] += EXCHANGES
        self.disturbed(0.0)

    def _look(self, number: int) -> None:
        if number == self._look_number:
            self.looks += 1
            if wrong := self.wrong():
                raise Violation(f"{wrong}, {self.settle_s:g} s after the last fault struck or ended")

    # ------------------------------------------------------------------------------------------------ at rest

    def _up(self, name: str) -> bool:
        core = self.bed.sim_nodes[name].core
        return core is not None and not core.stopping

    def _open(self, one: str, other: str) -> bool:
        direction = self.bed.network.direction
        works = self._up(one) and self._up(other) and direction(one, other).up and direction(other, one).up
        return works and self._listed(one, other) and self._listed(other, one)

    def _listed(self, one: str, other: str) -> bool:
        """Whether the file of `one` has the other as its neighbour."""
        return any(item.name == other for item in self.bed.sim_nodes[one].config.neighbours)

    def wrong(self) -> str:
        """The first thing that is not as it has to be once news has spread; empty where all is right."""
        joined = [pair for pair in self.pairs if self._open(*pair)]
        for one, other in joined:
            for name, far in ((one, other), (other, one)):
                core = self.bed.sim_nodes[name].core
                assert core is not None
                if not core.neighbours[far].established:
                    return f"{name} has no session with {far}, and their link works"
        links = set(joined)
        edges = {
            name: {end: self._cost(name, end) for end in ends if (min(name, end), max(name, end)) in links}
            for name, ends in self.edges.items()
        }
        names = [name for name in self.edges if self._up(name)]
        for part in oracle.parts(names, joined):
            if wrong := self._wrong_in(part, edges):
                return wrong
        return ""

    def _cost(self, name: str, end: str) -> int:
        """As the topology file has it; where costs are measured, as `name` found it last."""
        core = self.bed.sim_nodes[name].core
        if not self.measures or core is None or core.routing is None:
            return self.edges[name][end]
        return core.routing.costs[end]

    def _wrong_in(self, part: list[str], edges: dict[str, dict[str, int]]) -> str:
        ways = {name: oracle.ways_from(name, edges) for name in part}
        acting = {name: self._acting(ways[name]) for name in part}
        records = self._records(part[0])
        for name in part:
            core = self.bed.sim_nodes[name].core
            assert core is not None and core.routing is not None
            wanted = {to: way[2][1] for to, way in ways[name].items() if to != name}
            found = core.forwarding.table
            for to in sorted(set(wanted) | set(found)):
                if wanted.get(to) != found.get(to):
                    return f"{name} sends what is for {to} by {found.get(to)}, the shortest way is by {wanted.get(to)}"
            if core.routing.acting != acting[name]:
                return f"{name} takes {core.routing.acting} for the acting super node, it is {acting[name]}"
            theirs = self._records(name)
            for subject in records.keys() | theirs.keys():
                if records.get(subject) != theirs.get(subject):
                    return (
                        f"{part[0]} has {records.get(subject)} of {subject}, {name} has {theirs.get(subject)}, "
                        "and they are joined"
                    )
        return ""

    def _acting(self, ways: dict[str, oracle.Way]) -> str | None:
        supers_ = [name for name in self.bed.topology.supers if name in ways]
        return min(supers_, key=self.numbers.__getitem__, default=None)

    def _records(self, name: str) -> dict[str, Any]:
        core = self.bed.sim_nodes[name].core
        assert core is not None and core.routing is not None
        return {
            subject: (known.record.version, known.record.links, known.record.left, known.lost_by is not None)
            for subject, known in core.routing.states.known.items()
            if known.record.version
        }

    def at_rest(self, run: Callable[[float], object]) -> None:
        """All is healed: tables become right within `settle_s`, and stay so, with nothing more to tell. `run` lets so
        many seconds pass."""
        self._look_number += 1  # the last look is this one
        ends_at = self.bed.now() + self.settle_s
        wrong = self.wrong()
        while wrong and self.bed.now() < self._right_by(ends_at):
            run(1.0)
            wrong = self.wrong()
        if wrong:
            raise Violation(f"{wrong}, {self.settle_s:g} s after all was healed and done")
        while self.bed.now() < max(self._spoke_at, self.changed_at) + STILL_S:
            run(1.0)
            if self.bed.now() > self._right_by(ends_at) + STILL_S:
                raise Violation(f"nodes still tell each other of links {self.settle_s:g} s after all was healed")
        if wrong := self.wrong():
            raise Violation(f"{wrong}, though nothing has happened since all tables were right")

    def _right_by(self, ends_at: float) -> float:
        """A cost that is measured anew is news again; it is told seldom, and comes back to the given one."""
        return max(ends_at, self._undisturbed_from + self.settle_s) if self.measures else ends_at

    # ------------------------------------------------------------------------------------------------ figures

    def metrics(self) -> dict[str, Any]:
        """`convergence_s`: the longest time from a cut until a message came by another way than over that link;
        `tables_right_s`: until all nodes' tables were right."""
        found: dict[str, Any] = {
            "routing_messages": sum(self.messages.values()),
            "routing_rows": self.rows,
            "routing_words": sum(self.words.values()),
            "table_changes": self.changes,
            "looks": self.looks,
            "cost_changes": self.cost_changes,
        }
        if self.convergences:
            found["convergence_s"] = round(max(self.convergences), 6)
            found["convergences"] = len(self.convergences)
        if self.recoveries:
            found["tables_right_s"] = round(max(self.recoveries), 6)
            found["recoveries"] = len(self.recoveries)
        return found


def _uses(path: tuple[str, ...], link: Pair) -> bool:
    """Whether the path leads over that link, either way."""
    return any({one, other} == set(link) for one, other in pairwise(path))
