"""The client library: it sends and receives messages over AMQP 1.0, with asyncio (docs/client.md).

`connect` makes a Connection, which makes senders and receivers. `holdfast.client.blocking` is for programs without an
event loop.

Rules of this package: asyncio, on `holdfast.amqp` alone.
"""

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.client.administration import UNCHANGED, Administration
from holdfast.client.connection import Connection
from holdfast.client.errors import (
    AuthenticationFailed,
    BodyGone,
    ClientError,
    ClientFull,
    ConnectionEnded,
    ConnectionFailed,
    DeliveryBroken,
    LinkError,
    LinkStolen,
    ManagementError,
    NoReply,
    NotAccepted,
    ProducerConflict,
    RequestInDoubt,
    TransactionError,
    TransactionInDoubt,
    TransactionRolledBack,
    UndecodableMessage,
)
from holdfast.client.messages.compose import compose
from holdfast.client.network.url import Url, parse_url
from holdfast.client.opening import connect
from holdfast.client.outcomes import Accepted, Modified, Outcome, Rejected, Released, Spooled
from holdfast.client.receive.delivery import Delivery
from holdfast.client.receive.parts_delivery import DeliveryInParts
from holdfast.client.receive.parts_receiver import PartsReceiver
from holdfast.client.receive.receiver import Receiver
from holdfast.client.receive.terms import Confirmation, Lease
from holdfast.client.send.sender import Sender
from holdfast.client.spool.spool import Spool
from holdfast.client.transactions import Transaction

__all__ = [
    "UNCHANGED",
    "Accepted",
    "Administration",
    "AuthenticationFailed",
    "BodyGone",
    "ClientError",
    "ClientFull",
    "Confirmation",
    "Connection",
    "ConnectionEnded",
    "ConnectionFailed",
    "Delivery",
    "DeliveryBroken",
    "DeliveryInParts",
    "Header",
    "Lease",
    "LinkError",
    "LinkStolen",
    "ManagementError",
    "Message",
    "Modified",
    "NoReply",
    "NotAccepted",
    "Outcome",
    "PartsReceiver",
    "ProducerConflict",
    "Properties",
    "Receiver",
    "Rejected",
    "Released",
    "RequestInDoubt",
    "Sender",
    "Spool",
    "Spooled",
    "Transaction",
    "TransactionError",
    "TransactionInDoubt",
    "TransactionRolledBack",
    "UndecodableMessage",
    "Url",
    "compose",
    "connect",
    "parse_url",
]
