"""What Qpid Proton says of a delivery, and what the node makes of it (CLIENTS 17 to 22, 34)."""

import time
from typing import Any

import pytest

proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")

from proton import Condition, Delivery, Link, Message, symbol  # noqa: E402
from proton.reactor import AtLeastOnce, Copy, Move  # noqa: E402
from proton.utils import LinkDetached  # noqa: E402

from interop.proton_peer import LIMIT_S, PRESETTLED, SECOND, Client, Modes, fields  # noqa: E402
from interop.recorder import TRANSFER, Recorder  # noqa: E402
from support.process import NodeProcess  # noqa: E402

pytestmark = pytest.mark.interop

DEAD_LETTERS = "$dead-letters"


def counts(message: Message) -> tuple[bool, int]:
    return message.first_acquirer, message.delivery_count


def test_accepted_is_gone(client: Client, address: str) -> None:
    client.send_bodies(address, *range(5))
    receiver = client.receiver(address).flow(5)
    for arrival in receiver.take(5):
        arrival.accept()
    receiver.close()
    assert client.receiver(address).drain() == []


def test_accepted_first_and_settled_later(client: Client, address: str) -> None:
    client.send_bodies(address, *range(100))
    receiver = client.receiver(address).flow(100)
    arrivals = receiver.take(100)
    for arrival in arrivals:
        arrival.delivery.update(Delivery.ACCEPTED)
    client.wait(lambda: all(item.delivery.settled for item in arrivals))
    for arrival in arrivals:
        arrival.settle()
    client.barrier(address)
    client.await_depth(address, 0)
    receiver.close()
    assert client.receiver(address).drain() == []


def test_rejected_does_not_return_and_lies_in_the_dead_letters(client: Client, address: str) -> None:
    client.send_bodies(address, f"bad {address}", f"good {address}")
    receiver = client.receiver(address).flow(1)
    (arrival,) = receiver.take()
    arrival.delivery.local.condition = Condition("example:poison", "cannot be read")
    arrival.settle(Delivery.REJECTED)
    assert receiver.one().body == f"good {address}"
    client.barrier(address)
    dead = client.receiver(DEAD_LETTERS, Copy()).drain()
    found = [item.message for item in dead if item.body == f"bad {address}"]
    assert len(found) == 1
    assert found[0].annotations["x-opt-dead-letter-from"] == address
    assert "example:poison" in found[0].annotations["x-opt-dead-letter-reason"]


def test_rejected_without_an_error(client: Client, address: str) -> None:
    client.send_bodies(address, address)
    client.receiver(address).one().settle(Delivery.REJECTED)
    client.barrier(address)
    client.await_depth(address, 0)
    dead = [item.body for item in client.receiver(DEAD_LETTERS, Copy()).drain()]
    assert dead.count(address) == 1


def test_rejected_is_kept_byte_for_byte(client: Client, address: str) -> None:
    message = Message(body=address, id=proton.ulong(7), properties={"n": proton.ubyte(1)}, durable=True, priority=7)
    message.annotations = {symbol("x-opt-jms-msg-type"): proton.byte(5)}
    client.send(address, message)
    client.receiver(address).one().settle(Delivery.REJECTED)
    client.barrier(address)
    found = [item.message for item in client.receiver(DEAD_LETTERS, Copy()).drain() if item.body == address]
    assert [(item.id, item.properties, item.priority) for item in found] == [(7, {"n": 1}, 7)]
    assert type(found[0].annotations["x-opt-jms-msg-type"]) is proton.byte


def test_released_comes_again_with_its_count_unchanged(client: Client, address: str) -> None:
    client.send_bodies(address, "a", "b")
    receiver = client.receiver(address)
    first = receiver.one()
    assert counts(first.message) == (True, 0)
    first.settle(Delivery.RELEASED)
    again = receiver.one()
    assert again.body == "a"
    assert again.message.delivery_count == 0
    again.accept()
    assert receiver.one().body == "b"


def test_modified_with_both_flags_false_is_as_released(client: Client, address: str) -> None:
    client.send_bodies(address, "a")
    receiver = client.receiver(address)
    receiver.one().settle(Delivery.MODIFIED)
    again = receiver.one()
    assert (again.body, again.message.delivery_count) == ("a", 0)


