"""The operations of `$management` about single messages of a queue (docs/management.md).

Rules of this file: a change names the message by its queue's UUID, its sequence and its number of failed deliveries, so
that only the message that was looked at is changed. A bounded part of a large message is shown. A refusal has the
message's `sequence` if the fault is its own, so that a client knows whether others may be changed; and names it
(`message 17 of queue …`) for clients that know only that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from holdfast.access.actions import ADMINISTER, BROWSE, DELETE, RECEIVE
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.types import Timestamp, Ulong
from holdfast.broker.entries import annotate, entry, packed
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.custody.dead_lettering import DEAD_FROM, REASON
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.addresses.resolver import ResolvedAddress, Resolver
from holdfast.endpoints.entry_changes import EntryChanges, Unchangeable
from holdfast.engine.clock import Clock
from holdfast.engine.effects import Effect
from holdfast.engine.port import EntryReader
from holdfast.entity_types import ENTRY
from holdfast.management.operations import changes
from holdfast.management.operations.answers import Answer, Later, Refused, number_of, queue_of, text_of
from holdfast.management.operations.costs import Costs
from holdfast.management.operations.operation import READS, Operation, Table
from holdfast.management.operations.rights import at_queue, from_queue
from holdfast.selectors.sections import COMPOUND, UNDECODABLE, Sections
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Turns

ROWS_MAX: Final = 200
"""Messages of one answer."""
ROWS_BYTES: Final = 256 * 1024
"""What is read for one answer, the first message whatever its size: annotations are decoded."""
READ_MAX: Final = 256 * 1024
"""Bytes of a message that READ returns; of a longer one these, and that it is not whole."""
MESSAGE_ID: Final = 0
"""Place of the field in the properties (AMQP 1.0 §3.2.4)."""
TEXT_CHARACTERS_MAX: Final = 500

T = TypeVar("T")


NOT_MOVED: Final = Answer(503, "nothing was changed: the node could not store it, see its status; ask again", {})


@dataclass(frozen=True, slots=True, eq=False)
class AnswerMoved(Effect):
    """Answers a request to move or copy a message."""

    later: Later = field(repr=False)
    done: Answer = field(repr=False)


def _answer_moved(effect: AnswerMoved, stored: bool) -> None:
    effect.later.answer(effect.done if stored else NOT_MOVED)


class EntryOperations:
    """Lists, reads, deletes, moves and copies messages."""

    def __init__(
        self,
        catalog: Catalog,
        store: EntryReader,
        clock: Clock,
        turns: Turns,
        resolver: Resolver,
        changes: EntryChanges,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._turns = turns
        self._resolver = resolver
        self._changes = changes
        turns.effects.on_decided(AnswerMoved, _answer_moved)

    def register(self, table: Table) -> None:
        cost = Costs.of_messages
        seen = ("queue_uuid", "sequence", "delivery_count")
        table |= {
            (ENTRY, "QUERY"): Operation(
                self.query, READS, needs=at_queue(BROWSE), cost=cost, arguments=("after", "count")
            ),
            (ENTRY, "READ"): Operation(self.read, READS, needs=at_queue(BROWSE), cost=cost, arguments=seen),
            (ENTRY, "DELETE"): Operation(
                self.delete, changes.message_deleted, needs=at_queue(DELETE), cost=cost, arguments=seen
            ),
            (ENTRY, "REQUEUE"): Operation(
                self.requeue, changes.message_went("requeued"), needs=at_queue(ADMINISTER), cost=cost, arguments=seen
            ),
            (ENTRY, "MOVE"): Operation(
                self.move, changes.message_went("moved"), needs=from_queue(RECEIVE), cost=cost, arguments=(*seen, "to")
            ),
            (ENTRY, "COPY"): Operation(
                self.copy, changes.message_went("copied"), needs=from_queue(BROWSE), cost=cost, arguments=(*seen, "to")
            ),
        }

    # ------------------------------------------------------------------------------------------------ told

    def query(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """Messages in order of their sequences, from the first behind `after` on."""
        queue = queue_of(self._catalog, host, name)
        count = min(ROWS_MAX, max(1, number_of(arguments, "count", ROWS_MAX)))
        first = number_of(arguments, "after", 0) + 1
        leaving = queue.leaving()
        found = queue.read(first, count_max=count, bytes_max=ROWS_BYTES)
        rows = [
            self._row(queue, sequence, value)
            for sequence, value in found
            if not (sequence in leaving or queue.is_swept(sequence))
        ]
        end = found[-1][0] + 1 if found else first
        more = bool(found) and bool(queue.read(end, count_max=1, bytes_max=1))
        return Answer(
            200, "OK", {"queue_uuid": str(queue.uuid), "entries": rows, "more": more, "after": Ulong(end - 1)}
        )

    def _row(self, queue: Queue, sequence: int, value: bytes) -> dict[str, Any]:
        item = entry.unpack(value)
        notes = annotate.notes_of(item)
        bare: bytes | memoryview = item.bare
        whole = True
        if item.flags & entry.BLOB:
            blob, length = entry.blob_of(bare)
            bare = self._store.piece(blob, 0) or b""
            whole = len(bare) >= length
        message_id = Sections(bytes(bare), whole=whole).property_field(MESSAGE_ID)
        end_ms = None
        if value[12:20] != entry.NEVER:
            end_ms = max(0, packed.end_of(value, self._clock.steady_ms, self._clock.wall_ms) - self._clock.steady_ms)
        return {
            "sequence": Ulong(sequence),
            "state": _state(queue, sequence, item),
            "delivery_count": Ulong(_failures(queue, sequence)),
            "enqueued": Timestamp(item.enqueued_ms),
            "bytes": Ulong(item.size),
            "durable": bool(item.flags & entry.DURABLE),
            "priority": item.priority,
            "expires_in_s": None if end_ms is None else end_ms / 1000,
            "message_id": None if message_id in (COMPOUND, UNDECODABLE) else _short(message_id),
            "reason": _short(notes.get(REASON)),
            "from": _short(notes.get(DEAD_FROM)),
        }

    def read(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """One message as a consumer would get it."""
        queue, sequence, value = self._found(host, name, arguments)
        row = self._row(queue, sequence, value)
        *head, bare = annotate.for_consumer(value, sequence, queue.shared.failures(sequence), self._clock.steady_ms)
        whole = True
        if value[1] & entry.BLOB:
            blob, length = entry.blob_of(value)
            bare = self._store.piece(blob, 0) or b""
            whole = len(bare) >= length
        message = b"".join((*head, bare))
        whole = whole and len(message) <= READ_MAX
        body = {**row, "queue_uuid": str(queue.uuid), "message": message[:READ_MAX], "whole": whole}
        return Answer(200, "OK", body)

    # ------------------------------------------------------------------------------------------------ changed

    def delete(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        queue, sequence, value = self._unheld(host, name, arguments)
        _changed(queue, sequence, lambda: self._changes.delete(queue, sequence, value))
        return Answer(200, "OK", {"deleted": Ulong(sequence)}, stored=True)

    def move(self, host: str, name: str, arguments: dict[str, Any]) -> Later:
        queue, sequence, value = self._unheld(host, name, arguments)
        return self._move(queue, sequence, value, text_of(arguments, "to"))

    def requeue(self, host: str, name: str, arguments: dict[str, Any]) -> Later:
        """A dead letter goes back to the queue that it came from."""
        queue, sequence, value = self._unheld(host, name, arguments)
        place = annotate.notes_of(entry.unpack(value)).get(DEAD_FROM)
        if queue.kind is not QueueKind.DEAD_LETTERS or not isinstance(place, str):
            raise _refused_entry(
                409, sequence, f"message {sequence} of queue {name!r} is no dead letter of a queue; use MOVE"
            )
        return self._move(queue, sequence, value, place)

    def copy(self, host: str, name: str, arguments: dict[str, Any]) -> Later:
        queue, sequence, value = self._unheld(host, name, arguments)
        if value[1] & entry.BLOB:
            text = f"message {sequence} of queue {name!r} is larger than stream_bytes, and cannot be copied"
            text += "; move it, or read it and send it"
            raise _refused_entry(409, sequence, text)
        found = self._resolved(host, text_of(arguments, "to"))
        copied = _changed(queue, sequence, lambda: self._changes.copy(value, found))
        return self._later(Answer(200, "OK", {"to": text_of(arguments, "to"), "sequence": Ulong(copied)}))

    def _move(self, queue: Queue, sequence: int, value: bytes, to: str) -> Later:
        found = self._resolved(queue.host, to)
        moved = _changed(queue, sequence, lambda: self._changes.move(queue, sequence, value, found))
        return self._later(Answer(200, "OK", {"to": to, "sequence": Ulong(moved)}))

    def _later(self, done: Answer) -> Later:
        later = Later()
        self._turns.gathered.decided.append(AnswerMoved(self._turns.event, later, done))
        return later

    def _resolved(self, host: str, address: str) -> ResolvedAddress:
        try:
            return self._resolver.resolve(self._resolver.target_of(address, host))
        except Refusal as error:
            raise Refused(404 if error.condition == conditions.NOT_FOUND else 409, error.description) from error

    def _found(self, host: str, name: str, arguments: dict[str, Any]) -> tuple[Queue, int, bytes]:
        """The entry with that sequence; 412 if the queue is not the one that was looked at."""
        queue = queue_of(self._catalog, host, name)
        asked = text_of(arguments, "queue_uuid")
        if asked != str(queue.uuid):
            raise Refused(412, f"queue {name!r} was deleted and created again: it is {queue.uuid} now")
        sequence = number_of(arguments, "sequence")
        value = queue.value(sequence) if 0 < sequence < queue.visible else None
        if value is None or queue.leaves(sequence):
            raise _refused_entry(404, sequence, f"no message {sequence} in queue {name!r}")
        return queue, sequence, value

    def _unheld(self, host: str, name: str, arguments: dict[str, Any]) -> tuple[Queue, int, bytes]:
        """As `_found`; refused with 409 if a consumer holds the message, or if its count of failed deliveries differs
        from the `delivery_count` of the request: it was delivered since the client saw it."""
        queue, sequence, value = self._found(host, name, arguments)
        if any(sequence in cursor.acquired for cursor in queue.cursors):
            raise _refused_entry(409, sequence, f"a consumer holds message {sequence} of queue {name!r}")
        asked, count = number_of(arguments, "delivery_count"), _failures(queue, sequence)
        if asked != count:
            text = f"{count} deliveries of message {sequence} of queue {name!r} have failed, not {asked}"
            raise _refused_entry(409, sequence, text)
        return queue, sequence, value


def _refused_entry(status: int, sequence: int, text: str) -> Refused:
    """A refusal that concerns this message alone, not the queue or the node."""
    return Refused(status, text, {"sequence": Ulong(sequence)})


def _changed(queue: Queue, sequence: int, change: Callable[[], T]) -> T:
    try:
        return change()
    except Unchangeable as error:
        if error.concerns_entry:
            raise _refused_entry(409, sequence, f"message {sequence} of queue {queue.name!r} {error}") from error
        raise Refused(503 if error.no_disk else 409, str(error)) from error


def _failures(queue: Queue, sequence: int) -> int:
    return queue.shared.failures(sequence) or 0


def _state(queue: Queue, sequence: int, item: entry.Entry) -> str:
    if item.flags & entry.TOMBSTONE:
        return "tombstone"
    if queue.kind is QueueKind.WAITING:
        return "waiting"
    if queue.kind is QueueKind.DELAYED:
        return "delayed"
    return "acquired" if any(sequence in cursor.acquired for cursor in queue.cursors) else "ready"


def _short(value: Any) -> Any:
    """A value as it is shown; of a text, the beginning."""
    return value[:TEXT_CHARACTERS_MAX] if isinstance(value, (str, bytes)) else value
