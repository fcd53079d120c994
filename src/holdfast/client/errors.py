"""What a client may meet, one class each; every text is one line that names the address.

Rules of this file: all are HoldfastErrors; outcomes of single messages are values and live in `outcomes.py`.
No text here may hold a password.
"""

from holdfast.errors import ConfigError, HoldfastError, RemoteProtocolError


class ClientError(HoldfastError):
    """Base of the client's errors."""


class ConnectionFailed(ClientError):
    """No connection for as long as the client was told to try; nothing more will be tried."""


class AuthenticationFailed(ConnectionFailed):
    """The node refused user or password; trying again would not help."""


class ConnectionEnded(ClientError):
    """Used after `close`, or while it closes."""


class LinkError(ClientError):
    """The node refused or ended a link, and `condition` is its AMQP condition, None where it gave none; or the link
    cannot be attached on this connection, without a condition.
    """

    def __init__(self, text: str, condition: str | None) -> None:
        super().__init__(text)
        self.condition = condition


class LinkStolen(LinkError):
    """Another sender attached under the same producer name: this one is fenced and sends nothing more."""


class ProducerConflict(ClientError):
    """The node has stored numbers of this producer name that this sender never gave out."""


class ClientFull(ClientError):
    """As much is in doubt or spooled as was allowed."""


class BodyGone(ClientError):
    """A body that can be read once only was under way when the connection broke; the node does not have it."""


class DeliveryBroken(ClientError):
    """The connection or the link ended in the middle of a message: the rest does not come, the node offers it anew."""


class UndecodableMessage(ClientError, RemoteProtocolError):
    """A delivery's payload is no message, or one that cannot be decoded; the delivery can be settled all the same.

    `sequence` and `enqueued_ms` as the delivery has them, `payload` its bytes, where they came whole.
    """

    def __init__(
        self, condition: str, description: str, *, sequence: int = 0, enqueued_ms: int = 0, payload: bytes = b""
    ) -> None:
        super().__init__(condition, description)
        self.sequence = sequence
        self.enqueued_ms = enqueued_ms
        self.payload = payload


class ManagementError(ClientError):
    """The node answered a `$management` request with a status other than 2xx: `code` and `description`."""

    def __init__(self, request: str, code: int, description: str) -> None:
        super().__init__(f"{request}: {code} {description}")
        self.code = code
        self.description = description


def unreadable(path: object, error: OSError) -> ConfigError:
    """For a file that the user named."""
    return ConfigError(f"{path}: {error.strerror}, accepted is a file that can be read")
