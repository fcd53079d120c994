"""RabbitMQ's AMQP 1.0 client for Python against a node (CLIENTS 39).

Its `Connection` turns away from whatever is not RabbitMQ 4 or later, and a node does not call itself that. Its
`Publisher` and `Consumer` take a connection that is open already, of the Proton that it brings along, and so they work
with other brokers as well.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

rabbitmq = pytest.importorskip(
    "rabbitmq_amqp_python_client", reason="RabbitMQ's client (rabbitmq-amqp-python-client) is not installed"
)

from rabbitmq_amqp_python_client import (  # noqa: E402
    AmqpMessageRejectedException,
    AMQPMessagingHandler,
    Consumer,
    ConsumerOptions,
    ConsumerSettleStrategy,
    Environment,
    Event,
    Message,
    OutcomeState,
    Publisher,
    ValidationCodeException,
)
from rabbitmq_amqp_python_client.qpid.proton.utils import BlockingConnection  # noqa: E402

from interop.proton_peer import Client  # noqa: E402
from interop.recorder import CLOSE, OPEN, Recorder  # noqa: E402
from support.process import NodeProcess  # noqa: E402

pytestmark = pytest.mark.interop


class Throttled(Exception):
    """Ends a consumer, which knows no other end."""


class EntryConsumer(AMQPMessagingHandler):
    """Settles each message as `decide` says of its index; notes what came."""

    def __init__(self, count: int, decide: Callable[[int, Any, Event], None]) -> None:
        super().__init__()
        self.count = count
        self.decide = decide
        self.came: list[tuple[bytes, dict[str, Any]]] = []

    def on_amqp_message(self, event: Event) -> None:
        message = event.message
        notes = {key: value for key, value in message.annotations.items() if not key.startswith("x-opt-seq")}
        self.came.append((bytes(message.body), notes))
        self.decide(len(self.came), self.delivery_context, event)
        if len(self.came) == self.count:
            raise Throttled


def run(consumer: Consumer) -> None:
    with pytest.raises(Throttled):
        consumer.run()


@pytest.fixture
def connection(hub: NodeProcess) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(hub.url, timeout=15)
    yield connection
    connection.close()


def publish(connection: BlockingConnection, address: str, count: int) -> None:
    publisher = Publisher(connection, address)
    for number in range(count):
        delivery = publisher.publish(Message(body=b"%d" % number, inferred=True))
        assert delivery.remote_state == OutcomeState.ACCEPTED
    publisher.close()


def test_its_connection_turns_away_and_the_node_serves_on(hub: NodeProcess, address: str) -> None:
    with Recorder(hub.port) as line:
        connection = Environment(uri=f"amqp://127.0.0.1:{line.port}").connection()
        with pytest.raises(ValidationCodeException, match="Expected 'RabbitMQ', got 'Holdfast'"):
            connection.dial()
        connection.close()
        assert line.count(from_client=False, code=OPEN) == line.count(from_client=False, code=CLOSE) == 1
    with Client(hub.port) as client:
        client.serves(address)


@pytest.mark.parametrize("form", ["{}", "/queues/{}", "/queues/{}%20%2F"], ids=["bare", "its-own", "percent-encoded"])
def test_publisher_and_consumer(connection: BlockingConnection, address: str, form: str) -> None:
    address = form.format(address)
    publish(connection, address, 30)
    taker = EntryConsumer(30, lambda _, context, event: context.accept(event))
    consumer = Consumer(connection, address, taker)
    assert consumer.address == address
    run(consumer)
    assert [body for body, _ in taker.came] == [b"%d" % number for number in range(30)]
    consumer.close()


def test_every_outcome(hub: NodeProcess, connection: BlockingConnection, address: str) -> None:
    publish(connection, address, 5)

    def decide(number: int, context: Any, event: Event) -> None:
        match number:
            case 1:
                context.requeue_with_annotations(event, {"x-opt-why": "because"})
            case 2:
                context.requeue(event)
            case 3:
                context.discard_with_annotations(event, {"x-opt-why": "bad"})
            case 4:
                context.discard(event)
            case _:
                context.accept(event)

    taker = EntryConsumer(7, decide)
    consumer = Consumer(connection, address, taker)
    run(consumer)
    assert [body for body, _ in taker.came] == [b"0", b"1", b"2", b"3", b"4", b"0", b"1"]
    assert [notes.get("x-opt-why") for _, notes in taker.came] == [None] * 5 + ["because", None]
    consumer.close()
    with Client(hub.port) as client:
        # Failed and undeliverable here: not for that consumer again, and with what it noted.
        (left,) = client.receiver(address).drain()
        assert bytes(left.body) == b"2"
        assert (left.message.delivery_count, left.message.annotations["x-opt-why"]) == (1, "bad")


def test_settled_beforehand(hub: NodeProcess, connection: BlockingConnection, address: str) -> None:
    publish(connection, address, 20)
    taker = EntryConsumer(20, lambda number, context, event: None)
    consumer = Consumer(connection, address, taker, ConsumerOptions(ConsumerSettleStrategy.PreSettled))
    run(consumer)
    assert [body for body, _ in taker.came] == [b"%d" % number for number in range(20)]
    consumer.close()
    with Client(hub.port) as client:
        client.await_depth(address, 0)


def test_messages_of_others_without_annotations(hub: NodeProcess, connection: BlockingConnection, address: str) -> None:
    with Client(hub.port) as client:
        client.send_bodies(address, b"no annotations")
    taker = EntryConsumer(1, lambda _, context, event: context.accept(event))
    consumer = Consumer(connection, address, taker)
    run(consumer)
    assert [body for body, _ in taker.came] == [b"no annotations"]
    consumer.close()


def test_a_rejected_message_is_told_why(strict: NodeProcess) -> None:
    connection = BlockingConnection(strict.url, timeout=15)
    publisher = Publisher(connection, "one-alone")
    publisher.publish(Message(body=b"fits", inferred=True))
    with pytest.raises(AmqpMessageRejectedException, match="queue 'one-alone' is full: 1 messages"):
        publisher.publish(Message(body=b"does not", inferred=True))
    publisher.close()
    connection.close()
    with Client(strict.port) as client:
        (arrival,) = client.receiver("one-alone").drain()
        assert bytes(arrival.body) == b"fits"
        arrival.accept()
