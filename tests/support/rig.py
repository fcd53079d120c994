"""Nodes and clients joined in memory: virtual time, wires that can be cut at any byte, disks that refuse.

Rules of this file: no socket, no clock, no sleep; everything follows from the seed and the order of calls. Every run
checks the invariant "store, then settle": no accepted disposition leaves a node before the bare message that it
answers has been committed there (docs/ARCHITECTURE.md, "How a core is driven").
"""

import json
import logging
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

from holdfast.amqp.message.message import Message
from holdfast.broker.entries import entry
from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast.engine.port import Batch
from holdfast.errors import StorageFull
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.storage.memory import MemoryStore
from holdfast.telemetry.records import validate
from holdfast.units import iso8601
from holdfast_lab.base.plain_broker import PlainBroker
from support import today
from support.plain_party import PlainParty
from support.rig_client import Client
from support.wires import End, Party, Wire

WALL_MS = 1_700_000_000_000
LEVELS = logging.getLevelNamesMapping()
CHECK_EVERY = 24
"""A look at all invariants costs as much as several turns: of so many, one drawn from the day and the test's name is
followed by one; with `--long` each is."""
CHECK_LESS = 200
"""After each so many turns of a node its invariants are looked at more seldom by one turn: where a test lets hours
pass, nearly all turns are like those before them."""


