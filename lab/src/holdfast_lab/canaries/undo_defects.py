"""Canaries in the undoing of a turn, in the return of parked messages, and in serial numbers that wrap.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.broker.entries import packed
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]

FEW: Final = 3
"""More than most tests have of it."""


def _moved_bytes_lost(original: Function) -> Function:
    """Of several entries that a refused turn had moved, only the first is counted with its bytes again."""

    def _undo_moves(self: Any, turn: Any, retry: Any) -> None:
        original(self, turn, retry)
        for queue, _, value in turn.moves[1:]:
            if self._catalog.has(queue):
                queue.bytes_held -= packed.size_of(value)

    return _undo_moves


def _aside_stranded(original: Function) -> Function:
    """When the route changes, parked messages stay held by the sender that stops."""

    def stop(self: Any) -> None:
        acquired = self.cursor.acquired
        aside = {sequence for blocked in self.blocked.values() for sequence in blocked.aside if sequence in acquired}
        kept = {sequence: acquired.pop(sequence) for sequence in aside} if self.active else {}
        original(self)
        acquired.update(kept)

    return stop


def _stream_not_forgotten(original: Function) -> Function:
    """A large message that did not come completely keeps counting as one in progress."""

    def close(self: Any) -> None:
        counts = self in self.receives.streams and not self.whole
        original(self)
        if counts:
            self.receives.streams[self] = None

    return close


def _number_not_wrapped(original: Function) -> Function:
    """The delivery-id after the last 32-bit value is not wrapped to 0."""

    def _number(self: Any, context: Any, settled: bool) -> int:
        number: int = original(self, context, settled)
        self._counters.next_delivery_id = number + 1
        return number

    return _number


def _tags_lost(original: Function) -> Function:
    """Of a run of deliveries whose tags pass the last 32-bit value, the later ones are not noted as stored."""

    def note(self: Any, tags: Any, deliveries: list[int]) -> None:
        before = [number for number in deliveries if self._tag_of(number) >= 2**31]
        original(self, tags, before if 0 < len(before) < len(deliveries) else deliveries)

    return note


def _kept_yet_refused(original: Function) -> Function:
    """A queue in memory that holds several messages keeps those of a refused turn, and the producer is told
    otherwise."""

    def _undo_unstored(self: Any, referred: Any) -> Any:
        lost = original(self, referred)
        for queue in self._catalog.queues.values():
            if len(queue.ephemeral) > FEW and not queue.config.durable:
                lost[queue] = None
        return lost

    return _undo_unstored


UNDO_CANARIES = (
    Canary(
        name="kept-yet-refused",
        sentence="What a queue in memory keeps of a turn that the disk refused is refused to its producer.",
        target="state.queue_changes:QueueChanges._undo_unstored",
        signature="(self, referred: list[tuple[holdfast.broker.queue.Queue, int, int]]) -> "
        "dict[holdfast.broker.queue.Queue, None]",
        broken=_kept_yet_refused,
        expected="not as a redelivery",
    ),
    Canary(
        name="tags-lost-at-the-wrap",
        sentence="A resumed link forgets that it stored what came in one turn with the last tag before the wrap.",
        target="endpoints.resumption.producer:ResumableProducer.note",
        signature="(self, tags: holdfast.broker.stored.tags.TagRing, deliveries: list[int]) -> None",
        broken=_tags_lost,
        expected="appended twice",
    ),
    Canary(
        name="moved-bytes-lost",
        sentence="A refused turn that had moved several entries counts the bytes of the first alone again.",
        target="state.queue_changes:QueueChanges._undo_moves",
        signature="(self, turn: holdfast.state.turns.Turn, retry: holdfast.engine.port.Batch) -> None",
        broken=_moved_bytes_lost,
        expected="BrokenInvariant",
    ),
    Canary(
        name="aside-stranded",
        sentence="A route changes while messages for a full queue are put aside, and these stay where they were.",
        target="custody.hop.sender:CustodySender.stop",
        signature="(self) -> None",
        broken=_aside_stranded,
        expected="and forgot them",
    ),
    Canary(
        name="stream-not-forgotten",
        sentence="A large message that was given up counts as under way for ever.",
        target="links.large_receives:Stream.close",
        signature="(self) -> None",
        broken=_stream_not_forgotten,
        expected="streams: a link's connection is gone",
    ),
    Canary(
        name="number-not-wrapped",
        sentence="A session's delivery-ids go on beyond 32 bits.",
        target="amqp.links.unsettled:UnsettledDeliveries._number",
        signature="(self, context: Any, settled: bool) -> int",
        broken=_number_not_wrapped,
        expected="format requires",
    ),
)
