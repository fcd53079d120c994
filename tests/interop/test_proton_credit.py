"""Credit and drain between Qpid Proton and a node (CLIENTS 10 to 12, 16, 23)."""

import pytest

proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")

from proton import Message  # noqa: E402

from interop.proton_peer import PRESETTLED, Client  # noqa: E402

pytestmark = pytest.mark.interop


def fill(client: Client, address: str, count: int) -> None:
    sender = client.sender(address, PRESETTLED)
    for number in range(count):
        sender.send(Message(body=number))
    sender.close()


def test_without_credit_nothing_comes(client: Client, address: str) -> None:
    fill(client, address, 3)
    receiver = client.receiver(address)
    client.barrier(address)
    assert not receiver.inbox.arrivals


@pytest.mark.parametrize("window", [1, 10, 1_000])
def test_no_more_comes_than_credit(client: Client, address: str, window: int) -> None:
    total = 2 * window + 3
    fill(client, address, total)
    receiver = client.receiver(address)
    found: list[int] = []
    for credit in (window, window, 3):
        receiver.flow(credit)
        arrivals = receiver.take(credit)
        client.barrier(address)
        assert not receiver.inbox.arrivals
        for arrival in arrivals:
            arrival.accept()
        found += [arrival.body for arrival in arrivals]
    assert found == list(range(total))


@pytest.mark.parametrize("window", [1, 10, 1_000])
def test_window_that_is_topped_up(client: Client, address: str, window: int) -> None:
    total = 1_500 if window > 1 else 150
    fill(client, address, total)
    receiver = client.receiver(address).flow(window)
    for expected in range(total):
        (arrival,) = receiver.take()
        assert arrival.body == expected
        arrival.accept()
        if receiver.link.credit <= window // 2:
            receiver.flow(window - receiver.link.credit)


def test_credit_given_before_messages_serves_them_as_they_come(client: Client, address: str) -> None:
    receiver = client.receiver(address).flow(10)
    for number in range(10):
        client.send_bodies(address, number)
        assert receiver.take()[0].body == number
    client.send_bodies(address, 10)
    client.barrier(address)
    assert not receiver.inbox.arrivals
    receiver.flow(1)
    assert receiver.take()[0].body == 10


def test_credit_raised(client: Client, address: str) -> None:
    receiver = client.receiver(address).flow(2)
    client.barrier(address)
    receiver.flow(3)
    client.barrier(address)
    fill(client, address, 8)
    assert [item.body for item in receiver.take(5)] == list(range(5))
    client.barrier(address)
    assert not receiver.inbox.arrivals


@pytest.mark.parametrize(("given", "left"), [(10, 4), (10, 0), (1_000, 1)])
def test_credit_lowered(client: Client, address: str, given: int, left: int) -> None:
    receiver = client.receiver(address).flow(given)
    client.barrier(address)
    receiver.flow(left - given)
    assert receiver.link.credit == left
    client.barrier(address)
    fill(client, address, 8)
    client.barrier(address)
    assert [item.body for item in receiver.inbox.arrivals] == list(range(left))
    receiver.inbox.arrivals.clear()
    receiver.flow(8 - left)
    assert [item.body for item in receiver.take(8 - left)] == list(range(left, 8))


def test_drain_of_an_empty_queue(client: Client, address: str) -> None:
    receiver = client.receiver(address)
    for _ in range(3):
        assert receiver.drain() == []
        assert receiver.link.credit == 0


def test_drain_gives_what_there_is(client: Client, address: str) -> None:
    fill(client, address, 7)
    receiver = client.receiver(address)
    assert [item.body for item in receiver.drain()] == list(range(7))
    assert receiver.link.credit == 0
    fill(client, address, 1)
    client.barrier(address)
    assert not receiver.inbox.arrivals
    receiver.flow(1)
    assert receiver.take()[0].body == 0


def test_drain_of_credit_that_lay_unused(client: Client, address: str) -> None:
    receiver = client.receiver(address).flow(100)
    client.barrier(address)
    assert receiver.drain() == []
    assert receiver.link.credit == 0
    fill(client, address, 3)
    client.barrier(address)
    assert not receiver.inbox.arrivals


def test_drain_with_less_credit_than_messages(client: Client, address: str) -> None:
    fill(client, address, 10)
    receiver = client.receiver(address)
    receiver.link.drain(4)
    client.wait(lambda: not receiver.link.draining())
    assert [item.body for item in receiver.inbox.arrivals] == [0, 1, 2, 3]


def test_drain_of_a_backlog_past_the_turn_s_bound(client: Client, address: str) -> None:
    fill(client, address, 3_000)
    receiver = client.receiver(address)
    receiver.link.drain(5_000)
    client.wait(lambda: not receiver.link.draining())
    assert [item.body for item in receiver.inbox.arrivals] == list(range(3_000))


def test_two_links_drain_alike(client: Client, address: str) -> None:
    fill(client, address, 10)
    receivers = [client.receiver(address), client.receiver(address)]
    for receiver in receivers:
        receiver.link.drain(100)
    for receiver in receivers:
        client.wait(lambda receiver=receiver: not receiver.link.draining())
    found = [item.body for receiver in receivers for item in receiver.inbox.arrivals]
    assert sorted(found) == list(range(10))


def test_a_sender_s_credit_is_topped_up(client: Client, address: str) -> None:
    sender = client.sender(address, PRESETTLED)
    for number in range(5_000):
        client.wait(lambda: sender.link.credit)
        sender.link.send(Message(body=number)).settle()
    client.barrier(address)
    sender.close()
    found = client.receiver(address).flow(5_000).take(5_000)
    assert [item.body for item in found] == list(range(5_000))
