"""What a node tells of itself: telemetry records each interval, and `status`.

Rules of this file: reads, never changes; names of fields are OPERATOR's contract (docs/telemetry.md,
docs/management.md).
"""

from typing import TYPE_CHECKING, Any

from holdfast.amqp.types import Ulong
from holdfast.broker.queue import Queue

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore


def queue_map(core: "NodeCore", queue: Queue) -> dict[str, Any]:
    """One queue as `status` and `queue list` tell it."""
    oldest = queue.oldest_wall_ms()
    return {
        "name": queue.name,
        "uuid": str(queue.uuid),
        "messages": Ulong(queue.messages),
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
        "durable": queue.config.durable,
    }


def measure(core: "NodeCore") -> None:
    """Records of every queue that has something to say, and of every custody sender."""
    interval_s = core.config.telemetry_interval_s
    for queue in core.catalog.queues.values():
        before = core.totals.get(queue.name, (0, 0, 0))
        core.totals[queue.name] = now = (queue.in_total, queue.out_total, queue.messages)
        if now == before and not queue.messages:
            continue
        before_in, before_out, _ = before
        oldest = queue.oldest_wall_ms()
        core.record(
            "queue",
            {
                "name": queue.name,
                "messages": queue.messages,
                "bytes": queue.bytes_held,
                "oldest_s": None if oldest is None else max(0, core.clock.wall_ms - oldest) / 1000,
                "in_total": queue.in_total,
                "out_total": queue.out_total,
                "in_per_s": round(max(0, queue.in_total - before_in) / interval_s, 3),  # a refused turn takes back
                "out_per_s": round((queue.out_total - before_out) / interval_s, 3),
                "next_sequence": queue.next_sequence,
            },
        )
    for neighbour in core.neighbours.values():
        for destination, sender in neighbour.senders.items():
            core.record(
                "custody",
                {
                    "destination": destination,
                    "waiting": sender.queue.messages,
                    "in_doubt": len(sender.in_doubt),
                    "receipt": core.catalog.receipts.get(destination, 0),
                    "duplicates_suppressed": core.duplicates_suppressed,
                    "late": sum(origin.late for origin in core.catalog.origins.values()),
                    "gaps": sum(len(origin.finished) for origin in core.catalog.origins.values()),
                },
            )


def status(core: "NodeCore") -> dict[str, Any]:
    """What `status --json` tells (fields may be added, these stay)."""
    queues = sorted(core.catalog.queues.values(), key=lambda queue: queue.name)
    origins = [
        {
            "origin": str(origin.origin),
            "mark": Ulong(origin.mark),
            "gaps": [[Ulong(first), Ulong(last)] for first, last in origin.gaps()[:100]],
            "waiting": len(origin.waiting),
            "duplicates": origin.duplicates,
            "late": origin.late,
        }
        for origin in core.catalog.origins.values()
    ]
    return {
        "node": core.config.name,
        "store": str(core.store_uuid),
        "uptime_s": round(core.now - core.started_at, 3),
        "resident_bytes": Ulong(core.resident_bytes),
        "room_bytes": core.room_bytes,
        "connections": len(core.connections),
        "queues": [queue_map(core, queue) for queue in queues],
        "sessions": [
            {
                "neighbour": neighbour.name,
                "state": neighbour.state.value,
                "round_trip_s": neighbour.round_trip_s,
                "hold_time_s": neighbour.hold_time_s,
                "lost": neighbour.flaps,
            }
            for neighbour in core.neighbours.values()
        ],
        "routes": [
            {
                "destination": name,
                "next_hop": hop.name if (hop := core.next_hop(name)) is not None else None,
                "waiting": Ulong(queue.messages),
                "held": core.forwarding.held(name),
            }
            for name, queue in core.catalog.transmissions()
        ],
        "origins": origins,
        "losses": core.losses[-100:],
    }
