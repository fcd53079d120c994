"""What a node tells of itself: telemetry records each interval, and `status`.

Rules of this file: reads, never changes; names of fields are OPERATOR's contract (docs/telemetry.md,
docs/management.md).
"""

from heapq import nlargest, nsmallest
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from holdfast.amqp.types import Ulong
from holdfast.broker.queue import Queue
from holdfast.core import route_status
from holdfast.routing.topology import MICRO

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore
    from holdfast.core.sessions import Neighbour


QUEUES_A_TURN: Final = 100
"""Records of queues that one turn makes: each reads the oldest entry, all together a millisecond or two."""

LOOKS_A_TURN: Final = 2_000
"""Queues without anything to say that one turn looks at."""

QUEUES_MAX: Final = 1_000
"""Records of queues in one interval."""

ORIGINS_LISTED: Final = 100
"""Origins in one `status`."""

LOSSES_LISTED: Final = 100
"""The latest of them in one `status`."""

QUEUES_A_PAGE: Final = 200
"""Queues in one answer; the next page is asked for by the last one's name."""


def page_of_queues(core: "NodeCore", after: str) -> tuple[list[dict[str, Any]], bool]:
    """Queues by name, from the first behind `after` on; and whether there are more."""
    queues = core.catalog.queues
    names = nsmallest(QUEUES_A_PAGE + 1, (name for name in queues if name > after))
    return [queue_map(core, queues[name]) for name in names[:QUEUES_A_PAGE]], len(names) > QUEUES_A_PAGE


def queue_map(core: "NodeCore", queue: Queue) -> dict[str, Any]:
    """One queue as `status` and `queue list` tell it."""
    oldest = queue.oldest_wall_ms()
    return {
        "name": queue.name,
        "uuid": str(queue.uuid),
        "messages": Ulong(queue.messages - queue.tombstones),
        "tombstones": Ulong(queue.tombstones),
        "bytes": Ulong(queue.bytes_held),
        "oldest_s": None if oldest is None else max(0, core.clock.wall_ms - oldest) / 1000,
        "next_sequence": Ulong(queue.next_sequence),
        "in_total": Ulong(queue.in_total),
        "out_total": Ulong(queue.out_total),
        "consumers": len(queue.shared.takers),
        "unsettled": len(queue.shared.shown),
        "subscriptions": sorted(queue.named),
        "bytes_max": queue.config.bytes_max,
        "messages_max": queue.config.messages_max,
        "when_full": queue.config.when_full,
        "order": queue.config.order,
        "order_wait_s": queue.config.order_wait_s,
        "durable": queue.config.durable,
    }


