"""SASL mechanisms as a table, both roles: ANONYMOUS (RFC 4505), PLAIN (RFC 4616), EXTERNAL (RFC 4422, appendix A), and
SCRAM (scram.py).

Rules of this file: a client whose mechanism needs one response sends everything in one flight, because its open follows
at once, before any answer.
"""

from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from typing import Final, NamedTuple

from holdfast.amqp.login.exchanges import Authenticate, ClientExchange, Credentials, ServerExchange, Side
from holdfast.amqp.login.keys import SHA_256, SHA_512
from holdfast.amqp.login.scram import ClientScram, ServerScram


class Mechanism(NamedTuple):
    """One entry. `has_user`, `has_password`: what a client must give. `at_once`: one response is all that it takes.
    `server`, `client`: begin a login. `may_enter`: whether a server has what it needs for it. `refused`: what a client
    reports if the peer refuses it.
    """

    name: str
    has_user: bool
    has_password: bool
    at_once: bool
    server: Callable[[Side], ServerExchange]
    client: Callable[[Credentials], ClientExchange]
    may_enter: Callable[[Side], bool]
    refused: str


class _Once:
    """A client's login of one response."""

    def __init__(self, response: bytes) -> None:
        self._response = response

    def first(self) -> bytes:
        return self._response

    def respond(self, challenge: bytes) -> bytes | None:
        return None

    def entered(self, evidence: bytes | None) -> None:
        """Does nothing: these mechanisms give the client no proof of the server."""


class _AnonymousServer:
    def __init__(self, side: Side) -> None:
        self.user: str | None = None
        self.evidence: bytes | None = None
        self._authenticate = side.authenticate

    def respond(self, response: bytes | None) -> bool:
        # The response (absent, empty, a name, NUL and a name) is trace information: nothing to check.
        return self._authenticate(ANONYMOUS, None, None)


class _PlainServer:
    def __init__(self, side: Side) -> None:
        self.user: str | None = None
        self.evidence: bytes | None = None
        self._authenticate = side.authenticate

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
        if not user or parts[0] not in (b"", parts[1]):  # no user acts for another one (RFC 4616 §2)
            return False
        self.user = user
        return self._authenticate(PLAIN, user, lambda known: known.verify(password))


class _ExternalServer:
    """The user is that of the certificate which the client presented; a user that the client names must be the same."""

    def __init__(self, side: Side) -> None:
        self.user: str | None = None
        self.evidence: bytes | None = None
        self._side = side

    def respond(self, response: bytes | None) -> bool:
        user = self._side.certified_user
        if user is None or (response and not compare_digest(response, user.encode())):
            return False
        self.user = user
        return self._side.authenticate(EXTERNAL, user, None)


ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"
EXTERNAL: Final = "EXTERNAL"
SCRAM: Final = (SHA_512, SHA_256)
"""The better one first."""


def _scram(name: str) -> Mechanism:
    return Mechanism(
        name,
        has_user=True,
        has_password=True,
        at_once=False,
        server=partial(ServerScram, name),
        client=partial(ClientScram, name),
        may_enter=lambda side: bool(side.nonce) and side.keys is not None,
        refused="wrong user or password",
    )


MECHANISMS: Final = {
    mechanism.name: mechanism
    for mechanism in (
        Mechanism(
            EXTERNAL,
            has_user=False,
            has_password=False,
            at_once=True,
            server=_ExternalServer,
            client=lambda given: _Once(b""),
            may_enter=lambda side: side.certified_user is not None,
            refused="the certificate is no user's",
        ),
        *map(_scram, SCRAM),
        Mechanism(
            ANONYMOUS,
            has_user=False,
            has_password=False,
            at_once=True,
            server=_AnonymousServer,
            client=lambda given: _Once(b"anonymous"),
            may_enter=lambda side: True,
            refused="a login without a user was refused",
        ),
        Mechanism(
            PLAIN,
            has_user=True,
            has_password=True,
            at_once=True,
            server=_PlainServer,
            client=lambda given: _Once(f"\0{given.user}\0{given.password}".encode()),
            may_enter=lambda side: True,
            refused="wrong user or password",
        ),
    )
}
"""By name, in the order in which a server offers them."""


def anyone(authenticate: Authenticate | None) -> tuple[str, ...]:
    """The mechanisms that a server may offer at all: without a check, that without a user."""
    return (ANONYMOUS,) if authenticate is None else tuple(MECHANISMS)


def mechanisms_for(user: str | None, *, certified: bool, exposed: bool, plain_allowed: bool) -> tuple[str, ...]:
    """Those of a client with this user and a password, None without one, the best first. `certified`: it has a
    certificate to show. `exposed`: what it says crosses a network as it is, so that a password is not said, unless
    `plain_allowed`."""
    if user is None:
        return (EXTERNAL, ANONYMOUS) if certified else (ANONYMOUS,)
    if not exposed:
        return (PLAIN,)
    return (*SCRAM, PLAIN) if plain_allowed else SCRAM
