"""A message in the steps of a link: an entry, decoded as far as needed.

Rules of this file: a message is never changed; a change makes a new one. Only a message of at most MESSAGE_BYTES_MAX is
decoded; of larger ones, header, properties and annotations can be read if they are in the first piece. Malformed
messages raise StepFailed.
"""

from typing import Any, Final

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.types import MISSING
from holdfast.broker.entries import entry, packed
from holdfast.engine.port import EntryReader
from holdfast.errors import LocalProtocolError, RemoteProtocolError
from holdfast.selectors.sections import Sections
from holdfast.steps import formats
from holdfast.steps.failure import StepFailed
from holdfast.units import KIB

MESSAGE_BYTES_MAX: Final = 64 * KIB
"""Of a message that a step takes apart or makes, properties and body together."""


class StepMessage:
    """`value`: the entry; `time_ms`: when it was enqueued, or, for an aggregate, when its window ended; `is_input`: it
    is the message that the link took, perhaps changed, and not an aggregate."""

    __slots__ = ("_content", "_message", "_sections", "_store", "is_input", "time_ms", "value")

    def __init__(self, value: bytes, time_ms: int, store: EntryReader | None = None, *, is_input: bool = True) -> None:
        self.value = value
        self.time_ms = time_ms
        self.is_input = is_input
        self._store = store
        self._sections: Sections | None = None
        self._message: Message | None = None
        self._content: Any = MISSING

    @property
    def sections(self) -> Sections:
        """The message for selectors."""
        if self._sections is None:
            value = self.value
            payload, at, whole = value, packed.bare_at(value), True
            if value[1] & entry.BLOB:
                blob, length = entry.blob_of(value)
                payload, at = (b"" if self._store is None else self._store.piece(blob, 0) or b""), 0
                whole = len(payload) >= length
            self._sections = Sections(
                payload, at, durable=bool(value[1] & entry.DURABLE), priority=value[2],
                annotations=packed.annotations_of(value), whole=whole,
            )  # fmt: skip
        return self._sections

    @property
    def message(self) -> Message:
        """Properties and body, which must not be changed. StepFailed if it is too large, or malformed."""
        if self._message is None:
            self._message = self.decoded()
        return self._message

    def decoded(self) -> Message:
        """As `message`, but a new copy for the caller."""
        size = packed.size_of(self.value) - len(packed.annotations_of(self.value)[1])
        if size > MESSAGE_BYTES_MAX or self.value[1] & entry.BLOB:
            raise StepFailed(f"the message has {size} bytes; the limit is {MESSAGE_BYTES_MAX}")
        try:
            return Message.decode(self.value[packed.bare_at(self.value) :])
        except RemoteProtocolError as error:
            raise StepFailed(f"the message cannot be read: {error.description}") from error

    @property
    def content(self) -> dict[str, Any]:
        """The fields of a body that is a JSON object or a map; otherwise StepFailed."""
        if self._content is MISSING:
            self._content = formats.fields_of(self.message)
        found: dict[str, Any] = self._content
        return found

    def changed(self, message: Message) -> "StepMessage":
        """The message with other properties and another body, and the same header, annotations and times."""
        bare = encoded(message)
        value = entry.repack(entry.unpack(self.value)._replace(bare=memoryview(bare)))
        return StepMessage(value, self.time_ms, self._store, is_input=self.is_input)


def encoded(message: Message) -> bytes:
    """A bare message of at most MESSAGE_BYTES_MAX; otherwise StepFailed."""
    try:
        bare = message.encode()
    except LocalProtocolError as error:
        raise StepFailed(f"the new message cannot be written: {error}") from error
    if len(bare) > MESSAGE_BYTES_MAX:
        raise StepFailed(f"the new message would have {len(bare)} bytes; the limit is {MESSAGE_BYTES_MAX}")
    return bare
