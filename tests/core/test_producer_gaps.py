"""A named producer with more gaps than the answer to its attach can list (docs/CUSTODY.md, "Producers")."""

import pytest

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.extensions import LAST_NUMBER, MISSING, PRODUCER, TRY_LATER
from holdfast.amqp.wire.performatives import Accepted, Rejected
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.rig import Client, Rig

NUMBERS = range(1, 301)


def attached(client: Client, name: str) -> Sender:
    link = client.sender("work", name=name, properties={PRODUCER: "p"})
    client.rig.settle()
    return link


def told(link: Sender) -> list[list[int]]:
    attach = link.remote_attach
    assert attach is not None and attach.properties is not None, "it was refused"
    assert attach.properties[LAST_NUMBER] == NUMBERS[-1]
    missing: list[list[int]] = attach.properties[MISSING]
    return missing


@pytest.mark.parametrize(("frame_size", "name"), [(512, "p"), (512, "p" * 80), (1_000, "p"), (65_536, "p")])
def test_it_is_told_as_many_ranges_as_fit_and_sends_the_rest_again(frame_size: int, name: str) -> None:
    rig = Rig()
    node = rig.node("hub", queues=(QueueConfig(name="work"),))
    client = rig.client(node)
    link = attached(client, name)
    for number in NUMBERS[1::2]:
        client.send(link, str(number), number=number)
    rig.settle()
    small = rig.client(node, max_frame_size=frame_size)
    link = attached(small, name)
    ranges = told(link)
    again = [number for first, last in ranges for number in range(first, last + 1)]
    assert set(NUMBERS[::2]) <= set(again), "what is missing is sent"
    assert (len(ranges) == len(NUMBERS) / 2) == (frame_size == 65_536)
    for number in again:
        small.send(link, str(number), number=number)
    rig.settle()
    assert sorted(map(int, node.bodies("work"))) == [*NUMBERS]


def test_a_message_that_would_make_one_gap_too_many_may_come_later() -> None:
    """Whoever sends again what was refused for a while, such as a spool, may have sent later numbers before it. Their
    refusal must not be for good: a spool would let go of a message that `submit` has returned for."""
    rig = Rig()
    node = rig.node("hub", queues=(QueueConfig(name="work"),), limits=Limits(ranges_max=2))
    client = rig.client(node)
    link = attached(client, "p")
    for number in (1, 3, 5):
        client.send(link, str(number), number=number)
    rig.settle()
    outcomes = dict(client.outcomes)
    assert isinstance(outcomes["3"], Accepted)
    refused = outcomes["5"]
    assert isinstance(refused, Rejected) and refused.error is not None
    assert refused.error.info is not None and refused.error.info[TRY_LATER] is True
    for number in (2, 5):
        client.send(link, str(number), number=number)
    rig.settle()
    assert sorted(node.bodies("work")) == ["1", "2", "3", "5"]
