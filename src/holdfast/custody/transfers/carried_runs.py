"""Runs of messages in custody that differ only in their numbers and bare messages, encoded and decoded at once. Rules
of this file: an optimised form of carried.py: it gives the same result, or None, and then carried.py is used
(tests/core/test_carried_runs.py).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.amqp.message.message import BARE_STARTS
from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.annotate import DURABLE_HEADER
from holdfast.custody.transfers.carried_form import (
    FORM_BYTES_MAX,
    NUMBER_AT,
    NUMBER_MAX,
    SEQUENCE_AT,
    form_of,
    tail_of,
    written,
)
from holdfast.peers.neighbours.trace_aliases import Taken

_RAW_ZERO: Final = bytes(8)
_RAW_MAX: Final = NUMBER_MAX.to_bytes(8, "big")


def alike(values: Sequence[bytes], first: int) -> int:
    """How many of the entries from `first` on differ only in their numbers, times of arrival and bare messages."""
    value = values[first]
    end = entry.TRACE_AT + 16 * value[3] + (value[28] << 8) + value[29]
    flags, way, passed = value[:4], value[12 : entry.NUMBER_AT], value[entry.TRACE_AT : end]
    at = first + 1
    while at < len(values):
        other = values[at]
        if other[:4] != flags or other[12 : entry.NUMBER_AT] != way or other[entry.TRACE_AT : end] != passed:
            break
        at += 1
    return at - first


def heads_of(
    values: Sequence[bytes], number: int, *, trace: bytes, receipt: int, short: bool
) -> tuple[list[bytes], int]:
    """For plain entries that are `alike`: the beginning of each transfer, with hop numbers ascending from `number`, and
    the offset of the bare messages, which follow. Other arguments as in `parts_of`."""
    identity, _, to, end = packed.plain_parts(values[0])
    before, middle, tail = written(identity[:16], to, trace, receipt, False, short)
    if values[0][1] & entry.DURABLE:
        before = DURABLE_HEADER + before
    return [
        b"".join((before, hop_number.to_bytes(8, "big"), middle, value[entry.NUMBER_AT : entry.TRACE_AT], tail))
        for hop_number, value in enumerate(values, number)
    ], end


class ArrivedRun(NamedTuple):
    """Plain messages with ascending hop numbers that differ only in number and bare message. `sequences`: 8 bytes each;
    the bare messages begin at `bare_at` in the payloads."""

    origin: UUID
    raw_origin: bytes
    raw_to: bytes
    trace: bytes
    receipt: int
    durable: bool
    sequences: list[bytes]
    bare_at: int


def read_run(payloads: Sequence[bytes], number: int, aliases: Taken) -> ArrivedRun | None:
    """The longest run at the beginning, with hop numbers from `number` on; None if it has fewer than two messages, or
    if the first must be examined singly. Changes nothing."""
    first = payloads[0]
    durable = first.startswith(DURABLE_HEADER)
    at = len(DURABLE_HEADER) if durable else 0
    end = at + 8 + int.from_bytes(first[at + 4 : at + 8], "big")
    number_at, sequence_at = at + NUMBER_AT, at + SEQUENCE_AT
    before, middle, tail = first[:number_at], first[number_at + 8 : sequence_at], first[sequence_at + 8 : end]
    form = form_of(before[at:], middle, tail) if end <= FORM_BYTES_MAX else None
    if form is None or form.tombstone:
        return None
    trace = aliases.known.get(form.trace) if form.short else form.trace
    if trace is None:
        return None
    sequences: list[bytes] = []
    for payload in payloads:
        sequence = payload[sequence_at : sequence_at + 8]
        if (
            payload[number_at : number_at + 8] != number.to_bytes(8, "big")
            or payload[:number_at] != before
            or payload[number_at + 8 : sequence_at] != middle
            or payload[sequence_at + 8 : end] != tail
            or payload[end : end + 3] not in BARE_STARTS
            or not _RAW_ZERO < sequence <= _RAW_MAX
        ):
            break
        sequences.append(sequence)
        number += 1
    if len(sequences) < 2:
        return None
    return ArrivedRun(form.origin, form.raw_origin, form.raw_to, trace, form.receipt, durable, sequences, end)


def entries_of(run: ArrivedRun, payloads: Sequence[bytes], *, enqueued_ms: int, message_format: int) -> list[bytes]:
    """The messages of a run as entries."""
    before, behind = entry.around_number(
        durable=run.durable, enqueued_ms=enqueued_ms, message_format=message_format, origin=run.raw_origin,
        trace=run.trace, to=run.raw_to,
    )  # fmt: skip
    end = run.bare_at
    return [
        b"".join((before, sequence, behind, tail_of(payload, end)))
        for sequence, payload in zip(run.sequences, payloads, strict=False)
    ]
