"""The operations of `$management` about subscriptions (docs/management.md).

Rules of this file: one method for each operation, (host, name, arguments) -> Answer; a change is answered once it is on
disk. The lease epoch distinguishes the holder of a subscription's lease from earlier ones.
"""

from operator import attrgetter
from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.broker import backlogs
from holdfast.broker.beginnings import beginning, put_back
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.shown import LINK_PREFIX
from holdfast.broker.entries.address import split_topic
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.broker.stored.bounds import Bounds
from holdfast.broker.topic import Topic
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.engine.clock import Clock
from holdfast.entity_types import SUBSCRIPTION
from holdfast.errors import ConfigError
from holdfast.management.operations import changes
from holdfast.management.operations.answers import Answer, Refused, number_of, queue_of, text_of
from holdfast.management.operations.costs import Costs
from holdfast.management.operations.entities import EntityType
from holdfast.management.operations.operation import READS, Operation, Table
from holdfast.management.operations.ranges import first_since, measured
from holdfast.management.operations.rights import Rights
from holdfast.names import DEAD_LETTERS, check_name
from holdfast.schema import is_whole_within
from holdfast.state.catalog import Catalog

GAPS_MAX: Final = 256
"""Ranges that one request may ask about."""
SUBSCRIPTIONS_A_PAGE: Final = 200
"""With so many in an answer to QUERY the next queue's wait for the next page."""

SUBSCRIPTION_ATTRIBUTES: Final = ("queue", "queue_uuid", "mode", "advanced", "head", "tail", "lease_epoch")


def _subscription_map(queue: Queue, cursor: Cursor) -> dict[str, Any]:
    wants = _wanted(queue, cursor) if isinstance(queue, Topic) else {}
    return {
        "name": cursor.name,
        "queue": queue.name,
        "queue_uuid": str(queue.uuid),
        "mode": cursor.mode,
        **wants,
        "advanced": Ulong(cursor.floor),
        "head": Ulong(max(cursor.floor, queue.head())),
        "tail": Ulong(queue.visible),
        "lease_epoch": Ulong(cursor.lease_epoch),
    }


def _wanted(topic: Topic, cursor: Cursor) -> dict[str, Any]:
    """What a subscription of a topic wants, and its bounds; with them how much it has to finish."""
    wants = topic.bindings.get(cursor.name)
    if wants is None:
        return {}
    counted: dict[str, Any] = {}
    if wants.bounds.messages_max:
        counted["messages"] = Ulong(backlogs.unfinished(cursor))
    if wants.bounds.bytes_max:
        counted["bytes"] = Ulong(backlogs.unfinished_bytes(cursor))
    named = {"pattern": wants.pattern, "selector": wants.selector, "is_shared": wants.is_shared}
    bounds = {key: value or None for key, value in wants.bounds._asdict().items()}
    return {**named, "not_from": wants.not_from, **bounds, **counted}


def _beginning(queue: Queue, arguments: dict[str, Any]) -> int:
    """Where a new subscription begins. The arguments were checked."""
    start, head = arguments.get("start", "first"), queue.head()
    if "start_ms" in arguments:
        return first_since(queue, head, number_of(arguments, "start_ms"))
    found = beginning(start, head, queue.next_sequence)
    assert found is not None
    return found


def _checked_mode(arguments: dict[str, Any]) -> str:
    """How a subscription reads. Refused for that, or a beginning, that is none: before a queue is made for it."""
    mode, start = text_of(arguments, "mode", "take"), arguments.get("start", "first")
    if mode not in ("take", "copy"):
        raise Refused(400, f"invalid value {mode!r} for mode; expected take or copy")
    if "start_ms" in arguments:
        if "start" in arguments:
            raise Refused(400, "start and start_ms exclude each other; give one of them")
        number_of(arguments, "start_ms")
    elif beginning(start, 1, 1) is None:
        raise Refused(400, f"invalid value {start!r} for start; expected first, next or a sequence")
    return mode


def _identity(key: tuple[Queue, str]) -> str:
    queue, name = key
    return f"{queue.name}/{name}"


