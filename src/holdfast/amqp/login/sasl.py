"""The SASL layer, both roles: the frames of a login, for any mechanism (mechanisms.py). AMQP 1.0 §5.3.

Rules of this file: frame bodies in, bytes out; what comes after the outcome belongs to the next layer and is
never read here. A login that fails is a value (`failed`), not an exception.
"""

from collections.abc import Collection
from typing import Final

from holdfast.amqp.login.exchanges import (
    Authenticate,
    ClientExchange,
    Credentials,
    LoginNotChecked,
    Proof,
    ServerExchange,
    Side,
    Unproven,
)
from holdfast.amqp.login.mechanisms import EXTERNAL, MECHANISMS, PLAIN, Mechanism, anyone
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
"""Conditions of a login that failed for another reason than the user or the password."""

EVIDENCE_BYTES_MAX: Final = 1_024
"""The maximum size of the additional data in a server's outcome."""
USER_CHARACTERS_MAX: Final = 100
"""Characters of a name from a peer that has not logged in, in a text."""


def _sasl_frame(value: object) -> bytes:
    return frame(0, encoding.encode(value), SASL_FRAME)


def _shown(user: str | None) -> str:
    return repr((user or "")[:USER_CHARACTERS_MAX])


def _anyone(mechanism: str, user: str | None, proof: Proof | None) -> bool:
    return True


class ServerSasl:
    """The server's side. `done` after the outcome was written; `failed` if the login failed."""

    __slots__ = (
        "_exchange",
        "_mechanisms",
        "_side",
        "condition",
        "done",
        "failed",
        "hostname",
        "mechanism",
        "reason",
        "user",
    )

    def __init__(self, mechanisms: tuple[str, ...], authenticate: Authenticate | None, side: Side) -> None:
        """`side`: everything but its `authenticate` is used."""
        self._side = side._replace(authenticate=authenticate or _anyone)
        self._mechanisms = tuple(
            name for name in mechanisms if name in anyone(authenticate) and MECHANISMS[name].may_enter(self._side)
        )
        self._exchange: ServerExchange | None = None
        """Set once the client has been sent a challenge."""
        self.done = False
        self.failed = False
        self.user: str | None = None
        self.hostname: str | None = None
        """The host name that the client gives in its sasl-init."""
        self.mechanism: str | None = None
        self.condition = conditions.UNAUTHORIZED_ACCESS
        self.reason = "the login failed"

    def start(self) -> bytes:
        """Our header and the mechanisms, before the client speaks (CLIENTS: it waits for them)."""
        return SASL_HEADER + _sasl_frame(SaslMechanisms(self._mechanisms or (EXTERNAL,)))

    def receive(self, body: bytes) -> bytes:
        """What to write after this frame; RemoteProtocolError for a frame that has no place here."""
        value, _ = decode_composite(body)
        exchange = self._exchange
        if isinstance(value, SaslInit) and exchange is None:
            self.mechanism = value.mechanism
            if value.mechanism not in self._mechanisms:
                self.reason = f"the login failed: {_shown(value.mechanism)} is not offered to this connection"
                return self._outcome(False)
            exchange = MECHANISMS[value.mechanism].server(self._side)
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
        return self._outcome(answer, evidence=exchange.evidence)

    def refuse(self, condition: str) -> bytes:
        """The outcome of a login that ends with that error: a client that broke the protocol is refused; one that was
        too slow, or met a failure of ours, may try again. Empty after an outcome."""
        return b"" if self.done else self._outcome(False, SYS_TEMP if condition in _TEMPORARY else AUTH)

    def _outcome(self, entered: bool, refusal: int = AUTH, *, evidence: bytes | None = None) -> bytes:
        self.done = True
        self.failed = not entered
        return _sasl_frame(SaslOutcome(OK, evidence) if entered else SaslOutcome(refusal))


