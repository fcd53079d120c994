"""What the unsettled map of an attach says of a consumer's deliveries (endpoints/resumption/): each outcome is applied
once, whatever ends the link meanwhile.
"""

from collections import Counter
from typing import Any

import pytest

from core.test_handed import put
from core.test_resumed_share import TIMED, applied, filled, numbers, stored, suspended, with_error_or_annotation
from holdfast.amqp.connection import Connection
from holdfast.amqp.effort import OUTCOME
from holdfast.amqp.wire.performatives import Accepted, Modified
from holdfast.amqp.wire.types import Symbol
from holdfast.endpoints.resumption import consumer as consumers
from holdfast.peers.limits import memory
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.memory import check_accounts
from support.one_node import world
from support.resuming import Producer


def undeliverable(number: int) -> Modified:
    return Modified(undeliverable_here=True, message_annotations={Symbol("x-opt-number"): number})


def test_outcomes_that_differ_in_whether_the_delivery_failed_are_told_apart() -> None:
    rig, node = filled(4, 10)
    [tags] = suspended(rig, node)
    states = {tag: Modified(delivery_failed=bool(number % 2)) for number, tag in enumerate(tags)}
    client = rig.client(node)
    client.receiver("work", name="r0", source=TIMED, unsettled=states, credit=0)
    rig.settle()
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert numbers(other) == [0, 1, 2, 3]
    assert [(message.header.delivery_count if message.header else 0) for message in other.messages()] == [0, 1, 0, 1]


def test_outcomes_that_differ_in_whether_they_are_undeliverable_here_are_told_apart() -> None:
    rig, node = filled(4, 10)
    [tags] = suspended(rig, node)
    states = {tag: Modified(undeliverable_here=bool(number % 2)) for number, tag in enumerate(tags)}
    client = rig.client(node)
    client.receiver("work", name="r0", source=TIMED, unsettled=states)
    rig.settle()
    assert [int(item) for item in client.bodies() if item] == [0, 2]
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert numbers(other) == [1, 3]


def test_what_a_map_settles_counts_for_its_connection(monkeypatch: Any) -> None:
    rig, node = filled(300, 10)
    [tags] = suspended(rig, node)
    client = rig.client(node)
    rig.settle()
    units: list[int] = []
    took = Connection.took

    def counting(connection: Any, count: int) -> None:
        units.append(count)
        took(connection, count)

    monkeypatch.setattr(Connection, "took", counting)
    client.receiver("work", name="r0", source=TIMED, unsettled=dict.fromkeys(tags, Accepted()), credit=0)
    rig.settle()
    assert OUTCOME + 300 in units


@pytest.mark.parametrize("count", [3, 6])
def test_more_annotated_that_is_undeliverable_than_may_be_ends_the_link_and_the_rest_goes_to_others(
    count: int,
) -> None:
    """What was still to be told of is held by nobody then."""
    rig, node, _ = world(QueueConfig(name="work"), limits=Limits(excluded_max=2))
    core = node.core
    assert core is not None
    put(rig, node, "work", 6, 10)
    [tags] = suspended(rig, node)
    states: dict[bytes, Any] = {
        tag: undeliverable(number) if number < count else None for number, tag in enumerate(tags)
    }
    client = rig.client(node)
    link = client.receiver("work", name="r0", source=TIMED, unsettled=states)
    rig.settle()
    assert core.containment.peers_ended == 0
    assert [str(event.error.condition) for event in client.detached if event.error] == ["amqp:resource-limit-exceeded"]
    assert link.over and not core.resume.outgoing and not core.resume.going_on
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    assert sorted(numbers(other)) == list(range(6))
    told = [(message.message_annotations or {}).get(Symbol("x-opt-number")) for message in other.messages()]
    assert len([number for number in told if number is not None]) == 3, "what came behind the end counts for nothing"
    other.accept()
    rig.run(1)
    assert node.queue("work").messages == core.users.anonymous.unsettled_bytes == 0
    check_accounts(core)


