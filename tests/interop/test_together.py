"""Clients of several makes talk to each other through a node: Qpid Proton in Python, C and C++, and rhea."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")

from proton import Message, int32  # noqa: E402

from interop.peer_process import PeerProcess  # noqa: E402
from interop.proton_peer import Client  # noqa: E402
from interop.rhea_peer import Rhea  # noqa: E402
from support.process import NodeProcess  # noqa: E402

pytestmark = pytest.mark.interop


def test_proton_to_rhea(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    with Client(hub.port) as client:
        for number in range(20):
            properties = {"number": int32(number)}
            client.send(address, Message(id=f"m{number}", body=f"é {number}", subject="s", properties=properties))
    found = rhea("receive", hub.port, address=address, count=20).done()["messages"]
    assert [(item["id"], item["body"], item["subject"], item["properties"]) for item in found] == [
        (f"m{number}", f"é {number}", "s", {"number": number}) for number in range(20)
    ]
    assert all("x-opt-sequence-number" in item["annotations"] for item in found)


def test_rhea_to_proton(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    bodies = ["text", True, None, "é" * 10_000]
    rhea("send", hub.port, address=address, bodies=bodies).done()
    with Client(hub.port) as client:
        found = client.receiver(address).flow(4).take(4)
        assert [item.body for item in found] == bodies
        assert all(item.message.properties == {"from": "rhea"} for item in found)


def test_large_messages_cross(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    with Client(hub.port) as client:
        client.send(address, Message(body="x" * 10_000_000))
        (found,) = rhea("receive", hub.port, address=address, count=1).done()["messages"]
        assert found["body"] == "x" * 10_000_000


Native = Callable[..., PeerProcess]
COUNT = 20


def python_sends(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> None:
    with Client(hub.port) as client:
        client.send_bodies(address, *({"sequence": int32(number)} for number in range(1, COUNT + 1)))


def rhea_sends(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> None:
    bodies = [{"sequence": number} for number in range(1, COUNT + 1)]
    request.getfixturevalue("rhea")("send", hub.port, address=address, bodies=bodies).done()


def c_sends(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("native")("c/send.c", "127.0.0.1", hub.port, address, COUNT).ended()


def cpp_sends(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> None:
    url = f"127.0.0.1:{hub.port}/{address}"
    request.getfixturevalue("native")("cpp/simple_send.cpp", "-a", url, "-m", COUNT).ended()


def python_reads(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> list[object]:
    with Client(hub.port) as client:
        return [arrival.body for arrival in client.receiver(address).flow(COUNT).take(COUNT)]


def rhea_reads(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> list[object]:
    found = request.getfixturevalue("rhea")("receive", hub.port, address=address, count=COUNT).done()
    return [message["body"] for message in found["messages"]]


def printed(lines: list[str]) -> list[object]:
    """The maps that a program in C or C++ has printed."""
    return [
        {"sequence": int(found[1])} for line in lines if (found := re.fullmatch(r'\{"sequence"\s*=\s*(\d+)\}', line))
    ]


def c_reads(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> list[object]:
    return printed(request.getfixturevalue("native")("c/receive.c", "127.0.0.1", hub.port, address, COUNT).ended())


def cpp_reads(hub: NodeProcess, address: str, request: pytest.FixtureRequest) -> list[object]:
    url = f"127.0.0.1:{hub.port}/{address}"
    return printed(request.getfixturevalue("native")("cpp/simple_recv.cpp", "-a", url, "-m", COUNT).ended())


@pytest.mark.parametrize("reads", [python_reads, rhea_reads, c_reads, cpp_reads])
@pytest.mark.parametrize("sends", [python_sends, rhea_sends, c_sends, cpp_sends])
def test_each_reads_what_each_sends(
    hub: NodeProcess,
    address: str,
    request: pytest.FixtureRequest,
    sends: Callable[[NodeProcess, str, pytest.FixtureRequest], None],
    reads: Callable[[NodeProcess, str, pytest.FixtureRequest], list[object]],
) -> None:
    sends(hub, address, request)
    assert reads(hub, address, request) == [{"sequence": number} for number in range(1, COUNT + 1)]


def send_mixed(port: int, address: str, numbers: range) -> None:
    """Bodies of 6 bytes to 70 kB that begin with their number, half of them settled, as fast as credit allows."""
    with Client(port) as client:
        sender = client.sender(address)
        deliveries = []
        for number in numbers:
            client.wait(lambda: sender.link.credit)
            size = 70_000 if number % 500 == 0 else number % 3 * 400
            delivery = sender.link.send(Message(body=f"{number}:" + size * "x", durable=number % 5 == 0))
            if number % 2:
                delivery.settle()
            else:
                deliveries.append(delivery)
        client.wait(lambda: all(delivery.settled for delivery in deliveries))
        assert {delivery.remote_state for delivery in deliveries} == {proton.Delivery.ACCEPTED}
        for delivery in deliveries:
            delivery.settle()
        client.barrier(address)


def take_some(port: int, address: str, count: int, window: int) -> list[int]:
    """The numbers that the bodies begin with, of `count` messages and no more."""
    numbers: list[int] = []
    with Client(port) as client:
        receiver = client.receiver(address)
        while len(numbers) < count:
            for arrival in receiver.flow(window).take(window):
                body = arrival.body
                numbers.append(int(body.partition(":")[0]) if isinstance(body, str) else int(body))
                arrival.accept()
        receiver.close()
    return numbers


def test_20000_messages_of_all_at_once(hub: NodeProcess, address: str, rhea: type[Rhea], native: Native) -> None:
    """Four senders and three consumers on one queue at a time: each message is with one consumer, once."""
    senders = [
        native("peer.c", "burst", hub.port, address, 5_000, "unsettled", 1),
        native("peer.c", "burst", hub.port, address, 5_000, "settled", 5_001),
        rhea("flood", hub.port, address=address, first=10_001, count=5_000),
    ]
    by_c = native("c/receive.c", "127.0.0.1", hub.port, address, 6_000)
    by_rhea = rhea("collect", hub.port, address=address, count=9_000, window=300)
    with ThreadPoolExecutor(1) as executor:
        sending = executor.submit(send_mixed, hub.port, address, range(15_001, 20_001))
        numbers = take_some(hub.port, address, 5_000, 100)
        sending.result()
    for sender in senders:
        sender.done(60)
    numbers += by_rhea.done(60)["numbers"]
    *lines, last = by_c.ended(60)
    assert last == "6000 messages received"
    numbers += [int(line.strip('"').partition(":")[0]) for line in lines]
    assert sorted(numbers) == list(range(1, 20_001))
    with Client(hub.port) as client:
        client.await_depth(address, 0)
