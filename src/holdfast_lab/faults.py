"""What goes wrong in a run: each fault says where, when and how long, and can be undone.

Rules of this file: faults are data, drawn beforehand or written in a scenario, so that a run can be replayed and
shrunk; `Faults` carries them out on a simulated bed. `FaultBudget` keeps a run recoverable.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, Final

from holdfast.engine import events
from holdfast.errors import ConfigError
from holdfast.peers.use import Use
from holdfast_lab.checkers import key_of
from holdfast_lab.history import Violation
from holdfast_lab.moments import AIM_S, MOMENTS, met
from holdfast_lab.sim.bed import SimBed
from holdfast_lab.sim.defects import SHARE as DEFECTS_SHARE
from holdfast_lab.sim.defects import Defects
from holdfast_lab.sim.liar import LIES, SHARE, Liar
from holdfast_lab.sim.node import SimNode
from holdfast_lab.sim.store import Fate, Snapshot
from holdfast_lab.wrong_tables import spoil


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`at` and `seconds` in virtual time since the run's start; `node` or `link` says where, `kind` what.

    `amount`: a factor for slow links and disks, seconds for clocks, bytes of room for a full disk, the share of bytes
    under way that still arrives for a cut, of records that are wrong for wrong tables, of frames in which a lying peer
    lies, of events in which a function may raise for a defect. `lie`: which of `sim/liar.py`, all of them where it is
    empty. `when`: it waits for that moment of its node, or of one of its link's (`moments.py`), AIM_S at most.
    """

    kind: str
    at: float
    node: str = ""
    link: tuple[str, str] = ("", "")
    seconds: float = 0.0
    amount: float = 0.0
    lie: str = ""
    when: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        """The nodes that it strikes."""
        return (self.node,) if self.node else self.link

    def describe(self) -> str:
        where = "-".join(self.places)
        aimed = f"as {self.when}" if self.when else ""
        return f"{self.kind} {where} for {self.seconds:.3f} s ({self.amount:g}) {self.lie}{aimed}".rstrip()


KINDS: Final = {
    "crash": "node",
    "power": "node",
    "stop": "node",
    "replace-disk": "node",
    "restore-backup": "node",
    "copied-disk": "node",
    "purge": "node",
    "full-disk": "node",
    "refusing-disk": "node",
    "slow-disk": "node",
    "stalled-disk": "node",
    "failed-sync": "node",
    "clock-step": "node",
    "lying-peer": "node",
    "wrong-tables": "node",
    "defect": "node",
    "cut-clients": "node",
    "refusing-links": "node",
    "cut": "link",
    "silent-cut": "link",
    "partition": "link",
    "one-way": "link",
    "clog": "link",
    "slow-link": "link",
    "re-route": "link",
    "remove-link": "link",
}
"""What there is, and whether it strikes a node or a link."""

WEARING: Final = frozenset(
    {"full-disk", "refusing-disk", "slow-disk", "stalled-disk", "failed-sync", "lying-peer", "defect", "slow-link"}
)
"""Those under which nothing comes to rest before they are over."""


UP: Final = frozenset(
    {
        "full-disk", "refusing-disk", "slow-disk", "stalled-disk", "clock-step", "purge", "cut-clients",
        "refusing-links",
    }
)  # fmt: skip
"""Those of nodes under which none goes down."""

PUT_BACK: Final = frozenset({"restore-backup", "copied-disk"})
"""Those after which a node has an older state of its own disk, or a copy of it as it is."""


def meeting_name(kind: str, moment: str) -> str:
    return f"{kind}, {moment}"


@dataclass(slots=True)
class Purge:
    """One that a fault asked for, in that life of the node; `told`: its answers."""

    node: SimNode
    life: int
    queue: str
    told: list[int] = field(default_factory=list)