class SubscriptionOperations:
    """Opens, reads, advances and deletes subscriptions."""

    def __init__(self, catalog: Catalog, resume: Resumption, clock: Clock) -> None:
        self._catalog = catalog
        self._resume = resume
        self._clock = clock
        self._epoch = 0
        """The highest lease epoch that was given since the node's start."""

    def register(self, table: Table) -> None:
        needs, one, held = Rights.of_subscription, ("queue", "queue_uuid"), ("queue", "queue_uuid", "lease_epoch")
        table |= {
            (SUBSCRIPTION, "OPEN"): Operation(
                self.open, changes.subscription_opened, needs=Rights.of_opening, cost=Costs.of_opening,
                arguments=("queue", "mode", "start", "start_ms"), creates=True,
            ),
            (SUBSCRIPTION, "READ"): Operation(
                self.read, READS, needs=needs, cost=Costs.of_subscription, arguments=("queue",)
            ),
            (SUBSCRIPTION, "PEEK"): Operation(
                self.peek, READS, needs=needs, arguments=(*held, "start", "messages_max", "bytes_max", "exact")
            ),
            (SUBSCRIPTION, "GAPS"): Operation(self.gaps, READS, needs=needs, arguments=(*one, "ranges")),
            # a reader advances after each batch, which nobody looks for later
            (SUBSCRIPTION, "ADVANCE"): Operation(self.advance, READS, needs=needs, arguments=(*held, "sequence")),
            (SUBSCRIPTION, "UPDATE"): Operation(
                self.update, changes.subscription_changed, needs=needs, arguments=("queue", *Bounds._fields)
            ),
            (SUBSCRIPTION, "DELETE"): Operation(
                self.delete, changes.subscription_deleted, needs=needs, cost=Costs.of_producers, arguments=("queue",)
            ),
            (SUBSCRIPTION, "QUERY"): Operation(
                self.query, READS, needs=needs, cost=Costs.of_list, arguments=("queue", "after")
            ),
        }  # fmt: skip

    def types(self) -> tuple[EntityType, ...]:
        """The rows of QUERY; an identity is QUEUE/NAME."""
        return (EntityType(SUBSCRIPTION, SUBSCRIPTION_ATTRIBUTES, self._keys, self._row),)

    def _keys(self, host: str, after: str) -> list[tuple[Queue, str]]:
        named = [queue for queue in self._catalog.of_host(host) if queue.named]
        found = [(queue, name) for queue in named for name in queue.named if not name.startswith(LINK_PREFIX)]
        return sorted((key for key in found if _identity(key) > after), key=_identity)

    def _row(self, key: tuple[Queue, str]) -> dict[str, Any]:
        queue, name = key
        return _subscription_map(queue, queue.named[name]) | {"identity": _identity(key)}

    def _subscription(self, host: str, name: str, arguments: dict[str, Any]) -> tuple[Queue, Cursor]:
        queue = queue_of(self._catalog, host, text_of(arguments, "queue"))
        cursor = None if name.startswith(LINK_PREFIX) else queue.named.get(name)
        if cursor is None:
            raise Refused(404, f"no subscription {name!r} on queue {queue.name!r}")
        return queue, cursor

    def open(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        queue_name = text_of(arguments, "queue")
        if queue_name.startswith(("@", "$")) and queue_name != DEAD_LETTERS:
            raise Refused(409, f"queue {queue_name!r} belongs to the node")
        mode = _checked_mode(arguments)
        topic = split_topic(queue_name)
        if topic is not None and self._catalog.find(host, queue_name) is None:
            raise Refused(409, f"{topic[0]!r} is a topic, whose subscriptions are made by links; attach one")
        try:
            check_name(name)
            queue = self._catalog.local(host, queue_name)
        except ConfigError as error:
            raise Refused(400, str(error)) from error
        if queue is None:
            raise Refused(404, f"no queue {queue_name!r}")
        if queue.kind is QueueKind.TOPIC:
            raise Refused(409, f"{queue.name!r} is a topic, whose subscriptions are made by links; attach one")
        cursor = queue.named.get(name)
        status = 200
        if cursor is None:
            full = self._catalog.subscriptions_full(queue)
            if full is not None:
                raise Refused(409, full)
            if mode == "take":
                if queue.taken_by is not None:
                    raise Refused(409, f"queue {queue.name!r} is taken by subscription {queue.taken_by!r}")
                self._resume.release(queue)
                if queue.shared.consumers or queue.shared.acquired:
                    raise Refused(409, f"queue {queue.name!r} has consumers: a taking subscription reads alone")
            cursor = queue.add_cursor(name, mode, _beginning(queue, arguments))
            status = 201
        elif cursor.mode != mode:
            raise Refused(409, f"subscription {name!r} is there as {cursor.mode}")
        cursor.lease_epoch = self._epoch_after(cursor.lease_epoch)
        queue.dirty(cursor)
        return Answer(status, "OK", _subscription_map(queue, cursor), stored=True)

    def _epoch_after(self, before: int) -> int:
        """Of a new opening. The first one's is of the clock: a subscription of that name may have been deleted, and its
        reader live on."""
        epoch = before + 1 if before else max(self._epoch + 1, self._clock.wall_ms)
        self._epoch = max(self._epoch, epoch)
        return epoch

    def read(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        queue, cursor = self._subscription(host, name, arguments)
        return Answer(200, "OK", _subscription_map(queue, cursor))

    def _of_queue(self, host: str, name: str, arguments: dict[str, Any]) -> tuple[Queue, Cursor]:
        """The subscription, if the caller means this queue."""
        queue, cursor = self._subscription(host, name, arguments)
        if text_of(arguments, "queue_uuid") != str(queue.uuid):
            raise Refused(412, f"queue {queue.name!r} was deleted and created again: it is {queue.uuid} now")
        return queue, cursor

    def _held(self, host: str, name: str, arguments: dict[str, Any]) -> tuple[Queue, Cursor]:
        """The subscription, if the caller still holds its lease and means this queue."""
        queue, cursor = self._of_queue(host, name, arguments)
        if number_of(arguments, "lease_epoch") != cursor.lease_epoch:
            raise Refused(409, f"subscription {name!r} has a newer holder: lease epoch {cursor.lease_epoch}")
        return queue, cursor

    def peek(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """The end of a range within both limits, that of bytes by the average unless `exact`; changes nothing."""
        queue, _ = self._held(host, name, arguments)
        start = number_of(arguments, "start")
        messages_max = number_of(arguments, "messages_max", 2**62)
        bytes_max = number_of(arguments, "bytes_max", 2**62)
        exact = arguments.get("exact", False)
        if not isinstance(exact, bool):
            raise Refused(400, f"invalid value {exact!r} for exact; expected true or false")
        end = queue.visible
        if start > end:
            raise Refused(412, put_back(queue.name, start, end))
        tail = Ulong(end)
        if exact:
            found = measured(queue, start, messages_max, bytes_max)
            told = {"messages": Ulong(found.messages), "bytes": Ulong(found.bytes), "more": found.more}
            return Answer(200, "OK", {"end": Ulong(found.end), "tail": tail, **told})
        average = max(1, queue.bytes_held // queue.messages) if queue.messages else 0
        if end - start > messages_max or queue.bytes_held > bytes_max:
            end = min(end, start + messages_max)
            if average and queue.bytes_held > bytes_max:
                end = min(end, start + max(1, bytes_max // average))
        return Answer(200, "OK", {"end": Ulong(end), "tail": tail, "average": Ulong(average)})

    def gaps(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """Why there are no messages at the sequences of these ranges, as far as that is known."""
        queue, _ = self._of_queue(host, name, arguments)
        ranges = arguments.get("ranges")
        if not isinstance(ranges, list) or len(ranges) % 2 or len(ranges) > 2 * GAPS_MAX:
            expected = f"a list of first, end, first, end …, at most {GAPS_MAX} ranges"
            raise Refused(400, f"invalid value for ranges; expected {expected}")
        if not all(is_whole_within(number, 0, 2**63) for number in ranges):
            raise Refused(400, "invalid value for ranges; expected numbers from 0 to 2^63 - 1")
        counts = [queue.gone.count(int(first), int(end)) for first, end in zip(ranges[::2], ranges[1::2], strict=True)]
        expired, dropped = sum(one for one, _ in counts), sum(other for _, other in counts)
        return Answer(200, "OK", {"expired": Ulong(expired), "dropped": Ulong(dropped)})

    def advance(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        queue, cursor = self._held(host, name, arguments)
        sequence = number_of(arguments, "sequence")
        if sequence > queue.visible:
            raise Refused(400, f"invalid value {sequence} for sequence; expected at most {queue.visible}")
        self._resume.release(queue, cursor)
        if cursor.acquired or cursor.consumers:
            raise Refused(409, f"subscription {name!r} is read over a link, which settles what it read")
        cursor.advance(sequence)
        return Answer(200, "OK", {"advanced": Ulong(cursor.floor)}, stored=True)

    def update(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """Changes the bounds of a topic's subscription while it is used; those that are not given stay."""
        queue, cursor = self._subscription(host, name, arguments)
        wants = queue.bindings.get(name) if isinstance(queue, Topic) else None
        if not isinstance(queue, Topic) or wants is None:
            raise Refused(409, f"{queue.name!r} is no topic, and bounds are of subscriptions of topics")
        try:
            bounds = wants.bounds.changed(arguments, none=", or null")
        except ValueError as error:
            raise Refused(400, str(error)) from None
        changed = bounds != wants.bounds
        if changed:
            self._catalog.rows.bind(queue, name, wants._replace(bounds=bounds))
        return Answer(200, "OK", {**_subscription_map(queue, cursor), "changed": changed}, stored=True)

    def delete(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        queue, cursor = self._subscription(host, name, arguments)
        if cursor.consumers:
            raise Refused(409, f"subscription {name!r} has a link")
        self._resume.release(queue, cursor)
        queue.remove_cursor(name)
        return Answer(200, "OK", {}, stored=True)

    def query(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """Those of one queue; or of all, by the queues' names from the first behind `after` on, a bounded number."""
        wanted = arguments.get("queue")
        after = text_of(arguments, "after", "")
        if wanted is not None:
            queues = [queue_of(self._catalog, host, text_of(arguments, "queue"))]
        else:
            named = (queue for queue in self._catalog.of_host(host) if queue.named and queue.name > after)
            queues = sorted(named, key=attrgetter("name"))
        found: list[dict[str, Any]] = []
        more = False
        for queue in queues:
            if more := len(found) >= SUBSCRIPTIONS_A_PAGE:
                break
            cursors = [cursor for key, cursor in sorted(queue.named.items()) if not key.startswith(LINK_PREFIX)]
            found += [_subscription_map(queue, cursor) for cursor in cursors]
        return Answer(200, "OK", {"subscriptions": found, "more": more})