@pytest.mark.parametrize("early", ["credit", "none"])
def test_nothing_is_sent_before_the_answer_and_all_of_it_behind(early: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(consumers, "OUTCOME_COST", memory.OFFERED_COUNT)
    rig, node = filled(5, 10)
    [tags] = suspended(rig, node)
    states = {
        tag: with_error_or_annotation(number, "rejected") if number < 3 else None for number, tag in enumerate(tags)
    }
    client = rig.client(node)
    link = client.receiver("work", name="r0", source=TIMED, unsettled=states, credit=1_000 if early == "credit" else 0)
    while not link.attached:
        assert not client.deliveries and rig.move()
    if early == "none":
        rig.settle()
        link.grant(1_000)
    rig.settle()
    assert [item.tag for item in client.deliveries] == tags
    assert [item.settled for item in client.deliveries] == [True] * 3 + [False] * 2
    assert stored(node, "$dead-letters") == [0, 1, 2]


@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("silent", [True, False])
def test_a_link_whose_place_a_newer_one_takes_before_the_answer_is_told_so(
    sends: bool, told: bool, silent: bool
) -> None:
    rig, node = filled(5, 10)
    core = node.core
    assert core is not None
    busy = Producer(rig, node)
    mine: dict[bytes, Any] = {}
    if sends:
        other = Producer(rig, node, "other")
        other.lose()
    else:
        [tags] = suspended(rig, node)
        mine = {tag: with_error_or_annotation(n, "rejected") if told else Accepted() for n, tag in enumerate(tags[:2])}
        mine |= dict.fromkeys(tags[2:])

    def attach() -> Any:
        client = rig.client(node)
        if sends:
            other.client = client
            return client, other.attach({})
        return client, client.receiver("work", name="r0", source=TIMED, unsettled=mine)

    rig.settle()
    node.hold_commits = True
    busy.send("a")
    rig.settle()
    first, older = attach()
    rig.settle()
    assert not older.attached
    first.end.wire.other(first.end).paused = silent  # it does not answer the detach yet
    _, newer = attach()
    rig.settle()
    node.hold_commits = False
    rig.settle()
    first.end.wire.other(first.end).paused = False
    rig.settle()
    assert core.containment.peers_ended == 0
    assert newer.attached and older.over and not first.over
    assert [str(event.error.condition) for event in first.detached if event.error] == ["amqp:link:stolen"]
    check_accounts(core)


@pytest.mark.parametrize("how", ["lost", "detached", "stolen"])
def test_what_was_applied_is_not_again_and_the_rest_is_when_it_is_told_anew(how: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(consumers, "OUTCOME_COST", memory.OFFERED_COUNT)
    rig, node = filled(6, 10)
    [tags] = suspended(rig, node)
    states: dict[bytes, Any] = {tag: with_error_or_annotation(n, "annotated") for n, tag in enumerate(tags[:4])}
    states |= {tags[4]: Accepted(), tags[5]: None}
    seen = applied(monkeypatch)
    client = rig.client(node)
    link = client.receiver("work", name="r0", source=TIMED, unsettled=states, credit=0)
    while len(seen) < 3:
        assert rig.move()
    if how == "lost":
        client.close_transport()
    elif how == "detached":
        link.detach(closed=False)
    if how != "stolen":
        rig.settle()
    again = rig.client(node)
    resumed = again.receiver("work", name="r0", source=TIMED, unsettled=states, credit=0)
    rig.settle()
    assert resumed.attached
    told = resumed.remote_attach.unsettled
    assert sorted(item.sequence for item in seen) == [1, 2, 3, 4, 5] and len(told) < 6
    resumed.grant(100)
    rig.settle()
    if how != "lost":
        assert link.over
    assert node.core is not None and node.core.containment.peers_ended == 0
    check_accounts(node.core)


def test_what_was_told_behind_the_end_of_a_link_counts_for_nothing(monkeypatch: Any) -> None:
    """Though all that it held is still on its way back."""
    rig, node, _ = world(QueueConfig(name="work"), limits=Limits(excluded_max=2))
    core = node.core
    assert core is not None
    put(rig, node, "work", 6, 10)
    [tags] = suspended(rig, node)
    states: dict[bytes, Any] = {
        tag: undeliverable(number) if number < 3 else with_error_or_annotation(number, "rejected")
        for number, tag in enumerate(tags)
    }
    ended = consumers.ResumableConsumer.gone

    def gone(consumer: Any, unsettled: list[Any]) -> None:
        core.jobs.returns._left = 0  # this turn has given back as much as one may
        ended(consumer, unsettled)

    monkeypatch.setattr(consumers.ResumableConsumer, "gone", gone)
    client = rig.client(node)
    client.receiver("work", name="r0", source=TIMED, unsettled=states)
    rig.settle()
    assert [str(event.error.condition) for event in client.detached if event.error] == ["amqp:resource-limit-exceeded"]
    assert "$dead-letters" not in core.catalog.queues
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    assert sorted(numbers(other)) == list(range(6))
    check_accounts(core)


def test_a_turn_applies_no_more_than_so_many_outcomes_with_an_error(monkeypatch: Any) -> None:
    rig, node = filled(600, 10)
    [tags] = suspended(rig, node)
    seen = applied(monkeypatch)
    client = rig.client(node)
    client.receiver(
        "work",
        name="r0",
        source=TIMED,
        credit=0,
        unsettled={t: with_error_or_annotation(n, "rejected") for n, t in enumerate(tags)},
    )
    rig.settle()
    done = Counter(item.turn for item in seen)
    assert done.total() == 600 and max(done.values()) <= 150
