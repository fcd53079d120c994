"""What a client may meet, one class each; every text is one line that names the address.

Rules of this file: all are HoldfastErrors; outcomes of single messages are values and live in `outcomes.py`.
No text here may hold a password.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.errors import ConfigError, HoldfastError, RemoteProtocolError


class ClientError(HoldfastError):
    """The base of the client's own errors."""


class ConnectionFailed(ClientError):
    """There was no connection for `retry_s` seconds; nothing more is tried."""


class AuthenticationFailed(ConnectionFailed):
    """The node refused the user or the password; nothing more is tried."""


class ConnectionEnded(ClientError):
    """The connection or the link was used after its `close`, or during it."""


class LinkError(ClientError):
    """The node refused or ended a link, or the link cannot be attached on this connection.

    `condition` is the node's AMQP error condition, or None.
    """

    def __init__(self, text: str, condition: str | None) -> None:
        super().__init__(text)
        self.condition = condition


class LinkStolen(LinkError):
    """Another sender has attached under the same producer name: this one is fenced, and sends nothing more."""


class ProducerConflict(ClientError):
    """The node has numbers of this producer name that this sender never gave: an old copy of a spool, for example."""


class NotAccepted(ClientError):
    """The node did not take a message: `outcome` is what it answered, a Rejected, Released or Modified.

    `condition` is the AMQP error condition of a rejection, or None. With `is_full` the node may take the message later.
    """

    def __init__(self, text: str, outcome: object, condition: str | None, *, is_full: bool) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.condition = condition
        self.is_full = is_full


class NoReply(ClientError):
    """No reply to a request came in time, or the connection broke before it came: it is unknown whether the request was
    carried out."""


class RequestInDoubt(ClientError):
    """No answer came to a request to `$management` that is not to be sent twice: it is unknown whether the node carried
    it out."""


class ClientFull(ClientError):
    """As many messages are in doubt, or as many bytes in the spool, as the program allowed."""


class TransactionError(ClientError):
    """A transaction was not committed, or its outcome is unknown. `condition` is the node's AMQP error condition, or
    None."""

    def __init__(self, text: str, condition: str | None) -> None:
        super().__init__(text)
        self.condition = condition


class TransactionRolledBack(TransactionError):
    """Nothing of the transaction was done: no message was sent, and what was settled is given out again."""


class TransactionInDoubt(TransactionError):
    """The connection broke during the commit: the node did all of the transaction, or nothing."""


class BodyGone(ClientError):
    """The connection broke while a body was sent that can be read only once; the node does not have the message."""


class DeliveryBroken(ClientError):
    """The connection or the link ended in the middle of a message. The rest does not come; the node offers it again."""


class UndecodableMessage(ClientError, RemoteProtocolError):
    """The bytes of a delivery are no message, or one that cannot be decoded. The delivery can be settled all the same.

    `sequence` and `enqueued_ms` are those of the delivery, and `payload` its bytes, if all arrived.
    """

    def __init__(
        self, condition: str, description: str, *, sequence: int = 0, enqueued_ms: int = 0, payload: bytes = b""
    ) -> None:
        super().__init__(condition, description)
        self.sequence = sequence
        self.enqueued_ms = enqueued_ms
        self.payload = payload


class ManagementError(ClientError):
    """The node answered a `$management` request with an error: its status `code`, its `description`, and the answer's
    `body`, which is empty with most errors."""

    def __init__(self, request: str, code: int, description: str, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{request}: {code} {description}")
        self.code = code
        self.description = description
        self.body = body or {}


def unreadable(path: object, error: OSError) -> ConfigError:
    """For a file that the user named."""
    return ConfigError(f"{path} cannot be read ({error.strerror}); give a file that can be read")
