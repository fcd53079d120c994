"""The log lines of changes by requests to `$management`, so that it can be found out later who emptied a queue. The
audit log has the same lines.

Rules of this file: pure. One function for each kind of change, which an operation's record names; None if the request
changed nothing.
"""

from collections.abc import Callable
from typing import Any

from holdfast.broker.stored.bounds import Bounds
from holdfast.columns import counted
from holdfast.management.operations.operation import Done

# ---------------------------------------------------------------------------------------------------- the node


def reloaded(done: Done) -> str | None:
    return f"configuration reloaded: {'; '.join(done.answer.body['changed']) or 'nothing has changed'}"


def drained(done: Done) -> str | None:
    return "node drained" if done.answer.body["changed"] else None


def resumed(done: Done) -> str | None:
    return "drain of the node ended" if done.answer.body["changed"] else None


def node_forgotten(done: Done) -> str | None:
    """With what became of the messages for it."""
    body = done.answer.body
    line = f"node {done.name!r} forgotten"
    if "dead_lettered" in body:
        line += f": {counted(body['dead_lettered'], 'message')} for it dead-lettered"
    if "moved" in body:
        line += f": {counted(body['moved'], 'message')} for it moved to another node"
    return line + (f", {counted(body['waiting'], 'message')} for it kept" if body["waiting"] else "")


# ---------------------------------------------------------------------------------------------------- queues


def queue_created(done: Done) -> str | None:
    return f"queue {done.name!r} created" if done.answer.status == 201 else None


def queue_changed(done: Done) -> str | None:
    body = done.answer.body
    asked = ", ".join(f"{key} {_setting(body, key)}" for key in done.given)
    return f"queue {done.name!r} changed: {asked}" if body["changed"] else None


def _setting(body: dict[str, Any], key: str) -> str:
    value = body[key] if key in body else body["room"][key.removeprefix("room_")]
    return "none" if value is None else str(value)


def queue_deleted(done: Done) -> str | None:
    body = done.answer.body
    if "dead_lettered" in body:
        kept = f", {counted(body['tombstones'], 'tombstone')} kept" if body["tombstones"] else ""
        return f"queue {done.name!r} deleted: {counted(body['dead_lettered'], 'message')} dead-lettered{kept}"
    return f"queue {done.name!r} deleted: {counted(body['purged'], 'message')} dropped"


def queue_purged(done: Done) -> str | None:
    body = done.answer.body
    held = f", {body['held']} kept: held by consumers or the next node" if body.get("held") else ""
    return f"queue {done.name!r} purged: {counted(body['purged'], 'message')} dropped{held}"


def gaps_skipped(done: Done) -> str | None:
    lost = done.answer.body["lost"]
    if not lost:
        return None
    numbers = sum(gap["last"] - gap["first"] + 1 for gap in lost)
    of = f"for queue {done.name!r}" if done.name else "for all queues"
    return f"gaps skipped {of}: {counted(numbers, 'number')} in {counted(len(lost), 'range')} given up"


# ---------------------------------------------------------------------------------------------------- messages


def message_deleted(done: Done) -> str | None:
    return f"message {done.answer.body['deleted']} of queue {done.name!r} deleted"


def message_went(how: str) -> Callable[[Done], str | None]:
    """`how`: moved, copied or requeued."""

    def line(done: Done) -> str | None:
        body = done.answer.body
        return f"a message of queue {done.name!r} {how} to {body['to']!r}, sequence {body['sequence']}"

    return line


# ---------------------------------------------------------------------------------------------------- subscriptions


def subscription_opened(done: Done) -> str | None:
    """A subscription that was there is none: readers open theirs again and again."""
    return f"{_subscription(done)} created, mode {done.answer.body.get('mode')}" if done.answer.status == 201 else None


def subscription_changed(done: Done) -> str | None:
    body = done.answer.body
    bounds = ", ".join(f"{key} {body[key]}" for key in Bounds._fields)
    return f"{_subscription(done)} changed: {bounds}" if body["changed"] else None


def subscription_deleted(done: Done) -> str | None:
    return f"{_subscription(done)} deleted"


def _subscription(done: Done) -> str:
    return f"subscription {done.name!r} on queue {done.queue!r}"


# ---------------------------------------------------------------------------------------------------- the rest


def link_created(done: Done) -> str | None:
    body = done.answer.body
    if not body["created"]:
        return None
    chosen = f", selector {body['selector']}" if body["selector"] else ""
    return f"link {done.name!r} created: {body['mode']} from {body['from']!r} to {body['to']!r}{chosen}"


def service_registered(done: Done) -> str | None:
    body = done.answer.body
    is_new = body.get("created") or body.get("changed")
    return f"service {done.name!r} registered for {body['address']!r}" if is_new else None


def federation_added(done: Done) -> str | None:
    return f"federation {done.name!r} added" if done.answer.body["created"] else None


def done_to(kind: str, how: str) -> Callable[[Done], str | None]:
    """A line that says no more than that: "link 'x' stopped"."""

    def line(done: Done) -> str | None:
        return f"{kind} {done.name!r} {how}"

    return line