def make_fault(told: dict[str, Any], where: str) -> Fault:
    """The fault of a scenario's `[[fault]]` table. Raises ConfigError that names `where` and the key."""
    known = {item.name for item in fields(Fault)}
    for key in told:
        if key not in known:
            raise ConfigError(f"{where}: found {key!r}, accepted is one of {', '.join(sorted(known))}")
    kind = told.get("kind")
    if kind not in KINDS:
        raise ConfigError(f"{where}: kind: found {kind!r}, accepted is one of {', '.join(KINDS)}")
    values = dict(told)
    if "link" in values:
        link = values["link"]
        if not isinstance(link, (list, tuple)) or len(link) != 2:
            raise ConfigError(f"{where}: link: found {link!r}, accepted are two names of nodes")
        values["link"] = (str(link[0]), str(link[1]))
    for key in ("at", "seconds", "amount"):
        if key in values and (not isinstance(values[key], (int, float)) or isinstance(values[key], bool)):
            raise ConfigError(f"{where}: {key}: found {values[key]!r}, accepted is a number")
    fault = Fault(**{"at": 0.0, **values})
    if fault.when not in ("", *MOMENTS):
        raise ConfigError(f"{where}: when: found {fault.when!r}, accepted is one of {', '.join(MOMENTS)}")
    if fault.lie not in ("", *LIES):
        raise ConfigError(f"{where}: lie: found {fault.lie!r}, accepted is one of {', '.join(LIES)}")
    if not (fault.node if KINDS[fault.kind] == "node" else all(fault.link)):
        raise ConfigError(f"{where}: {fault.kind} needs a {KINDS[fault.kind]}")
    return fault


