"""Bare messages that are for several nodes behind one neighbour: each crosses the connection once, and transfers for
the other nodes refer to it (CUSTODY, "The hop", 8; docs/adr/0102).

Rules of this file: pure. Numbers of a connection ascend, and none is used twice. Both ends keep the last bodies within
the same bounds, so the receiver has a body to which the sender refers, unless it did not read the transfer with the
body: then it reports that, and gets whole messages from then on.
"""

from typing import Final

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.errors import RemoteProtocolError
from holdfast.schema import is_whole_within

KEPT_AS: Final = Symbol("x-opt-holdfast-body-kept")
"""Annotation of a transfer with its bare message (ulong): keep it under this number."""
BODY_OF: Final = Symbol("x-opt-holdfast-body-of")
"""Annotation of a transfer without one (ulong): its bare message is the one kept under this number."""
NAMES_BEGIN: Final = b"x-opt-holdfast-body-"
"""The common beginning of both: a transfer without these bytes has neither."""

NOTHING: Final = b"\x00\x53\x77\x40"
"""The body of a transfer that refers to a bare message: an amqp-value of null."""

NOT_KEPT: Final = "holdfast:not-kept"
"""The condition with which a receiver ends the link of a transfer that refers to a body that it does not have."""

BODY_BYTES_MIN: Final = 256
"""A shorter bare message is sent again, because a reference would save little."""
BODY_BYTES_MAX: Final = 64 * 1024
"""A longer one is sent again, so that the window below holds several."""

WINDOW_BYTES: Final = 512 * 1024
"""Bytes of bodies in each direction of a connection; beyond that the oldest are forgotten."""
BESIDE_BYTES: Final = 128
"""Bytes that a body counts besides its own."""


class _Window:
    """The last bodies, by number."""

    __slots__ = ("_bodies", "bytes")

    def __init__(self) -> None:
        self._bodies: dict[int, bytes] = {}
        self.bytes = 0

    def __contains__(self, number: int) -> bool:
        return number in self._bodies

    def get(self, number: int) -> bytes | None:
        return self._bodies.get(number)

    def add(self, number: int, body: bytes) -> list[bytes]:
        """Adds a body; returns those that are forgotten for it."""
        self._bodies[number] = body
        self.bytes += BESIDE_BYTES + len(body)
        gone = []
        while self.bytes > WINDOW_BYTES:
            oldest = self._bodies.pop(next(iter(self._bodies)))
            self.bytes -= BESIDE_BYTES + len(oldest)
            gone.append(oldest)
        return gone

    def clear(self) -> None:
        self._bodies.clear()
        self.bytes = 0


class GivenBodies:
    """The sending end of a connection."""

    __slots__ = ("_is_off", "_last", "_numbers", "_window")

    def __init__(self) -> None:
        self._window = _Window()
        self._numbers: dict[bytes, int] = {}
        """Numbers of bodies to which transfers may refer."""
        self._last = 0
        self._is_off = False

    @property
    def held_bytes(self) -> int:
        return self._window.bytes

    def share(self, bare: bytes | memoryview, *, keeps: bool) -> tuple[bytes, bytes | memoryview]:
        """The annotation of a transfer for that body, and the body to send in its place. `keeps`: whether it is kept,
        if it is not already. Call it for a transfer that is sent now, before all others."""
        if self._is_off or not BODY_BYTES_MIN <= len(bare) <= BODY_BYTES_MAX:
            return b"", bare
        body = bytes(bare)
        number = self._numbers.get(body)
        if number is not None:
            return encode(BODY_OF) + encode(Ulong(number)), NOTHING
        if not keeps:
            return b"", bare
        self._last += 1
        for gone in self._window.add(self._last, body):
            self._numbers.pop(gone, None)
        self._numbers[body] = self._last
        return encode(KEPT_AS) + encode(Ulong(self._last)), bare

    def held_back(self) -> None:
        """The session holds frames back: the last shared body may arrive after transfers of other sessions that would
        refer to it."""
        body = self._window.get(self._last)
        if body is not None and self._numbers.get(body) == self._last:
            del self._numbers[body]

    def forget(self) -> None:
        """A link has ended, perhaps with transfers that were not read."""
        self._numbers.clear()
        self._window.clear()

    def stop(self) -> None:
        """The neighbour lacks a body: sends it whole messages from now on."""
        self._is_off = True
        self.forget()


class TakenBodies:
    """The receiving end of a connection."""

    __slots__ = ("_window",)

    def __init__(self) -> None:
        self._window = _Window()

    @property
    def held_bytes(self) -> int:
        return self._window.bytes

    def keep(self, number: object, body: bytes) -> None:
        """Keeps a body. RemoteProtocolError for a number or size that no node sends."""
        fits = BODY_BYTES_MIN <= len(body) <= BODY_BYTES_MAX
        if not is_whole_within(number, 1, 2**64) or number in self._window or not fits:
            text = f"invalid {KEPT_AS} {str(number)[:40]!r} with {len(body)} bytes; expected a new number, and a body"
            raise RemoteProtocolError(conditions.INVALID_FIELD, f"{text} of {BODY_BYTES_MIN} to {BODY_BYTES_MAX} bytes")
        self._window.add(int(number), body)

    def body_of(self, number: object) -> bytes:
        """The body with that number. RemoteProtocolError if there is none."""
        body = self._window.get(number) if is_whole_within(number, 1, 2**64) else None
        if body is None:
            raise RemoteProtocolError(NOT_KEPT, f"nothing is kept as {str(number)[:40]!r}; send whole messages")
        return body
