"""Entries that were to leave, and did not because of a failure that was contained: nobody passes them over."""

import pytest

from holdfast.amqp.wire.performatives import Accepted
from holdfast.broker.queue import Queue
from support.hops import names, send
from support.rig import Rig


class Defect(Exception):
    """Raised where nothing is wrong."""


def once(monkeypatch: pytest.MonkeyPatch, name: str, place: str) -> list[str]:
    """The first retirement from that queue raises; says that it did."""
    original = getattr(Queue, place)
    raised: list[str] = []

    def called(queue: Queue, *args: object) -> object:
        if queue.name == name and not raised:
            raised.append(name)
            raise Defect
        return original(queue, *args)

    monkeypatch.setattr(Queue, place, called)
    return raised


def test_what_a_consumer_accepted_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    for name in names(1, 3):
        client.send(link, name)
    client.receiver("work")
    rig.settle()
    raised = once(monkeypatch, "work", "retire_all")
    client.accept(Accepted())
    rig.run(1)
    assert raised and node.bodies("work") == names(1, 3)
    again = rig.client(node)
    again.receiver("work")
    rig.settle()
    assert again.bodies() == names(1, 3)
    assert not any(message.header.first_acquirer for message in again.messages())
    again.accept(Accepted())
    rig.run(1)
    assert node.queue("work").messages == 0


def test_what_the_neighbour_has_stored_leaves_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(2)
    raised = once(monkeypatch, "@hub", "retire_all")
    send(rig, jfk, *names(1, 5), to="hub")
    rig.run(10)
    assert raised and (jfk.queue("@hub").messages, hub.bodies("work")) == (0, names(1, 5))


@pytest.mark.parametrize("place", ["retire_all", "uncache"])
@pytest.mark.parametrize("leaves", ["drop", "drop_expired_all"])
def test_what_was_to_be_dropped_is_there_still(monkeypatch: pytest.MonkeyPatch, leaves: str, place: str) -> None:
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    for name in names(1, 3):
        client.send(link, name)
    rig.settle()
    receiver = client.receiver("work", credit=1)
    rig.settle()
    receiver.detach(closed=True)  # it is given back: below the position, in nobody's hands
    rig.settle()
    queue = node.queue("work")
    queue.cache.update(queue.read(1, count_max=3, bytes_max=10_000))
    queue.cached.charge(sum(map(len, queue.cache.values())))
    raised = once(monkeypatch, "work", place)
    found = queue.read(1, count_max=3, bytes_max=10_000)
    with pytest.raises(Defect):
        if leaves == "drop":
            queue.drop([sequence for sequence, _ in found], queue.bytes_held)
        else:
            queue.drop_expired_all(found)
    assert raised and queue.messages == 3
    again = rig.client(node)
    again.receiver("work")
    rig.settle()
    assert sorted(again.bodies()) == names(1, 3)
