"""The simulated bed: a topology's nodes, their links and disks, clients and checkers, in one world from one seed.

Rules of this file: joins what the other modules of this package make, and says how a run ends. What a workload may ask
is `holdfast_lab/workloads/bed.py`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from holdfast.amqp.login.mechanisms import PLAIN
from holdfast.client import Connection, Delivery, Url, connect
from holdfast.client.network.wire import Wire
from holdfast.engine import events
from holdfast.engine.port import Batch
from holdfast_lab.base.client_history import History
from holdfast_lab.base.fences import Fences
from holdfast_lab.base.harness import HARNESS
from holdfast_lab.base.rights import Rights
from holdfast_lab.judge.checkers import Disk, Ledger, Watch
from holdfast_lab.plan.networks import Topology
from holdfast_lab.sim.broker import SimBroker
from holdfast_lab.sim.loop import WorldLoop
from holdfast_lab.sim.network import End, SimNetwork
from holdfast_lab.sim.node import TURN_S, SimNode
from holdfast_lab.sim.transport import Connector
from holdfast_lab.sim.world import World

CLEAN_UP_TRIES: Final = 100
"""What broke once may break at each step; but no coroutine is left that was never begun."""
CLIENT_RETRY_S: Final = 86_400.0 * 365


class Observer(Protocol):
    """Observes the run in addition to the ledger and the watches, and changes nothing."""

    def started(self, node: SimNode) -> None:
        """A life of the node begins."""

    def applied(self, node: SimNode, batch: Batch) -> None:
        """A batch is on that node's disk, and the ledger has it."""

    def disk_changed(self, node: SimNode) -> None:
        """The node has another disk; the ledger is told next."""


@dataclass(frozen=True, slots=True)
class _Authoriser:
    """The rights of the run, as the core of that node asks for them."""

    rights: Rights
    node: str

    def authorise(self, who: str | None, action: str, address: str, *, host: str) -> str | None:
        return self.rights.why_not(self.node, address, who, action, host)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ByName(Url):
    """Of a client that calls its node by the node's own name, as one with virtual hosts wants it."""

    @property
    def hostname(self) -> str:
        return super(_ByName, self).hostname if self.vhost else self.host.rpartition(".")[2]


