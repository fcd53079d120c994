"""The SASL layer, both roles: the frames of a login, for any mechanism (mechanisms.py). AMQP 1.0 §5.3.

Rules of this file: frame bodies in, bytes out; what comes after the outcome belongs to the next layer and is
never read here. A login that fails is a value (`failed`), not an exception.
"""

from typing import Final

from holdfast.amqp.login.mechanisms import ANONYMOUS, MECHANISMS, Authenticate, LoginNotChecked, Proof, ServerExchange
from holdfast.amqp.wire import conditions, encoding
from holdfast.amqp.wire.composites import decode_composite
from holdfast.amqp.wire.frames import SASL_FRAME, SASL_HEADER, frame
from holdfast.amqp.wire.performatives import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from holdfast.errors import RemoteProtocolError

OK: Final = 0
AUTH: Final = 1
SYS: Final = 2
SYS_TEMP: Final = 4
"""Outcome codes, §5.3.3.6. After SYS and SYS_TEMP the same login may succeed later."""
_TEMPORARY: Final = frozenset((conditions.INTERNAL_ERROR, conditions.RESOURCE_LIMIT_EXCEEDED))
"""A login that ends with one of these says nothing of its user."""

USER_CHARACTERS_MAX: Final = 100
"""Of a name that somebody who is not logged in gave, in a text."""


def _sasl_frame(value: object) -> bytes:
    return frame(0, encoding.encode(value), SASL_FRAME)


def _shown(user: str | None) -> str:
    return repr((user or "")[:USER_CHARACTERS_MAX])


def _anyone(mechanism: str, user: str | None, proof: Proof | None) -> bool:
    return True


class ServerSasl:
    """The server's side. `done` after the outcome was written; `failed` if the login failed."""

    __slots__ = (
        "_authenticate",
        "_exchange",
        "_mechanisms",
        "condition",
        "done",
        "failed",
        "hostname",
        "reason",
        "user",
    )

    def __init__(self, mechanisms: tuple[str, ...], authenticate: Authenticate | None) -> None:
        if authenticate is None:
            mechanisms = tuple(name for name in mechanisms if not MECHANISMS[name].has_user)
        self._mechanisms = mechanisms
        self._authenticate = authenticate or _anyone
        self._exchange: ServerExchange | None = None
        """Set once the client has a challenge of it to answer."""
        self.done = False
        self.failed = False
        self.user: str | None = None
        self.hostname: str | None = None
        """For which host the client logs in, as it says."""
        self.condition = conditions.UNAUTHORIZED_ACCESS
        self.reason = "the login failed"

    def start(self) -> bytes:
        """Our header and the mechanisms, before the client speaks (CLIENTS: it waits for them)."""
        return SASL_HEADER + _sasl_frame(SaslMechanisms(self._mechanisms or (ANONYMOUS,)))

    def receive(self, body: bytes) -> bytes:
        """What to write after this frame; RemoteProtocolError for a frame that has no place here."""
        value, _ = decode_composite(body)
        exchange = self._exchange
        if isinstance(value, SaslInit) and exchange is None:
            if value.mechanism not in self._mechanisms:
                return self._outcome(False)
            exchange = MECHANISMS[value.mechanism].server(self._authenticate)
            self.hostname = value.hostname
            response = value.initial_response
        elif isinstance(value, SaslResponse) and exchange is not None:
            response = value.response
        else:
            text = f"{type(value).__name__} is not expected at this point of the login"
            raise RemoteProtocolError(conditions.NOT_ALLOWED, text)
        try:
            answer = exchange.respond(response)
        except LoginNotChecked:
            self.condition = conditions.RESOURCE_LIMIT_EXCEEDED
            self.reason = f"a login of user {_shown(exchange.user)} was not checked: too many failed from its address"
            return self._outcome(False, SYS_TEMP)
        if isinstance(answer, bytes):
            self._exchange = exchange
            return _sasl_frame(SaslChallenge(answer))
        if answer:
            self.user = exchange.user
        elif exchange.user is not None:
            self.reason = f"the login failed: user {_shown(exchange.user)}"
        return self._outcome(answer)

    def refuse(self, condition: str) -> bytes:
        """The outcome of a login that ends with that error: a client that broke the protocol is refused; one that was
        too slow, or met a failure of ours, may try again. Empty after an outcome."""
        return b"" if self.done else self._outcome(False, SYS_TEMP if condition in _TEMPORARY else AUTH)

    def _outcome(self, entered: bool, refusal: int = AUTH) -> bytes:
        self.done = True
        self.failed = not entered
        return _sasl_frame(SaslOutcome(OK if entered else refusal))


class ClientSasl:
    """The client's side. It sends its init at once, before the mechanisms are known."""

    __slots__ = ("_hostname", "_mechanism", "_response", "condition", "done", "failed", "reason")

    def __init__(self, mechanism: str, user: str | None, password: str | None, hostname: str | None) -> None:
        self._mechanism = MECHANISMS[mechanism]
        self._response = self._mechanism.response(user, password)
        self._hostname = hostname
        self.done = False
        self.failed = False
        self.reason = ""
        self.condition = conditions.UNAUTHORIZED_ACCESS

    def start(self) -> bytes:
        """Our header and sasl-init in one flight."""
        return SASL_HEADER + _sasl_frame(SaslInit(self._mechanism.name, self._response, self._hostname))

    def receive(self, body: bytes) -> bytes:
        """Reads a frame of the server. RemoteProtocolError for one that is not expected (a challenge)."""
        value, _ = decode_composite(body)
        if isinstance(value, SaslMechanisms):
            if self._mechanism.name not in value.sasl_server_mechanisms:
                offered = ", ".join(value.sasl_server_mechanisms) or "nothing"
                wants = "" if self._mechanism.has_user else f"{self._mechanism.refused}: "
                self.reason = f"{wants}{self._mechanism.name} is not among what the peer offers: {offered}"
            return b""
        if isinstance(value, SaslOutcome):
            self.done = True
            self.failed = value.code != OK
            if value.code in (SYS, SYS_TEMP):
                self.condition = conditions.RESOURCE_LIMIT_EXCEEDED
                why = "it took too long, the node failed, or too many logins did before"
                self.reason = f"the login was not checked for now (code {value.code}): {why}"
            elif self.failed and not self.reason:
                if value.code != AUTH:
                    self.reason = f"the login was refused (code {value.code})"
                else:
                    self.reason = self._mechanism.refused
            return b""
        text = f"{type(value).__name__} is not expected at this point of the login"
        raise RemoteProtocolError(conditions.NOT_ALLOWED, text)
