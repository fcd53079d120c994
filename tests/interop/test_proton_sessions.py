"""Sessions of Qpid Proton: several, many, with small windows, closed in every order (CLIENTS 9, 11, 20, 37)."""

import itertools
import socket
from collections.abc import Iterator

import pytest

proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")

from proton import Delivery, Endpoint, Message  # noqa: E402

from interop.proton_engine import EntryConsumer, engine, flush, pump_until  # noqa: E402
from interop.proton_peer import LIMIT_S, Client, fields  # noqa: E402
from interop.recorder import BEGIN, FLOW, TRANSFER, Recorder  # noqa: E402
from support.process import NodeProcess  # noqa: E402

pytestmark = pytest.mark.interop


@pytest.fixture
def wire(hub: NodeProcess) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", hub.port), timeout=LIMIT_S) as wire:
        yield wire


def test_close_while_all_is_open(hub: NodeProcess, address: str) -> None:
    connection, transport, _ = engine()
    sessions = [connection.session() for _ in range(3)]
    for session in sessions:
        session.open()
        sender = session.sender("s")
        sender.target.address = address
        sender.open()
    with socket.create_connection(("127.0.0.1", hub.port), timeout=LIMIT_S) as wire:
        pump_until(transport, wire, lambda: all(item.state & Endpoint.REMOTE_ACTIVE for item in sessions))
        connection.close()
        pump_until(transport, wire, lambda: connection.state & Endpoint.REMOTE_CLOSED)
        assert connection.remote_condition is None


def test_several_sessions(hub: NodeProcess, address: str) -> None:
    connection, transport, _ = engine(sasl=True)
    with socket.create_connection(("127.0.0.1", hub.port), timeout=LIMIT_S) as wire:
        sessions = [connection.session() for _ in range(4)]
        senders = []
        for session in sessions:
            session.open()
            sender = session.sender("same-name")
            sender.target.address = address
            sender.open()
            senders.append(sender)
        pump_until(transport, wire, lambda: all(sender.credit > 0 for sender in senders))
        deliveries = []
        for number, sender in enumerate(senders):
            deliveries.append(sender.delivery("t"))
            sender.stream(Message(body=number).encode())
            sender.advance()
        pump_until(transport, wire, lambda: all(delivery.settled for delivery in deliveries))
        assert {delivery.remote_state for delivery in deliveries} == {Delivery.ACCEPTED}
        sessions[0].close()
        pump_until(transport, wire, lambda: sessions[0].state & Endpoint.REMOTE_CLOSED)
        receiver = sessions[1].receiver("r")
        receiver.source.address = address
        receiver.open()
        receiver.flow(10)
        consumer = EntryConsumer(receiver)
        pump_until(transport, wire, lambda: consumer.take() == 4)
        assert sorted(consumer.bodies) == [0, 1, 2, 3]


def test_many_sessions_with_several_links_each(wire: socket.socket, address: str) -> None:
    connection, transport, _ = engine()
    senders = []
    for number in range(100):
        session = connection.session()
        session.open()
        for twin in range(3):
            sender = session.sender(f"{number}-{twin}")
            sender.target.address = address
            sender.open()
            senders.append(sender)
    pump_until(transport, wire, lambda: all(sender.credit > 0 for sender in senders))
    deliveries = []
    for number, sender in enumerate(senders):
        deliveries.append(sender.delivery("t"))
        sender.stream(Message(body=number).encode())
        sender.advance()
    pump_until(transport, wire, lambda: all(delivery.settled for delivery in deliveries))
    assert {delivery.remote_state for delivery in deliveries} == {Delivery.ACCEPTED}
    receiver = connection.session_head(0).receiver("r")
    receiver.source.address = address
    receiver.open()
    receiver.flow(300)
    consumer = EntryConsumer(receiver)
    pump_until(transport, wire, lambda: consumer.take() == 300)
    assert sorted(consumer.bodies) == list(range(300))


