"""The telemetry record of one step of a message (docs/telemetry.md)."""

from holdfast.broker.entries import entry
from holdfast.broker.entries.entry_log import EntryLog
from holdfast.engine.outbox import Outbox


def record_message(
    outbox: Outbox, what: str, queue: EntryLog, sequence: int, value: bytes, *, destination: str | None = None
) -> None:
    """`what`: stored, sent or received. `destination`: the node that the message is for, if it is another one."""
    item = entry.unpack(value)
    fields = {
        "event": what,
        "queue": queue.name,
        "sequence": sequence,
        "origin": str(item.identity.origin) if item.identity is not None else None,
        "destination": destination,
        "identity": item.identity.number if item.identity is not None else None,
        "bytes": item.size,
        "enqueued_ms": item.enqueued_ms,
        "vhost": queue.host or None,
    }
    outbox.record("message", fields)