class Node:
    """A NodeCore with its store; `start` and `crash` as often as wanted. `refuse`: commits left to refuse."""

    def __init__(self, rig: "Rig", config: NodeConfig) -> None:
        self.rig = rig
        self.config = config
        self.name = config.name
        self.store = MemoryStore(mint_from=rig.uuid)
        self.core: NodeCore | None = None
        self.pending: events.Commit | None = None
        self.hold_commits = False
        self.refuse = 0
        self.refuse_all = False
        """Whether that goes for those too that add nothing."""
        self.tries = 0
        self.ends: dict[int, End] = {}
        self.logs: list[str] = []
        self.records: list[tuple[str, dict[str, Any]]] = []
        self._forms: dict[tuple[str, ...], int] = {}
        """By kind and fields: how many records were told."""
        self.audited: list[dict[str, Any]] = []
        self.ever_stored: set[bytes] = set()
        self.given: dict[int, bytes] = {}
        """By identity's number: what this store gave one (with one destination alone)."""
        self.unwatched = {"$management", "$holdfast/control", "$coordinator"}
        self.stopped = False
        self.due = False
        self.is_asked = False
        """Whether its deadline was asked for since it handled something."""
        self.wakes_at: float | None = None
        """The answer: it holds however much time passes, as a driver that sleeps has it."""
        self.questions = 0
        self.commands: list[events.RunCommand] = []
        """Of triggers, as they were to be run."""
        self.measured: list[dict[str, Any]] = []
        self.reloading: list[events.ReadConfig | events.ConfigDecided] = []
        self.lives = self.turns = 0
        self._draw = Random(f"{today.number} {os.environ.get('PYTEST_CURRENT_TEST')} {config.name}")
        self._next_check = self._draw.randint(1, CHECK_EVERY)
        self.checks = True
        """Whether its invariants are checked; not where a test meddles with what it holds."""
        self.clock_error_ms = 0
        """How much later its wall clock is than the world's."""

    @property
    def wall_ms(self) -> int:
        return self.rig.wall_ms + self.clock_error_ms

    def start(self) -> None:
        assert self.core is None
        self.lives += 1
        self.stopped = False
        self.core = NodeCore(
            self.config, self.store, rng=Random(self.rig.random.random()), wall_ms=self.wall_ms, now=self.rig.now
        )
        self.due = True

    def crash(self) -> None:
        """Everything but the store is gone; who was connected hears of it."""
        self.core = None
        self.pending = None
        for end in list(self.ends.values()):
            end.wire.cut()
        self.ends.clear()

    def handle(self, event: events.Event) -> None:
        if self.core is None:
            return
        self.is_asked = False
        self.due = self.due or not isinstance(event, events.TurnEnded)
        for command in self.core.handle(event, self.rig.now):
            if isinstance(command, events.SendBytes):
                end = self.ends.get(command.connection)
                if end is not None:
                    data = b"".join(command.chunks)
                    end.watch.say(data)
                    end.wire.write(end, data)
            elif isinstance(command, (events.PauseReading, events.ResumeReading)):
                end = self.ends.get(command.connection)
                if end is not None:
                    end.paused = isinstance(command, events.PauseReading)
            elif isinstance(command, events.CloseConnection):
                end = self.ends.get(command.connection)
                if end is not None:
                    end.wire.closing(end, abort=command.abort)
            elif isinstance(command, events.MeasureOutput):
                pass  # as a system that cannot tell
            elif isinstance(command, events.Connect):
                self.rig.dials.append((self, command.neighbour))
            elif isinstance(command, events.RunCommand):
                self.commands.append(command)
            elif isinstance(command, events.StatusTold):
                self.measured.append(command.fields)
            elif isinstance(command, (events.ReadConfig, events.ConfigDecided)):
                self.reloading.append(command)
            elif isinstance(command, events.Commit):
                assert self.pending is None, "one commit at a time"
                self.pending = command
            elif isinstance(command, events.Log):
                assert command.level in LEVELS, command
                self.logs.append(command.text)
            elif isinstance(command, events.Audit):
                self.audited.append(command.fields)
            elif isinstance(command, events.Record):
                self._look_at(command)
                self.records.append((command.kind, command.fields))
            else:
                self.stopped = True

    def _look_at(self, record: events.Record) -> None:
        """Holds a record to its schema: the first of each form, and one of CHECK_EVERY."""
        written = {key: value for key, value in record.fields.items() if value is not None}
        form = record.kind, *written
        told = self._forms[form] = self._forms.get(form, 0) + 1
        if told == 1 or told % CHECK_EVERY == 0 or today.long:
            line = {"v": 1, "kind": record.kind, "t": iso8601(self.rig.wall_ms), "node": self.name, "uptime_s": 1}
            validate(line | json.loads(json.dumps(written)))

    def deadline(self) -> float | None:
        """The core's next deadline, which holds until it handles something."""
        assert self.core is not None
        if not self.is_asked:
            self.is_asked, self.wakes_at = True, self.core.next_deadline()
            self.questions += 1
            if self.questions % CHECK_EVERY == 0 or today.long:
                of_each = [peer.amqp.next_deadline() for peer in self.core.connections.values()]
                assert self.core.deadlines.first() == min((at for at in of_each if at is not None), default=None)
        return self.wakes_at

    def end_turn(self) -> None:
        self.due = False
        self.handle(events.TurnEnded(wall_ms=self.wall_ms))
        self._check()

    def _check(self) -> None:
        """Invariants after one turn of CHECK_EVERY, drawn; of a node that is deep, or has lived through CHECK_LESS
        turns and more, after one of many."""
        self.turns += 1
        if self.turns < self._next_check and not today.long:
            return
        if self.core is not None and self.checks:
            depth = sum(queue.messages for queue in self.core.catalog.queues.values())
            self._next_check = self.turns + self._draw.randint(
                1, 2 * (CHECK_EVERY + depth // 50 + self.turns // CHECK_LESS) - 1
            )
            self.core.validate()

    def finish_commit(self) -> None:
        """The disk answers the commit under way."""
        commit, self.pending = self.pending, None
        assert commit is not None
        try:
            self.tries += 1
            if self.refuse and (self.refuse_all or commit.batch.appends or commit.batch.pieces):
                self.refuse -= 1
                raise StorageFull("told to refuse")
            self.store.commit(commit.batch)
        except StorageFull:
            self.handle(events.CommitRefused(number=commit.number, room_bytes=0))
            return
        self.remember(commit.batch)
        self.handle(events.Committed(number=commit.number, room_bytes=self.store.room_bytes()))

    def remember(self, batch: Batch) -> None:
        for _, _, value in batch.appends:
            item = entry.unpack(value)
            self.ever_stored.add(self.bare(value))
            if item.identity is not None and item.identity.origin == self.store.uuid:
                self.given[item.identity.number] = bytes(item.bare)

    def bare(self, value: bytes) -> bytes:
        """The bare message that an entry has, or refers to."""
        item = entry.unpack(value)
        if not item.flags & entry.BLOB:
            return bytes(item.bare)
        blob, length = entry.blob_of(value)
        pieces = []
        while (piece := self.store.piece(blob, len(pieces))) is not None:
            pieces.append(piece)
        whole = b"".join(pieces)
        assert len(whole) == length, f"{self.name}: blob {blob} has {len(whole)} bytes, its entry says {length}"
        return whole

    @property
    def not_read(self) -> set[int]:
        """Connections whose reading is paused."""
        return {number for number, end in self.ends.items() if end.paused}

    def queue(self, name: str) -> Any:
        assert self.core is not None
        return self.core.catalog.queues[name]

    def bodies(self, name: str) -> list[str]:
        """What is stored in the queue, by sequence."""
        found = self.queue(name).read(0, count_max=10**6, bytes_max=2**40)
        return [Message.decode(self.bare(value)).body_bytes().decode() for _, value in found]


class Rig:
    """The world. `settle` runs it until nothing moves; `run` lets virtual time pass; `step` takes one random step."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.now = 1000.0
        self.wall_ms = WALL_MS
        self.nodes: dict[str, Node] = {}
        self.wires: list[Wire] = []
        self.wires_made = 0
        self.stirred: dict[int, Wire] = {}
        """Those in which something may be under way, by their places."""
        self.clients: list[Client] = []
        self.brokers: dict[str, PlainBroker] = {}
        """Brokers that are no nodes, by the names of remotes."""
        self.plain: dict[str, PlainParty] = {}
        """Their last connections."""
        self.plain_settings: dict[str, Any] = {}
        """Settings of their next connections."""
        self.dials: list[tuple[Node, str]] = []
        self.next_number = 1
        self.refuse_dials = False
        self.exposed: bytes | None = None
        """With random bytes: dials lead to other machines, without TLS, by drivers that give these for each."""

    def uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    # ------------------------------------------------------------------------------------------------ building

    def node(self, name: str, *, start: bool = True, **fields: Any) -> Node:
        fields.setdefault("create_queues", True)
        node = self.nodes[name] = Node(self, NodeConfig(name=name, **fields))
        if start:
            node.start()
        return node

    def pair(self, *, start: bool = True, jfk: dict[str, Any] | None = None, **hub: Any) -> tuple[Node, Node]:
        """jfk dials hub."""
        to_hub = NeighbourConfig(name="hub", remote="127.0.0.1:1")
        return (
            self.node("jfk", start=start, neighbours=(to_hub,), **(jfk or {})),
            self.node("hub", start=start, neighbours=(NeighbourConfig(name="jfk"),), **hub),
        )

    def graph(
        self, *links: str, routes: dict[str, dict[str, str]] | None = None, start: bool = True, **fields: dict[str, Any]
    ) -> list[Node]:
        """Nodes by name for links written `jfk-hub`, of which the first dials; `fields` and `routes` by node's name."""
        names = list(dict.fromkeys(name for link in links for name in link.split("-")))
        neighbours: dict[str, list[NeighbourConfig]] = {name: [] for name in names}
        for link in links:
            dialling, dialled = link.split("-")
            neighbours[dialling].append(NeighbourConfig(name=dialled, remote="127.0.0.1:1"))
            neighbours[dialled].append(NeighbourConfig(name=dialling))
        return [
            self.node(
                name,
                start=start,
                neighbours=tuple(neighbours[name]),
                forwarding=tuple((routes or {}).get(name, {}).items()),
                **fields.get(name, {}),
            )
            for name in names
        ]

    def line(self, *names: str, **options: Any) -> list[Node]:
        """Nodes in a row with routes between all of them."""
        routes: dict[str, dict[str, str]] = {name: {} for name in names}
        for at, name in enumerate(names):
            routes[name] |= dict.fromkeys(names[at + 2 :], names[at + 1] if at + 1 < len(names) else "")
            routes[name] |= dict.fromkeys(names[: max(0, at - 1)], names[at - 1])
        return self.graph(*(f"{one}-{two}" for one, two in pairwise(names)), routes=routes, **options)

    def _number(self) -> int:
        self.next_number += 1
        return self.next_number

    def _wire(self) -> Wire:
        self.wires_made += 1
        return Wire(self.wires_made, self.stirred)

    def _join(self, wire: Wire, node: Node) -> End:
        end = End(wire, node, self._number(), None)
        wire.ends.append(end)
        node.ends[end.number] = end
        return end

    def client(self, node: Node, *, loopback: bool = True, **settings: Any) -> Client:
        """A client, connected."""
        client = Client(self, **settings)
        self.clients.append(client)
        client.end = self.attach(client, node, loopback=loopback)
        return client

    def login(self, node: Node, user: str, password: str, **settings: Any) -> Client:
        """A client that logged in by PLAIN, as far as the node lets it."""
        client = self.client(node, mechanism="PLAIN", user=user, password=password, **settings)
        self.settle()
        return client

    def attach(
        self,
        party: Party,
        node: Node,
        *,
        peer: str = "client",
        loopback: bool = True,
        encrypted: bool = False,
        nonce: bytes = b"",
    ) -> End:
        """Joins to the node whoever is at the other end of a new wire; returns the party's end of it."""
        wire = self._wire()
        theirs = self._join(wire, node)
        end = End(wire, None, 0, party)
        wire.ends.append(end)
        self.wires.append(wire)
        node.handle(
            events.ConnectionOpened(
                connection=theirs.number, peer=peer, loopback=loopback, encrypted=encrypted, nonce=nonce
            )
        )
        return end

    def connect(self) -> None:
        """Answers the dials under way."""
        dials, self.dials = self.dials, []
        for node, name in dials:
            if node.core is None:
                continue
            if name in self.brokers and not self.refuse_dials:
                self._connect_broker(node, name)
                continue
            other = self.nodes.get(name)
            if other is None or other.core is None or other.stopped or self.refuse_dials:
                node.handle(events.ConnectFailed(neighbour=name, reason="nobody there"))
                continue
            wire = self._wire()
            ours, theirs = self._join(wire, node), self._join(wire, other)
            self.wires.append(wire)
            kind: dict[str, Any] = {"loopback": True}
            if self.exposed is not None:
                kind = {"loopback": False, "nonce": self.exposed}
            node.handle(events.ConnectionOpened(connection=ours.number, peer=name, neighbour=name, **kind))
            other.handle(events.ConnectionOpened(connection=theirs.number, peer=node.name, **kind))

    def _connect_broker(self, node: Node, name: str) -> None:
        wire = self._wire()
        ours = self._join(wire, node)
        party = self.plain[name] = PlainParty(self, self.brokers[name], **self.plain_settings)
        party.end = End(wire, None, 0, party)
        wire.ends.append(party.end)
        self.wires.append(wire)
        node.handle(events.ConnectionOpened(connection=ours.number, peer=f"{name}:1", loopback=True, neighbour=name))

    def between(self, one: str, two: str) -> list[Wire]:
        """Wires that are up between two nodes."""
        return [wire for wire in self.wires if not wire.dead and wire.joins == {one, two}]

    # ------------------------------------------------------------------------------------------------ running

    def _prepare(self, *, anew: bool = True) -> None:
        """Clients write. `anew`: a test may have changed something, so nodes are asked anew."""
        if anew:
            for node in self.nodes.values():
                node.is_asked = False
            self.wires = [wire for wire in self.wires if not wire.dead]
            self.stirred.update((wire.place, wire) for wire in self.wires)
        self._let_clients_write()

    def _moves(self) -> Iterator[Callable[[], None]]:
        """Everything that could happen now, where clients have written; who wants only the first looks no further."""
        for place in sorted(self.stirred):
            wire = self.stirred[place]
            if wire.rests:
                del self.stirred[place]
                continue
            for end in wire.ends:
                if end.alive and end.inbox and not end.paused:
                    yield lambda end=end: self._deliver(end)
                elif end.alive and end.eof and not end.inbox:
                    yield lambda end=end: self._lose(end)
        for node in self.nodes.values():
            if node.core is None:
                continue
            if node.due:
                yield node.end_turn
            if node.pending is not None and not node.hold_commits:
                yield node.finish_commit
            if node.due:
                continue
            deadline = node.deadline()
            if deadline is not None and deadline <= self.now:
                yield lambda node=node: node.handle(events.TimerFired())
        if self.dials:
            yield self.connect

    def _deliver(self, end: End, size: int | None = None) -> None:
        data = bytes(end.inbox[:size])
        del end.inbox[:size]
        if data:
            end.receive(data)
        if end.node is None:
            self._let_clients_write()

    def _lose(self, end: End) -> None:
        end.lose("closed by the peer")
        if end.node is None:
            self._let_clients_write()

    def move(self, *, anew: bool = True) -> bool:
        """The first of what could happen now; False where nothing could."""
        self._prepare(anew=anew)
        return self._first()

    def settle(self, limit: int = 20_000, *, anew: bool = True) -> None:
        """Until nothing moves at this moment. `anew`: see `_prepare`."""
        self._prepare(anew=anew)
        for _ in range(limit):
            if not self._first():
                self._let_clients_write()  # who wrote in the middle of a node's turn, as a test may have it
                if not self._first():
                    return
        raise AssertionError("the nodes do not come to rest")

    def _let_clients_write(self) -> None:
        for party in (*self.clients, *self.plain.values()):
            if party.has_written:
                party.flush()

    def _first(self) -> bool:
        """Makes the first of `_moves`; False where there is none."""
        move = next(self._moves(), None)
        if move is not None:
            move()
        return move is not None

    def run(self, seconds: float) -> None:
        """Virtual time passes, by deadlines."""
        until = self.now + seconds
        self._prepare()
        while True:
            self.settle(anew=False)
            deadlines = [node.deadline() for node in self.nodes.values() if node.core is not None]
            known = [at for at in deadlines if at is not None]
            at = min([until, *(max(at, self.now + 1e-6) for at in known)])
            self.pass_time(at - self.now)
            if at >= until:
                self.settle(anew=False)
                return

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wall_ms += int(seconds * 1000)

    def step(self) -> bool:
        """One of the moves, a delivery perhaps cut into pieces; False where nothing moves."""
        self._prepare()
        moves = list(self._moves())
        if not moves:
            return False
        busy = [end for wire in self.wires for end in wire.ends if end.alive and end.inbox and not end.paused]
        if busy and self.random.random() < 0.4:
            end = self.random.choice(busy)
            self._deliver(end, self.random.randint(1, len(end.inbox)))
        else:
            self.random.choice(moves)()
        return True
