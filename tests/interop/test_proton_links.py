"""Links and sessions of Qpid Proton: names, handles, refusals, subscriptions (CLIENTS 2, 9, 13, 15, 37)."""

import socket
from typing import Any

import pytest

proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")

from proton import Delivery, Endpoint, Message, Terminus  # noqa: E402
from proton.reactor import DurableSubscription, Selector  # noqa: E402
from proton.utils import LinkDetached  # noqa: E402

from interop.proton_engine import engine, flush, pump_until  # noqa: E402
from interop.proton_peer import LIMIT_S, ByNumber, Client  # noqa: E402
from interop.recorder import ATTACH, DETACH, END, Recorder  # noqa: E402
from support.process import NodeProcess  # noqa: E402

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("sasl", [False, True], ids=["no-sasl", "anonymous"])
@pytest.mark.parametrize("part_bytes", [None, 1, 7], ids=["one-segment", "byte-by-byte", "sevens"])
def test_open_begin_attach_pipelined(hub: NodeProcess, address: str, sasl: bool, part_bytes: int | None) -> None:
    connection, transport, _ = engine(sasl=sasl)
    session = connection.session()
    session.open()
    sender = session.sender("pipelined")
    sender.target.address = address
    sender.open()
    receiver = session.receiver("pipelined")
    receiver.source.address = address
    receiver.open()
    receiver.flow(1)
    with socket.create_connection(("127.0.0.1", hub.port), timeout=LIMIT_S) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        first = flush(transport, wire, part_bytes=part_bytes)
        if not sasl:
            assert first > 100  # header, open, begin, two attaches and a flow, before anything was read
        pump_until(transport, wire, lambda: sender.credit > 0 and receiver.state & Endpoint.REMOTE_ACTIVE)
        assert sender.remote_target.address == receiver.remote_source.address == address
        delivery = sender.delivery("tag")
        sender.stream(Message(body="x").encode())
        sender.advance()
        pump_until(transport, wire, lambda: delivery.settled and receiver.current is not None)
        assert delivery.remote_state == Delivery.ACCEPTED
        arrival = receiver.current
        message = Message()
        message.decode(receiver.recv(arrival.pending))
        assert message.body == "x"
        arrival.update(Delivery.ACCEPTED)
        arrival.settle()
        connection.close()
        pump_until(transport, wire, lambda: connection.state & Endpoint.REMOTE_CLOSED)


def test_sender_and_receiver_of_one_name(client: Client, address: str) -> None:
    sender = client.sender(address, name="twin")
    receiver = client.receiver(address, name="twin")
    sender.send(Message(body="x"))
    assert receiver.one().body == "x"
    sender.close()
    receiver.close()


def test_name_is_free_again_at_once(client: Client, address: str) -> None:
    for number in range(20):
        sender = client.sender(address, name="again")
        sender.send(Message(body=number))
        sender.close()
        receiver = client.receiver(address, name="again")
        arrival = receiver.one()
        assert arrival.body == number
        arrival.accept()
        receiver.close()


@pytest.mark.parametrize(
    "name",
    ["q" * 200, "Überfälle/日本語/✈", "with space", "a/b.c:d?e=f&g#h%20", "/topics/percent%2Fencoded"],
    ids=["longest", "unicode", "space", "signs", "path"],
)
def test_addresses_of_any_form(client: Client, name: str) -> None:
    """Each comes back as it was sent, and is one queue to senders and receivers."""
    client.send_bodies(name, name)
    receiver = client.receiver(name)
    assert receiver.link.remote_source.address == name
    arrival = receiver.one()
    assert arrival.body == name
    arrival.accept()


def test_an_address_that_is_too_long_is_refused(client: Client, address: str) -> None:
    with pytest.raises(LinkDetached, match="expected 1 to 200 bytes"):
        client.sender("é" * 101)
    client.serves(address)


@pytest.mark.parametrize("name", ["n" * 10_000, "日本語 ✈", " "], ids=["long", "unicode", "space"])
def test_names_of_links_and_containers_of_any_form(hub: NodeProcess, address: str, name: str) -> None:
    with Client(hub.port, container_id=name) as client:
        for _ in range(2):
            sender, receiver = client.sender(address, name=name), client.receiver(address, name=name)
            sender.send(Message(body="x"))
            receiver.one().accept()
            sender.close()
            receiver.close()


