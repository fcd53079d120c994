"""Frames that are not spelt out: what two engines in one process may pass instead of bytes. AMQP 1.0 §2.3.

Rules of this file: a Frame is as long as its bytes would be, and what it carries is what a peer would have read in
them, so that whoever counts, cuts or times bytes sees no difference. Transfers, dispositions and flows in their
usual encodings (fast.py) are neither packed nor parsed; every other performative is encoded for its length and
given as decoded from that. Nothing here decides anything: a Form is where the engine's bytes are made, `take` is
where they are read.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from holdfast.amqp import conditions, fast
from holdfast.amqp.events import ConnEvent
from holdfast.amqp.faults import Fault
from holdfast.amqp.frames import (
    AMQP_FRAME,
    EMPTY_FRAME,
    FRAME_HEAD,
    SASL_FRAME_SIZE_MAX,
    bad_frame,
    frame,
    frame_with_payload,
)
from holdfast.amqp.layers import on_header
from holdfast.amqp.performatives import Accepted, Rejected, Released, decode_composite
from holdfast.amqp.plain import plain_disposition, plain_flow, plain_transfer
from holdfast.amqp.states import State
from holdfast.errors import RemoteProtocolError

if TYPE_CHECKING:
    from holdfast.amqp.connection import Connection


class Frame:
    """One frame. `len` is its bytes on the wire; to be read only.

    `code` is fast.TRANSFER, fast.DISPOSITION or fast.FLOW, and `fields` the tuple that fast.py parses for it (a
    transfer's "payload at" is 0); else `code` is b"" and `fields` the performative, None for an empty frame, or the
    RemoteProtocolError with which the peer answers what it cannot decode. `payload`: a transfer's; what cannot be
    decoded.
    """

    __slots__ = ("channel", "code", "fields", "payload", "size")

    def __init__(self, size: int, channel: int, code: bytes, fields: Any, payload: bytes) -> None:
        self.size = size
        self.channel = channel
        self.code = code
        self.fields = fields
        self.payload = payload

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<Frame {self.size} bytes, channel {self.channel}: {self.fields!r:.200}>"


Chunk = bytes | Frame


# --------------------------------------------------------------------------------------------------- saying


def _frame(channel: int, body: bytes, payload: bytes = b"") -> Frame:
    """An encoded performative as its reader would take it in."""
    size = 8 + len(body) + len(payload)
    code = body[:3]
    fields: Any
    try:
        if code == fast.TRANSFER:
            fields = fast.parse_transfer(body, 3, len(body)) or plain_transfer(body, 0, len(body))
            fields = (*fields[:-1], 0)
        elif code == fast.DISPOSITION:
            fields = fast.parse_disposition(body, 3, len(body)) or plain_disposition(body)
        elif code == fast.FLOW:
            fields = fast.parse_flow(body, 3, len(body)) or plain_flow(body)
        else:
            code = b""
            fields, _ = decode_composite(body)
    except RemoteProtocolError as error:
        code, fields, payload = b"", error, body
    return Frame(size, channel, code, fields, payload)


class DirectTransferForm(fast.TransferForm):
    """Transfers of one link; the sender's pieces follow by way of Tail."""

    __slots__ = ("_channel", "_handle", "_tag_offset")

    def __init__(self, channel: int, handle: int, tag_offset: int = 0) -> None:
        super().__init__(channel, handle)
        self._tag_offset = tag_offset
        self._channel = channel
        self._handle = handle
        self.pack = self._pack

    def _pack(self, size: int, prefix: bytes, delivery_id: int, _: bytes, tag: int, settled: bytes) -> Frame:
        tag = (tag + self._tag_offset) & 0xFFFFFFFF
        return Frame(
            size, self._channel, fast.TRANSFER,
            (
                self._handle, delivery_id, tag.to_bytes(4, "big"), 0, settled == b"\x43\x41", False, None, None,
                False, False, 0,
            ),
            b"",
        )  # fmt: skip

    def first(self, payload_bytes: int, delivery_id: int, settled: bool) -> Frame:
        tag = (delivery_id + self._tag_offset) & 0xFFFFFFFF
        return self._frame(
            self.first_bytes + payload_bytes,
            (self._handle, delivery_id, tag.to_bytes(4, "big"), 0, settled, True, None, None, False, False, 0),
        )

    def following(self, payload_bytes: int, more: bool) -> Frame:
        size = 4 + len(self._middle if more else self._last) + payload_bytes
        return self._frame(size, (self._handle, None, None, None, None, more, None, None, False, False, 0))

    def _frame(self, size: int, fields: fast.ParsedTransfer) -> Frame:
        return Frame(size, self._channel, fast.TRANSFER, fields, b"")


class Output(Protocol):
    """What a sender writes a transfer to: its head, then the pieces of its payload."""

    def append(self, head: Any, /) -> None:
        """The head."""

    def __iadd__(self, pieces: Iterable[bytes | memoryview], /) -> Self:
        """The pieces."""


class Tail:
    """The Output that joins the pieces into the frame before them."""

    __slots__ = ("_output", "append")

    def __init__(self, output: list[Any]) -> None:
        self._output = output
        self.append = output.append

    def __iadd__(self, pieces: Iterable[bytes | memoryview], /) -> Self:
        self._output[-1].payload = b"".join(pieces)
        return self


_DISPOSITIONS: Final = {
    kind: (len(fast.disposition_frame(0, True, 0, 0, True, state) or b""), state)
    for kind, state in (
        (type(None), None), (Accepted, fast.ACCEPTED), (Released, fast.RELEASED), (Rejected, Rejected()),
    )
}  # fmt: skip
"""By class of state: the frame's bytes, and the state as it is read."""


def _disposition(channel: int, role: bool, first: int, last: int, settled: bool, state: Any) -> Frame | None:
    size, read = _DISPOSITIONS.get(type(state), (0, None))
    if size == 0 or state != read:
        return None
    if type(state) is Rejected:
        read = Rejected()
    return Frame(size, channel, fast.DISPOSITION, (role, first, last, settled, read), b"")


_FLOW_BYTES: Final = len(fast.flow_frame(0, 0, 0, 0, 0, 0, 0, 0, False))


def _flow(
    channel: int, next_incoming_id: int, incoming_window: int, next_outgoing_id: int, outgoing_window: int,
    handle: int, delivery_count: int, link_credit: int, drain: bool,
) -> Frame:  # fmt: skip
    return Frame(
        _FLOW_BYTES, channel, fast.FLOW,
        (
            next_incoming_id, incoming_window, next_outgoing_id, outgoing_window, handle, delivery_count, link_credit,
            None, drain, False, None,
        ),
        b"",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Form:
    """How one connection's frames are made; chosen once, when it is.

    `empty`: the frame without a body. `frame(channel, body)`, `with_payload(channel, body, payload)`: around an
    encoded performative. `transfers(channel, handle)`: the form of one link's transfers. `disposition`, `flow`: as
    fast.disposition_frame and fast.flow_frame. `tail(output)`: where senders write.
    """

    empty: Chunk
    frame: Callable[[int, bytes], Chunk]
    with_payload: Callable[[int, bytes, bytes], Chunk]
    transfers: type[fast.TransferForm]
    disposition: Callable[[int, bool, int, int, bool, Any], Chunk | None]
    flow: Callable[[int, int, int, int, int, int, int, int, bool], Chunk]
    tail: Callable[[list[Any]], Output]


def _itself(output: list[Any]) -> Output:
    return output


BYTES: Final = Form(
    EMPTY_FRAME, frame, frame_with_payload, fast.TransferForm, fast.disposition_frame, fast.flow_frame, _itself
)
DIRECT: Final = Form(
    Frame(len(EMPTY_FRAME), 0, b"", None, b""), _frame, _frame, DirectTransferForm, _disposition, _flow, Tail
)


# -------------------------------------------------------------------------------------------------- hearing


def take(connection: "Connection", chunks: Sequence[Chunk], events: list[ConnEvent]) -> None:
    """What the chunks mean to the connection: frames, and bytes before them (headers, SASL), each chunk whole.

    RemoteProtocolError ends the connection, as with bytes.
    """
    limit = connection.settings.max_frame_size
    remote = connection._remote
    transfer_code = fast.TRANSFER
    for chunk in chunks:
        try:
            if isinstance(chunk, bytes):
                connection._consume(chunk, events)
                if connection._rest:
                    raise RemoteProtocolError(conditions.FRAMING_ERROR, "a chunk ended before its frame")
                continue
            session = remote.get(chunk.channel)
            if session is None or session.end_sent:
                if connection.closed:
                    return
                _take_other(connection, chunk, events)
                continue
            if chunk.size > limit:
                raise bad_frame(chunk.size, 2, AMQP_FRAME, limit)
            code = chunk.code
            if code == transfer_code:
                payload = chunk.payload
                session.on_transfer(chunk.fields, payload, len(payload), events)
            elif code == fast.DISPOSITION:
                session.on_disposition(chunk.fields, events)
            elif code == fast.FLOW:
                session.on_flow(chunk.fields, events)
            else:
                _take_other(connection, chunk, events)
        except Fault as fault:
            fault.answer(events)


_STREAM_NAMES: Final = {fast.TRANSFER: "transfer", fast.DISPOSITION: "disposition", fast.FLOW: "flow"}


def _take_other(connection: "Connection", chunk: Frame, events: list[ConnEvent]) -> None:
    """All but the stream of a session that is there."""
    size, channel = chunk.size, chunk.channel
    if connection._expects_header:
        on_header(connection, FRAME_HEAD.pack(size, 2, AMQP_FRAME, channel), events)
        return
    limit = connection.settings.max_frame_size
    if connection._sasl is not None:
        raise bad_frame(size, 2, AMQP_FRAME, SASL_FRAME_SIZE_MAX)
    if size > limit:
        raise bad_frame(size, 2, AMQP_FRAME, limit)
    name = _STREAM_NAMES.get(chunk.code)
    if name is not None:
        if connection.state is not State.CLOSE_SENT:
            connection._session_on(channel, name)
    elif isinstance(chunk.fields, RemoteProtocolError):
        if connection.state is not State.CLOSE_SENT or chunk.payload[:3] not in _STREAM_NAMES:
            raise chunk.fields
    elif chunk.fields is not None:
        connection._on_performative(channel, chunk.fields, events)