def test_modified_failed_raises_the_count(client: Client, address: str) -> None:
    client.send_bodies(address, "a")
    receiver = client.receiver(address)
    for expected in range(4):
        arrival = receiver.one()
        assert arrival.message.delivery_count == expected
        assert arrival.message.first_acquirer == (expected == 0)
        arrival.delivery.local.failed = True
        arrival.settle(Delivery.MODIFIED)


def test_modified_undeliverable_here_goes_to_another_link(client: Client, address: str) -> None:
    client.send_bodies(address, "a", "b")
    receiver = client.receiver(address)
    arrival = receiver.one()
    arrival.delivery.local.failed = True
    arrival.delivery.local.undeliverable = True
    arrival.settle(Delivery.MODIFIED)
    second = receiver.one()
    assert second.body == "b"
    second.accept()
    assert receiver.drain() == []
    other = client.receiver(address).one()
    assert (other.body, other.message.delivery_count) == ("a", 1)


def test_modified_annotations_are_merged(client: Client, address: str) -> None:
    message = Message(body="a")
    message.annotations = {symbol("x-opt-kept"): "old", symbol("x-opt-changed"): "old"}
    client.send(address, message)
    receiver = client.receiver(address)
    arrival = receiver.one()
    arrival.delivery.local.annotations = {symbol("x-opt-changed"): "new", symbol("x-opt-added"): proton.byte(3)}
    arrival.settle(Delivery.MODIFIED)
    again = receiver.one().message
    found = {key: again.annotations[key] for key in ("x-opt-kept", "x-opt-changed", "x-opt-added")}
    assert found == {"x-opt-kept": "old", "x-opt-changed": "new", "x-opt-added": proton.byte(3)}
    assert (again.body, again.delivery_count) == ("a", 0)


def test_settled_without_a_state_is_not_taken(client: Client, address: str) -> None:
    client.send_bodies(address, "a")
    receiver = client.receiver(address)
    receiver.one().settle()
    again = receiver.one()
    assert (again.body, again.message.delivery_count) == ("a", 0)


def test_released_keep_their_order(client: Client, address: str) -> None:
    client.send_bodies(address, *range(10))
    receiver = client.receiver(address).flow(10)
    arrivals = receiver.take(10)
    for number in (7, 2, 5, 0, 9, 1):
        arrivals[number].settle(Delivery.RELEASED)
    for number in (3, 4, 6, 8):
        arrivals[number].accept()
    client.barrier(address)
    receiver.flow(6)
    assert sorted(item.body for item in receiver.take(6)) == [0, 1, 2, 5, 7, 9]
    receiver.close()
    found = client.receiver(address).flow(6).take(6)
    assert [item.body for item in found] == [0, 1, 2, 5, 7, 9]


def test_closed_link_gives_back_what_it_held(client: Client, address: str) -> None:
    client.send_bodies(address, *range(5))
    receiver = client.receiver(address).flow(3)
    held = receiver.take(3)
    held[1].accept()
    client.barrier(address)
    receiver.close()
    found = client.receiver(address).flow(4).take(4)
    assert [item.body for item in found] == [0, 2, 3, 4]


def test_lost_consumer_gives_back_in_order_and_marked(hub: NodeProcess, client: Client, address: str) -> None:
    client.send_bodies(address, *range(6))
    with Recorder(hub.port) as line:
        lost = Client(line.port)
        receiver = lost.receiver(address).flow(4)
        held = receiver.take(4)
        assert [counts(item.message) for item in held] == [(True, 0)] * 4
        other = client.receiver(address).flow(10)
        assert [item.body for item in other.take(2)] == [4, 5]
        line.cut()
        again = other.take(4)
        assert [item.body for item in again] == [0, 1, 2, 3]
        assert all(item.message.delivery_count >= 1 for item in again)
        assert not any(item.message.first_acquirer for item in again)
        with pytest.raises(proton.ProtonException):
            lost.wait(lambda: False)
        lost.connection.close()


@pytest.mark.parametrize("mode", [Link.SND_UNSETTLED, Link.SND_SETTLED, Link.SND_MIXED], ids=str)
@pytest.mark.parametrize("receiving", [Link.RCV_FIRST, Link.RCV_SECOND], ids=str)
def test_settle_modes_are_echoed_and_serve(client: Client, address: str, mode: int, receiving: int) -> None:
    modes = Modes(sender=mode, receiver=receiving)
    sender = client.sender(address, modes)
    assert (sender.link.remote_snd_settle_mode, sender.link.remote_rcv_settle_mode) == (mode, receiving)
    sender.send(Message(body="x"))
    receiver = client.receiver(address, modes)
    assert (receiver.link.remote_snd_settle_mode, receiver.link.remote_rcv_settle_mode) == (mode, receiving)
    arrival = receiver.one()
    assert arrival.body == "x"
    assert arrival.delivery.settled == (mode == Link.SND_SETTLED)


