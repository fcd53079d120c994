"""Addresses that a message or the node gives: anonymous senders, dynamic nodes, requests with their answers
(CLIENTS 32, 33, 36, 39); Qpid Proton in Python and C++, rhea and RabbitMQ's publisher.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import pytest

proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")

from proton import ConnectionException, Delivery, Endpoint, Message, Terminus, symbol  # noqa: E402
from proton.reactor import LinkOption  # noqa: E402
from proton.utils import LinkDetached, SyncRequestResponse  # noqa: E402

from interop.peer_process import PeerProcess  # noqa: E402
from interop.proton_peer import Client  # noqa: E402
from interop.rhea_peer import Rhea  # noqa: E402
from support.process import NodeProcess  # noqa: E402

pytestmark = pytest.mark.interop

Native = Callable[..., PeerProcess]
REQUESTS = (
    "Twas brillig, and the slithy toves",
    "Did gire and gymble in the wabe.",
    "All mimsy were the borogroves,",
    "And the mome raths outgrabe.",
)
"""What Debian's client in C++ asks; its server, and ours, answer in capitals."""
ANSWERS = [(request, request.upper()) for request in REQUESTS]


# ------------------------------------------------------------------------------------------------ request, response

Server = Callable[[NodeProcess, str, pytest.FixtureRequest], AbstractContextManager[None]]


def answer_in_capitals(port: int, address: str) -> None:
    with Client(port) as client:
        receiver, sender = client.receiver(address), client.sender(None)
        for _ in REQUESTS:
            arrival = receiver.one()
            asked = arrival.message
            answer = Message(address=asked.reply_to, correlation_id=asked.correlation_id, body=asked.body.upper())
            sender.send(answer)
            arrival.accept()
        client.barrier(address)


