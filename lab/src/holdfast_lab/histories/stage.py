"""The stage of a history: a simulated bed, and the few functions that a choreography needs.

Rules of this file: a history says what it is about as a condition that arose (`arises`, `happened`); where it did not,
the history fails as one that did not happen. What must hold is a Violation like any other. Predicates are asked after
every event of the world, so that "at the moment when" is exact; they may look into a node, and change nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from holdfast.broker.entries import entry
from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast.routing.settings import RoutingConfig
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.client_history import KEY_BYTES, Violation, key_in
from holdfast_lab.histories.programs import Consumer, Producer
from holdfast_lab.plan.networks import Link, LinkShape, Topology
from holdfast_lab.plan.phases import REST_S
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.routing_watch import watch_routes
from holdfast_lab.runs.run import PROGRESS_EVERY, check_contained, counts_of, judged, sessions_of
from holdfast_lab.sim.network import SimConnection
from holdfast_lab.sim.sim_bed import SimBed

LIMIT_S: Final = 900.0
"""Virtual time that a history may take."""

EVENTS_MAX: Final = 1_000_000
"""Beyond that a node spins: the longest history needs some ten thousand."""

SOON_S: Final = 60.0


class DidNotHappen(Exception):
    """The situation that the history is about never occurred, so the history shows nothing."""


Script = Callable[["Stage"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class History:
    """`sentence` says what it shows. `topology` is drawn from the seed; `script` plays and asserts."""

    name: str
    sentence: str
    topology: Callable[[Random], Topology]
    script: Script

    def run(
        self,
        seed: int,
        keep_notes: bool = False,
        progress: Callable[[float], None] | None = None,
    ) -> Result:
        """Plays it; all is watched by the checkers, and at the end nothing may be left on its way."""
        topology = self.topology(Random(seed))
        with SimBed(topology, seed, keep_notes=keep_notes) as bed:
            watch_routes(bed)
            stage = Stage(bed)
            return judged(
                bed,
                self.name,
                lambda: stage.play(self.script, progress),
                lambda: counts_of(bed),
                lambda: {"sessions": sessions_of(bed)},
            )


def sites(
    *links: str,
    queues: Mapping[str, tuple[QueueConfig, ...]] | None = None,
    forwarding: Mapping[str, Mapping[str, str]] | None = None,
    limits: Limits | None = None,
    order: str = "strict",
    supers: tuple[str, ...] | None = None,
) -> Callable[[Random], Topology]:
    """A topology from pairs such as "jfk-hub", the first dials; delays drawn. Every node has a queue `work`.

    With `supers`, of which there may be none, the nodes compute their own tables.
    """

    def drawn(random: Random) -> Topology:
        pairs = [link.split("-") for link in links]
        nodes = tuple(dict.fromkeys(name for pair in pairs for name in pair))
        work = (QueueConfig(name="work", order=order),)
        return Topology(
            nodes=nodes,
            links=tuple(
                Link(
                    one=one, other=other, there=LinkShape(delay_s=random.choice((0.0005, 0.005, 0.03)), jitter_s=0.001)
                )
                for one, other in pairs
            ),
            queues={name: (queues or {}).get(name, work) for name in nodes},
            forwarding=forwarding or {},
            limits=limits or Limits(),
            routing=None if supers is None else RoutingConfig(),
            supers=supers or (),
        )

    return drawn


class Stage:
    """One performance."""

    def __init__(self, bed: SimBed) -> None:
        self.bed = bed
        self.random = bed.world.seeds.stream("history")
        self.nodes = bed.sim_nodes
        self.logs: dict[str, list[str]] = {name: [] for name in bed.nodes}
        self._waiters: list[tuple[Callable[[], object], asyncio.Future[bool]]] = []
        self._programs = 0
        for name, node in self.nodes.items():
            node.on_log = self.logs[name].append

    def play(self, script: Script, progress: Callable[[float], None] | None) -> None:
        bed = self.bed
        over: list[bool] = []

        async def whole() -> None:
            await script(self)
            over.append(True)

        def asked() -> bool:
            if bed.world.events > EVENTS_MAX:
                raise Violation(f"more than {EVENTS_MAX} events: somebody spins")
            if progress is not None and bed.world.events % PROGRESS_EVERY == 0:
                progress(bed.world.elapsed_s)
            for waiter in self._waiters:
                condition, future = waiter
                if not future.done() and condition():
                    future.set_result(True)
            return bool(over)

        bed.start()
        bed.spawn(whole(), "the history")
        if not bed.run(LIMIT_S, asked):
            raise Violation(f"the history was not over within {LIMIT_S:g} s")
        if not bed.run(SOON_S, bed.finished):
            raise Violation(f"{len(bed.history.outstanding)} accepted messages were never shown to a consumer")
        bed.run(REST_S)
        bed.ledger.at_rest()
        check_contained(bed)

    # ------------------------------------------------------------------------------------------------ waiting

    async def _wait(self, condition: Callable[[], object], seconds: float) -> bool:
        if condition():
            return True
        future: asyncio.Future[bool] = self.bed.loop.create_future()
        waiter = condition, future
        self._waiters.append(waiter)
        timer = self.bed.loop.call_later(seconds, _give_up, future)
        try:
            return await future
        finally:
            timer.cancel()
            self._waiters.remove(waiter)

    async def arises(self, what: str, condition: Callable[[], object], seconds: float = SOON_S) -> None:
        """Waits for the situation that the history is about."""
        if not await self._wait(condition, seconds):
            raise DidNotHappen(f"within {seconds:g} s: {what}")

    async def until(self, what: str, condition: Callable[[], object], seconds: float = SOON_S) -> None:
        """Waits for what must happen."""
        if not await self._wait(condition, seconds):
            raise Violation(f"it did not come within {seconds:g} s: {what}")

    async def holds(self, what: str, condition: Callable[[], object], seconds: float) -> None:
        """The condition must hold after every event for that time."""
        if await self._wait(lambda: not condition(), seconds):
            raise Violation(f"it ceased to be so: {what}")

    def happened(self, condition: object, what: str) -> None:
        if not condition:
            raise DidNotHappen(what)

    def check(self, condition: object, what: str) -> None:
        if not condition:
            raise Violation(what)

    def equal(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            raise Violation(f"{what}: it is {_brief(found)}, and must be {_brief(wanted)}")

    def some(self, least: int, most: int) -> int:
        """A number drawn from the seed."""
        return self.random.randint(least, most)

    def chance(self) -> bool:
        return self.random.random() < 0.5

    async def moment(self, seconds: float) -> None:
        """Up to so long, as the seed says."""
        await asyncio.sleep(self.random.uniform(0.0, seconds))

    # ------------------------------------------------------------------------------------------------ programs

    def _name(self, what: str) -> str:
        self._programs += 1
        return f"{what}-{self._programs}"

    async def producer(self, node: str, address: str, *, name: str | None = None) -> Producer:
        """A named producer, attached."""
        made = Producer(self.bed, node, address, name or self._name("producer"), self.random)
        await made.attach()
        return made

    async def send(self, node: str, address: str, count: int = 1, **parts: Any) -> list[bytes]:
        """A new producer sends, and waits until all is accepted; returns the keys."""
        producer = await self.producer(node, address)
        keys = await producer.send(count, **parts)
        await producer.close()
        return keys

    def consumer(self, node: str, queue: str, *, credit: int = 100) -> Consumer:
        """A consumer that accepts everything from now on."""
        return Consumer(self.bed, node, queue, self._name("consumer"), credit)

    # ------------------------------------------------------------------------------------------------ nodes

    def core(self, name: str) -> NodeCore:
        found = self.nodes[name].core
        assert found is not None, f"{name} is down"
        return found

    def up(self, name: str) -> bool:
        return self.nodes[name].up

    async def together(self, *pairs: tuple[str, str]) -> None:
        """Sessions of these pairs, or of all links, are up."""
        wanted = pairs or tuple((link.one, link.other) for link in self.bed.topology.links)
        await self.until(f"sessions {wanted}", lambda: all(self.joined(*pair) for pair in wanted))

    def joined(self, one: str, other: str) -> bool:
        """Whether both say that their session is up."""
        return all(
            self.nodes[here].up and self.core(here).neighbours[there].established
            for here, there in ((one, other), (other, one))
        )

    def crash(self, name: str, *, power: bool = False) -> None:
        self.nodes[name].crash(power=power)

    def start(self, *names: str) -> None:
        for name in names:
            self.nodes[name].start()

    def reroute(self, node: str, **via: str) -> None:
        """The node's table: the computed one, changed for these destinations."""
        table = self.bed.topology.table(node) | via
        self.bed.world.note(node, "table", str(sorted(table.items())))
        self.nodes[node].post(events.ForwardingChanged(table=table))

    # ------------------------------------------------------------------------------------------------ links

    def part(self, one: str, other: str) -> None:
        """Partitions the two silently."""
        for way in ((one, other), (other, one)):
            self.bed.network.set_up(*way, up=False)

    def join(self, one: str, other: str) -> None:
        for way in ((one, other), (other, one)):
            self.bed.network.set_up(*way, up=True)

    def cut(self, one: str, other: str, *, silent: bool = False) -> None:
        """Their connections break at a byte that the seed draws."""
        for connection in self.bed.network.between(one, other):
            connection.cut(silent=silent, keep=(self.random.random(), self.random.random()))

    def connection(self, one: str, other: str) -> SimConnection:
        """The newest between the two."""
        return self.bed.network.between(one, other)[-1]

    # ------------------------------------------------------------------------------------------------ disks

    def entries(self, node: str, queue: str) -> list[tuple[bytes, entry.Entry]]:
        """Key and entry of what lies in that queue on the node's disk, by sequence; tombstones left out."""
        disk = self.bed.ledger.disk(node, self.nodes[node].store)
        found = []
        for queue_id, sequence in sorted(disk.places):
            if disk.names[queue_id] == queue:
                value = disk.store.get(queue_id, sequence)
                assert value is not None
                found.append((disk.places[queue_id, sequence], entry.unpack(value)))
        return found

    def keys(self, node: str, queue: str) -> list[bytes]:
        """What lies in that queue on the node's disk, in order."""
        disk = self.bed.ledger.disk(node, self.nodes[node].store)
        return [disk.places[place] for place in sorted(disk.places) if disk.names[place[0]] == queue]

    def holds_all(self, node: str, queue: str, keys: list[bytes]) -> bool:
        return set(keys) <= set(self.keys(node, queue))

    def committing(self, node: str, key: bytes) -> bool:
        """Whether the node's commit under way appends that message."""
        batch = self.nodes[node].store.under_way
        return batch is not None and any(value[-KEY_BYTES:] == key for _, _, value in batch.appends)

    def losses(self, node: str) -> list[tuple[str, int, int, str]]:
        """(origin, first, last, reason) that the node has told of as lost."""
        return [
            (fields["origin"], fields["first"], fields["last"], fields["reason"])
            for _, kind, fields in self.nodes[node].records
            if kind == "loss"
        ]

    def told(self, node: str, text: str) -> list[str]:
        """Log lines of the node, over all its lives, that hold `text`."""
        return [line for line in self.logs[node] if text in line]

    def excuse(self, keys: list[bytes], why: str) -> None:
        for key in keys:
            self.bed.history.excuse(key, why)

    async def all_shown(self, seconds: float = SOON_S) -> None:
        """Everything accepted has been shown to a consumer, or is excused."""
        await self.until("all that was accepted is shown", lambda: not self.bed.history.outstanding, seconds)


def _give_up(future: "asyncio.Future[bool]") -> None:
    if not future.done():
        future.set_result(False)


def _brief(found: object) -> str:
    if isinstance(found, list):
        words = [item.decode() if isinstance(item, bytes) and key_in(item) else repr(item) for item in found]
        more = f" … ({len(words)})" if len(words) > 12 else ""
        return f"[{', '.join(words[:12])}{more}]"
    return repr(found)
