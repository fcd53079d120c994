"""Dispositions of very many deliveries, handled in steps. AMQP 1.0 §2.7.6.

Rules of this file: pure. One frame may settle all open deliveries of a session, on all of its links. The rest after a
step is a frame again, with the rest of the range, and is handled before the frames that followed it.
"""

from collections.abc import Collection
from typing import Final

from holdfast.amqp.effort import TURN
from holdfast.amqp.wire import encoding, fast, frames
from holdfast.amqp.wire.performatives import Disposition

OPEN_MAX: Final = TURN
"""Delivery-ids of one step, where more are open: each takes about a unit of effort."""

_SERIAL: Final = 0xFFFFFFFF


def step(first: int, last: int, known: Collection[int]) -> tuple[int, int]:
    """The first step of first..last (serial, inclusive): at most OPEN_MAX ids, where more are `known`. Ids before the
    first that is known are left out; where none is, the range is as it was."""
    span = ((last - first) & _SERIAL) + 1
    if span <= OPEN_MAX or len(known) <= OPEN_MAX:
        return first, last
    if span > 2 * len(known) + 1:
        beyond = [offset for number in known if (offset := (number - first) & _SERIAL) < span]
        if not beyond:
            return first, last
        lowest, span = min(beyond), max(beyond) - min(beyond) + 1
        first = (first + lowest) & _SERIAL
    return first, (first + min(span, OPEN_MAX) - 1) & _SERIAL


def cut(
    parsed: fast.ParsedDisposition, last: int, known: Collection[int], channel: int, frame_bytes_max: int
) -> tuple[int, int, bytes]:
    """The first step of what a disposition says of the ids up to `last`, and a frame on the peer's `channel` that says
    the same of those behind it; empty where that is all, or where it is more than a frame takes, and all is one step.
    """
    role, first, _, settled, state = parsed
    low, high = step(first, last, known)
    if high == last:
        return first, last, b""
    left = Disposition(role, (high + 1) & _SERIAL, last, settled, state)
    again = frames.frame(channel, encoding.encode(left))
    if len(again) > frame_bytes_max:
        return first, last, b""
    return low, high, again