@contextmanager
def python_server(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> Iterator[None]:
    with ThreadPoolExecutor(1) as executor:
        serving = executor.submit(answer_in_capitals, hub.port, address)
        try:
            yield
        finally:  # who asks a server that has failed waits in vain: its failure is told
            serving.result()


@contextmanager
def rhea_server(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> Iterator[None]:
    server = request.getfixturevalue("rhea")("serve", hub.port, address=address, count=len(REQUESTS))
    server.hear("serves")
    yield
    server.done()


@contextmanager
def cpp_server(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """It attaches a sender for each address that it answers to."""
    server = request.getfixturevalue("native")("cpp/server.cpp", f"//127.0.0.1:{hub.port}", address)
    yield
    assert "Server connected" in server.line("its first line")
    for asked in REQUESTS:
        assert server.line("a request") == f"Received {asked}\n"
    server.close()


def python_client(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> list[tuple[str, str]]:
    with Client(hub.port) as client:
        calls = SyncRequestResponse(client.connection, address)
        return [(asked, calls.call(Message(body=asked)).body) for asked in REQUESTS]


def rhea_client(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> list[tuple[str, str]]:
    found = request.getfixturevalue("rhea")("request", hub.port, address=address, requests=REQUESTS).done()
    assert [number for number, _ in found["answers"]] == [f"c{number}" for number in range(len(REQUESTS))]
    return [(asked, body) for asked, (_, body) in zip(REQUESTS, found["answers"], strict=True)]


def cpp_client(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> list[tuple[str, str]]:
    said = request.getfixturevalue("native")("cpp/client.cpp", "-a", f"127.0.0.1:{hub.port}/{address}").ended()
    return [(asked, answer) for asked, _, answer in (line.partition(" => ") for line in said)]


NATIVE: dict[object, str] = {cpp_server: "cpp/server.cpp", cpp_client: "cpp/client.cpp"}


@pytest.mark.parametrize("asks", [python_client, rhea_client, cpp_client])
@pytest.mark.parametrize("serves", [python_server, rhea_server, cpp_server])
def test_requests_and_their_answers(
    hub: NodeProcess,
    address: str,
    request: pytest.FixtureRequest,
    serves: Server,
    asks: Callable[[NodeProcess, str, pytest.FixtureRequest], list[tuple[str, str]]],
) -> None:
    if rhea_server is serves or rhea_client is asks:
        request.getfixturevalue("rhea")  # skips, before anything is started
    for program in (NATIVE[side] for side in (serves, asks) if side in NATIVE):
        request.getfixturevalue("compiled")(program)  # the other side's time runs once it has begun
    with serves(hub, address, request):
        assert asks(hub, address, request) == ANSWERS


# ------------------------------------------------------------------------------------------------ anonymous senders


def test_proton_sends_to_where_each_message_says(client: Client, address: str) -> None:
    assert symbol("ANONYMOUS-RELAY") in client.connection.conn.remote_offered_capabilities
    sender = client.sender(None)
    for number in range(30):
        sender.send(Message(address=f"{address}-{number % 3}", body=number))
    for number in range(3):
        found = client.receiver(f"{address}-{number}").flow(10).take(10)
        assert [arrival.body for arrival in found] == list(range(number, 30, 3))
        assert {arrival.message.address for arrival in found} == {f"{address}-{number}"}


def test_a_bad_address_costs_proton_its_message_alone(strict: NodeProcess) -> None:
    with Client(strict.port) as client:
        sender = client.sender(None)
        for to, condition in (("unknown", "amqp:not-found"), (None, "amqp:precondition-failed")):
            delivery = client.stream(sender, Message(address=to, body="x").encode())
            assert delivery.remote_state == Delivery.REJECTED
            assert delivery.remote.condition.name == condition
            delivery = client.stream(sender, Message(address="known", body="y").encode())
            assert delivery.remote_state == Delivery.ACCEPTED
        receiver = client.receiver("known")
        for arrival in receiver.flow(2).take(2):
            assert arrival.body == "y"
            arrival.accept()
        client.barrier("known")


def test_rhea_sends_to_where_each_message_says(strict: NodeProcess, rhea: type[Rhea]) -> None:
    result = rhea("anonymous", strict.port, addresses=["known", "unknown", "known"]).done()
    assert result["seen"] == [["accepted", None], ["rejected", "amqp:not-found"], ["accepted", None]]
    assert "ANONYMOUS-RELAY" in result["offered"]
    with Client(strict.port) as client:
        for arrival in client.receiver("known").flow(2).take(2):
            assert arrival.body == "known"
            arrival.accept()


def test_rabbitmq_s_publisher_without_an_address(hub: NodeProcess, client: Client, address: str) -> None:
    rabbitmq = pytest.importorskip("rabbitmq_amqp_python_client", reason="RabbitMQ's client is not installed")
    utils = pytest.importorskip("rabbitmq_amqp_python_client.qpid.proton.utils")
    connection = utils.BlockingConnection(hub.url, timeout=15)
    publisher = rabbitmq.Publisher(connection)
    for number in range(3):
        to = rabbitmq.AddressHelper.queue_address(f"{address} {number}")
        delivery = publisher.publish(rabbitmq.Message(address=to, body=b"%d" % number, inferred=True))
        assert delivery.remote_state == rabbitmq.OutcomeState.ACCEPTED
    publisher.close()
    connection.close()
    for number in range(3):
        assert bytes(client.receiver(f"{address} {number}").one().body) == b"%d" % number


# ------------------------------------------------------------------------------------------------ dynamic nodes


class DynamicTarget(LinkOption):
    def apply(self, link: proton.Link) -> None:
        link.target.dynamic = True


def test_a_dynamic_source_serves_others_until_its_link_ends(hub: NodeProcess, client: Client) -> None:
    receivers = [client.connection.create_receiver(None, dynamic=True, name=f"d{number}") for number in range(2)]
    addresses = [receiver.link.remote_source.address for receiver in receivers]
    assert len(set(addresses)) == 2
    assert all(receiver.link.remote_source.dynamic for receiver in receivers)
    with Client(hub.port) as other:
        for address in addresses:
            other.send_bodies(address, address)
        for receiver, address in zip(receivers, addresses, strict=True):
            assert receiver.receive().body == address
            receiver.accept()
        receivers[0].close()
        with pytest.raises(LinkDetached, match="amqp:not-found"):
            other.sender(addresses[0])
        still = other.sender(addresses[1])
        client.connection.close()
        with pytest.raises(LinkDetached, match="amqp:resource-deleted"):
            other.wait(lambda: False)
        assert still.link.state & Endpoint.REMOTE_CLOSED


def test_a_dynamic_target_is_read_by_others(hub: NodeProcess, client: Client) -> None:
    sender = client.sender(None, DynamicTarget())
    target = sender.link.remote_target
    assert target.dynamic and target.type == Terminus.TARGET
    sender.send(Message(body="x"))
    with Client(hub.port) as other:
        assert other.receiver(target.address).one().body == "x"


def test_rhea_s_dynamic_source(client: Client, hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    peer = rhea("dynamic", hub.port, address=address)
    made = peer.hear("made")
    assert made["dynamic"]
    client.send_bodies(made["address"], "to a dynamic node")
    peer.say("close it")
    assert peer.hear("closed")["condition"] == "amqp:not-found"
    peer.say("go on")
    assert peer.done()["body"] == "to a dynamic node"


def test_rabbitmq_s_consumer_of_direct_replies(hub: NodeProcess, client: Client) -> None:
    rabbitmq = pytest.importorskip("rabbitmq_amqp_python_client", reason="RabbitMQ's client is not installed")
    utils = pytest.importorskip("rabbitmq_amqp_python_client.qpid.proton.utils")

    class EntryConsumer(rabbitmq.AMQPMessagingHandler):
        def on_amqp_message(self, event: rabbitmq.Event) -> None:
            raise StopIteration(bytes(event.message.body))

    connection = utils.BlockingConnection(hub.url, timeout=15)
    options = rabbitmq.ConsumerOptions(rabbitmq.ConsumerSettleStrategy.DirectReplyTo)
    consumer = rabbitmq.Consumer(connection, None, EntryConsumer(), options)
    client.send_bodies(consumer.address, b"an answer")
    with pytest.raises(StopIteration, match="an answer"):
        consumer.run()
    consumer.close()
    connection.close()


# ------------------------------------------------------------------------------------------------ names of others


@pytest.mark.parametrize("form", ["/queues/{}", "amqp://some.host/{}", "amqps://some.host:5671/{}"])
def test_addresses_as_other_brokers_have_them(client: Client, address: str, form: str) -> None:
    client.send_bodies(form.format(address + "%20%C3%A9"), "x")
    assert client.receiver(f"{address} é").one().body == "x"


def test_the_only_connection_of_a_container(hub: NodeProcess, address: str) -> None:
    only = symbol("sole-connection-for-container")
    with Client(hub.port, container_id=address, desired_capabilities=only) as client:
        assert only in client.connection.conn.remote_offered_capabilities
        with pytest.raises(ConnectionException, match="amqp:invalid-field"):
            Client(hub.port, container_id=address)
        client.serves(address)
    with Client(hub.port, container_id=address) as client:
        client.serves(address)