class Meter:
    """The records of each interval: of queues that have something to say, and of every custody sender.

    Of many queues a turn tells some; an interval tells QUEUES_MAX, and the next one begins with the others. Where
    nobody reads records there are none.
    """

    def __init__(self, core: "NodeCore") -> None:
        self.core = core
        self.totals: dict[str, tuple[int, int, int, float]] = {}
        """By queue, as last told: in, out, messages, and when."""
        self.pending: list[Queue] = []
        """Still to be looked at in this interval, the next one last."""
        self.due_at = core.clock.now
        self._begin_at = core.clock.now
        self._left = 0
        self._next = 0

    def tick(self, now: float) -> bool:
        """This turn's share, of a new interval where it is time; whether it was."""
        begins = now >= self._begin_at
        if begins:
            self._begin_at = now + self.core.config.telemetry_interval_s
            if not self.pending and self.core.config.telemetry:
                self._begin()
        if self.pending:
            self._some()
        self.due_at = now if self.pending else self._begin_at
        return begins

    def _begin(self) -> None:
        queues = list(self.core.catalog.queues.values())
        start = self._next if self._next < len(queues) else 0
        self.pending = [*queues[start:], *queues[:start]][::-1]
        self._next = start
        self._left = QUEUES_MAX
        _measure_senders(self.core)
        self.core.turn_times.tell(self.core.outbox)
        if self.core.routing is not None:
            self.core.outbox.record("paths", self.core.destination.paths.status())

    def _some(self) -> None:
        told = 0
        for _ in range(min(LOOKS_A_TURN, len(self.pending))):
            told += self._tell(self.pending.pop())
            self._next += 1
            if told >= QUEUES_A_TURN:
                break
        self._left -= told
        if self._left <= 0:
            self.pending.clear()
        count = len(self.core.catalog.queues)
        self._next = self._next % count if count else 0

    def _tell(self, queue: Queue) -> bool:
        core = self.core
        interval_s = core.config.telemetry_interval_s
        if core.catalog.queues.get(queue.name) is not queue:  # deleted since the interval began
            return False
        before_in, before_out, messages, at = self.totals.get(queue.name, (0, 0, 0, core.clock.now - interval_s))
        self.totals[queue.name] = (queue.in_total, queue.out_total, queue.messages, core.clock.now)
        if (queue.in_total, queue.out_total, queue.messages) == (before_in, before_out, messages) and not messages:
            return False
        passed_s = max(interval_s, core.clock.now - at)
        oldest = queue.oldest_wall_ms()
        core.outbox.record(
            "queue",
            {
                "name": queue.name,
                "messages": queue.messages - queue.tombstones,
                "bytes": queue.bytes_held,
                "oldest_s": None if oldest is None else max(0, core.clock.wall_ms - oldest) / 1000,
                "in_total": queue.in_total,
                "out_total": queue.out_total,
                "in_per_s": round(max(0, queue.in_total - before_in) / passed_s, 3),  # a refused turn takes back
                "out_per_s": round((queue.out_total - before_out) / passed_s, 3),
                "next_sequence": queue.next_sequence,
            },
        )
        return True


def _measure_senders(core: "NodeCore") -> None:
    origins = core.catalog.origins.values()
    late, gaps = sum(origin.late for origin in origins), sum(len(origin.finished) for origin in origins)
    for hop in core.next_hops.values():
        for destination, sender in hop.senders.items():
            core.outbox.record(
                "custody",
                {
                    "destination": destination,
                    "waiting": sender.queue.messages - sender.queue.tombstones,
                    "in_doubt": len(sender.in_doubt),
                    "receipt": core.catalog.receipts.get(destination, 0),
                    "duplicates_suppressed": core.duplicates.suppressed,
                    "late": late,
                    "gaps": gaps,
                },
            )


def session_map(core: "NodeCore", neighbour: "Neighbour") -> dict[str, Any]:
    """One session as `status` tells it; counts since the node's start."""
    liveness, peer = neighbour.liveness, neighbour.peer
    links = [
        link for link in core.links.custody_receivers.values() if link.neighbour == neighbour.name and not link.fenced
    ]
    return {
        "neighbour": neighbour.name,
        "state": neighbour.state.value,
        "since_s": round(core.clock.now - neighbour.since, 3),
        "reason": neighbour.reason,
        "round_trip_s": liveness.smoothed_s,
        "hold_time_s": liveness.hold_time_s,
        "probe_s": liveness.probe_s,
        "attempts": neighbour.attempts,
        "established": neighbour.established_count,
        "lost": neighbour.flaps,
        "clock_offset_s": core.clocks.offset_s(neighbour.name),
        "damped": neighbour.damped,
        "disk_stalled": core.disk.stalled_at(neighbour),
        "probes": {
            "sent": Ulong(liveness.sent),
            "missed": Ulong(liveness.missed),
            "not_counted": Ulong(liveness.stalls),
            "false_alarms": Ulong(liveness.false_alarms),
        },
        "messages_in": Ulong(neighbour.hop.messages_in + sum(link.taken for link in links)),
        "messages_out": Ulong(neighbour.hop.messages_out),
        "bytes_in": Ulong(neighbour.bytes_in + (peer.heard_bytes if peer is not None else 0)),
        "bytes_out": Ulong(neighbour.bytes_out + neighbour.written_bytes),
    }


