"""Runs: consecutive plain deliveries of one link, taken off the wire at once. AMQP 1.0 §2.7.5.

Rules of this file: an optimised form of what Receiver.on_transfer does frame by frame (tests/amqp/test_runs.py holds
the two together). A sender repeats itself: but for delivery-id and tag, the frames of its deliveries begin with the
same bytes. `learn` remembers these of a frame that was understood; `take` goes on as long as they come again, and
leaves whatever differs in anything to the plain form. It raises nothing.
"""

from struct import Struct, pack
from typing import TYPE_CHECKING, Final

from holdfast.amqp.events import ConnEvent, Deliveries

if TYPE_CHECKING:
    from holdfast.amqp.fast import ParsedTransfer
    from holdfast.amqp.receiver import Receiver
    from holdfast.amqp.session import Session

_SERIAL: Final = 0xFFFFFFFF
_HEAD_BYTES: Final = 8
_ID_FORMATS: Final = {0x70: "I", 0x52: "B"}
MISSES_MAX: Final = 64
"""Shapes of one link in a row that no second frame had; then its sender is taken not to repeat itself."""


class Shape:
    """What the frames of one link have in common: all before the delivery-id, the tag's length, all behind the tag."""

    __slots__ = ("head_bytes", "message_format", "prefix", "settled", "tag_code", "tail", "unpack")

    def __init__(
        self, prefix: bytes, number_format: str, tag_code: bytes, tail: bytes, settled: bool, message_format: int
    ) -> None:
        form = Struct(f">I{len(prefix)}s{number_format}2s{tag_code[1]}x{len(tail)}s")
        self.unpack = form.unpack_from
        self.head_bytes = form.size
        self.prefix = prefix
        self.tag_code = tag_code
        self.tail = tail
        self.settled = settled
        self.message_format = message_format


def _shape(parsed: "ParsedTransfer", buf: bytes, start: int) -> Shape | None:
    """The shape of the frame from `start` on that was parsed so; None where it is not one that comes again."""
    _, number, tag, message_format, settled, more, _, state, resume, aborted, payload_at = parsed
    if number is None or tag is None or state is not None or more or resume or aborted:
        return None
    # The delivery-id is the second field: behind the descriptor, the list's head and the handle.
    at = start + _HEAD_BYTES + (6 if buf[start + 11] == 0xC0 else 12)
    at += {0x43: 1, 0x52: 2, 0x70: 5}.get(buf[at], 0)
    number_format = _ID_FORMATS.get(buf[at])
    if number_format is None:
        return None
    prefix = buf[start + 4 : at + 1]
    at += 1
    size = 4 if number_format == "I" else 1
    tag_at = at + size + 2
    tail_at = tag_at + len(tag)
    if (
        buf[at : at + size] != pack(f">{number_format}", number)
        or buf[at + size : tag_at] != bytes((0xA0, len(tag)))
        or not tail_at <= payload_at
    ):
        return None
    return Shape(
        prefix, number_format, buf[at + size : tag_at], buf[tail_at:payload_at], settled is True, message_format or 0
    )


def learn(session: "Session", parsed: "ParsedTransfer", buf: bytes, start: int) -> None:
    """A transfer frame of `session` was taken by the plain form: have those like it taken at once from now on."""
    link = session.remote_links.get(parsed[0])
    session.run_link = None
    if link is None or not link.role or link.detach_sent:
        return
    receiver: Receiver = link  # type: ignore[assignment]  # the role says which
    if receiver.shape_misses >= MISSES_MAX:
        return
    receiver.shape_misses += 1
    shape = _shape(parsed, buf, start)
    if shape is not None and receiver.size_max >= session.connection.settings.max_frame_size:
        receiver.shape = shape
        session.run_link = receiver


def take(session: "Session", buf: bytes, at: int, size: int, frame_bytes_max: int, events: list[ConnEvent]) -> int:
    """Takes what follows at `at` and is plain for `session.run_link`; returns where it ended, `at` if nothing was."""
    link = session.run_link
    if link is None or link.detach_sent or link.partial:
        return at
    shape = link.shape
    assert shape is not None
    unpack, head_bytes = shape.unpack, shape.head_bytes
    prefix, tag_code, tail = shape.prefix, shape.tag_code, shape.tail
    owners = session.unsettled_in
    left = min(session.window_in, link.allowance, session.unsettled_max - len(owners))
    payloads: list[bytes] = []
    append = payloads.append
    first = expected = -1
    start = at
    while left > 0 and size - at > head_bytes:
        frame_bytes, found_prefix, number, found_code, found_tail = unpack(buf, at)
        if found_prefix != prefix or found_code != tag_code or found_tail != tail:
            break
        if number != expected:
            if first >= 0:
                break
            first = expected = number
        end = at + frame_bytes
        if end > size or frame_bytes < head_bytes or frame_bytes > frame_bytes_max:
            break
        append(buf[at + head_bytes : end])
        at = end
        expected += 1
        left -= 1
    count = len(payloads)
    if not count:
        return start
    if not shape.settled:
        numbers = range(first, first + count)
        if not owners.keys().isdisjoint(numbers):
            return start
        owners.update(dict.fromkeys(numbers, link))
    link.shape_misses = 0
    link.took(count)
    events.append(Deliveries(link, first, payloads, shape.message_format, shape.settled))
    session.took(count)
    return at
