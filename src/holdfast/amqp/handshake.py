"""Before the first frame: protocol headers, and SASL between two of them. AMQP 1.0 §2.2, §5.3.2.

Rules of this file: bytes in, a decision out (`Progress`), which the connection carries out. Bytes after a header or a
SASL frame belong to the next layer.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from holdfast.amqp.login.exchanges import Authenticate, Credentials, Proof, Side
from holdfast.amqp.login.mechanisms import ANONYMOUS, MECHANISMS
from holdfast.amqp.login.sasl import ClientSasl, ServerSasl
from holdfast.amqp.settings import Settings
from holdfast.amqp.states import Step
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.frames import AMQP_HEADER, SASL_HEADER
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol
from holdfast.errors import RemoteProtocolError

_KNOWN: Final = {
    b"\x16\x03": "a TLS client, and no TLS is spoken at this port",
    b"GET ": "an HTTP client",
    b"POST ": "an HTTP client",
    b"HEAD ": "an HTTP client",
    b"OPTIONS ": "an HTTP client",
    b"SSH-": "an SSH client",
    b"AMQP\x02": "a client that wants TLS within AMQP; connect to a port where TLS is spoken from the start",
    b"AMQP\x00\x00\x09": "an AMQP 0-9-1 client; use AMQP 1.0",
    b"AMQP\x01\x01": "a client of AMQP 0-8 to 0-10; use AMQP 1.0",
}
"""First bytes of other protocols whose clients may connect to this port by mistake → what the peer is."""


_ANSWERS: Final = {
    b"HTTP": "an HTTP server",
    b"SSH-": "an SSH server",
    b"220 ": "a mail or FTP server",
    b"AMQP\x00\x00\x09": "a broker that speaks only AMQP 0-9-1; connect to one that speaks AMQP 1.0",
}
"""First bytes of the answers of servers that do not speak AMQP 1.0 → what the server is."""


def _who(header: bytes, known: Mapping[bytes, str]) -> str | None:
    return next((who for start, who in known.items() if header.startswith(start)), None)


def _told(header: bytes) -> str:
    """The text with which a header is refused."""
    who = _who(header, _KNOWN)
    return f"protocol header {header!r} is not supported{'' if who is None else f'; this is {who}'}"


def no_one(mechanism: str, user: str | None, proof: Proof | None) -> bool:
    """Refuses every login."""
    return False


class Progress(NamedTuple):
    """The result of a header or a SASL frame: `output` is written, then `steps` are taken. With a `refusal` the
    transport is closed, and nothing more is sent to the peer."""

    output: bytes = b""
    steps: tuple[Step, ...] = ()
    refusal: Error | None = None


class Handshake:
    """One side's. `expects_header`: a protocol header is due; else, while `login` lasts, a SASL frame, then AMQP's."""

    def __init__(self, settings: Settings, *, server: bool, authenticate: Authenticate | None) -> None:
        self.expects_header = True
        self.login: ServerSasl | ClientSasl | None = None
        """Under way."""
        self.user: str | None = None
        """The user. At a server: who has logged in, once the login is done. At a client: the user it logs in as."""
        self.certified_user: str | None = None
        """At a server: the user whose certificate the peer has shown; known before its first bytes."""
        self.waits_for_login = False
        """At a client: the header and open are sent after the login's outcome, not in one flight with the login."""
        self._settings = settings
        self._server = server
        self._authenticate = authenticate
        self._login_done = False

    @property
    def login_hostname(self) -> str | None:
        """At a server, during a login: the host name that the client gives (§5.3.3.2)."""
        return self.login.hostname if isinstance(self.login, ServerSasl) else None

    @property
    def login_mechanism(self) -> str | None:
        """At a server: the mechanism that the client chose, during a login and after it has failed."""
        return self.login.mechanism if isinstance(self.login, ServerSasl) else None

    def start(self) -> bytes:
        """The client's first bytes: its login, if it has one, and AMQP's protocol header."""
        settings = self._settings
        wanted = settings.wanted
        if not wanted:
            return AMQP_HEADER
        given = Credentials(settings.user, settings.password, settings.nonce)
        self.login = ClientSasl(wanted, given, settings.hostname)
        self.user = settings.user if MECHANISMS[wanted[0]].has_user else None
        self.waits_for_login = not self.login.at_once
        return self.login.start() + (b"" if self.waits_for_login else AMQP_HEADER)

    def on_header(self, header: bytes) -> Progress:
        """The peer's header, which a server answers. RemoteProtocolError if a client gets a different header from its
        own. Raises what Authenticate does.
        """
        if not self._server:
            return self._on_answer(header)
        if header == SASL_HEADER and not self._login_done:
            settings = self._settings
            side = Side(no_one, self.certified_user, settings.nonce, settings.keys)
            self.login = ServerSasl(settings.mechanisms, self._authenticate, side)
            self.expects_header = False
            return Progress(self.login.start())
        if header == AMQP_HEADER and (self._login_done or self._anonymous_allowed()):
            self.expects_header = False
            return Progress(AMQP_HEADER, (Step.R_HEADER, Step.S_HEADER))
        # A peer with another protocol is told which one is spoken here, then the transport is closed (§2.2).
        wants_sasl = not self._login_done and (self._settings.sasl_required or header == AMQP_HEADER)
        refusal = Error(Symbol(conditions.NOT_ALLOWED), _told(header))
        return Progress(SASL_HEADER if wants_sasl else AMQP_HEADER, refusal=refusal)

    def _on_answer(self, header: bytes) -> Progress:
        expected = SASL_HEADER if self.login is not None else AMQP_HEADER
        if header != expected:
            who = _who(header, _ANSWERS)
            text = f"invalid protocol header {header!r}; expected {expected!r}" if who is None else f"this is {who}"
            raise RemoteProtocolError(conditions.FRAMING_ERROR, text)
        self.expects_header = False
        return Progress() if self.login is not None else Progress(steps=(Step.R_HEADER,))

    def _anonymous_allowed(self) -> bool:
        if self._settings.sasl_required or ANONYMOUS not in self._settings.mechanisms:
            return False
        return self._authenticate is None or self._authenticate(ANONYMOUS, None, None)

    def on_sasl_frame(self, body: bytes) -> Progress:
        """A SASL frame's body during `login`; a header must follow the login. RemoteProtocolError for a frame that the
        login does not expect. Raises what Authenticate does.
        """
        login = self.login
        assert login is not None
        answer = login.receive(body)
        if not login.done:
            return Progress(answer)
        if login.failed:
            return Progress(answer, refusal=Error(Symbol(login.condition), login.reason))
        if isinstance(login, ServerSasl):
            self.user = login.user
        self.login = None
        self._login_done = True
        self.expects_header = True
        if self.waits_for_login:
            self.waits_for_login = False
            return Progress(answer + AMQP_HEADER)
        return Progress(answer)

    def refuse(self, condition: str) -> Progress:
        """The outcome that a server sends for a login that ends with that error; empty at a client."""
        return Progress(self.login.refuse(condition)) if isinstance(self.login, ServerSasl) else Progress()