class SimBed:
    """Made with a topology; nodes start with `start`. Use as a context manager: its loop is the running one."""

    def __init__(
        self,
        topology: Topology,
        seed: int,
        *,
        turn_s: float = TURN_S,
        keep_notes: bool = False,
        piece_bytes: int = 0,
        paged: bool = False,
    ) -> None:
        """`piece_bytes`: see SimNetwork, `paged`: see SimNode."""
        topology.validate()
        self.topology = topology
        self.world = World(seed, keep_notes=keep_notes)
        self.loop = WorldLoop(self.world)  # type: ignore[abstract]  # what it lacks it refuses
        self.network = SimNetwork(self.world, piece_bytes=piece_bytes)
        self.loop.connector = Connector(self.loop, self.network, self._joined)
        self.history = History()
        remark = self.world.remark if keep_notes else None
        self.ledger = Ledger(self.history, count=self.world.count, remark=remark)
        self.watches: dict[End, Watch] = {}
        self.on_applied: list[Callable[[SimNode, Batch], None]] = []
        """Called with a batch on a node's disk, before the ledger."""
        self.observers: list[Observer] = []
        self.on_said: list[Callable[[SimNode, End, bytes], None]] = []
        """Called with what a node writes, except a liar."""
        self.sim_nodes: dict[str, SimNode] = {}
        self.clients: list[Connection] = []
        self.strangers: set[str] = set()
        """Places of clients that may say anything: what nodes tell them is not judged."""
        self._disks: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        """Of each connection of the client library: which of its node's disks was there when it was made."""
        self.tasks: dict[asyncio.Task[None], None] = {}
        self.background: dict[asyncio.Task[None], None] = {}
        whole = topology.map()
        self.history.rights.fences |= {name: Fences.of(access) for name, access in topology.access.items()}
        for name in topology.nodes:
            remotes = dict.fromkeys(topology.neighbours(name), "127.0.0.1:1")
            config = topology.config(name, remotes, whole)
            self.sim_nodes[name] = SimNode(
                self.world, self.network, config, self, turn_s=turn_s, paged=paged,
                authoriser=None if name in topology.access else _Authoriser(self.history.rights, name),
            )  # fmt: skip
            for queue in topology.queues.get(name, ()):
                self.ledger.orders[f"{queue.key}@{name}"] = queue.order
                if queue.messages_max is not None:
                    self.ledger.bounds[f"{queue.key}@{name}"] = queue.messages_max
        for link in topology.links:
            self.network.join(link.one, link.other, link.there, link.back)
        self.brokers = [
            SimBroker(self.world, self.network, shape, name, self.history)
            for name, shapes in topology.brokers.items()
            for shape in shapes
        ]
        if self.brokers:
            self.ledger.stored = self._stored

    def __enter__(self) -> "SimBed":
        self.loop.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_tasks()
        self.loop.__exit__()
        for node in self.sim_nodes.values():
            node.store.take_away()

    def _end_tasks(self) -> None:
        """What still waits is cancelled, and has a while of virtual time to clean up."""
        failure, self.world.failure = self.world.failure, None
        try:
            for client in self.clients:
                self.loop.create_task(client.abort(), name="abort")
            for task in (*self.tasks, *self.background):
                task.cancel()
            for _ in range(CLEAN_UP_TRIES):
                try:
                    self.world.run(self.world.now + 60.0, lambda: not self.loop.tasks)
                    break
                except Exception as error:  # the run has its verdict already
                    self.world.note("bed", "cleaning up", str(error))
        finally:
            self.world.failure = failure

    # ------------------------------------------------------------------------------------------------ for workloads

    @property
    def nodes(self) -> Sequence[str]:
        return self.topology.nodes

    def now(self) -> float:
        return self.world.now

    def wall_ms(self, node: str) -> int:
        return self.sim_nodes[node].clock.wall_ms(self.world.now)

    def stream(self, name: str) -> Random:
        return self.world.seeds.stream(f"workload/{name}")

    async def connect(self, node: str, client: str, *, vhost: str = "") -> Connection:
        place = _ByName if self.topology.hosts(node) else Url
        user = self.history.rights.login_at(node)
        password = None if user is None else HARNESS
        connection = await connect(
            place(host=f"{client}.{node}", port=5672, user=user, password=password, tls=False, vhost=vhost or None),
            container_id=client,
            retry_s=CLIENT_RETRY_S,
            rng=self.world.seeds.stream(f"client/{client}"),
            dial=None,
            wait=False,
            mechanism=None if user is None else PLAIN,
        )
        self.clients.append(connection)
        return connection

    async def dial(
        self, node: str, client: str, protocol: Callable[[], asyncio.Protocol], *, honest: bool = False
    ) -> asyncio.Transport:
        if not honest:
            self.strangers.add(client)
        transport, _ = await self.loop.create_connection(protocol, f"{client}.{node}", 5672)
        assert isinstance(transport, asyncio.Transport)
        return transport

    def disk_of(self, node: str, delivery: Delivery) -> int:
        return self._disks[delivery.link.session.connection]

    def _stored(self, name: str, queue: str, key: bytes) -> None:
        for broker in self.brokers:
            broker.stored(name, queue, key)

    def _joined(self, protocol: asyncio.Protocol, node: str) -> None:
        if isinstance(protocol, Wire):
            self._disks[protocol.engine] = self.history.disks_changed[node]

    def spawn(self, work: Coroutine[Any, Any, None], name: str, *, background: bool = False) -> None:
        task = self.loop.create_task(work, name=name)
        (self.background if background else self.tasks)[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self.tasks.pop(task, None)
        self.background.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.fail(error)

    # ------------------------------------------------------------------------------------------------ running

    def start(self, *names: str) -> None:
        """Starts those nodes, or all."""
        for name in names or self.nodes:
            self.sim_nodes[name].start()

    def run(self, seconds: float, done: Callable[[], bool] | None = None) -> bool:
        """Lets virtual time pass, up to `seconds`, or until `done()`."""
        return self.world.run(self.world.now + seconds, done)

    def finished(self) -> bool:
        """All that the workloads planned was sent and is answered, and what was accepted has been shown, or lies
        among the dead letters: a destination's queue that is full and refuses sends it there."""
        if self.tasks or not all(broker.done for broker in self.brokers):
            return False
        dead = self.ledger.dead
        for left in (self.history.outstanding, *self.history.owed.values()):
            if left and (len(left) > len(dead) or not all(key in dead for key in left)):
                return False
        return True

    def at_work(self) -> list[str]:
        """Names of the programs that are not done."""
        return [task.get_name() for task in self.tasks]

    def set_forwarding(self, down: frozenset[tuple[str, str]]) -> None:
        """Every node's table, computed anew without those links; nodes with routing compute their own."""
        if self.topology.routing is not None:
            return
        for name, node in self.sim_nodes.items():
            node.post(events.ForwardingChanged(table=self.topology.table(name, down=down)))

    # ------------------------------------------------------------------------------------------------ observing

    def started(self, node: SimNode) -> None:
        self.ledger.disk(node.name, node.store)
        self.history.started(node.name)
        for observer in self.observers:
            observer.started(node)

    def applied(self, node: SimNode, batch: Batch) -> None:
        for listener in self.on_applied:
            listener(node, batch)
        self.ledger.applied(node.name, node.store, batch)
        for observer in self.observers:
            observer.applied(node, batch)

    def disk_changed(self, node: SimNode) -> None:
        for observer in self.observers:
            observer.disk_changed(node)
        self.ledger.changed(node.name, node.store)

    def opened(self, node: SimNode, end: End) -> None:
        if end.peer in self.strangers:
            return

        def disk() -> Disk:
            return self.ledger.disk(node.name, node.store)

        queues = self.topology.queues.get(node.name, ())
        self.watches[end] = Watch(
            node.name,
            disk,
            doubtful=self.ledger.doubtful,
            in_memory={queue.name for queue in queues if not queue.durable},
            unowed=self.history.is_stored_for_nobody,
        )

    def heard(self, node: SimNode, end: End, data: bytes) -> None:
        if end in self.watches:
            self.watches[end].heard(data)

    def said(self, node: SimNode, end: End, data: bytes) -> None:
        for listener in self.on_said:
            listener(node, end, data)
        if end in self.watches:
            self.watches[end].said(data)

    def gone(self, node: SimNode, end: End) -> None:
        self.watches.pop(end, None)
