"""SASL mechanisms as a table, both roles: ANONYMOUS (RFC 4505) and PLAIN (RFC 4616).

Rules of this file: an exchange knows responses and challenges, not the frames that carry them (sasl.py). It keeps
nothing of a response that raised an error: if the login has to wait, the response is read again. Who may log in is not
decided here. A client sends everything in one response, because its open follows at once, before any answer.
"""

from collections.abc import Callable
from hmac import compare_digest
from typing import Final, NamedTuple, Protocol

from holdfast.amqp.effort import Effort, Throttled


class Verifier(Protocol):
    """What is kept of a password."""

    def verify(self, password: str) -> bool:
        """Whether it is that password."""


Proof = Callable[[str | Verifier], bool]
"""Whether this password is the one that the client has shown to know."""
Authenticate = Callable[[str, str | None, Proof | None], bool]
"""(mechanism, user, proof) → may enter. User and proof are None for ANONYMOUS. Raises LoginWaits, LoginNotChecked."""


class LoginWaits(Throttled):
    """The login must be checked later, on the scale of the connection's `now`: the same frame is read again then."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = at

    def resumes_at(self, effort: Effort | None, now: float) -> float:
        return self.at


class LoginNotChecked(Exception):
    """The login is refused for now without checking its password: the client may try again."""


class ServerExchange(Protocol):
    """One login at the server. `user`: the name of the client's user, once it is known."""

    user: str | None

    def respond(self, response: bytes | None) -> bytes | bool:
        """The next challenge, or whether the login succeeds. `response`: of its sasl-init, None where it has none; then
        those to our challenges. Raises what Authenticate does."""


class Mechanism(NamedTuple):
    """One entry. `has_user`, `has_password`: what a client must give; a mechanism without a user needs no check.
    `server` begins a login at the server; `response` makes a client's response from (user, password). `refused`: what a
    client reports if the peer refuses it.
    """

    name: str
    has_user: bool
    has_password: bool
    server: Callable[[Authenticate], ServerExchange]
    response: Callable[[str | None, str | None], bytes]
    refused: str


class _AnonymousServer:
    def __init__(self, authenticate: Authenticate) -> None:
        self.user: str | None = None
        self._authenticate = authenticate

    def respond(self, response: bytes | None) -> bool:
        # The response (absent, empty, a name, NUL and a name) is trace information: nothing to check.
        return self._authenticate(ANONYMOUS, None, None)


class _PlainServer:
    def __init__(self, authenticate: Authenticate) -> None:
        self.user: str | None = None
        self._authenticate = authenticate

    def respond(self, response: bytes | None) -> bytes | bool:
        if response is None:
            return b""
        parts = response.split(b"\x00")
        if len(parts) != 3:
            return False
        try:
            user, password = parts[1].decode(), parts[2].decode()
        except UnicodeDecodeError:
            return False
        if not user:
            return False
        self.user = user
        return self._authenticate(PLAIN, user, lambda known: _is_same(known, password))


def _is_same(known: str | Verifier, password: str) -> bool:
    """In constant time of the password that is known."""
    return compare_digest(known.encode(), password.encode()) if isinstance(known, str) else known.verify(password)


ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"

MECHANISMS: Final = {
    mechanism.name: mechanism
    for mechanism in (
        Mechanism(
            ANONYMOUS,
            has_user=False,
            has_password=False,
            server=_AnonymousServer,
            response=lambda user, password: b"anonymous",
            refused="a login without a user was refused",
        ),
        Mechanism(
            PLAIN,
            has_user=True,
            has_password=True,
            server=_PlainServer,
            response=lambda user, password: f"\0{user}\0{password}".encode(),
            refused="wrong user or password",
        ),
    )
}
"""By name, in the order in which a server offers them."""


def mechanism_for(user: str | None) -> str:
    """The mechanism of a client with this user and a password; None: it has no user."""
    return ANONYMOUS if user is None else PLAIN
