"""A login at either side: the exchange of one mechanism, and what the server's exchange must know.

Rules of this file: an exchange knows responses and challenges, not the frames that carry them (sasl.py). A server's
keeps nothing of a response that raised an error: if the login has to wait, the response is read again. Who may log in
is not decided here.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from holdfast.amqp.effort import Effort, Throttled
from holdfast.amqp.login.keys import Keys


class Known(Protocol):
    """What a server keeps of a user's password."""

    def verify(self, password: str) -> bool:
        """Whether it is that password. Takes the same time whether or not it is, as far as possible."""

    def keys(self, mechanism: str) -> Keys:
        """The keys for a SCRAM mechanism."""


Proof = Callable[[Known], bool]
"""A test whether the client has proved that it knows the password behind this `Known`."""
Authenticate = Callable[[str, str | None, Proof | None], bool]
"""(mechanism, user, proof) → may enter. User and proof are None for ANONYMOUS, proof for EXTERNAL. Raises LoginWaits,
LoginNotChecked."""


class LoginWaits(Throttled):
    """The login is checked later, at a time on the scale of the connection's `now`: the same frame is read again
    then."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = at

    def resumes_at(self, effort: Effort | None, now: float) -> float:
        return self.at


class LoginNotChecked(Exception):
    """The login is refused for now without checking its password: the client may try again."""


class Unproven(Exception):
    """The server's answer does not prove that it knows the password, or it asks for more iterations than a client
    does."""


class Side(NamedTuple):
    """What a login at a server may need. `certified_user`: the user of the certificate that the client presented.
    `nonce`: random text of this connection. `keys`: (mechanism, user) → the user's keys; for an unknown user made-up
    keys, so that a client cannot learn which users exist."""

    authenticate: Authenticate
    certified_user: str | None = None
    nonce: str = ""
    keys: Callable[[str, str], Keys] | None = None


class ServerExchange(Protocol):
    """One login at the server. `user`: the name of the client's user, once it is known. `evidence`: the additional data
    of a successful login, which prove that the server knows the password; None where the mechanism has none."""

    user: str | None
    evidence: bytes | None

    def respond(self, response: bytes | None) -> bytes | bool:
        """The next challenge, or whether the login succeeds. `response`: first that of the sasl-init, or None if it has
        none; then the answers to our challenges. Raises what Authenticate does."""


class ClientExchange(Protocol):
    """One login at the client."""

    def first(self) -> bytes:
        """The response of the sasl-init."""

    def respond(self, challenge: bytes) -> bytes | None:
        """The response to a challenge; None where none is expected. Raises Unproven."""

    def entered(self, evidence: bytes | None) -> None:
        """The server has accepted the login, with this additional data. Raises Unproven."""


class Credentials(NamedTuple):
    """What a client logs in with. `nonce`: random text of this connection."""

    user: str | None
    password: str | None
    nonce: str = ""
