"""One transport of one AMQP connection: bytes in, events out, everything of a turn written at once.

Rules of this file: no AMQP decisions; a turn of the loop ends with at most one write. The owner is called in this order
within a turn: `handle` as events arrive, then `turn_ended`; and `wire_lost` once, at the end.
"""

import asyncio
import os
import socket
import sys
from typing import Final, Protocol, cast

from holdfast.amqp.connection import Connection as Engine
from holdfast.amqp.session.events import ConnEvent
from holdfast.amqp.wire.frames import EMPTY_FRAME
from holdfast.tls_alerts import explain

WRITE_HIGH_BYTES: Final = 1024 * 1024
"""Above this much unwritten output nothing more is encoded; the rest waits as messages, not as bytes."""

CLOSE_LIMIT_S: Final = 1.0
"""How long the last bytes may take."""


NO_TLS: Final = frozenset(("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"))
"""What OpenSSL makes of an answer that is none of TLS."""
NO_AUTHORITY: Final = frozenset((2, 18, 19, 20, 21))
"""OpenSSL's codes where the chain ends at nobody who is trusted: X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT and the like."""
OTHER_NAME: Final = frozenset((62, 64))
"""The same where it is another host's: X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
OUTSIDE_VALIDITY: Final = frozenset((9, 10))
"""The same where it is not valid at this time: X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
TLS_ALERT: Final = b"\x15\x03"

BYTES_ACKED: Final = slice(120, 128)
"""Of Linux's struct tcp_info, tcpi_bytes_acked: RFC 4898's tcpEStatsAppHCThruOctetsAcked, in the machine's order."""
IDLE_BYTES: Final = 64
"""At least what an empty frame is on the wire: 8 bytes, and TLS's own."""


class WireOwner(Protocol):
    """What a wire reports to: its connection."""

    def handle(self, wire: "Wire", events: list[ConnEvent]) -> None:
        """The events of one read, in the order in which they arrived."""

    def turn_ended(self, wire: "Wire") -> None:
        """The last chance to send in this turn."""

    def writing_resumed(self, wire: "Wire") -> None:
        """The socket accepts output again."""

    def wire_broken(self, wire: "Wire", error: Exception) -> None:
        """A defect raised an exception; `wire_lost` follows."""

    def wire_lost(self, wire: "Wire", reason: str) -> None:
        """The transport is gone; called once."""


class Wire(asyncio.Protocol):
    """`lost` is done once the transport is gone; `paused` while the socket accepts no more output."""

    def __init__(self, engine: Engine, owner: WireOwner, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self.paused = False
        self.heard = False
        """Anything arrived but a TLS alert, which a TLS port sends to a peer that does not speak TLS."""
        self.lost: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._scheduled = False
        self._idle_frames = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reason = ""

    # ------------------------------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self._turn()

    def data_received(self, data: bytes) -> None:
        self.heard = self.heard or not data.startswith(TLS_ALERT)
        try:
            self._handle(self.engine.receive(data, self._loop.time()))
        except Exception as error:
            self._broken(error)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._owner.writing_resumed(self)

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if not self.lost.done():
            self.lost.set_result(None)
            self._owner.wire_lost(self, self._reason or describe(exc) or "the node closed the connection")

    # --------------------------------------------------------------------------------------------- ours

    def schedule(self) -> None:
        """There may be output: this turn of the loop ends with a write."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def abort(self, reason: str) -> None:
        """Drops the transport and what it has not written; `wire_lost` follows with `reason`."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    def acknowledged_bytes(self) -> int:
        """How much of what was written the other end's system has acknowledged: a figure to compare with an earlier
        one of this wire. Empty frames do not raise it; where this system cannot tell, nothing does.
        """
        own = None if self._transport is None else self._transport.get_extra_info("socket")
        try:
            info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_ACKED.stop) if own is not None else b""
        except OSError:
            info = b""
        return int.from_bytes(info[BYTES_ACKED], sys.byteorder) - IDLE_BYTES * self._idle_frames

    def _handle(self, events: list[ConnEvent]) -> None:
        if events:
            self._owner.handle(self, events)
        self.schedule()

    def _turn(self) -> None:
        self._scheduled = False
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        try:
            self._owner.turn_ended(self)
            output = self.engine.take_output(self._loop.time())
        except Exception as error:
            self._broken(error)
            return
        if output:
            transport.writelines(output)
            if len(output) == 1 and output[0] == EMPTY_FRAME:
                self._idle_frames += 1
        if self.engine.closed:
            transport.close()
            # A peer that is silently gone takes no more bytes: its socket's buffer never empties.
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(CLOSE_LIMIT_S, transport.abort)
            return
        self._arm()

    def _arm(self) -> None:
        deadline = self.engine.next_deadline()
        if deadline is None:
            return
        if self._timer is not None:
            if self._timer.when() <= deadline and not self._timer.cancelled():
                return  # it fires early, looks, and is armed anew
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._handle(self.engine.tick(self._loop.time()))
        except Exception as error:
            self._broken(error)

    def _broken(self, error: Exception) -> None:
        """A defect of ours: without this the loop would log it, and whoever waits would wait for ever."""
        self._owner.wire_broken(self, error)
        self.abort(describe(error))


def describe(error: BaseException | None) -> str:
    """An error of the operating system in a few words."""
    if error is None:
        return ""
    if isinstance(error, TimeoutError) and not error.args:
        return "timed out"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # asyncio's own text names the call
    if type(error).__module__ == "ssl":  # which is not imported for this
        return _describe_tls(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _describe_tls(error: BaseException) -> str:
    """Without OpenSSL's own words for where in its source it was."""
    distrust = getattr(error, "verify_message", None)
    if distrust:
        code = getattr(error, "verify_code", None)
        what_to_do = "; name the authority that signed it (ca_file, --ca-file)" if code in NO_AUTHORITY else ""
        if code in OTHER_NAME:
            what_to_do = "; use a name that it has as the URL's host, or give one (server_name, --server-name)"
        if code in OUTSIDE_VALIDITY:
            what_to_do = "; put a valid one into the node's certificate_file, or set the clock of this machine"
        return f"the node's certificate is not trusted: {distrust.rstrip('.')}{what_to_do}"
    reason = str(getattr(error, "reason", None) or "the connection was closed")
    if reason in NO_TLS:
        return "the port does not speak TLS; a URL of one that does not begins with amqp://"
    return f"TLS: {explain(reason)}"
