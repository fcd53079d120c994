"""Pacing in a node: as a client it asks roots for rates, as a root it gives them, on the way it passes both on
(docs/pacing.md, docs/adr/0074-pacing.md).

Rules of this file: nothing here is on disk, and no message waits for it. A message of pacing counts only where the
neighbour brings it that the forwarding table names for who wrote it. Of what waits for credit the newest for each pair
is kept. What is no such message ends the session of the neighbour that sent it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.host_names import DEFAULT_HOST, read_key
from holdfast.broker.entries.kinds import QueueKind
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.hop.links import hop_key
from holdfast.custody.hop.next_hop import NextHop
from holdfast.custody.hop.paced_sender import PacedSender
from holdfast.custody.names.identity import Identities
from holdfast.engine.clock import Clock
from holdfast.pacing.choosing import policy_of
from holdfast.pacing.groups import Groups
from holdfast.pacing.messages import BYTES_MAX, LOAD, PACE, Pace, Report, read_pace, read_report, relayed
from holdfast.pacing.origin import Origin
from holdfast.pacing.pacer import Pacer
from holdfast.pacing.policy import Thresholds
from holdfast.pacing.root_credit import RootCredit
from holdfast.peers.limits.allowances import Allowances
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.neighbours.features import PACING
from holdfast.peers.neighbours.session_port import ControlKinds, Session
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room

GROUP: Final = ""
"""The node's own queues."""

LOOK_S: Final = 0.1
"""How often a queue to a root is looked at while messages come and go."""

HEARD_PER_S: Final = 2_000.0
"""Messages of pacing of one neighbour, and as many at once after a quiet while. More are passed over: what counts is
sent again."""

WAITING_MAX: Final = 10_000
"""Messages of pacing that wait for credit, of all neighbours together. More are dropped: what counts is sent again."""

PACES_A_TURN: Final = 256

NAMES_MAX: Final = 10_000
"""Stores whose nodes' names are remembered."""

ROWS_TOLD_MAX: Final = 200
"""Clients that `status` tells of."""

Key = tuple[type, str, str, str]
"""Of one message: its kind, root, client and group."""


