"""The layers below AMQP frames: protocol headers, and SASL between two of them. AMQP 1.0 §2.2, §5.3.2.

Rules of this file: what a Connection does before its first frame, written apart because it is done once. Bytes behind
a header or a SASL frame belong to the next layer.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from holdfast.amqp import conditions
from holdfast.amqp.events import ConnEvent
from holdfast.amqp.frames import AMQP_HEADER, SASL_HEADER
from holdfast.amqp.performatives import Error
from holdfast.amqp.sasl import ANONYMOUS, ServerSasl
from holdfast.amqp.states import State, Step
from holdfast.amqp.types import Symbol
from holdfast.errors import RemoteProtocolError

if TYPE_CHECKING:
    from holdfast.amqp.connection import Connection


_KNOWN: Final = {
    b"\x16\x03": "a TLS client, and TLS is not spoken here",
    b"GET ": "an HTTP client",
    b"POST ": "an HTTP client",
    b"HEAD ": "an HTTP client",
    b"OPTIONS ": "an HTTP client",
    b"SSH-": "an SSH client",
    b"AMQP\x02": "a client that wants AMQP over TLS, which is not spoken here",
    b"AMQP\x00\x00\x09": "a client of AMQP 0-9-1, accepted is AMQP 1.0",
    b"AMQP\x01\x01": "a client of AMQP 0-8 to 0-10, accepted is AMQP 1.0",
}
"""By how they begin, others who take this for their port."""


_ANSWERS: Final = {
    b"HTTP": "an HTTP server",
    b"SSH-": "an SSH server",
    b"220 ": "a mail or FTP server",
    b"AMQP\x00\x00\x09": "a broker that speaks AMQP 0-9-1 alone, accepted is AMQP 1.0",
}
"""By how they begin, the answers of servers that are not what a client looks for."""


def _who(header: bytes, known: Mapping[bytes, str]) -> str | None:
    return next((who for start, who in known.items() if header.startswith(start)), None)


def _told(header: bytes) -> str:
    """What is said of a header that is not accepted."""
    who = _who(header, _KNOWN)
    return f"protocol header {header!r} is not accepted here{'' if who is None else f': {who}'}"


def on_header(connection: "Connection", header: bytes, events: list[ConnEvent]) -> None:
    """The peer's header: answered where we are the server; RemoteProtocolError where we are not and it is another."""
    if not connection.server:
        expected = SASL_HEADER if connection._sasl is not None else AMQP_HEADER
        if header != expected:
            who = _who(header, _ANSWERS)
            text = (
                f"found {header!r}, accepted is the protocol header {expected!r}" if who is None else f"this is {who}"
            )
            raise RemoteProtocolError(conditions.FRAMING_ERROR, text)
        connection._expects_header = False
        if connection._sasl is None:
            connection._step(Step.R_HEADER)
        return
    if (
        header == SASL_HEADER
        and connection._sasl is None
        and connection.state is State.START
        and not connection._login_done
    ):
        connection._expects_header = False
        connection._sasl = ServerSasl(connection.settings.mechanisms, connection._authenticate)
        connection.output.append(connection._sasl.start())
    elif header == AMQP_HEADER and (connection._login_done or _anonymous_allowed(connection)):
        connection._expects_header = False
        connection._step(Step.R_HEADER)
        connection.output.append(AMQP_HEADER)
        connection._step(Step.S_HEADER)
    else:
        # Whoever speaks something else is told what is spoken here, then the transport ends (§2.2).
        wants_sasl = not connection._login_done and (connection.settings.sasl_required or header == AMQP_HEADER)
        connection.output.append(SASL_HEADER if wants_sasl else AMQP_HEADER)
        connection._lose(Error(Symbol(conditions.NOT_ALLOWED), _told(header)), events)


def _anonymous_allowed(connection: "Connection") -> bool:
    if connection.settings.sasl_required or ANONYMOUS not in connection.settings.mechanisms:
        return False
    return connection._authenticate is None or connection._authenticate(ANONYMOUS, None, None)


def on_sasl_frame(connection: "Connection", buf: bytes, at: int, end: int, events: list[ConnEvent]) -> None:
    """The SASL frame between `at` and `end`; at the end of the login a header is due."""
    sasl = connection._sasl
    assert sasl is not None
    body = buf[at + 4 * buf[at + 4] : end]
    try:
        answer = sasl.receive(body)
    except RemoteProtocolError as error:
        connection._fail(Error(Symbol(error.condition), error.description), events)
        return
    if answer:
        connection.output.append(answer)
    if not sasl.done:
        return
    if sasl.failed:
        connection._lose(Error(Symbol(sasl.condition), sasl.reason), events)
        return
    if isinstance(sasl, ServerSasl):
        connection.authenticated_user = sasl.user
    connection._sasl = None
    connection._login_done = True
    connection._expects_header = True