class ClientSasl:
    """The client's side. With one mechanism it sends its init at once, before the mechanisms are known; of several it
    takes the first that the server offers. `at_once`: what follows the login need not wait for its outcome."""

    __slots__ = (
        "_exchange",
        "_given",
        "_hostname",
        "_mechanism",
        "_mechanisms",
        "at_once",
        "condition",
        "done",
        "failed",
        "reason",
    )

    def __init__(self, mechanisms: tuple[str, ...], given: Credentials, hostname: str | None) -> None:
        self._mechanisms = mechanisms
        self._given = given
        self._hostname = hostname
        self._mechanism: Mechanism | None = None
        self._exchange: ClientExchange | None = None
        if len(mechanisms) == 1:
            self._choose(mechanisms[0])
        self.at_once = len(mechanisms) == 1 and MECHANISMS[mechanisms[0]].at_once
        self.done = False
        self.failed = False
        self.reason = ""
        self.condition = conditions.UNAUTHORIZED_ACCESS

    def _choose(self, name: str) -> None:
        self._mechanism = MECHANISMS[name]
        self._exchange = self._mechanism.client(self._given)

    def start(self) -> bytes:
        """Our header and, where the mechanism is known, sasl-init in one flight."""
        return SASL_HEADER + self._init()

    def _init(self) -> bytes:
        if self._mechanism is None or self._exchange is None:
            return b""
        return _sasl_frame(SaslInit(self._mechanism.name, self._exchange.first(), self._hostname))

    def receive(self, body: bytes) -> bytes:
        """What to write after this frame of the server; RemoteProtocolError for one that is not expected."""
        value, _ = decode_composite(body)
        exchange = self._exchange
        if isinstance(value, SaslMechanisms):
            return self._offered(value.sasl_server_mechanisms)
        try:
            if isinstance(value, SaslChallenge) and exchange is not None:
                answer = exchange.respond(value.challenge)
                if answer is not None:
                    return _sasl_frame(SaslResponse(answer))
            if isinstance(value, SaslOutcome):
                if value.code == OK and exchange is not None:
                    exchange.entered((value.additional_data or b"")[:EVIDENCE_BYTES_MAX] or None)
                self._ended(value.code)
                return b""
        except Unproven as error:
            self._give_up(str(error))
            return b""
        text = f"{type(value).__name__} is not expected at this point of the login"
        raise RemoteProtocolError(conditions.NOT_ALLOWED, text)

    def _offered(self, names: Collection[str]) -> bytes:
        mechanism = self._mechanism
        offered = ", ".join(names) or "nothing"
        if mechanism is None:
            found = next((name for name in self._mechanisms if name in names), None)
            if found is not None:
                self._choose(found)
                return self._init()
            wanted = " and ".join(self._mechanisms)
            has = "is" if len(self._mechanisms) == 1 else "are"
            text = f"{wanted} {has} not among what the peer offers: {offered}"
            if PLAIN in names and any(MECHANISMS[name].has_password for name in self._mechanisms):
                text += "; a password is not sent in the clear: use amqps://, or allow PLAIN"
            self._give_up(text)
        elif mechanism.name not in names:
            wants = "" if mechanism.has_user else f"{mechanism.refused}: "
            self.reason = f"{wants}{mechanism.name} is not among what the peer offers: {offered}"
        return b""

    def _ended(self, code: int) -> None:
        self.done = True
        self.failed = code != OK
        if code in (SYS, SYS_TEMP):
            self.condition = conditions.RESOURCE_LIMIT_EXCEEDED
            why = "it took too long, the node failed, or too many logins did before"
            self.reason = f"the login was not checked for now (code {code}): {why}"
        elif self.failed and not self.reason:
            if code != AUTH or self._mechanism is None:
                self.reason = f"the login was refused (code {code})"
            else:
                self.reason = self._mechanism.refused

    def _give_up(self, reason: str) -> None:
        """The login has failed at our side: the transport is closed."""
        self.done = self.failed = True
        self.reason = reason
