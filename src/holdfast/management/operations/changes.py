"""The log line of a change by a request to `$management`, so that it can be found out later who emptied a queue.

Rules of this file: pure. One line for each request that created, deleted or dropped something; none for requests that
only read, or that advance a subscription.
"""

from typing import Any

from holdfast.broker.stored.bounds import Bounds
from holdfast.columns import counted
from holdfast.management.operations.answers import (
    ENTRY,
    FEDERATION,
    LINK,
    NODE,
    QUEUE,
    SERVICE,
    SUBSCRIPTION,
    TRANSACTION,
    Answer,
)


def told_of(kind: str, operation: str, name: str, queue: str, answer: Answer) -> str | None:
    """The change in `answer`, for a person; None if there was none. `queue`: that of a subscription."""
    if not 200 <= answer.status < 300:
        return answer.description if answer.stored else None  # done in part
    body = answer.body
    if kind == QUEUE:
        return _of_queue(operation, name, body, created=answer.status == 201)
    if (kind, operation) == (NODE, "FORGET"):
        return f"node {name!r} forgotten"
    if (kind, operation) == (NODE, "RELOAD"):
        return f"configuration reloaded: {'; '.join(body['changed']) or 'nothing has changed'}"
    if kind == LINK:
        return _of_link(operation, name, body)
    if kind == SERVICE and operation == "DELETE":
        return f"service {name!r} removed"
    if kind == SERVICE:
        is_new = body.get("created") or body.get("changed")
        return f"service {name!r} registered for {body['address']!r}" if is_new else None
    if kind == FEDERATION:
        return _of_federation(operation, name, body)
    if kind == ENTRY and operation == "DELETE":
        return f"message {body['deleted']} of queue {name!r} deleted"
    if kind == ENTRY and "to" in body:
        done = {"MOVE": "moved", "REQUEUE": "requeued", "COPY": "copied"}[operation]
        return f"a message of queue {name!r} {done} to {body['to']!r}, sequence {body['sequence']}"
    if kind == TRANSACTION:
        return f"transaction {name!r} closed"
    if kind == SUBSCRIPTION:
        what = f"subscription {name!r} on queue {queue!r}"
        if operation == "OPEN" and answer.status == 201:
            return f"{what} created, mode {body.get('mode')}"
        if operation == "UPDATE":
            bounds = ", ".join(f"{key} {body[key]}" for key in Bounds._fields)
            return f"{what} changed: {bounds}" if body["changed"] else None
        if operation == "DELETE":
            return f"{what} deleted"
    return None


def _of_link(operation: str, name: str, body: dict[str, Any]) -> str | None:
    if operation == "CREATE" and body["created"]:
        chosen = f", selector {body['selector']}" if body["selector"] else ""
        return f"link {name!r} created: {body['mode']} from {body['from']!r} to {body['to']!r}{chosen}"
    done = {"DELETE": "deleted", "STOP": "stopped", "START": "started"}.get(operation)
    return None if done is None else f"link {name!r} {done}"


def _of_federation(operation: str, name: str, body: dict[str, Any]) -> str | None:
    if operation == "CREATE":
        return f"federation {name!r} added" if body["created"] else None
    return f"federation {name!r} removed" if operation == "DELETE" else None


def _of_queue(operation: str, name: str, body: dict[str, Any], *, created: bool) -> str | None:
    if operation == "CREATE":
        return f"queue {name!r} created" if created else None
    if operation == "DELETE" and "dead_lettered" in body:
        kept = f", {body['tombstones']} tombstones stay" if body["tombstones"] else ""
        return f"queue {name!r} deleted: {body['dead_lettered']} messages dead-lettered{kept}"
    if operation == "UPDATE":
        bounds = ", ".join(f"{key} {body[key]}" for key in ("bytes_max", "messages_max", "when_full", "deliveries_max"))
        return f"queue {name!r} changed: {bounds}" if body["changed"] else None
    if operation in ("DELETE", "PURGE"):
        held = f", {body['held']} stay because a consumer or the next node holds them" if body.get("held") else ""
        return f"queue {name!r} {operation.lower()}d: {body['purged']} messages dropped{held}"
    if operation == "SKIP" and body["lost"]:
        numbers = sum(gap["last"] - gap["first"] + 1 for gap in body["lost"])
        of = f"for queue {name!r}" if name else "for all queues"
        ranges = counted(len(body["lost"]), "range")
        return f"gaps skipped {of}: {counted(numbers, 'number')} in {ranges} given up"
    return None