def test_sender_settled(client: Client, address: str) -> None:
    sender = client.sender(address, PRESETTLED)
    for number in range(50):
        sender.send(Message(body=number))
    sender.close()
    found = client.receiver(address).flow(50).take(50)
    assert [item.body for item in found] == list(range(50))


def test_sender_unsettled_in_one_burst(client: Client, address: str) -> None:
    sender = client.sender(address, AtLeastOnce())
    client.wait(lambda: sender.link.credit > 0)
    burst = min(sender.link.credit, 500)
    deliveries = [sender.link.send(Message(body=number)) for number in range(burst)]
    client.wait(lambda: all(item.settled for item in deliveries))
    assert {item.remote_state for item in deliveries} == {Delivery.ACCEPTED}
    for item in deliveries:
        item.settle()
    found = client.receiver(address).flow(burst).take(burst)
    assert [item.body for item in found] == list(range(burst))


def test_a_full_queue_refuses_one_message_and_the_link_goes_on(strict: NodeProcess) -> None:
    with Client(strict.port) as client:
        sender, receiver = client.sender("one-alone"), client.receiver("one-alone")
        for number in range(3):
            assert client.stream(sender, Message(body=number).encode()).remote_state == Delivery.ACCEPTED
            refused = client.stream(sender, Message(body="too many").encode())
            assert refused.remote_state == Delivery.REJECTED
            assert refused.remote.condition.name == "amqp:resource-limit-exceeded"
            assert "queue 'one-alone' is full" in refused.remote.condition.description
            arrival = receiver.one()
            assert arrival.body == number
            arrival.accept()
            client.barrier("known")


def test_a_full_queue_withholds_credit_until_there_is_room(strict: NodeProcess) -> None:
    with Client(strict.port) as client:
        sender, receiver = client.sender("three-alone"), client.receiver("three-alone")
        for number in range(3):
            client.stream(sender, Message(body=number).encode())
        assert sender.link.credit == 0
        for number in range(6):
            arrival = receiver.one()
            assert arrival.body == number
            arrival.accept()
            if number < 3:
                # Waits for the credit that the room brings.
                client.stream(sender, Message(body=number + 3).encode())


def test_a_message_that_is_too_large_costs_its_link(strict: NodeProcess) -> None:
    with Client(strict.port) as client:
        sender = client.sender("known")
        assert sender.link.remote_max_message_size == 100_000
        with pytest.raises(LinkDetached) as caught:
            client.stream(sender, Message(body=b"x" * 100_001, inferred=True).encode())
        assert caught.value.condition == "amqp:link:message-size-exceeded"
        client.serves("known")


def test_delivery_tags_are_short_and_told_apart(hub: NodeProcess, address: str) -> None:
    with Recorder(hub.port) as line, Client(line.port) as client:
        client.send_bodies(address, *range(300))
        client.receiver(address).flow(300).take(300)
        tags = [fields(frame)[2] for frame in line.frames if frame.code == TRANSFER and not frame.from_client]
        assert len(set(tags)) == 300
        assert all(1 <= len(tag) <= 32 for tag in tags)


def test_a_sender_s_tag_used_again_at_once(client: Client, address: str) -> None:
    senders = [client.sender(address), client.sender(address)]
    for number in range(40):
        link = senders[number % 2].link
        client.wait(lambda link=link: link.credit)
        delivery = link.delivery("\x01")
        link.stream(Message(body=number).encode())
        link.advance()
        client.wait(lambda delivery=delivery: delivery.settled)
        delivery.settle()
    found = client.receiver(address).flow(40).take(40)
    assert [item.body for item in found] == list(range(40))


def test_what_has_expired_is_not_shown(client: Client, address: str) -> None:
    client.send(address, Message(body="expires", ttl=0.02), Message(body="stays", ttl=600.0), Message(body="for ever"))
    receiver = client.receiver(address)
    deadline = time.monotonic() + LIMIT_S
    while (arrival := receiver.one()).body == "expires":
        assert time.monotonic() < deadline
        arrival.settle(Delivery.RELEASED)
    assert [arrival.body, *(item.body for item in receiver.drain())] == ["stays", "for ever"]


