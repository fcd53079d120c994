"""Runs: consecutive plain deliveries of one link, read from the wire together. AMQP 1.0 §2.7.5.

Rules of this file: an optimised form of what transfers.py does frame by frame (tests/amqp/test_runs.py holds the two
together). The frames of a sender's deliveries usually begin with the same bytes, apart from delivery-id and tag.
`learn` remembers these bytes of a parsed frame; `take` reads further frames as long as they are the same, and leaves
any other frame to the plain form. It never raises.
"""

from struct import pack
from typing import Final

from holdfast.amqp.links.frame_template import Following, FrameTemplate
from holdfast.amqp.links.receiver import Receiver
from holdfast.amqp.session.events import ConnEvent, Deliveries
from holdfast.amqp.session.session import Session
from holdfast.amqp.session.session_endpoint import SessionEndpoint
from holdfast.amqp.wire.fast import ParsedTransfer

_SERIAL: Final = 0xFFFFFFFF
_HEAD_BYTES: Final = 8
_ID_FORMATS: Final = {0x70: "I", 0x52: "B"}
MISSES_MAX: Final = 64
"""After this many consecutive templates of one link that no second frame matched, none are learned for it."""


def _place(parsed: ParsedTransfer, buf: bytes, start: int) -> tuple[str, int, int, int] | None:
    """Where the frame from `start` on has its delivery-id and tag: the id's format and place, and the tag's place and
    end. None if they have an unusual form."""
    number, tag, payload_at = parsed[1], parsed[2], parsed[10]
    if number is None or tag is None:
        return None
    # The delivery-id is the second field: behind the descriptor, the list's head and the handle.
    at = start + _HEAD_BYTES + (6 if buf[start + 11] == 0xC0 else 12)
    at += {0x43: 1, 0x52: 2, 0x70: 5}.get(buf[at], 0)
    number_format = _ID_FORMATS.get(buf[at])
    if number_format is None:
        return None
    at += 1
    size = 4 if number_format == "I" else 1
    tag_at = at + size + 2
    tag_end = tag_at + len(tag)
    if (
        buf[at : at + size] != pack(f">{number_format}", number)
        or buf[at + size : tag_at] != bytes((0xA0, len(tag)))
        or not tag_end <= payload_at
    ):
        return None
    return number_format, at, tag_at, tag_end


def _template(parsed: ParsedTransfer, buf: bytes, start: int) -> FrameTemplate | None:
    """The template of the frame from `start` on, as it was parsed; None if it is unlikely to be repeated."""
    _, _, _, message_format, settled, more, _, state, resume, aborted, payload_at = parsed
    place = None if state is not None or resume or aborted else _place(parsed, buf, start)
    if place is None:
        return None
    number_format, at, tag_at, tag_end = place
    return FrameTemplate(
        buf[start + 4 : at], number_format, buf[tag_at - 2 : tag_at], buf[tag_end:payload_at], settled is True,
        message_format or 0, more,
    )  # fmt: skip


def _following(parsed: ParsedTransfer, buf: bytes, start: int, template: FrameTemplate) -> Following | None:
    """The same for a later frame of a delivery with that `template`."""
    _, number, tag, _, settled, _, _, state, resume, aborted, payload_at = parsed
    if state is not None or resume or aborted or (settled and not template.settled):
        return None
    if number is None and tag is None:
        return Following(buf[start + 4 : payload_at], False, b"")
    place = _place(parsed, buf, start)
    if place is None or place[3] - place[1] != template.identity_bytes:
        return None
    return Following(buf[start + 4 : place[1]], True, buf[place[3] : payload_at])


def learn(session: Session, parsed: ParsedTransfer, buf: bytes, start: int) -> Receiver | None:
    """The plain form handled a transfer frame of `session`. Returns the link whose similar frames can be read together
    from now on, its `run_link`; None if they cannot."""
    link = session.remote_links.get(parsed[0])
    if link is None or not isinstance(link, Receiver) or link.detach_sent:
        return None
    if link.template_misses >= MISSES_MAX or link.size_max < session.connection.settings.max_frame_size:
        return None
    link.template_misses += 1
    partial = link.partial
    more = parsed[5]
    growing = link.template_growing
    if growing is not None and not (more and parsed[1] is not None and partial and partial.frames == 1):
        following = _following(parsed, buf, start, growing)
        if following is None:
            link.template_growing = None
        elif more:
            growing.middle = following
        else:
            growing.last = following
            link.template, link.template_growing = growing, None
            return link
        return None
    template = _template(parsed, buf, start)
    if template is None or not template.cut:
        link.template_growing = None
    if template is not None and template.cut:
        link.template_growing = template
    elif template is not None:
        link.template = template
        return link
    return None


