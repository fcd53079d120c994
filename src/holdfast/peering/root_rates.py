"""A node as a root: it measures what its clients send, gives them rates by virtual host, and links credit
(docs/pacing.md, docs/adr/0074-pacing.md).

Rules of this file: nothing here is on disk. Each virtual host that is paced is a group with its own share of the rate,
table, room and credit: what one leaves unused is not given to another.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.host_names import DEFAULT_HOST, destination_of, read_key
from holdfast.broker.entries.kinds import QueueKind
from holdfast.custody.hop.links import hop_key
from holdfast.engine.clock import Clock
from holdfast.pacing.choosing import policy_of
from holdfast.pacing.groups import Groups
from holdfast.pacing.messages import BYTES_MAX, Pace
from holdfast.pacing.root_credit import RootCredit
from holdfast.pacing.settings import PacingConfig
from holdfast.peers.link_tables import LinkTables
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room

LOOK_S: Final = 0.1
"""How often the groups' room is measured while credit is requested."""

PACES_A_TURN: Final = 256

NAMES_MAX: Final = 10_000
"""Stores whose nodes' names are remembered."""

ROWS_TOLD_MAX: Final = 200
"""Clients in `status`, of all hosts together."""


class RootRates:
    """`groups`: the tables by virtual host. `credits`: the same of links' credit."""

    def __init__(
        self,
        name: str,
        told: PacingConfig,
        clock: Clock,
        catalog: Catalog,
        room: Room,
        links: LinkTables,
        *,
        process: int,
        via: Callable[[str], str],
        name_of: Callable[[UUID], str],
    ) -> None:
        """`told` has a rate. `process`: increases with each start of this node. `via`: the neighbour that leads to a
        node. `name_of`: the node that has a store."""
        assert told.rate is not None
        self._name, self._rate = name, told.rate
        self._clock = clock
        self._catalog = catalog
        self._room = room
        self._links = links
        self._name_of = name_of
        self.groups = Groups(
            name, told.rate, policy_of(told.policy, lend=told.lend), told.groups(), origins=dict(told.shares),
            period_s=told.period_s, process=process, now=clock.now,
        )  # fmt: skip
        self.credits = {group: RootCredit(table, via) for group, table in self.groups.tables.items()}
        self._free: dict[str, tuple[int, float]] = dict.fromkeys(self.credits, (0, clock.now - LOOK_S))
        """By group: bytes of its room, less arrivals since it was measured, and when that was."""
        self._names: dict[UUID, str] = {}

    # ------------------------------------------------------------------------------------------------ arrivals

    def took(self, host: str, store: UUID, via: str, size: int) -> None:
        """Counts a message for that host of this node, by origin and neighbour."""
        credit = self.credits.get(host)
        if credit is None:
            return
        credit.took(self._clock.now, via, size)
        free, at = self._free[host]
        self._free[host] = free - size, at
        name = self._names.get(store)
        if name is None:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            name = self._names[store] = self._name_of(store)
        self.groups.tables[host].took(name, size)

    def credit(self, host: str, neighbour: str, most: int) -> int:
        """The credit for that host of a neighbour's link, of at most `most`."""
        credit = self.credits.get(host)
        if credit is None:
            return most
        now = self._clock.now
        if now >= self._free[host][1] + LOOK_S:
            self._free = {group: (capacity - used, now) for group, (capacity, used) in self.rooms().items()}
        free, _ = self._free[host]
        return credit.credit(now, neighbour, most, max(0, free))

    def _refill(self, host: str, neighbour: str) -> None:
        """Its links may get credit again."""
        link = self._links.custody_receivers.get(hop_key(neighbour, destination_of(host, self._name)))
        if link is not None:
            self._links.refills[link] = None

    def rooms(self) -> dict[str, tuple[int, int]]:
        """Capacity and bytes used, by group: what is free is the least that one of the host's queues has, or its part
        of the store's room. It looks at each queue of the node once, however many hosts are paced."""
        part = max(0, self._room.bytes // len(self.credits))
        used, free = dict.fromkeys(self.credits, 0), dict.fromkeys(self.credits, part)
        for key, queue in self._catalog.queues.items():
            if queue.kind is not QueueKind.ORDINARY or not queue.config.durable:
                continue  # nothing comes to it from other nodes
            group = read_key(key)[0]
            if group in used:
                held, bytes_max = queue.bytes_held, queue.config.bytes_max
                used[group] += held
                if bytes_max is not None:
                    free[group] = min(free[group], max(0, bytes_max - held))
        return {
            group: (min(used[group] + free[group], BYTES_MAX), min(used[group], BYTES_MAX)) for group in self.credits
        }

    # ------------------------------------------------------------------------------------------------ time

    def next_deadline(self) -> float:
        moments = [self.groups.next_deadline()]
        for credit in self.credits.values():
            if credit.asked:
                at = credit.next_deadline()
                moments.append(self._clock.now if at is None else at)
        return min(moments)

    def tick(self, now: float) -> list[Pace]:
        """Computes the tables that are due; returns the messages to be sent."""
        paces: list[Pace] = []
        if now >= self.groups.next_deadline():
            self.groups.tick(now, self.rooms())
            self._names.clear()  # a node may have another store now
            paces = self.groups.take(now, PACES_A_TURN)
            for credit in self.credits.values():
                credit.computed(now)
        for host, credit in self.credits.items():
            for neighbour in credit.due(now) if credit.asked else ():
                self._refill(host, neighbour)
        return paces

    # ------------------------------------------------------------------------------------------------ status

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """The telemetry records of an interval: the totals, then each client that `status` lists."""
        return [("pacing", self.totals()), *(("pace", recorded(row, "client")) for row in self.given())]

    def given(self) -> list[dict[str, Any]]:
        """The rows of `status` for each client of each host, at most ROWS_TOLD_MAX, the default host's first."""
        now = self._clock.now
        rows = [(host, row) for host, table in self.groups.tables.items() for row in table.rows.values()]
        return [
            {
                "client": row.origin,
                "vhost": host,
                "rate": Ulong(row.told_rate),
                "base": Ulong(row.told_base),
                "lease_s": round(max(0.0, row.lease_ends - now), 3),
                "used": Ulong(row.used),
                "capacity": Ulong(row.capacity),
                "arrivals": None if row.arrivals is None else Ulong(row.arrivals),
                "weight": Ulong(row.weight),
                "overflow_s": rounded(row.overflow_s),
                "received": Ulong(int(row.intake)),
                "reported_s": round(now - row.heard_at, 3),
                "ignores_rate": row.obedience.ignoring,
                "cut_to_rate": row.origin in self.credits[host].cut,
            }
            for host, row in sorted(rows, key=lambda item: item[0] != DEFAULT_HOST)[:ROWS_TOLD_MAX]
        ]

    def shared(self) -> list[dict[str, Any]]:
        """The rows of `status` about the rate itself, one for each virtual host."""
        rows, rooms = [], self.rooms()
        for host, table in self.groups.tables.items():
            capacity, used = rooms[host]
            rows.append(
                {
                    "vhost": host,
                    "policy": table.pacing.policy.name,
                    "rate": Ulong(int(table.pacing.rate)),
                    "given": Ulong(sum(row.told_rate for row in table.rows.values())),
                    "clients": Ulong(len(table.rows)),
                    "used": Ulong(used),
                    "capacity": Ulong(capacity),
                    "overflow_s": round(table.overflow_s, 3),
                }
            )
        return rows

    def totals(self) -> dict[str, Any]:
        """The fields of a record `pacing`, of all hosts together."""
        tables: Mapping[str, Any] = self.groups.tables
        rows = [row for table in tables.values() for row in table.rows.values()]
        return {
            "rate": self._rate,
            "given": sum(row.told_rate for row in rows),
            "clients": len(rows),
            "ignoring": sum(row.obedience.ignoring for row in rows),
            "changes": sum(table.changes for table in tables.values()),
            "overflow_s": min(row["overflow_s"] for row in self.shared()),
        }


def rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


RECORDED: Final = ("rate", "weight", "used", "capacity", "arrivals", "overflow_s")


def recorded(row: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """The fields of a record `pace` or `paced`, from a row of `status`."""
    fields = {name: row[name] for name in (*more, *RECORDED)}
    plain = {name: int(value) if isinstance(value, Ulong) else value for name, value in fields.items()}
    return plain | {"vhost": row["vhost"] or None}