def test_receiver_presettled_takes_them_away(client: Client, address: str) -> None:
    client.send_bodies(address, *range(3))
    receiver = client.receiver(address, PRESETTLED).flow(3)
    arrivals = receiver.take(3)
    assert all(item.delivery.settled for item in arrivals)
    receiver.close()
    assert client.receiver(address).drain() == []


@pytest.mark.parametrize("state", [Delivery.ACCEPTED, Delivery.RELEASED, Delivery.REJECTED], ids=str)
def test_receiver_of_mode_second_is_answered(client: Client, address: str, state: int) -> None:
    client.send_bodies(address, *range(10))
    receiver = client.receiver(address, SECOND).flow(10)
    arrivals = receiver.take(10)
    for arrival in arrivals:
        arrival.delivery.update(state)
    client.wait(lambda: all(item.delivery.settled for item in arrivals))
    assert {item.delivery.remote_state for item in arrivals} == {state}
    for arrival in arrivals:
        arrival.settle()
    client.barrier(address)
    receiver.close()
    left = [item.body for item in client.receiver(address).drain()]
    assert left == (list(range(10)) if state == Delivery.RELEASED else [])


def test_browser_removes_nothing(client: Client, address: str) -> None:
    client.send_bodies(address, *range(5))
    for _ in range(2):
        browser = client.receiver(address, Copy())
        assert browser.link.remote_source.distribution_mode == proton.Terminus.DIST_MODE_COPY
        browser.flow(5)
        found = browser.take(5)
        assert [item.body for item in found] == list(range(5))
        for item in found:
            item.accept()
        browser.close()
    assert [item.body for item in client.receiver(address, Move()).drain()] == list(range(5))


@pytest.mark.parametrize("state", [Delivery.RELEASED, Delivery.REJECTED, Delivery.MODIFIED], ids=str)
def test_browser_s_outcomes_move_nothing(client: Client, address: str, state: int) -> None:
    client.send_bodies(address, address)
    browser = client.receiver(address, Copy())
    browser.one().settle(state)
    client.barrier(address)
    assert browser.drain() == []
    arrival = client.receiver(address).one()
    assert (arrival.body, arrival.message.delivery_count) == (address, 0)
    assert address not in [item.body for item in client.receiver(DEAD_LETTERS, Copy()).drain()]


def test_browser_ends_by_drain_on_an_empty_queue(client: Client, address: str) -> None:
    assert client.receiver(address, Copy()).drain() == []


def test_browser_sees_what_a_consumer_holds_and_what_arrives(client: Client, address: str) -> None:
    client.send_bodies(address, "held")
    held = client.receiver(address).one()
    browser = client.receiver(address, Copy()).flow(2)
    assert browser.take()[0].body == "held"
    client.send_bodies(address, "later")
    assert browser.take()[0].body == "later"
    held.accept()


def test_two_consumers_share(hub: NodeProcess, client: Client, address: str) -> None:
    with Client(hub.port) as second:
        inflows = (client.receiver(address).flow(100), second.receiver(address).flow(100))
        client.send_bodies(address, *range(200))
        found: list[list[Any]] = []
        for inflow in inflows:
            arrivals = inflow.take(100)
            for arrival in arrivals:
                arrival.accept()
            found.append([arrival.body for arrival in arrivals])
        assert sorted(found[0] + found[1]) == list(range(200))
        assert [sorted(bodies) for bodies in found] == found
        client.barrier(address)
        second.barrier(address)
        client.await_depth(address, 0)


def test_two_consumers_share_a_backlog_while_they_settle(hub: NodeProcess, client: Client, address: str) -> None:
    sender = client.sender(address, PRESETTLED)
    for number in range(1_000):
        sender.send(Message(body=number))
    client.barrier(address)
    with Client(hub.port) as second:
        inflows = (client.receiver(address), second.receiver(address))
        found: list[int] = []
        for _ in range(50):
            for inflow in inflows:
                inflow.flow(10)
            for inflow in inflows:
                for arrival in inflow.take(10):
                    found.append(arrival.body)
                    arrival.accept()
    assert sorted(found) == list(range(1_000))
