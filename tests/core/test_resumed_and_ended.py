"""A consumer's link that is resumed and ends in the middle of it: what it held goes to others (resumption/)."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Accepted, Modified, Rejected
from holdfast.custody.returns import Returns
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.settings.limits import Limits
from support.one_node import fill, world
from support.rig import Client, Node, Rig

NOT_HERE = Modified(undeliverable_here=True)
TIMED = {"timeout": 60}


def suspended(rig: Rig, node: Node, count: int) -> list[bytes]:
    """The tags of what a consumer held whose connection was lost."""
    client = rig.client(node)
    client.receiver("work", name="r", source=TIMED, unsettled={}, credit=count)
    rig.run(1)
    tags = [item.tag for item in client.deliveries]
    assert len(tags) == count and node.core is not None and len(node.core.resume.outgoing) == 1
    client.close_transport()
    rig.settle()
    return tags


def resume(rig: Rig, node: Node, unsettled: dict[bytes, Any], **settings: Any) -> Client:
    client = rig.client(node, **settings)
    client.receiver("work", name="r", source=TIMED, unsettled=unsettled)
    rig.settle()
    return client


@pytest.mark.parametrize("rest", ["kept", "accepted", "rejected", "sent again", "not told of"])
def test_more_that_is_undeliverable_than_may_be_ends_it_and_the_rest_goes_to_others(rest: str) -> None:
    """Whatever its map says of the rest."""
    rig, node, client = world(limits=Limits(excluded_max=2))
    count = 200 if rest == "not told of" else 9
    fill(rig, client, count)
    tags = suspended(rig, node, count)
    state = {"accepted": Accepted(), "rejected": Rejected()}.get(rest)
    told = {} if rest == "sent again" else dict.fromkeys(tags, state)
    settings = {"max_frame_size": 512} if rest == "not told of" else {}  # the map is cut
    ended = resume(rig, node, told | dict.fromkeys(tags[2:5], NOT_HERE), **settings)
    assert [str(event.error.condition) for event in ended.detached if event.error] == ["amqp:resource-limit-exceeded"]
    core, queue = node.core, node.queue("work")
    assert core is not None and not core.resume.outgoing and not queue.shared.acquired and not queue.shared.consumers
    core.validate()
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    left = range(3, 6) if rest in ("accepted", "rejected") else range(1, count + 1)  # what was settled stays so
    assert other.accept() == [str(number) for number in left]
    rig.run(1)
    assert queue.messages == core.users.anonymous.unsettled_bytes == 0


def test_what_ends_it_does_so_once_all_that_its_map_says_was_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the middle, when some of it is in nobody's hands yet, whichever outcome comes first."""
    rig, node, client = world(limits=Limits(excluded_max=2))
    fill(rig, client, 9)
    tags = suspended(rig, node, 9)
    applied: list[type[Any]] = []
    held: list[list[type[Any]]] = []
    outcomes, detach_with = ConsumerLink.outcomes, ConsumerLink.detach_with

    def applying(self: ConsumerLink, contexts: list[Any], state: Any, *rest: Any) -> None:
        outcomes(self, contexts, state, *rest)
        applied.append(type(state))

    def detaching(self: ConsumerLink, reason: str, condition: str) -> None:
        held.append(list(applied))
        detach_with(self, reason, condition)

    monkeypatch.setattr(ConsumerLink, "outcomes", applying)
    monkeypatch.setattr(ConsumerLink, "detach_with", detaching)
    told = dict.fromkeys(tags[:4], NOT_HERE) | dict.fromkeys(tags[4:6], Accepted()) | {tags[6]: Rejected()}
    ended = resume(rig, node, told | dict.fromkeys(tags[7:]))
    assert [event.error is not None for event in ended.detached] == [True]
    assert held == [[Modified, Accepted, Rejected]]
    assert node.bodies("work") == ["1", "2", "3", "4", "8", "9"]