class Faults:
    """Carries the plan out. `heal` undoes what still lasts; what a fault did is counted by kind in `hits`."""

    def __init__(self, bed: SimBed, plan: list[Fault]) -> None:
        self.bed = bed
        self.random = bed.world.seeds.stream("faults")
        self.hits: Counter[str] = Counter()
        self.fates: Counter[str] = Counter()
        self.meetings: Counter[str] = Counter()
        """What was struck by what: `kind, moment`."""
        self.over = False
        self.liars: dict[str, Liar] = {}
        self._down: dict[SimNode, int] = {}
        self._links_out: Counter[tuple[str, str]] = Counter()
        self._gone: dict[tuple[str, str], None] = {}
        self._tables_without: Counter[tuple[str, str]] = Counter()
        self._snapshots: dict[str, Snapshot] = {}
        self.purges: list[Purge] = []
        self._refusing: dict[Use, int] = {}
        """Users who get no link now, and how many each may have."""
        for fault in plan:
            if KINDS[fault.kind] == "node":
                bed.sim_nodes[fault.node]
            if fault.kind == "lying-peer" and fault.node not in self.liars:
                self.liars[fault.node] = Liar(bed, bed.sim_nodes[fault.node])
            bed.world.after(fault.at, self._aim if fault.when else self._strike, fault)
            if fault.kind in PUT_BACK and fault.amount:  # the backup is of that long before; of none, of that moment
                bed.world.after(max(0.0, fault.at - fault.amount), self._back_up, fault.node)

    def _aim(self, fault: Fault) -> None:
        """Strikes in the first turn in which one of its nodes is in the moment, or at last after AIM_S."""
        moment = MOMENTS[fault.when]
        nodes = [self.bed.sim_nodes[name] for name in fault.places]

        def strike() -> None:
            if turned in nodes[0].on_turn:
                for node in nodes:
                    node.on_turn.remove(turned)
                self._strike(fault)

        def turned(node: SimNode) -> None:
            if node.core is not None and moment(node.core):
                strike()

        for node in nodes:
            node.on_turn.append(turned)
        self.bed.world.after(AIM_S, strike)

    def _strike(self, fault: Fault) -> None:
        if self.over:
            return
        strikes: dict[str, Callable[[Fault], None]] = {
            "crash": self._crash,
            "power": self._crash,
            "stop": self._stop,
            "replace-disk": self._crash,
            "restore-backup": self._crash,
            "copied-disk": self._crash,
            "purge": self._purge,
            "full-disk": self._full_disk,
            "refusing-disk": self._refusing_disk,
            "slow-disk": self._slow_disk,
            "stalled-disk": self._stalled_disk,
            "failed-sync": self._failed_sync,
            "clock-step": self._clock_step,
            "lying-peer": self._lie,
            "wrong-tables": self._spoil_tables,
            "defect": self._defect,
            "cut-clients": self._cut_clients,
            "refusing-links": self._refuse_links,
            "cut": self._cut,
            "silent-cut": self._cut,
            "partition": self._partition,
            "one-way": self._partition,
            "clog": self._partition,
            "slow-link": self._slow_link,
            "re-route": self._re_route,
            "remove-link": self._remove_link,
        }
        if self.bed.routes is not None:
            self.bed.routes.disturbed(fault.seconds if fault.kind in WEARING else 0.0)
        self.hits[fault.kind] += 1
        for name in fault.places:
            self.meetings.update(meeting_name(fault.kind, moment) for moment in met(self.bed.sim_nodes[name].core))
        self.bed.world.note("fault", fault.kind, fault.describe())
        strikes[fault.kind](fault)

    def _later(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        self.bed.world.after(seconds, self._undo, call, args)

    def _undo(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        if not self.over:
            call(*args)
            if self.bed.routes is not None:
                self.bed.routes.disturbed(0.0)

    # ------------------------------------------------------------------------------------------------ nodes

    def _crash(self, fault: Fault) -> None:
        node = self.bed.sim_nodes[fault.node]
        if node.up:
            fate = node.crash(power=fault.kind == "power")
            if fate is not Fate.NONE:
                self.fates[fate.value] += 1
        if fault.kind == "replace-disk":
            node.replace_disk()
        elif fault.kind in PUT_BACK:
            self._put_back(node, fault)
        self._down[node] = self._down.get(node, 0) + 1
        self._later(fault.seconds, self._start, node)

    def _put_back(self, node: SimNode, fault: Fault) -> None:
        backup = self._snapshots.get(fault.node) if fault.amount else node.store.snapshot()
        if backup is None:
            return
        known = fault.kind == "copied-disk"
        self.bed.world.note(node.name, "disk", "is a copy" if known else "restored from a backup")
        node.store.restore(backup)
        if known:
            node.store.copied = "its file is not the one that was opened last"
        self.bed.disk_changed(node)

    def _purge(self, fault: Fault) -> None:
        """As an operator who purges all that the node has for others; what lies there, or is about to, is excused."""
        node = self.bed.sim_nodes[fault.node]
        core = node.core
        if core is None or core.stopping:
            return
        disk, batches = self.bed.ledger.disk(node.name, node.store), [core.work.batch]
        if node.store.under_way is not None:
            batches.append(node.store.under_way)
        pieces = [piece for batch in batches for piece in batch.pieces]
        for _, queue in core.catalog.transmissions():
            keys = [key for (queue_id, _), key in disk.places.items() if queue_id == queue.queue_id]
            coming = [value for batch in batches for queue_id, _, value in batch.appends if queue_id == queue.queue_id]
            about_to_come = [key_of(value, node.store, pieces) for value in coming]
            for key in [*keys, *(key for key in about_to_come if key is not None)]:
                self.bed.history.excuse(key, f"purged at {node.name}")
            if core.jobs.full:
                return
            purge = Purge(node, node.lives, queue.name)
            self.purges.append(purge)
            core.jobs.purge(queue, purge.told.append)
        node.post(events.TimerFired())

    def check(self) -> None:
        """At the end of the run: whoever asked for a purge was answered, unless the node died meanwhile."""
        for purge in self.purges:
            if purge.node.lives == purge.life and len(purge.told) != 1:
                raise Violation(f"a purge of {purge.queue} at {purge.node.name} was answered {len(purge.told)} times")

    def _start(self, node: SimNode) -> None:
        self._down[node] = self._down.get(node, 1) - 1
        if self._down[node] <= 0 and not node.up:
            node.start()

    def _stop(self, fault: Fault) -> None:
        node = self.bed.sim_nodes[fault.node]
        if node.up:
            node.stop()
        self._down[node] = self._down.get(node, 0) + 1
        self._later(fault.seconds, self._end_stop, node)

    def _end_stop(self, node: SimNode) -> None:
        if node.up:  # it did not end in time: kill -9
            node.crash()
        self._start(node)

    def _failed_sync(self, fault: Fault) -> None:
        node = self.bed.sim_nodes[fault.node]
        node.store.fail_next_sync = True
        self._down[node] = self._down.get(node, 0) + 1
        self._later(fault.seconds, self._end_failed_sync, node)

    def _end_failed_sync(self, node: SimNode) -> None:
        node.store.fail_next_sync = False
        self._start(node)

    def _back_up(self, name: str) -> None:
        self._snapshots[name] = self.bed.sim_nodes[name].store.snapshot()

    def _full_disk(self, fault: Fault) -> None:
        store = self.bed.sim_nodes[fault.node].store
        store.fill(int(fault.amount))
        self._later(fault.seconds, store.fill, None)

    def _refusing_disk(self, fault: Fault) -> None:
        store = self.bed.sim_nodes[fault.node].store
        store.refuse_all = True
        self._later(fault.seconds, setattr, store, "refuse_all", False)

    def _slow_disk(self, fault: Fault) -> None:
        store = self.bed.sim_nodes[fault.node].store
        store.slow = max(1.0, fault.amount)
        self._later(fault.seconds, setattr, store, "slow", 1.0)

    def _stalled_disk(self, fault: Fault) -> None:
        store = self.bed.sim_nodes[fault.node].store
        store.stall()
        self._later(fault.seconds, store.unstall)

    def _clock_step(self, fault: Fault) -> None:
        self.bed.sim_nodes[fault.node].clock.step(fault.amount)
        self.bed.history.clock_stepped(fault.amount)

    def _lie(self, fault: Fault) -> None:
        liar = self.liars[fault.node]
        liar.begin([fault.lie] if fault.lie else list(LIES), fault.amount or SHARE)
        self._later(fault.seconds, liar.end)

    def _spoil_tables(self, fault: Fault) -> None:
        core = self.bed.sim_nodes[fault.node].core
        if core is not None and core.routing is not None and self.bed.routes is not None:
            spoil(core.routing.states, self.random, share=fault.amount or 0.5)
            self.bed.routes.spoilt()

    def _defect(self, fault: Fault) -> None:
        node = self.bed.sim_nodes[fault.node]
        defects = node.defects = Defects(
            self.bed.world.seeds.stream(f"defects/{fault.at}"), fault.amount or DEFECTS_SHARE
        )
        self._later(fault.seconds, self._end_defect, node, defects)

    def _end_defect(self, node: SimNode, defects: Defects) -> None:
        if node.defects is defects:
            node.defects = None
        for place, count in sorted(defects.raised.items()):
            self.bed.world.note(node.name, "defect", f"{place} raised {count} times")

    def _refuse_links(self, fault: Fault) -> None:
        """Each link that a client attaches is one too many for its user; those that there are stay."""
        core = self.bed.sim_nodes[fault.node].core
        if core is None:
            return
        for use in (core.users.anonymous, *core.users.by_name.values()):
            self._refusing.setdefault(use, use.links_max)
            use.links_max = 0
            self._later(fault.seconds, self._end_refusing, use)

    def _end_refusing(self, use: Use) -> None:
        use.links_max = self._refusing.pop(use, use.links_max)

    # ------------------------------------------------------------------------------------------------ links

    def _cut(self, fault: Fault) -> None:
        for connection in self.bed.network.between(*fault.link):
            connection.cut(silent=fault.kind == "silent-cut", keep=(self.random.random(), self.random.random()))

    def _cut_clients(self, fault: Fault) -> None:
        """All connections of the node's clients, each at a byte of its own."""
        for connection in self.bed.network.of_clients(fault.node):
            connection.cut(silent=False, keep=(self.random.random(), self.random.random()))

    def _remove_link(self, fault: Fault) -> None:
        """For good: `heal` leaves it as it is."""
        self._gone[fault.link] = None
        self._partition(fault)

    def _partition(self, fault: Fault) -> None:
        one, other = fault.link
        ways = [(one, other)] if fault.kind == "one-way" else [(one, other), (other, one)]
        for way in ways:
            self._links_out[way] += 1
            self.bed.network.set_up(*way, up=False)
            if fault.kind != "remove-link":
                self._later(fault.seconds, self._end_partition, way)
        if self.bed.routes is not None:
            self.bed.routes.cut(fault.link)

    def _end_partition(self, way: tuple[str, str]) -> None:
        self._links_out[way] -= 1
        if self._links_out[way] <= 0:
            self.bed.network.set_up(*way, up=True)

    def _slow_link(self, fault: Fault) -> None:
        for way in (fault.link, fault.link[::-1]):
            direction = self.bed.network.direction(*way)
            direction.set_slow(max(1.0, fault.amount), self.bed.now())
            self._later(fault.seconds, self._end_slow_link, way)

    def _end_slow_link(self, way: tuple[str, str]) -> None:
        self.bed.network.direction(*way).set_slow(1.0, self.bed.now())

    def _re_route(self, fault: Fault) -> None:
        self._tables_without[fault.link] += 1
        self._set_tables()
        self._later(fault.seconds, self._end_re_route, fault.link)

    def _end_re_route(self, link: tuple[str, str]) -> None:
        self._tables_without[link] -= 1
        self._set_tables()

    def _set_tables(self) -> None:
        self.bed.set_forwarding(frozenset(link for link, count in self._tables_without.items() if count > 0))

    # ------------------------------------------------------------------------------------------------ the end

    def heal(self) -> None:
        """Everything works again, from now on, but for links that were removed: nodes up, links up, disks wide and
        fast, tables whole."""
        self.over = True
        self.bed.world.note("fault", "heal")
        for liar in self.liars.values():
            liar.end()
        for use in list(self._refusing):
            self._end_refusing(use)
        network = self.bed.network
        for one, other in network.links():
            for way in ((one, other), (other, one)):
                network.direction(*way).set_slow(1.0, self.bed.now())
                if way not in self._gone and way[::-1] not in self._gone:
                    network.set_up(*way, up=True)
        if self.bed.routes is not None:
            self.bed.routes.healed()
        for node in self.bed.sim_nodes.values():
            node.defects = None
            node.store.fill(None)
            node.store.refuse_all = False
            node.store.slow = 1.0
            node.store.unstall()
            node.store.fail_next_sync = False
            if node.up and node.core is not None and node.core.stopping:
                node.crash()
            if not node.up:
                node.start()
        self.bed.set_forwarding(frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultBudget:
    """What a drawn run may suffer, so that it can still end well: nodes down at once, disks lost in all."""

    faults_max: int = 12
    down_max: int = 1
    disks_max: int = 1

    def draw(
        self, random: Random, kinds: list[str], nodes: list[str], links: list[tuple[str, str]], span_s: float
    ) -> list[Fault]:
        """Faults within the budget, ascending by time."""
        found: list[Fault] = []
        disks = 0
        for _ in range(random.randint(0, self.faults_max)):
            kind = random.choice(kinds)
            at = random.uniform(0.0, span_s)
            seconds = random.choice((0.0, 0.05, 0.5, 2.0, 6.0)) * random.uniform(0.5, 1.5)
            if kind == "replace-disk" or kind in PUT_BACK:
                if disks >= self.disks_max:
                    continue
                disks += 1
            if kind == "clog":
                found += self._swizzle(random, links, at, seconds)
                continue
            fault = Fault(
                kind=kind,
                at=round(at, 6),
                node=random.choice(nodes) if KINDS[kind] == "node" else "",
                link=random.choice(links) if KINDS[kind] == "link" else ("", ""),
                seconds=round(seconds, 6),
                amount=round(_amount(random, kind), 6),
            )
            if KINDS[kind] == "node" and kind not in UP:
                down = sum(_downs(item) and _overlap(item, fault) and item.node != fault.node for item in found)
                if down >= self.down_max:
                    continue
            found.append(fault)
        return sorted(found, key=lambda item: item.at)

    def _swizzle(self, random: Random, links: list[tuple[str, str]], at: float, seconds: float) -> list[Fault]:
        """Links clogged one after the other and freed in another order (FoundationDB's swizzle-clogging)."""
        chosen = random.sample(links, random.randint(1, len(links)))
        ends = [at + seconds * random.uniform(0.5, 1.5) for _ in chosen]
        return [
            Fault(kind="clog", at=round(at + index * 0.1, 6), link=link, seconds=round(max(end - at, 0.01), 6))
            for index, (link, end) in enumerate(zip(chosen, ends, strict=True))
        ]


def _amount(random: Random, kind: str) -> float:
    if kind in ("slow-link", "slow-disk"):
        return random.choice((2.0, 10.0, 100.0))
    if kind == "full-disk":
        return random.choice((0.0, 4_096.0, 65_536.0))
    if kind == "clock-step":
        return random.choice((-86_400.0, -5.0, 5.0, 86_400.0))
    if kind in PUT_BACK:
        return random.uniform(0.0, 5.0)
    return 0.0


def _downs(fault: Fault) -> bool:
    return fault.kind in ("crash", "power", "stop", "replace-disk", "failed-sync") or fault.kind in PUT_BACK


def _overlap(one: Fault, other: Fault) -> bool:
    return one.at < other.at + other.seconds and other.at < one.at + one.seconds