class RateControl:
    """`pacers`: by root, what this node's messages to it keep to. `rates`: the tables, where this node is a root."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        catalog: Catalog,
        room: Room,
        identities: Identities,
        forwarding: Forwarding,
        neighbours: Mapping[str, Session],
        next_hops: Mapping[str, NextHop],
        links: LinkTables,
        kinds: ControlKinds,
        *,
        process: int,
        name_of: Callable[[UUID], str],
    ) -> None:
        """`process`: higher for each life of this node. `name_of`: the node that has a store."""
        self._name = config.name
        self._config = config.pacing
        self._clock = clock
        self._catalog = catalog
        self._room = room
        self._identities = identities
        self._forwarding = forwarding
        self._neighbours = neighbours
        self._next_hops = next_hops
        self._links = links
        self._name_of = name_of
        told, now = config.pacing, clock.now
        policy = policy_of(told.policy, lend=told.lend)
        self.pacers: dict[str, Pacer] = {}
        for root in told.roots:
            weigh = Thresholds(told.weights).weight
            origin = Origin(root, self._name, GROUP, weigh, self._capacity(root), process=process, now=now)
            self.pacers[root] = Pacer(origin, now)
        self.rates: Groups | None = None
        if told.rate is not None:
            self.rates = Groups(
                self._name, told.rate, policy, {GROUP: 1.0}, origins=dict(told.shares),
                period_s=told.period_s, process=process, now=now,
            )  # fmt: skip
        self.root_credit: RootCredit | None = None
        if self.rates is not None:
            self.root_credit = RootCredit(self.rates.tables[GROUP], forwarding.via)
        self._free, self._free_at = 0, now - LOOK_S
        """Bytes of the root's room, when it was looked at last, less what came since."""
        self.active: tuple[object, ...] = (*self.pacers, *([] if self.rates is None else [self.rates]))
        """What has deadlines; empty where nothing is configured."""
        self.waiting: dict[str, dict[Key, Report | Pace]] = {}
        """By neighbour: what found no credit, the newest of each pair."""
        self.dropped = 0
        """Messages of pacing that were passed over: too many, from elsewhere than the table names, or without a way."""
        self._looked_at: dict[str, float] = dict.fromkeys(self.pacers, now)
        self._refused = dict.fromkeys(self.pacers, 0)
        """Messages that clients were refused, as of the last look."""
        self._numbers = {root: self._next_number(root) for root in self.pacers}
        self._allowances = Allowances(clock, per_s=HEARD_PER_S, burst=HEARD_PER_S)
        """By neighbour, of messages."""
        self._names: dict[UUID, str] = {}
        kinds |= {LOAD: self._hear_load, PACE: self._hear_pace}

    # ------------------------------------------------------------------------------------------------ as a client

    def _capacity(self, root: str) -> int:
        """What a full queue to it holds. Where room is kept by priority, that of the lowest: else who sends little of
        that would lose most of it, at a queue that looks far from full."""
        queue = self._catalog.transit.get(root)
        if self._config.when_full is not None and queue is not None:
            _, bytes_max = queue.bounds(0)
            return self._config.capacity_bytes or BYTES_MAX if bytes_max is None else bytes_max
        if self._config.capacity_bytes is not None:
            return self._config.capacity_bytes
        part = self._room.bytes // len(self._config.roots)
        return min(max(1, part + self._held(root)[0]), BYTES_MAX)

    def _refused_since(self, root: str) -> int:
        """Messages for it that clients were refused since the last look."""
        queue = self._catalog.transit.get(root)
        before, now = self._refused[root], 0 if queue is None else queue.refused_total
        self._refused[root] = now
        return max(0, now - before)

    def _held(self, root: str) -> tuple[int, int]:
        """Bytes and messages that wait for it."""
        queue = self._catalog.transit.get(root)
        return (0, 0) if queue is None else (queue.bytes_held, queue.messages)

    def _next_number(self, root: str) -> tuple[UUID, int]:
        """Which number this node's next message to it has, and of which store."""
        return self._identities.store_uuid, self._catalog.ledger.identities.get(root, 1)

    def _look(self, root: str, pacer: Pacer, now: float, *, leaving: bool = False) -> None:
        """Counts what arrived since, and reports what is due."""
        self._looked_at[root] = now
        pacer.moved = False
        before, told = self._numbers[root], self._next_number(root)
        self._numbers[root] = told
        held_bytes, held = self._held(root)
        count = told[1] - before[1] if told[0] == before[0] else 0  # a turn that was undone gave some back
        pacer.arrived(now, max(0, count) + self._refused_since(root), held_bytes, held)
        if self._config.when_full is not None:
            pacer.origin.capacity = self._capacity(root)
        report = pacer.report(now, held_bytes, leaving=leaving)
        if report is not None:
            self._send(self._forwarding.via(root), report)

    def established(self, session: Session) -> None:
        """A session is up: roots behind it hear at once."""
        for root, pacer in self.pacers.items():
            if self._forwarding.via(root) == session.name:
                pacer.origin.hurry(self._clock.now)

    def leave(self) -> None:
        """The node stops: the roots share its part among the others at once."""
        for root, pacer in self.pacers.items():
            self._look(root, pacer, self._clock.now, leaving=True)

    def _paced(self, root: str) -> None:
        """Another rate may hold."""
        for hop in self._next_hops.values():
            sender = hop.senders.get(root)
            if isinstance(sender, PacedSender):
                sender.paced()

    # ------------------------------------------------------------------------------------------------ as a root

    def took(self, store: UUID, via: str, size: int) -> None:
        """A message for this node came in, of that origin, by that neighbour."""
        if self.rates is None or self.root_credit is None:
            return
        self.root_credit.took(self._clock.now, via, size)
        self._free -= size
        name = self._names.get(store)
        if name is None:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            name = self._names[store] = self._name_of(store)
        self.rates.tables[GROUP].took(name, size)

    def credit(self, neighbour: str, most: int) -> int:
        """Of a root: the messages for it that a neighbour's link may have under way, of `most` that any link may."""
        if self.root_credit is None:
            return most
        now = self._clock.now
        if now >= self._free_at + LOOK_S:
            capacity, used = self._queue(GROUP)
            self._free, self._free_at = capacity - used, now
        return self.root_credit.credit(now, neighbour, most, max(0, self._free))

    def _refill(self, neighbour: str) -> None:
        """Its link may have credit again."""
        link = self._links.custody_receivers.get(hop_key(neighbour, self._name))
        if link is not None:
            self._links.refills[link] = None

    def _queue(self, group: str) -> tuple[int, int]:
        """Capacity and bytes used: what is free is the least that one of this node's queues, or its store, has."""
        used, free = 0, max(0, self._room.bytes)
        for key, queue in self._catalog.queues.items():
            of_others = queue.kind is not QueueKind.ORDINARY or read_key(key)[0] != DEFAULT_HOST
            if queue.config.durable and not of_others:  # else nothing comes to it from other nodes
                used += queue.bytes_held
                if queue.config.bytes_max is not None:
                    free = min(free, max(0, queue.config.bytes_max - queue.bytes_held))
        return min(used + free, BYTES_MAX), min(used, BYTES_MAX)

    # ------------------------------------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        now = self._clock.now
        moments = [self.rates.next_deadline()] if self.rates is not None else []
        if self.root_credit is not None and self.root_credit.asked:
            at = self.root_credit.next_deadline()
            moments.append(now if at is None else at)
        for root, pacer in self.pacers.items():
            moments.append(pacer.origin.next_deadline(now))
            if pacer.moved:
                moments.append(self._looked_at[root] + LOOK_S)
        return min(moments, default=None)

    def tick(self, now: float) -> None:
        for root, pacer in self.pacers.items():
            moved = pacer.moved and now >= self._looked_at[root] + LOOK_S
            if moved or now >= pacer.origin.next_deadline(now):
                before = pacer.shaper.rate
                self._look(root, pacer, now)
                if pacer.rate(now) != before:
                    self._paced(root)
        if self.rates is not None and now >= self.rates.next_deadline():
            self.rates.tick(now, self._queue)
            self._names.clear()  # a node may have another store now
            for pace in self.rates.take(now, PACES_A_TURN):
                self._send(self._forwarding.via(pace.to), pace)
            if self.root_credit is not None:
                self.root_credit.computed(now)
        if self.root_credit is not None and self.root_credit.asked:
            for neighbour in self.root_credit.due(now):
                self._refill(neighbour)

    # ------------------------------------------------------------------------------------------------ sending

    def _send(self, via: str, message: Report | Pace) -> None:
        """By that neighbour, now or with its next credit; nothing where it is away, or does not know pacing."""
        session = self._neighbours.get(via)
        if session is None or not session.established or PACING not in session.features:
            self.dropped += 1
            self.waiting.pop(via, None)
            return
        waiting = self.waiting.get(via)
        if waiting is None and session.send(message.fields()):
            return
        client = message.origin if isinstance(message, Report) else message.to
        key: Key = (type(message), message.root, client, message.group)
        if (waiting is None or key not in waiting) and self.waiting_count >= WAITING_MAX:
            self.dropped += 1
            return
        self.waiting.setdefault(via, {})[key] = message

    @property
    def waiting_count(self) -> int:
        return sum(len(waiting) for waiting in self.waiting.values())

    def credited(self, session: Session) -> None:
        """That neighbour's control link has credit."""
        waiting = self.waiting.pop(session.name, None)
        if waiting is None or not session.established:
            return
        while waiting:
            key = next(iter(waiting))
            if not session.send(waiting[key].fields()):
                self.waiting[session.name] = waiting
                return
            del waiting[key]

    # ------------------------------------------------------------------------------------------------ hearing

    def _hear_load(self, session: Session, fields: dict[Any, Any]) -> None:
        report = read_report(fields)
        if report is None:
            session.drop("invalid message `load` of pacing")
        elif not self._counts(session, report.origin):
            self.dropped += 1
        elif report.root != self._name:
            self._pass_on(session, report, report.root)
        elif self.rates is not None:
            self.rates.receive(self._clock.now, report)

    def _hear_pace(self, session: Session, fields: dict[Any, Any]) -> None:
        pace = read_pace(fields)
        if pace is None:
            session.drop("invalid message `pace` of pacing")
        elif not self._counts(session, pace.root):
            self.dropped += 1
        elif pace.to != self._name:
            self._pass_on(session, pace, pace.to)
        else:
            pacer = self.pacers.get(pace.root)
            if pacer is not None and pacer.receive(self._clock.now, pace):
                self._paced(pace.root)

    def _counts(self, session: Session, author: str) -> bool:
        """Whether that neighbour may bring a message of that node, and has not brought too many."""
        return self._allowances.count(session.name) and self._forwarding.via(author) == session.name

    def _pass_on(self, session: Session, message: Report | Pace, to: str) -> None:
        further, via = relayed(message), self._forwarding.via(to)
        if further is None or via == session.name:
            self.dropped += 1
        else:
            self._send(via, further)

    # ------------------------------------------------------------------------------------------------ status

    def given(self) -> list[dict[str, Any]]:
        """What `status` tells of a root: a row for each client, ROWS_TOLD_MAX at most."""
        if self.rates is None:
            return []
        now, table = self._clock.now, self.rates.tables[GROUP]
        return [
            {
                "client": row.origin,
                "rate": Ulong(row.told_rate),
                "base": Ulong(row.told_base),
                "lease_s": round(max(0.0, row.lease_ends - now), 3),
                "used": Ulong(row.used),
                "capacity": Ulong(row.capacity),
                "arrivals": None if row.arrivals is None else Ulong(row.arrivals),
                "received": Ulong(int(row.intake)),
                "reported_s": round(now - row.heard_at, 3),
                "ignores_rate": row.ignoring,
            }
            for row in list(table.rows.values())[:ROWS_TOLD_MAX]
        ]

    def totals(self) -> dict[str, Any]:
        """The fields of a record `pacing`, of a root."""
        assert self.rates is not None and self._config.rate is not None
        table = self.rates.tables[GROUP]
        rows = table.rows.values()
        return {
            "rate": self._config.rate,
            "given": sum(row.told_rate for row in rows),
            "clients": len(rows),
            "ignoring": sum(row.ignoring for row in rows),
            "changes": table.changes,
            "overflow_s": round(table.overflow_s, 3),
        }

    def kept(self) -> list[dict[str, Any]]:
        """What `status` tells of a client: a row for each root."""
        now = self._clock.now
        rows = []
        for root, pacer in self.pacers.items():
            rate = pacer.rate(now)
            pace = pacer.origin.pace
            rows.append(
                {
                    "root": root,
                    "rate": None if rate is None else Ulong(int(rate)),
                    "lease_s": round(max(0.0, pacer.origin.lease_ends - now), 3) if pace is not None else 0.0,
                    "reports": Ulong(pacer.origin.version),
                    "sent_messages": Ulong(pacer.sent_messages),
                    "sent_bytes": Ulong(pacer.sent_bytes),
                    "waiting": Ulong(self._held(root)[1]),
                }
            )
        return rows