def test_as_many_as_may_be_leave_it_resumed() -> None:
    rig, node, client = world(limits=Limits(excluded_max=3))
    fill(rig, client, 6)
    tags = suspended(rig, node, 6)
    resumed = resume(rig, node, dict.fromkeys(tags[:3], NOT_HERE) | dict.fromkeys(tags[3:]))
    assert resumed.detached == [] and node.core is not None and len(node.core.resume.outgoing) == 1
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    assert other.bodies() == ["1", "2", "3"]


# ------------------------------------------------------------------------------------------------ contained failures


@pytest.mark.parametrize("goes_back", ["at once", "in turns to come", "only the second time"])
def test_what_a_consumer_that_a_failure_suspends_keeps_no_more_goes_back_to_its_place(
    monkeypatch: pytest.MonkeyPatch, goes_back: str
) -> None:
    """It had settled one, which the failure kept from being done; the rest waits for it to come back."""
    rig, node, client = world()
    fill(rig, client, 5)
    core = node.core
    assert core is not None
    lost = rig.client(node)
    lost.receiver("work", name="r", source=TIMED, unsettled={}, credit=5)
    rig.settle()
    tags = [item.tag for item in lost.deliveries]
    left = [RuntimeError("too")] if goes_back == "only the second time" else []
    requeue = Returns.requeue

    def once(*given: Any, **options: Any) -> None:
        if left:
            raise left.pop()
        requeue(*given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ConsumerLink, "outcomes", failing)
        patch.setattr(Returns, "requeue", once)
        if goes_back == "in turns to come":
            patch.setattr(core.jobs.returns, "_left", 0)
        lost.accept(count=1)
        rig.settle()
    assert lost.over and core.containment.peers_ended == 1 and not left
    shared = node.queue("work").shared
    assert list(shared.acquired) == [2, 3, 4, 5] and shared.requeued == [1]
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    assert other.accept() == ["1"]
    resume(rig, node, dict.fromkeys(tags[1:], Accepted()))
    rig.run(1)
    assert node.queue("work").messages == core.users.anonymous.unsettled_bytes == 0


def test_what_a_suspended_consumer_keeps_stays_its_own_when_another_connection_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig, node, client = world()
    fill(rig, client, 5)
    core = node.core
    assert core is not None
    tags = suspended(rig, node, 5)
    shared = node.queue("work").shared
    bad = rig.client(node)
    bad.receiver("other")
    fill(rig, client, 1, "other")
    with monkeypatch.context() as patch:
        patch.setattr(ConsumerLink, "outcomes", failing)
        bad.accept()
        rig.settle()
    assert bad.over and core.containment.peers_ended == 1 and list(shared.acquired) == [1, 2, 3, 4, 5]
    again = resume(rig, node, dict.fromkeys(tags[:3], Accepted()) | dict.fromkeys(tags[3:]))
    rig.run(1)
    assert node.bodies("work") == ["4", "5"] and not again.detached
    again.close_transport()
    rig.run(TIMED["timeout"] + 1)
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    assert other.accept() == ["4", "5"]
    rig.run(1)
    assert node.queue("work").messages == 0


def failing(*_: Any) -> Any:
    raise RuntimeError("for once")


def test_what_was_settled_is_not_held_for_a_link_that_is_lost_before_it_was_told() -> None:
    """It had no credit to hear of it: the next link is told of none of it."""
    rig, node, client = world()
    fill(rig, client, 3)
    tags = suspended(rig, node, 3)
    lost = rig.client(node)
    told = {tags[0]: Accepted(), tags[1]: None, tags[2]: None}
    lost.receiver("work", name="r", source=TIMED, unsettled=told, credit=0)
    rig.settle()
    lost.close_transport()
    rig.settle()
    assert node.core is not None
    (record,) = node.core.resume.outgoing.values()
    assert sorted(record.held) == sorted(tags[1:])
    node.core.validate()
    again = resume(rig, node, dict.fromkeys(tags[1:]))
    rig.run(1)
    assert again.accept() == ["2", "3"]
    rig.run(1)
    assert node.queue("work").messages == 0