def test_a_name_that_is_attached_again_is_stolen(hub: NodeProcess, address: str) -> None:
    """Within a session, §2.6.1: what the older link held goes to the newer."""
    connection, transport, _ = engine()
    with Client(hub.port) as client, socket.create_connection(("127.0.0.1", hub.port), timeout=LIMIT_S) as wire:
        client.send_bodies(address, "held")
        session = connection.session()
        session.open()
        links = []
        for _ in range(2):
            link = session.receiver("twin")
            link.source.address = address
            link.open()
            link.flow(1)
            pump_until(transport, wire, lambda link=link: link.current is not None)
            links.append(link)
        older, newer = links
        assert older.state & Endpoint.REMOTE_CLOSED
        assert older.remote_condition.name == "amqp:link:stolen"
        assert newer.state & Endpoint.REMOTE_ACTIVE


def test_a_name_in_another_connection_is_another_link(hub: NodeProcess, client: Client, address: str) -> None:
    """Proton for Python makes its names of the address alone, whichever connection they are for."""
    client.send_bodies(address, *range(20))
    with Client(hub.port) as second:
        inflows = [peer.receiver(address, name="same").flow(10) for peer in (client, second)]
        found = [arrival.body for inflow in inflows for arrival in inflow.take(10)]
        assert sorted(found) == list(range(20))


def test_a_durable_subscription_has_one_holder(hub: NodeProcess, client: Client, address: str) -> None:
    older = client.receiver(address, DurableSubscription(), name=f"{address}-sub").flow(10)
    with Client(hub.port) as second:
        newer = second.receiver(address, DurableSubscription(), name=f"{address}-sub").flow(10)
        client.wait(lambda: older.inbox.ended)
        assert older.link.remote_condition.name == "amqp:link:stolen"
        second.send_bodies(address, "for the newer")
        assert newer.take()[0].body == "for the newer"


def test_detach_and_attach_again(hub: NodeProcess, address: str) -> None:
    with Recorder(hub.port) as line, Client(line.port) as client:
        client.send_bodies(address, *range(4))
        receiver = client.receiver(address, name="comes-back").flow(2)
        held = receiver.take(2)
        held[0].accept()
        client.barrier(address)
        receiver.detach()
        answers = [frame for frame in line.frames if frame.code == DETACH and not frame.from_client]
        assert answers
        receiver = client.receiver(address, name="comes-back").flow(3)
        assert [item.body for item in receiver.take(3)] == [1, 2, 3]


def test_many_links(client: Client, address: str) -> None:
    receivers = [client.receiver(f"{address}-{number}", name=f"r{number}").flow(1) for number in range(200)]
    for number in range(200):
        client.send_bodies(f"{address}-{number}", number)
    for number, receiver in enumerate(receivers):
        assert receiver.take()[0].body == number


def test_refused_sender_is_told_why(strict: NodeProcess) -> None:
    with Recorder(strict.port) as line, Client(line.port) as client:
        with pytest.raises(LinkDetached) as caught:
            client.sender("unknown")
        assert caught.value.condition == "amqp:not-found"
        assert "unknown" in str(caught.value)
        told = [frame.code for frame in line.frames if not frame.from_client and frame.code in (ATTACH, DETACH, END)]
        assert told == [ATTACH, DETACH]
        client.serves("known")


def test_refused_receiver_is_told_why(strict: NodeProcess) -> None:
    with Client(strict.port) as client:
        with pytest.raises(LinkDetached) as caught:
            client.connection.create_receiver("unknown")
        assert caught.value.condition == "amqp:not-found"
        client.serves("known")


def test_refusal_has_a_null_terminus(strict: NodeProcess) -> None:
    connection, transport, _ = engine(sasl=False)
    with socket.create_connection(("127.0.0.1", strict.port), timeout=LIMIT_S) as wire:
        session = connection.session()
        session.open()
        sender = session.sender("s")
        sender.target.address = "unknown"
        sender.open()
        receiver = session.receiver("r")
        receiver.source.address = "unknown"
        receiver.open()
        closed = Endpoint.REMOTE_CLOSED
        pump_until(transport, wire, lambda: sender.state & closed and receiver.state & closed)
        assert sender.remote_target.type == proton.Terminus.UNSPECIFIED
        assert receiver.remote_source.type == proton.Terminus.UNSPECIFIED
        assert sender.remote_condition.name == receiver.remote_condition.name == "amqp:not-found"


