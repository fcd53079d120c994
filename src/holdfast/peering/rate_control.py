"""Pacing in a node: a client reports to its roots, a root gives rates, and nodes on the path pass both on
(docs/pacing.md, docs/adr/0074-pacing.md).

Rules of this file: nothing here is on disk, and no message waits for it. A message of pacing counts only if it comes
from the neighbour that is the next hop to its author. Of messages that wait for credit the newest for each pair is
kept. A malformed one ends the session of the neighbour that sent it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.host_names import DEFAULT_HOST, destination_of
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.hop.next_hop import NextHop
from holdfast.custody.hop.paced_sender import PacedSender
from holdfast.custody.names.identity import Identities
from holdfast.engine.clock import Clock
from holdfast.engine.outbox import Outbox
from holdfast.pacing.messages import BYTES_MAX, LOAD, PACE, Pace, Report, read_pace, read_report, relayed
from holdfast.pacing.origin import Origin
from holdfast.pacing.pacer import Pacer
from holdfast.pacing.policy import Thresholds, full_s
from holdfast.peering.root_rates import ROWS_TOLD_MAX, RootRates, recorded, rounded
from holdfast.peers.limits.allowances import Allowances
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.neighbours.features import HOSTS, PACING
from holdfast.peers.neighbours.session_port import ControlKinds, Session
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room

LOOK_S: Final = 0.1
"""How often a queue to a root is examined while messages come and go."""

HEARD_PER_S: Final = 2_000.0
"""Messages of pacing a second from one neighbour, and as many at once. More are ignored: they are sent again."""

WAITING_MAX: Final = 10_000
"""Messages of pacing that wait for credit, for all neighbours together. More are dropped: they are sent again."""

Key = tuple[type, str, str, str]
"""Identifies a message: its kind, root, client and group."""


class RateControl:
    """`pacers`: by destination (a root or HOST@ROOT), the pacer of this node's messages to it. `root`: set if this node
    is one."""

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
        told, now = config.pacing, clock.now
        self.pacers: dict[str, Pacer] = {}
        for root in told.roots:
            for host in (DEFAULT_HOST, *told.hosts):
                destination, weigh = destination_of(host, root), Thresholds(told.weights).weight
                capacity = self._capacity(destination)
                origin = Origin(root, self._name, host, weigh, capacity, process=process, now=now)
                self.pacers[destination] = Pacer(origin, now)
        self.root: RootRates | None = None
        if told.rate is not None:
            self.root = RootRates(
                self._name, told, clock, catalog, room, links, process=process, via=forwarding.via, name_of=name_of
            )
        self.active: tuple[object, ...] = (*self.pacers, *([] if self.root is None else [self.root]))
        """What has deadlines; empty where nothing is configured."""
        self.waiting: dict[str, dict[Key, Report | Pace]] = {}
        """By neighbour: messages that found no credit, the newest of each pair."""
        self.dropped = 0
        """Messages of pacing that were ignored: too many, from the wrong neighbour, or without a route."""
        self._looked_at: dict[str, float] = dict.fromkeys(self.pacers, now)
        self._refused = dict.fromkeys(self.pacers, 0)
        """Clients' messages that were refused, as of the last look."""
        self._numbers = {destination: self._next_number(destination) for destination in self.pacers}
        self._allowances = Allowances(clock, per_s=HEARD_PER_S, burst=HEARD_PER_S)
        """By neighbour, of messages."""
        kinds.add({LOAD: self._on_load, PACE: self._on_pace})

    # ------------------------------------------------------------------------------------------------ as a client

    def _capacity(self, destination: str) -> int:
        """The bytes of a full queue to it. With room by priority, the part of the lowest priority: otherwise a client
        that sends little of that priority would lose most of it at a queue that looks far from full."""
        queue = self._catalog.transit.get(destination)
        if self._config.when_full is not None and queue is not None:
            _, bytes_max = queue.bounds(0)
            return self._config.capacity_bytes or BYTES_MAX if bytes_max is None else bytes_max
        if self._config.capacity_bytes is not None:
            return self._config.capacity_bytes
        part = self._room.bytes // (len(self._config.roots) * (1 + len(self._config.hosts)))
        return min(max(1, part + self._held(destination)[0]), BYTES_MAX)

    def _refused_since(self, destination: str) -> int:
        """Clients' messages for it that were refused since the last look."""
        queue = self._catalog.transit.get(destination)
        before, now = self._refused[destination], 0 if queue is None else queue.refused_total
        self._refused[destination] = now
        return max(0, now - before)

    def _held(self, destination: str) -> tuple[int, int]:
        """Bytes and messages that wait for it."""
        queue = self._catalog.transit.get(destination)
        return (0, 0) if queue is None else (queue.bytes_held, queue.messages)

    def _next_number(self, destination: str) -> tuple[UUID, int]:
        """The number of this node's next message to it, and the store that numbers it."""
        return self._identities.store_uuid, self._catalog.ledger.identities.get(destination, 1)

    def _look(self, destination: str, pacer: Pacer, now: float, *, leaving: bool = False) -> None:
        """Counts arrivals since the last look, and sends reports that are due."""
        self._looked_at[destination] = now
        pacer.moved = False
        before, told = self._numbers[destination], self._next_number(destination)
        self._numbers[destination] = told
        held_bytes, held = self._held(destination)
        count = told[1] - before[1] if told[0] == before[0] else 0  # a turn that was undone gave some back
        pacer.arrived(now, max(0, count) + self._refused_since(destination), held_bytes, held)
        if self._config.when_full is not None:
            pacer.origin.capacity = self._capacity(destination)
        report = pacer.report(now, held_bytes, leaving=leaving)
        if report is not None:
            self._send(self._forwarding.via(destination), report)

    def established(self, session: Session) -> None:
        """A session is up: reports to the roots behind it at once."""
        for destination, pacer in self.pacers.items():
            if self._forwarding.via(destination) == session.name:
                pacer.origin.hurry(self._clock.now)

    def lost(self, session: Session) -> None:
        """A session has ended: drops messages that waited for its credit, which their authors send again. Otherwise
        they would take the room of messages for other neighbours."""
        self.waiting.pop(session.name, None)

    def leave(self) -> None:
        """The node stops: the roots share its part among the others at once."""
        for destination, pacer in self.pacers.items():
            self._look(destination, pacer, self._clock.now, leaving=True)

    def _paced(self, destination: str) -> None:
        """The rate may have changed."""
        for hop in self._next_hops.values():
            sender = hop.senders.get(destination)
            if isinstance(sender, PacedSender):
                sender.paced()

    # ------------------------------------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        now = self._clock.now
        moments = [self.root.next_deadline()] if self.root is not None else []
        for destination, pacer in self.pacers.items():
            moments.append(pacer.origin.next_deadline(now))
            if pacer.moved:
                moments.append(self._looked_at[destination] + LOOK_S)
        return min(moments, default=None)

    def tick(self, now: float) -> None:
        for destination, pacer in self.pacers.items():
            moved = pacer.moved and now >= self._looked_at[destination] + LOOK_S
            if moved or now >= pacer.origin.next_deadline(now):
                before = pacer.shaper.rate
                self._look(destination, pacer, now)
                if pacer.rate(now) != before:
                    self._paced(destination)
        if self.root is not None and now >= self.root.next_deadline():
            for pace in self.root.tick(now):
                self._send(self._forwarding.via(pace.to), pace)

    # ------------------------------------------------------------------------------------------------ sending

    def _send(self, via: str, message: Report | Pace) -> None:
        """Sends to that neighbour, now or with its next credit; does nothing if it has no session, or does not know
        pacing."""
        session = self._neighbours.get(via)
        if session is None or not session.established or PACING not in session.features:
            self.dropped += 1
            return
        if message.group and not (HOSTS in session.features and self._may_cross(via, message.group)):
            self.dropped += 1
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

    def _on_load(self, session: Session, fields: dict[Any, Any]) -> None:
        report = read_report(fields)
        if report is None:
            session.drop("invalid message `load` of pacing")
        elif not self._counts(session, report.origin, report.group):
            self.dropped += 1
        elif report.root != self._name:
            self._pass_on(session, report, report.root)
        elif self.root is not None:
            self.root.groups.receive(self._clock.now, report)

    def _on_pace(self, session: Session, fields: dict[Any, Any]) -> None:
        pace = read_pace(fields)
        if pace is None:
            session.drop("invalid message `pace` of pacing")
        elif not self._counts(session, pace.root, pace.group):
            self.dropped += 1
        elif pace.to != self._name:
            self._pass_on(session, pace, pace.to)
        else:
            destination = destination_of(pace.group, pace.root)
            pacer = self.pacers.get(destination)
            if pacer is not None and pacer.receive(self._clock.now, pace):
                self._paced(destination)

    def _counts(self, session: Session, author: str, group: str) -> bool:
        """Whether to accept a message of that node and virtual host from that neighbour, which also must not send too
        many."""
        if not self._allowances.count(session.name) or self._forwarding.via(author) != session.name:
            return False
        return not group or self._may_cross(session.name, group)

    def _may_cross(self, neighbour: str, host: str) -> bool:
        """Whether messages of that host may cross to and from the neighbour; otherwise pacing messages about the host
        do not cross either."""
        hop = self._next_hops.get(neighbour)
        return hop is not None and host in hop.hosts

    def _pass_on(self, session: Session, message: Report | Pace, to: str) -> None:
        further, via = relayed(message), self._forwarding.via(to)
        if further is None or via == session.name:
            self.dropped += 1
        else:
            self._send(via, further)

    # ------------------------------------------------------------------------------------------------ status

    def tell(self, outbox: Outbox) -> None:
        """Writes telemetry, once an interval, as a root and as a client."""
        for kind, fields in self.root.records() if self.root is not None else ():
            outbox.record(kind, fields)
        for row in self.kept()[:ROWS_TOLD_MAX]:
            outbox.record("paced", recorded(row, "root"))

    def kept(self) -> list[dict[str, Any]]:
        """The rows of `status` for a client: one for each root and virtual host."""
        now = self._clock.now
        rows = []
        for destination, pacer in self.pacers.items():
            rate = pacer.rate(now)
            pace, told = pacer.origin.pace, pacer.origin.told
            held_bytes, held = self._held(destination)
            arrivals = None if told is None else told.arrivals
            rows.append(
                {
                    "root": pacer.origin.root,
                    "vhost": pacer.origin.group,
                    "rate": None if rate is None else Ulong(int(rate)),
                    "lease_s": round(max(0.0, pacer.origin.lease_ends - now), 3) if pace is not None else 0.0,
                    "reports": Ulong(pacer.origin.version),
                    "sent_messages": Ulong(pacer.sent_messages),
                    "sent_bytes": Ulong(pacer.sent_bytes),
                    "waiting": Ulong(held),
                    "used": Ulong(held_bytes),
                    "capacity": Ulong(pacer.origin.capacity),
                    "arrivals": None if arrivals is None else Ulong(arrivals),
                    "weight": Ulong(0 if told is None else told.weight),
                    "overflow_s": rounded(full_s(pacer.origin.capacity, held_bytes, arrivals, rate)),
                }
            )
        return rows
