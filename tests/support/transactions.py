"""A client that controls transactions: declares, discharges, and sends and settles within them."""

from typing import Any

from holdfast.amqp.connection import Delivery, Receiver, Sender
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.composites import from_described
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.performatives import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Properties,
    Rejected,
    Source,
    TransactionalState,
)
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.settings.queues import QueueConfig
from support.one_node import world
from support.rig import Client, Node, Rig

LOCAL = Symbol("amqp:local-transactions")
ROLLBACK = "amqp:transaction:rollback"
TIMEOUT = "amqp:transaction:timeout"
UNKNOWN = "amqp:transaction:unknown-id"
FULL = "amqp:resource-limit-exceeded"


def request(value: Any) -> bytes:
    """A message whose body is that composite."""
    return b"\x00\x53\x77" + encode(value)


class Controller:
    """The coordinator's link of a client in memory."""

    def __init__(self, client: Client, name: str = "coordinator") -> None:
        self.client = client
        self.link: Sender = client.session.attach_sender(name, Source(), Coordinator((LOCAL,)))
        client.rig.settle()

    def ask(self, value: Any, **options: Any) -> Any:
        """The outcome of what is sent to the coordinator; None while there is none."""
        context = object()
        self.link.send(request(value), context=context, **options)
        self.client.rig.settle()
        return next((state for told, state in self.client.outcomes if told is context), None)

    def begin(self) -> bytes:
        declared = self.ask(Declare())
        assert isinstance(declared, Declared), declared
        return declared.txn_id

    def commit(self, txn_id: bytes) -> Any:
        return self.ask(Discharge(txn_id, False))

    def abort(self, txn_id: bytes) -> Any:
        return self.ask(Discharge(txn_id, True))

    # ------------------------------------------------------------------------------------------------ work

    def send(self, txn_id: bytes, link: Sender, body: str, *, number: int | None = None, **parts: Any) -> Any:
        """Sends a message in the transaction; its outcome, as the state wraps it."""
        message = Message(data=[body.encode()], **parts)
        if number is not None:
            message.message_annotations = {Symbol("x-opt-holdfast-number"): Ulong(number)}
        context = object()
        link.send(message.encode(), context=context, state=TransactionalState(txn_id))
        self.client.rig.settle()
        state = next((state for told, state in self.client.outcomes if told is context), None)
        if isinstance(state, TransactionalState):
            assert state.txn_id == txn_id
            return state.outcome if not hasattr(state.outcome, "descriptor") else from_described(state.outcome)
        return state

    def take(self, txn_id: bytes, outcome: Any = None, *, count: int = 1, settled: bool = True) -> list[str]:
        """Gives the oldest deliveries an outcome in the transaction; their bodies."""
        mine = self.client.deliveries[:count]
        for item in mine:
            self.say(item, TransactionalState(txn_id, outcome or Accepted()), settled=settled)
        if settled:
            del self.client.deliveries[:count]
        self.client.rig.settle()
        return [Message.decode(item.payload).body_bytes().decode() for item in mine]

    def say(self, item: Delivery, state: Any, *, settled: bool) -> None:
        assert isinstance(item.link, Receiver)
        if settled:
            item.link.settle(item.delivery_id, item.delivery_id, state)
        else:
            item.link.session.write_disposition(True, item.delivery_id, item.delivery_id, False, state)


def condition(outcome: Any) -> str:
    """Why it was rejected."""
    assert isinstance(outcome, Rejected) and outcome.error is not None, outcome
    return str(outcome.error.condition)


def started(*queues: QueueConfig, **fields: Any) -> tuple[Rig, Node, Client, Controller]:
    rig, node, client = world(*queues, **fields)
    return rig, node, client, Controller(client)


def quiet(node: Node) -> bool:
    """Whether no transaction, nor anything of one, is left."""
    assert node.core is not None
    node.core.validate()
    held = node.core.transactions
    reserved = [queue.reserved or queue.reserved_bytes for queue in node.core.catalog.queues.values()]
    return not (held.open or held.deciding or held.timed or held.counts or any(reserved)) and (
        node.core.memory.transactions.held == 0
    )


def within(txn_id: bytes) -> Any:
    """The state of a transfer that is of a transaction."""
    return TransactionalState(txn_id)


def bound_for(address: str) -> Any:
    """The properties of a message on a link without an address."""
    return Properties(to=address)
