"""Carries out the faults of a plan on simulated nodes, and undoes them.

Rules of this file: what strikes where and when is the plan's (`plan/faults.py`); a fault that lasts is undone when its
time is over, and `heal` undoes all.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast.peers.neighbours import features
from holdfast.peers.use import Use
from holdfast_lab.base.client_history import Violation
from holdfast_lab.base.fences import redrawn
from holdfast_lab.judge.checkers import key_of
from holdfast_lab.plan.faults import KINDS, LIES, PUT_BACK, WEARING, Fault, meeting_name
from holdfast_lab.plan.moments import AIM_S, MOMENTS, met
from holdfast_lab.runs.changed_files import ChangedFiles
from holdfast_lab.runs.liar import SHARE, Liar
from holdfast_lab.runs.paced_watch import ignore_rate, obey_again
from holdfast_lab.runs.routing_watch import RoutingWatch
from holdfast_lab.runs.unsteady_pacing import SHARE as UNSTEADY_SHARE
from holdfast_lab.runs.unsteady_pacing import UnsteadyPacing
from holdfast_lab.runs.wrong_tables import spoil
from holdfast_lab.sim.defects import SHARE as DEFECTS_SHARE
from holdfast_lab.sim.defects import Defects
from holdfast_lab.sim.node import SimNode
from holdfast_lab.sim.sim_bed import SimBed
from holdfast_lab.sim.store import Fate, Snapshot

EARLIER: Final = tuple(one for one in features.ALL if one not in (features.HOSTS, features.BODIES))
"""What a node of an earlier version offers its neighbours."""
LOOK_S: Final = 2.0
"""How long who looks at all nodes waits for their answers."""
AGAIN_S: Final = 0.2
"""How long a node is down that is started as another version."""


@dataclass(slots=True)
class Purge:
    """One that a fault asked for, in that life of the node; `told`: its answers."""

    node: SimNode
    life: int
    queue: str
    told: list[int] = field(default_factory=list)


class Faults:
    """Carries the plan out. `heal` undoes what still lasts; what a fault did is counted by kind in `hits`."""

    def __init__(self, bed: SimBed, plan: list[Fault], routes: RoutingWatch | None = None) -> None:
        """`routes` is told of what disturbs the network."""
        self.bed = bed
        self.routes = routes
        self.random = bed.world.seeds.stream("faults")
        self.hits: Counter[str] = Counter()
        self.fates: Counter[str] = Counter()
        self.unsteady: Counter[str] = Counter()
        """What became of control messages of pacing."""
        self.meetings: Counter[str] = Counter()
        """What was struck by what: `kind, moment`."""
        self.over = False
        self.liars: dict[str, Liar] = {}
        self._down: dict[SimNode, int] = {}
        self._links_out: Counter[tuple[str, str]] = Counter()
        self._gone: dict[tuple[str, str], None] = {}
        self._tables_without: Counter[tuple[str, str]] = Counter()
        self._departed: Counter[tuple[str, str]] = Counter()
        """By node and neighbour: how often the one does not know the other now."""
        self._snapshots: dict[str, Snapshot] = {}
        self.purges: list[Purge] = []
        self._refusing: dict[Use, int] = {}
        """Users who get no link now, and how many each may have."""
        self._forbidding: Counter[str] = Counter()
        self._draining: Counter[str] = Counter()
        """By node, how many drains are not over."""
        self.files = ChangedFiles(bed, routes)
        self.looked = 0
        """Views of the network that were asked for and answered."""
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
            "forbid": self._forbid,
            "earlier-version": self._degrade,
            "ignores-rate": self._ignore_rate,
            "unsteady-pacing": self._unsteady_pacing,
            "reload": self._reload,
            "drain": self._drain,
            "change-rules": self._change_rules,
            "cut": self._cut,
            "silent-cut": self._cut,
            "partition": self._partition,
            "one-way": self._partition,
            "clog": self._partition,
            "slow-link": self._slow_link,
            "re-route": self._re_route,
            "depart": self._depart,
            "remove-link": self._remove_link,
            "change-topology": self._change_topology,
        }
        if self.routes is not None:
            self.routes.disturbed(fault.seconds if fault.kind in WEARING else 0.0)
        self.hits[fault.kind] += 1
        for name in fault.places:
            self.meetings.update(meeting_name(fault.kind, moment) for moment in met(self.bed.sim_nodes[name].core))
        self.bed.world.note("fault", fault.kind, fault.describe())
        for name in fault.places:  # what it is about to break, or to end, is whole
            self.bed.sim_nodes[name].validate()
        strikes[fault.kind](fault)

    def _later(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        self.bed.world.after(seconds, self._undo, call, args)

    def _undo(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        if not self.over:
            call(*args)
            if self.routes is not None:
                self.routes.disturbed(0.0)

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

    def _degrade(self, fault: Fault) -> None:
        """The node is killed, and runs as one of an earlier version until it is killed again."""
        node = self.bed.sim_nodes[fault.node]
        node.offers = EARLIER
        self._again(node)
        self._later(fault.seconds, self._upgrade, node)

    def _upgrade(self, node: SimNode) -> None:
        node.offers = features.ALL
        self._again(node)

    def _again(self, node: SimNode) -> None:
        if node.up:
            node.crash()
        self._down[node] = self._down.get(node, 0) + 1
        self._later(AGAIN_S, self._start, node)

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
        self.bed.history.clock_stepped(fault.node, fault.amount)

    def _lie(self, fault: Fault) -> None:
        liar = self.liars[fault.node]
        liar.begin([fault.lie] if fault.lie else list(LIES), fault.amount or SHARE)
        self._later(fault.seconds, liar.end)

    def _spoil_tables(self, fault: Fault) -> None:
        core = self.bed.sim_nodes[fault.node].core
        if core is not None and core.routing is not None and self.routes is not None:
            spoil(core.routing.states, self.random, share=fault.amount or 0.5)
            self.routes.spoilt()

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

    def _forbid(self, fault: Fault) -> None:
        """Clients of the node may neither use nor manage queues whose names begin with GUARDED."""
        self._forbidding[fault.node] += 1
        self.bed.history.rights.forbid(fault.node, True)
        self._later(fault.seconds, self._end_forbidding, fault.node)

    def _end_forbidding(self, node: str) -> None:
        self._forbidding[node] -= 1
        self.bed.history.rights.forbid(node, self._forbidding[node] > 0)

    def _ignore_rate(self, fault: Fault) -> None:
        """The node sends to its roots as if they had given it no rate."""
        node = self.bed.sim_nodes[fault.node]
        until_s = self.bed.now() + fault.seconds

        def turned(node: SimNode) -> None:
            """In whichever life."""
            for pacer in () if node.core is None else node.core.rates.pacers.values():
                if self.over or self.bed.now() >= until_s:
                    obey_again(pacer)
                else:
                    ignore_rate(pacer)

        turned(node)
        node.on_turn.append(turned)

    def _unsteady_pacing(self, fault: Fault) -> None:
        """Of the control messages of pacing that the node sends some are lost, late or doubled."""
        node = self.bed.sim_nodes[fault.node]
        until_s = self.bed.now() + fault.seconds
        unsteady = UnsteadyPacing(
            self.bed.world.seeds.stream(f"unsteady pacing/{fault.at}"), fault.amount or UNSTEADY_SHARE,
            lambda: not self.over and self.bed.now() < until_s, self.unsteady,
        )  # fmt: skip
        unsteady.turned(node.core)
        node.on_turn.append(lambda node: unsteady.turned(node.core))

    def _reload(self, fault: Fault) -> None:
        """The node reloads a file without one of its neighbours, and at once the previous file."""
        node = self.bed.sim_nodes[fault.node]
        neighbours = node.config.neighbours
        if node.core is None or not neighbours:
            return
        gone = self.random.choice(neighbours).name
        routes = node.core.forwarding.table
        now = replace(node.config, forwarding=tuple(routes.items()))
        without = replace(
            now,
            neighbours=tuple(item for item in neighbours if item.name != gone),
            forwarding=tuple((to, via) for to, via in routes.items() if via != gone),
        )
        for config in (without, now):
            node.post(events.ConfigRead(config=config))

    def _change_rules(self, fault: Fault) -> None:
        """The node reloads a file with other rules of who may do what, which hold after a start too."""
        node = self.bed.sim_nodes[fault.node]
        access = redrawn(self.bed.world.seeds.stream(f"rules/{fault.at}"), node.config.access)
        node.config = replace(node.config, access=access)
        self.bed.history.rights.fences[fault.node].change(access, self.bed.now())
        if node.core is not None:
            routes = tuple(node.core.forwarding.table.items())
            node.post(events.ConfigRead(config=replace(node.config, forwarding=routes)))

    def _drain(self, fault: Fault) -> None:
        """As an operator drains the node, and resumes it later, in whichever life; both times he looks at all nodes."""
        node = self.bed.sim_nodes[fault.node]
        self._draining[fault.node] += 1
        self._follow_drain(node)
        if self._follow_drain not in node.on_turn:
            node.on_turn.append(self._follow_drain)
        self._later(fault.seconds, self._end_drain, node)

    def _end_drain(self, node: SimNode) -> None:
        self._draining[node.name] -= 1
        self._follow_drain(node)

    def _follow_drain(self, node: SimNode) -> None:
        """Has it drained or resumed as it should be, between two turns."""
        if node.core is not None and node.core.node_drain.active is not self._is_drained(node):
            node.call(partial(self._set_drain, node))

    def _is_drained(self, node: SimNode) -> bool:
        return self._draining[node.name] > 0 and not self.over

    def _set_drain(self, node: SimNode, core: NodeCore) -> None:
        if core.stopping:
            return
        if self._is_drained(node):
            changed = core.node_drain.begin()
        else:
            changed = core.node_drain.end()
        if changed:
            core.view.ask("", LOOK_S, self._looked)

    def _looked(self, rows: list[dict[str, Any]], more: bool) -> None:
        """Each node is reported once, in order."""
        names = [row["node"] for row in rows]
        if names != sorted(set(names)) or more:
            raise Violation(f"a view of the network has {names}")
        self.looked += 1

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
        if self.routes is not None:
            self.routes.cut(fault.link)

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

    def _depart(self, fault: Fault) -> None:
        """The first node reloads a file without the second, and after a while the file that it was started with."""
        node, gone = self.bed.sim_nodes[fault.link[0]], fault.link[1]
        self._departed[fault.link] += 1
        if node.core is not None:
            without = replace(
                node.config,
                neighbours=tuple(item for item in node.config.neighbours if item.name != gone),
                forwarding=tuple((to, via) for to, via in node.core.forwarding.table.items() if via != gone),
            )
            node.post(events.ConfigRead(config=without))
        self._later(fault.seconds, self._come_back, fault.link)

    def _come_back(self, link: tuple[str, str]) -> None:
        self._departed[link] -= 1
        if self._departed[link] <= 0:
            node = self.bed.sim_nodes[link[0]]
            node.post(events.ConfigRead(config=node.config))
            self._set_tables()

    def _set_tables(self) -> None:
        self.bed.set_forwarding(frozenset(link for link, count in self._tables_without.items() if count > 0))

    def _change_topology(self, fault: Fault) -> None:
        if self.files.change(fault):
            self._later(fault.seconds, self.files.change_back, fault)

    # ------------------------------------------------------------------------------------------------ the end

    def heal(self) -> None:
        """Everything works again, from now on, but for links that were removed: nodes up, links up, disks wide and
        fast, tables and topology files whole."""
        self.over = True
        self.bed.world.note("fault", "heal")
        for liar in self.liars.values():
            liar.end()
        for use in list(self._refusing):
            self._end_refusing(use)
        for name in self._forbidding:
            self.bed.history.rights.forbid(name, False)
        network = self.bed.network
        for one, other in network.links():
            for way in ((one, other), (other, one)):
                network.direction(*way).set_slow(1.0, self.bed.now())
                if way not in self._gone and way[::-1] not in self._gone:
                    network.set_up(*way, up=True)
        if self.routes is not None:
            self.routes.healed()
        self.files.heal()
        for node in self.bed.sim_nodes.values():
            node.defects = None
            node.store.fill(None)
            node.store.refuse_all = False
            node.store.slow = 1.0
            node.store.unstall()
            node.store.fail_next_sync = False
            is_earlier, node.offers = node.offers != features.ALL, features.ALL
            if node.core is not None and (is_earlier or node.core.stopping):
                node.crash()
            if not node.up:
                node.start()
            self._follow_drain(node)
        for name, _ in self._departed:
            node = self.bed.sim_nodes[name]
            node.post(events.ConfigRead(config=node.config))
        self.bed.set_forwarding(frozenset())