@pytest.mark.parametrize("window", [1, 2, 7])
def test_no_more_frames_come_than_a_session_s_window_holds(hub: NodeProcess, address: str, window: int) -> None:
    """However much link credit there is (§2.5.6)."""
    with Client(hub.port) as client:
        client.send(address, Message(body=b"x" * 20_000, inferred=True), *(Message(body=n) for n in range(30)))
    with Recorder(hub.port) as line, socket.create_connection(("127.0.0.1", line.port), timeout=LIMIT_S) as wire:
        connection, transport, _ = engine(max_frame_bytes=512)
        session = connection.session()
        session.incoming_capacity = 512 * window
        session.open()
        receiver = session.receiver("r")
        receiver.source.address = address
        receiver.open()
        receiver.flow(100)
        consumer = EntryConsumer(receiver)
        pump_until(transport, wire, lambda: consumer.take() == 31)
        assert consumer.bodies == [b"x" * 20_000, *range(30)]
        first = limit = sent = 0
        for frame in line.frames:
            if frame.code == BEGIN:
                _, next_outgoing_id, incoming_window, *_ = fields(frame)
                if frame.from_client:
                    limit = incoming_window
                    assert limit == window
                else:
                    first = next_outgoing_id
            elif frame.code == FLOW and frame.from_client:
                next_incoming_id, incoming_window, *_ = fields(frame)
                limit = (first if next_incoming_id is None else next_incoming_id) - first + incoming_window
            elif frame.code == TRANSFER and not frame.from_client:
                sent += 1
                assert sent <= limit
        assert sent > 20_000 // 512 + 30


ENDINGS = list(itertools.permutations(("receiver", "sender", "session", "connection")))


def test_closed_in_every_order(hub: NodeProcess, address: str) -> None:
    """With a delivery unsettled in either direction: what the node holds for the client goes back each time."""
    with Client(hub.port) as client:
        client.send_bodies(address, "held")
        for order in ENDINGS:
            connection, transport, _ = engine()
            session = connection.session()
            session.open()
            sender, receiver = session.sender("twin"), session.receiver("twin")
            sender.target.address = f"{address}-other"
            receiver.source.address = address
            for link in (sender, receiver):
                link.open()
            receiver.flow(10)
            ends = {"receiver": receiver, "sender": sender, "session": session, "connection": connection}
            with socket.create_connection(("127.0.0.1", hub.port), timeout=LIMIT_S) as wire:
                pump_until(transport, wire, lambda s=sender, r=receiver: s.credit and r.current is not None)
                sender.delivery("t")
                sender.stream(Message(body=str(order)).encode())
                sender.advance()
                for name in order:
                    ends[name].close()
                    flush(transport, wire)
                pump_until(transport, wire, lambda c=connection: c.state & Endpoint.REMOTE_CLOSED)
                assert connection.remote_condition is None, order
            reader = client.receiver(address)
            found = reader.one()
            assert found.body == "held"
            found.settle(Delivery.RELEASED)
            reader.close()
        # Nobody waited for these to be stored: what was sent before the end is there, if not at once.
        arrivals = client.receiver(f"{address}-other").flow(len(ENDINGS)).take(len(ENDINGS))
        assert {arrival.body for arrival in arrivals} == {str(order) for order in ENDINGS}


@pytest.mark.parametrize("end", ["session", "connection", "line"])
def test_what_ends_within_a_delivery_brings_nothing(hub: NodeProcess, address: str, end: str) -> None:
    """Proton keeps a link open until its delivery is whole, so it is ended from the outside."""
    connection, transport, _ = engine()
    with socket.create_connection(("127.0.0.1", hub.port), timeout=LIMIT_S) as wire:
        session = connection.session()
        session.open()
        sender = session.sender("s")
        sender.target.address = address
        sender.open()
        pump_until(transport, wire, lambda: sender.credit)
        sender.delivery("half")
        sender.stream(b"\x00\x53\x75\xb0\x00\x01\x00\x00" + b"x" * 2_000)
        flush(transport, wire)
        if end != "line":
            endpoint = session if end == "session" else connection
            endpoint.close()
            pump_until(transport, wire, lambda: endpoint.state & Endpoint.REMOTE_CLOSED)
            assert endpoint.remote_condition is None
    with Client(hub.port) as client:
        client.send_bodies(address, "whole")
        assert [arrival.body for arrival in client.receiver(address).drain()] == ["whole"]