def take(
    session: SessionEndpoint, buf: bytes, at: int, size: int, frame_bytes_max: int, events: list[ConnEvent]
) -> int:
    """Reads the plain deliveries of `session.run_link` from `at` on; returns where they end, `at` if there are none."""
    link = session.run_link
    if link is None or link.detach_sent or link.partial:
        return at
    template = link.template
    assert template is not None
    unpack, head_bytes = template.unpack, template.head_bytes
    prefix, tag_code, tail = template.prefix, template.tag_code, template.tail
    owners = session.unsettled_in
    frames_max = session.frames_at_once
    left = min(frames_max, link.allowance, session.unsettled_max - len(owners))
    payloads: list[bytes] = []
    append = payloads.append
    first = expected = -1
    start = at
    frames = 0
    cut = _Cut(link, template, buf, size, frame_bytes_max) if template.cut else None
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
        if cut is None:
            append(buf[at + head_bytes : end])
        else:
            end = cut.take(at, end, frames_max - len(payloads) - frames)
            if not end:
                break
            append(b"".join(cut.parts))
            frames += len(cut.parts) - 1
        at = end
        expected += 1
        left -= 1
    count = len(payloads)
    if not count:
        return start
    if not template.settled:
        numbers = range(first, first + count)
        if not owners.keys().isdisjoint(numbers):
            return start
        owners.update(dict.fromkeys(numbers, link))
    link.template_misses = 0
    link.took(count)
    events.append(Deliveries(link, first, payloads, template.message_format, template.settled))
    session.took(count + frames)
    return at


class _Cut:
    """Reads deliveries of several frames each from `buf`, as long as they match `template`. Deliveries that the plain
    form would refuse or hand on in parts are left to it.
    """

    __slots__ = ("_bytes_max", "_frame_bytes_max", "_size", "_template", "_view", "buf", "parts")

    def __init__(self, link: Receiver, template: FrameTemplate, buf: bytes, size: int, frame_bytes_max: int) -> None:
        connection = link.session.connection
        partials = connection.partials
        self.buf = buf
        self.parts: list[memoryview] = []
        """Payloads of the frames of the delivery that was taken last: views of `buf`."""
        self._view = memoryview(buf)
        self._template = template
        self._size = size
        self._frame_bytes_max = frame_bytes_max
        self._bytes_max = min(
            link.size_max,
            connection.settings.partial_bytes_max - connection.partial_bytes,
            link.size_max if link.stream_bytes is None else min(link.stream_bytes, partials.held_max - partials.held),
        )

    def take(self, at: int, end: int, frames_max: int) -> int:
        """Reads the delivery whose first frame is from `at` to `end`; returns where its last frame ends, 0 if it was
        not read. `frames_max`: frames before the session's window is opened again, or closed.
        """
        buf, view, template, size = self.buf, self._view, self._template, self._size
        parts = self.parts = [view[at + template.head_bytes : end]]
        identity_at = at + 4 + len(template.prefix)
        identity = buf[identity_at : identity_at + template.identity_bytes]
        assert template.last is not None  # else `learn` has not made it the link's
        last = template.last.before + (identity + template.last.behind if template.last.named else b"")
        middle = b""
        if template.middle is not None:
            middle = template.middle.before + (identity + template.middle.behind if template.middle.named else b"")
        total = end - at - template.head_bytes
        while True:
            at = end
            if buf.startswith(last, at + 4):
                head = last
            elif middle and buf.startswith(middle, at + 4):
                head = middle
            else:
                return 0
            frame_bytes = int.from_bytes(buf[at : at + 4], "big")
            end = at + frame_bytes
            payload_at = at + 4 + len(head)
            total += end - payload_at
            if end > size or end < payload_at or frame_bytes > self._frame_bytes_max or total > self._bytes_max:
                return 0
            parts.append(view[payload_at:end])
            if len(parts) > frames_max:
                return 0
            if head is last:
                return end