def test_addresses_that_are_the_node_s_own_are_refused(client: Client) -> None:
    with pytest.raises(LinkDetached):
        client.sender("$nothing-of-that-name")


def test_durable_subscription_as_jms_has_it(hub: NodeProcess, client: Client, address: str) -> None:
    client.send_bodies(address, "before")
    subscription = client.receiver(address, DurableSubscription(), name=f"{address}-sub")
    client.send_bodies(address, "one", "two", "three")
    subscription.flow(2)
    first, second = subscription.take(2)
    assert (first.body, second.body) == ("one", "two")
    first.accept()
    client.barrier(address)
    subscription.detach()
    client.send_bodies(address, "four")
    with Client(hub.port) as later:
        again = later.receiver(address, DurableSubscription(), name=f"{address}-sub").flow(10)
        found = again.take(3)
        assert [item.body for item in found] == ["two", "three", "four"]
        for item in found:
            item.accept()
        later.barrier(address)
        again.close()
        again = later.receiver(address, DurableSubscription(), name=f"{address}-sub")
        assert again.drain() == []
    assert [item.body for item in client.receiver(address).drain()] == ["before", "one", "two", "three", "four"]


def test_two_subscriptions_each_get_all(client: Client, address: str) -> None:
    names = (f"{address}-a", f"{address}-b")
    inflows = [client.receiver(address, DurableSubscription(), name=name).flow(10) for name in names]
    client.send_bodies(address, *range(5))
    for inflow in inflows:
        assert [item.body for item in inflow.take(5)] == list(range(5))


def test_read_from_a_sequence(client: Client, address: str) -> None:
    client.send_bodies(address, *range(1, 11))
    receiver = client.receiver(address, ByNumber(4)).flow(7)
    assert [item.body for item in receiver.take(7)] == list(range(4, 11))
    assert receiver.link.remote_source.filter is not None
    receiver.close()
    client.await_depth(address, 10)


def test_a_topic_spreads_by_subject(client: Client) -> None:
    """A durable subscription, one that is not, and one by a pattern in the address."""
    all_of_it = client.receiver("topic/proton").flow(10)
    stored = client.receiver("topic/proton/late.#", DurableSubscription(), name="late").flow(10)
    some = client.receiver("topic/proton/*.jfk").flow(10)
    for subject in ("late.jfk", "early.jfk", "late"):
        client.send("topic/proton", Message(body=subject, subject=subject))
    assert [item.body for item in all_of_it.take(3)] == ["late.jfk", "early.jfk", "late"]
    assert [item.body for item in stored.take(2)] == ["late.jfk", "late"]
    assert [item.body for item in some.take(2)] == ["late.jfk", "early.jfk"]


def test_a_selector_takes_what_it_selects(client: Client, address: str) -> None:
    client.send(address, Message(body="red", properties={"colour": "red"}), Message(body="blue"))
    arrivals = client.receiver(address, Selector("colour = 'red'")).drain()
    assert [item.body for item in arrivals] == ["red"]
    arrivals[0].accept()
    client.await_depth(address, 1)


class BrowsedBySelector(Selector):
    """Copies, and asks for a selector."""

    def apply(self, receiver: Any) -> None:
        super().apply(receiver)
        receiver.source.distribution_mode = Terminus.DIST_MODE_COPY


def test_a_browser_with_a_selector_sees_what_it_selects(client: Client, address: str) -> None:
    client.send(address, Message(body="red", properties={"colour": "red"}), Message(body="blue"))
    receiver = client.receiver(address, BrowsedBySelector("colour = 'red'"))
    echoed = receiver.link.remote_source.filter
    echoed.rewind()
    assert echoed.next() and echoed.get_object()
    assert [item.body for item in receiver.drain()] == ["red"]
    client.await_depth(address, 2)