def status(core: "NodeCore") -> dict[str, Any]:
    """What `status --json` tells (fields may be added, these stay), but for the queues behind the first page."""
    queues, more = page_of_queues(core, "")
    origins = _origins(core)
    return {
        "node": core.config.name,
        "store": str(core.identities.store_uuid),
        "former_store": None if core.identities.former is None else str(core.identities.former.uuid),
        "uptime_s": round(core.clock.now - core.started_at, 3),
        "resident_bytes": Ulong(core.resident_bytes),
        "room_bytes": core.room.bytes,
        "memory": core.memory.status(),
        "users": core.users.status(),
        "logins": core.logins.status(),
        "turns": core.turn_times.status(core.clock.now),
        "connections": len(core.connections),
        "queues": queues,
        "queues_more": more,
        "sessions": [session_map(core, neighbour) for neighbour in core.neighbours.values()],
        "routes": _routes(core),
        **({} if core.routing is None else {"routing": route_status.status(core.routing)}),
        "paths": core.destination.paths.status(),
        "unroutable": {
            "refused": Ulong(core.forwarding.refused),
            "dead_lettered": Ulong(core.endings.unroutable),
        },
        "disk": core.disk.status(),
        "descriptors": core.descriptors.status(),
        "large_messages": {
            "under_way": Ulong(len(core.streams)),
            "max": Ulong(core.config.limits.streams_max),
            "refused": Ulong(core.incidents.large_refused_total),
        },
        "dead_letters": core.dead_letters.status(),
        "failures": {
            "peers_ended": Ulong(core.containment.peers_ended),
            "parts": Ulong(core.containment.parts_failed),
        },
        "origins": origins,
        "origins_more": Ulong(len(core.catalog.origins) - len(origins)),
        "losses": core.losses.status(LOSSES_LISTED),
        "losses_total": core.losses.totals_status(),
        "warnings": [text for _, text in core.warnings.all()],
        "log_lines_left_out": Ulong(core.log.left_out_total),
    }


def _origins(core: "NodeCore") -> list[dict[str, Any]]:
    """A row for each of ORIGINS_LISTED: those with the most gaps first, then the latest that were heard of."""
    everyone = core.catalog.origins.values()
    with_gaps = [origin for origin in everyone if origin.finished or origin.waiting]
    worst = nlargest(ORIGINS_LISTED, with_gaps, key=lambda origin: len(origin.finished) + len(origin.waiting))
    latest = islice(reversed(everyone), 2 * ORIGINS_LISTED)
    listed = {origin.origin: origin for origin in chain(worst, latest)}
    return [
        {
            "origin": str(origin.origin),
            "name": None if core.routing is None else core.routing.name_of_store(origin.origin),
            "mark": Ulong(origin.mark),
            "gaps": [[Ulong(first), Ulong(last)] for first, last in origin.gaps(100)],
            "waiting": len(origin.waiting),
            "duplicates": origin.duplicates,
            "late": origin.late,
        }
        for origin in islice(listed.values(), ORIGINS_LISTED)
    ]


def _routes(core: "NodeCore") -> list[dict[str, Any]]:
    """A row for each destination that can be reached, nearest first, and for each that something waits for."""
    paths = {} if core.routing is None else core.routing.paths
    waiting = dict(core.catalog.transmissions())
    rows = []
    for name in dict.fromkeys([*paths, *waiting]):
        hop, queue, path = core.next_hops.get(core.forwarding.via(name)), waiting.get(name), paths.get(name)
        row: dict[str, Any] = {
            "destination": name,
            "next_hop": None if hop is None else hop.name,
            "waiting": Ulong(0 if queue is None else queue.messages - queue.tombstones),
            "held": core.forwarding.held(name),
        }
        if core.routing is not None:
            row["cost"] = None if path is None else path.cost_micro / MICRO
            row["path"] = None if path is None else list(path.nodes)
        rows.append(row)
    return rows
