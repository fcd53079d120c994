"""The SASL layer, both roles: ANONYMOUS (RFC 4505) and PLAIN (RFC 4616). AMQP 1.0 §5.3.

Rules of this file: frame bodies in, bytes out; what comes after the outcome belongs to the next layer and is
never read here. A login that fails is a value (`failed`), not an exception.
"""

from collections.abc import Callable
from typing import Final

from holdfast.amqp import codec, conditions
from holdfast.amqp.effort import Effort, Enough
from holdfast.amqp.frames import SASL_FRAME, SASL_HEADER, frame
from holdfast.amqp.performatives import (
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    decode_composite,
)
from holdfast.errors import RemoteProtocolError

Authenticate = Callable[[str, str | None, str | None], bool]
"""(mechanism, user, password) → may enter. User and password are None for ANONYMOUS. Raises LoginWaits,
LoginNotChecked."""

OK: Final = 0
AUTH: Final = 1
SYS: Final = 2
SYS_TEMP: Final = 4
"""Outcome codes, §5.3.3.6. After SYS and SYS_TEMP the same login may succeed later."""
_TEMPORARY: Final = frozenset((conditions.INTERNAL_ERROR, conditions.RESOURCE_LIMIT_EXCEEDED))
"""A login that ends with one of these says nothing of its user."""

USER_CHARACTERS_MAX: Final = 100
"""Of a name that somebody who is not logged in gave, in a text."""


class LoginWaits(Enough):
    """The login is to be looked at later, on the scale of the connection's `now`: the same frame is read again then."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = at

    def resumes_at(self, effort: Effort | None, now: float) -> float:
        return self.at


class LoginNotChecked(Exception):
    """The login is refused for now, and its password was not looked at: the client may try again."""


ANONYMOUS = "ANONYMOUS"
PLAIN = "PLAIN"


def _sasl_frame(value: object) -> bytes:
    return frame(0, codec.encode(value), SASL_FRAME)


class ServerSasl:
    """The side that asks. `done` after the outcome is written; `failed` if it was no success."""

    __slots__ = ("_authenticate", "_mechanisms", "_started_plain", "condition", "done", "failed", "reason", "user")

    def __init__(self, mechanisms: tuple[str, ...], authenticate: Authenticate | None) -> None:
        if authenticate is None:
            mechanisms = tuple(name for name in mechanisms if name == ANONYMOUS)
        self._mechanisms = mechanisms
        self._authenticate = authenticate
        self._started_plain = False
        self.done = False
        self.failed = False
        self.user: str | None = None
        self.condition = conditions.UNAUTHORIZED_ACCESS
        self.reason = "the login failed"

    def start(self) -> bytes:
        """Our header and the mechanisms, before the client speaks (CLIENTS: it waits for them)."""
        return SASL_HEADER + _sasl_frame(SaslMechanisms(self._mechanisms or (ANONYMOUS,)))

    def receive(self, body: bytes) -> bytes:
        """What to write after this frame; RemoteProtocolError for a frame that has no place here."""
        value, _ = decode_composite(body)
        if isinstance(value, SaslInit) and not self._started_plain:
            if value.mechanism not in self._mechanisms:
                return self._outcome(False)
            if value.mechanism == ANONYMOUS:
                # The response (absent, empty, a name, NUL and a name) is trace information: nothing to check.
                return self._outcome(self._authenticate is None or self._authenticate(ANONYMOUS, None, None))
            if value.initial_response is None:
                self._started_plain = True
                return _sasl_frame(SaslChallenge(b""))
            return self._plain(value.initial_response)
        if isinstance(value, SaslResponse) and self._started_plain:
            return self._plain(value.response)
        raise RemoteProtocolError(conditions.NOT_ALLOWED, f"{type(value).__name__} has no place in this login")

    def refuse(self, condition: str) -> bytes:
        """The outcome of a login that ends with that error: who broke its protocol is refused, and who was too slow, or
        met a failure of ours, may try again. Nothing behind an outcome."""
        return b"" if self.done else self._outcome(False, SYS_TEMP if condition in _TEMPORARY else AUTH)

    def _plain(self, response: bytes) -> bytes:
        parts = response.split(b"\x00")
        if len(parts) != 3 or self._authenticate is None:
            return self._outcome(False)
        try:
            user, password = parts[1].decode(), parts[2].decode()
        except UnicodeDecodeError:
            return self._outcome(False)
        if not user:
            return self._outcome(False)
        told = repr(user[:USER_CHARACTERS_MAX])
        try:
            entered = self._authenticate(PLAIN, user, password)
        except LoginNotChecked:
            self.condition = conditions.RESOURCE_LIMIT_EXCEEDED
            self.reason = f"a login of user {told} was not checked: too many failed from its address"
            return self._outcome(False, SYS_TEMP)
        self.reason = f"the login failed: user {told}"
        if entered:
            self.user = user
        return self._outcome(entered)

    def _outcome(self, entered: bool, refusal: int = AUTH) -> bytes:
        self.done = True
        self.failed = not entered
        return _sasl_frame(SaslOutcome(OK if entered else refusal))


class ClientSasl:
    """The side that is asked. Its init goes out at once, before the mechanisms are known."""

    __slots__ = ("_hostname", "_mechanism", "_response", "condition", "done", "failed", "reason")

    def __init__(self, mechanism: str, user: str | None, password: str | None, hostname: str | None) -> None:
        self._mechanism = mechanism
        self._hostname = hostname
        self._response = b"anonymous" if mechanism == ANONYMOUS else f"\0{user}\0{password}".encode()
        self.done = False
        self.failed = False
        self.reason = ""
        self.condition = conditions.UNAUTHORIZED_ACCESS

    def start(self) -> bytes:
        """Our header and sasl-init in one flight."""
        return SASL_HEADER + _sasl_frame(SaslInit(self._mechanism, self._response, self._hostname))

    def receive(self, body: bytes) -> bytes:
        """Nothing is left to write; RemoteProtocolError for a frame that has no place here (a challenge)."""
        value, _ = decode_composite(body)
        if isinstance(value, SaslMechanisms):
            if self._mechanism not in value.sasl_server_mechanisms:
                offered = ", ".join(value.sasl_server_mechanisms) or "nothing"
                self.reason = f"{self._mechanism} is not among what the peer offers: {offered}"
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
                elif self._mechanism == ANONYMOUS:
                    self.reason = "a login without a user was refused"
                else:
                    self.reason = "wrong user or password"
            return b""
        raise RemoteProtocolError(conditions.NOT_ALLOWED, f"{type(value).__name__} has no place in this login")
