"""Where a link between queues begins that copies: the first message, the next one or a sequence (docs/links.md)."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Accepted
from holdfast.amqp.wire.types import Ulong
from holdfast.errors import ConfigError
from support.one_node import done, fill, world
from support.queue_links import copy, linked, links_of, move, numbers
from support.rig import Client, Rig


def filled(count: int = 5) -> tuple[Rig, Any, Client]:
    rig, node, client = world()
    fill(rig, client, count)
    return rig, node, client


@pytest.mark.parametrize(
    ("start", "first"), [("first", 1), ("next", 6), (1, 1), (3, 3), (5, 5), (6, 6), (0, 1), (1 << 62, 6)]
)
def test_a_copy_begins_where_it_is_told(start: object, first: int) -> None:
    rig, node, client = filled()
    made = done(client, "CREATE", "link", "l", **{"from": "work", "to": "next", "mode": "copy", "start": start})
    assert made["start"] == start
    rig.settle()
    fill(rig, client, 2, first=6)
    assert node.bodies("next") == numbers(first, 7) and node.bodies("work") == numbers(1, 7)
    links_of(node)


def test_what_lies_before_the_start_does_not_wait_for_the_link() -> None:
    rig, node, client = filled()
    done(client, "CREATE", "link", "l", **{"from": "work", "to": "next", "mode": "copy", "start": "next"})
    done(client, "STOP", "link", "l")
    held = client.receiver("work", credit=5)
    rig.settle()
    held.settle(client.deliveries[0].delivery_id, client.deliveries[-1].delivery_id, Accepted())
    client.flush()
    rig.run(1)
    assert node.bodies("work") == []
    status, found, _ = client.manage("READ", "queue", "work")
    assert (status, found["messages"]) == (200, 0)
    links_of(node)


@pytest.mark.parametrize("start", ["last", "", -1, 1.5, True, [1], Ulong(1 << 63)])
def test_another_start_is_refused(start: object) -> None:
    _, _, client = filled(1)
    told = {"from": "work", "to": "next", "mode": "copy", "start": start}
    status, _, text = client.manage("CREATE", "link", "l", **told)
    assert status == 400 and "expected first, next or a sequence" in text


def test_a_link_that_moves_has_no_start_of_its_own() -> None:
    _, _, client = filled(1)
    status, _, text = client.manage("CREATE", "link", "l", **{"from": "work", "to": "next", "start": "next"})
    assert status == 400 and "only a link that copies" in text
    with pytest.raises(ConfigError, match="only a link that copies"):
        move("work", "next", start=7).validate()


def test_a_restart_does_not_move_the_link_and_the_same_request_finds_it() -> None:
    rig, node, client = filled()
    told = {"from": "work", "to": "next", "mode": "copy", "start": "next"}
    done(client, "CREATE", "link", "l", **told)
    fill(rig, client, 2, first=6)
    node.crash()
    node.start()
    client = rig.client(node)
    assert done(client, "CREATE", "link", "l", **told)["created"] is False
    status, _, text = client.manage("CREATE", "link", "l", **{**told, "start": "first"})
    assert status == 409 and "other settings" in text
    fill(rig, client, 1, first=8)
    assert node.bodies("next") == numbers(6, 8)
    links_of(node)


def test_a_start_that_is_changed_in_the_file_holds_from_the_next_start_on() -> None:
    rig, node, client = linked(copy("work", "next", start="next"))
    fill(rig, client, 3)
    node.crash()
    node.config = replace(node.config, links=(copy("work", "next", start=2),))
    node.start()
    rig.settle()
    assert node.bodies("next") == [*numbers(1, 3), *numbers(2, 3)]
    node.crash()
    node.start()
    rig.settle()
    assert len(node.bodies("next")) == 5
    links_of(node)


def test_a_queue_that_a_link_copies_is_not_purged_and_the_answer_names_the_link() -> None:
    rig, node, client = linked(copy("work", "next", "audit"))
    fill(rig, client, 2)
    status, _, text = client.manage("PURGE", "queue", "work")
    assert (status, text) == (409, "queue 'work' has links that copy: audit")
    done(client, "OPEN", "subscription", "s", queue="work", mode="copy")
    assert client.manage("PURGE", "queue", "work")[2] == "queue 'work' has subscriptions: s; links that copy: audit"
    assert node.bodies("work") == numbers(1, 2)
