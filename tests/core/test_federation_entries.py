"""Which entries of federation apply: those of the file, of requests and of neighbours, within the bounds on all of them
(peering/binding_entries.py)."""

from dataclasses import replace
from typing import Any

import pytest

from core.test_entities import rows as entities
from holdfast.federation.messages import EDGES_MAX
from holdfast.federation.modes import ASK_BYTES_MAX, TOPICS_MAX, Ask
from holdfast.federation.settings import Entry
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import QueueConfig
from holdfast.settings.remotes import RemoteConfig
from support.one_node import done
from support.reloads import lines, read
from support.rig import Node, Rig

HUB, EWR = NeighbourConfig(name="hub"), NeighbourConfig(name="ewr")
MOST = tuple(Entry(f"t{number}", "hub") for number in range(TOPICS_MAX))
WIDE = tuple(f"{number:03}." + "a" * 250 for number in range(ASK_BYTES_MAX // 254 // 2 + 1))
"""Patterns of which twice as many are too many to ask a neighbour for."""


def jfk(*created: str, **fields: Any) -> Node:
    """A node with those entries, each made by a request."""
    rig = Rig()
    node = rig.node("jfk", **{"neighbours": (HUB, EWR), **fields})
    client = rig.client(node)
    for name in created:
        done(client, "CREATE", "federation", name)
    rig.settle()
    return node


def applying(node: Node) -> list[str]:
    assert node.core is not None and node.core.bindings.federation is not None
    entries = node.core.bindings.entries
    federation = node.core.bindings.federation
    assert federation.entries == tuple(entry for entry in entries if entry.goes), "what is shown is what is in force"
    return [f"{entry.topic}@{entry.neighbour}" for entry in entries]


def asked(node: Node, topic: str) -> None:
    """The neighbour `hub` has asked for the topic, and that is on disk."""
    assert node.core is not None
    node.core.bindings.made.ask("hub", [Ask(topic, "push")])
    done(node.rig.client(node), "CREATE", "queue", "another")  # a turn


def warnings(node: Node) -> list[str]:
    assert node.core is not None
    return [text for text in node.core.report.status("")["warnings"] if "federation" in text]


def fails_once(node: Node) -> None:
    """A defect is contained: all is built anew."""
    assert node.core is not None
    node.core.containment.part_failed("test", ValueError("a defect"))
    node.rig.run(1)


# ---------------------------------------------------------------------------------------------- too many together


def test_entries_that_do_not_fit_beside_the_file_s_are_left_out_at_a_start() -> None:
    node = jfk("extra@hub")
    node.crash()
    node.config = replace(node.config, federation=MOST)
    node.start()
    assert applying(node) == [f"t{number}@hub" for number in range(TOPICS_MAX)]
    (warning,) = warnings(node)
    assert warning.startswith(f"federation extra@hub, which a request created, does not apply: {TOPICS_MAX + 1} topics")
    fails_once(node)
    done(node.rig.client(node), "DELETE", "federation", "extra@hub")
    assert not warnings(node) and node.core is not None and not node.core.bindings.made.created


def test_patterns_that_a_neighbour_is_asked_for_count_together_at_a_start() -> None:
    node = jfk()
    done(node.rig.client(node), "CREATE", "federation", "t@hub", mode="static", patterns=list(WIDE), direction="from")
    node.crash()
    node.config = replace(node.config, federation=(Entry("u", "hub", "static", WIDE, "from"),))
    node.start()
    assert applying(node) == ["u@hub"]
    assert f"patterns that 'hub' is asked for have {2 * sum(map(len, WIDE))} bytes" in warnings(node)[0]
    node.crash()
    node.config = replace(node.config, federation=())
    node.start()
    assert applying(node) == ["t@hub"] and not warnings(node)


def test_a_reload_that_leaves_no_room_for_an_entry_is_refused_as_a_whole() -> None:
    node = jfk("extra@hub")
    new = NeighbourConfig(name="new")
    assert not read(node, neighbours=(HUB, EWR, new), federation=MOST).accepted
    (line,) = lines(node)
    assert line.startswith("nothing has changed") and "holdfast federation remove extra hub" in line
    assert node.core is not None and "new" not in node.core.neighbours
    assert applying(node) == ["extra@hub"]
    fails_once(node)
    done(node.rig.client(node), "DELETE", "federation", "extra@hub")
    assert read(node, federation=MOST).accepted and len(applying(node)) == TOPICS_MAX


def test_a_neighbour_that_comes_back_with_its_entries_is_counted_too() -> None:
    node = jfk("extra@hub")
    entries = tuple(replace(entry, neighbour="ewr") for entry in MOST)
    node.crash()
    node.config = replace(node.config, neighbours=(EWR,), federation=entries)
    node.start()
    assert not read(node, neighbours=(EWR, HUB), federation=entries).accepted
    assert applying(node) == [f"t{number}@ewr" for number in range(TOPICS_MAX)]
    done(node.rig.client(node), "DELETE", "federation", "extra@hub")
    assert read(node, neighbours=(EWR, HUB), federation=entries).accepted


def test_an_entry_that_is_left_out_does_not_keep_a_reload_from_changing_something_else() -> None:
    node = jfk("extra@hub")
    node.crash()
    node.config = replace(node.config, federation=MOST)
    node.start()
    assert read(node, neighbours=(HUB, EWR, NeighbourConfig(name="new")), federation=MOST).accepted
    assert read(node, federation=MOST[1:]).accepted
    assert applying(node)[-1] == "extra@hub" and not warnings(node)


def test_a_dynamic_entry_of_a_neighbour_that_became_a_remote_is_left_out() -> None:
    node = jfk("extra@hub", "other@ewr")
    remotes = (RemoteConfig(name="hub", remote="127.0.0.1:1"),)
    node.crash()
    node.config = replace(node.config, neighbours=(EWR,), remotes=remotes)
    node.rig.refuse_dials = True
    node.start()
    assert applying(node) == ["other@ewr"]
    assert "a [[remote]], which has no bindings" in warnings(node)[0]


def test_a_topic_over_the_most_neighbours_leaves_out_another_one() -> None:
    names = [f"n{number}" for number in range(EDGES_MAX)]
    neighbours = (HUB, *(NeighbourConfig(name=name) for name in names))
    node = jfk("t@hub", neighbours=neighbours)
    entries = tuple(Entry("t", name) for name in names)
    assert not read(node, federation=entries).accepted
    assert f"federation of 't' over more than {EDGES_MAX} neighbours" in lines(node)[0]


# ------------------------------------------------------------------------------------------------ what is asked for


def test_who_removes_an_entry_is_told_whether_a_neighbour_asked_for_it() -> None:
    """That one asks again."""
    node = jfk("own@ewr")
    asked(node, "news")
    client = node.rig.client(node)
    removed = {name: done(client, "DELETE", "federation", name)["asked"] for name in ("news@hub", "own@ewr")}
    assert removed == {"news@hub": True, "own@ewr": False}


def test_what_a_neighbour_asked_for_ends_when_it_is_removed() -> None:
    """It does not apply again before the neighbour has asked again."""
    node = jfk("own@ewr")
    asked(node, "news")
    assert node.core is not None
    assert [entry.topic for entry in node.core.bindings.entries] == ["own", "news"]
    both = node.config
    for config in (replace(both, neighbours=(EWR,)), both):
        node.crash()
        node.config = config
        node.start()
        node.rig.run(1)
    assert applying(node) == ["own@ewr"]


@pytest.mark.parametrize("configured", [True, False], ids=["in the file", "by a request"])
def test_of_two_entries_with_one_name_each_can_be_removed(configured: bool) -> None:
    """The node asks the neighbour for a topic, and the neighbour asks it."""
    own = (Entry("news", "hub", direction="from"),)
    node = jfk(federation=own if configured else ())
    client = node.rig.client(node)
    if not configured:
        done(client, "CREATE", "federation", "news@hub", direction="from")
    asked(node, "news")
    assert node.core is not None
    made = node.core.bindings.made
    done(client, "DELETE", "federation", "news@hub")
    assert bool(made.asked) is not configured, "the one that a request created goes first"
    status, _, text = client.manage("DELETE", "federation", "news@hub")
    assert (status, made.asked) == ((409, {}) if configured else (200, {})), text
    assert client.manage("DELETE", "federation", "news@hub")[0] == (409 if configured else 404)


# ------------------------------------------------------------------------------------------------ what is listed


def states(node: Node) -> dict[str, str]:
    client = node.rig.client(node)
    rows = done(client, "QUERY", "federation", "")["federation"]
    assert node.core is not None and node.core.report.status("").get("federation", []) == rows
    told = {f"{row['topic']}@{row['neighbour']}": row["state"] for row in rows}
    assert {row["name"]: row["state"] for row in entities(client, "federation")}.items() <= told.items()
    return told


def test_an_entry_whose_neighbour_is_gone_is_listed_until_it_is_removed() -> None:
    node = jfk("news@hub", "news@ewr")
    node.crash()
    node.config = replace(node.config, neighbours=(EWR,))
    node.start()
    assert states(node) == {"news@ewr": "down", "news@hub": "no neighbour"}
    done(node.rig.client(node), "DELETE", "federation", "news@ewr")
    assert states(node) == {"news@hub": "no neighbour"}
    assert read(node, neighbours=(HUB, EWR)).accepted
    assert states(node) == {"news@hub": "down"}
    done(node.rig.client(node), "DELETE", "federation", "news@hub")
    assert states(node) == {}


def test_an_entry_that_is_left_out_is_listed() -> None:
    node = jfk("extra@hub")
    node.crash()
    node.config = replace(node.config, federation=MOST)
    node.start()
    assert states(node)["extra@hub"] == "left out" and len(states(node)) == TOPICS_MAX + 1


@pytest.mark.parametrize("configured", [True, False], ids=["in the file", "by a request"])
def test_an_entry_that_is_there_in_another_way_is_named_with_what_to_do(configured: bool) -> None:
    node = jfk(federation=(Entry("news", "hub", direction="from"),) if configured else ())
    client = node.rig.client(node)
    if not configured:
        done(client, "CREATE", "federation", "news@hub", direction="from")
    status, _, text = client.manage("CREATE", "federation", "news@hub", mode="push")
    what = "topic 'news' is federated with 'hub' in another way, direction from and mode dynamic"
    advice = "change the configuration file" if configured else "remove that first"
    assert (status, text) == (409, f"{what}; {advice}")


def test_what_a_remote_cannot_have_is_told_whatever_it_has() -> None:
    node = jfk(remotes=(RemoteConfig(name="mq", remote="127.0.0.1:1"),))
    node.rig.refuse_dials = True
    client = node.rig.client(node)
    done(client, "CREATE", "federation", "news@mq", mode="push")
    _, _, text = client.manage("CREATE", "federation", "news@mq", mode="push", direction="from")
    assert "invalid direction 'from' in federation of 'news' over 'mq', a [[remote]]" in text


@pytest.mark.parametrize("how", ["file", "request", "asked"])
def test_a_topic_is_not_deleted_while_it_is_federated(how: str) -> None:
    topics = tuple(QueueConfig(name=f"topic/{name}") for name in ("news", "newspaper"))
    fields = {"federation": (Entry("news", "hub"),)} if how == "file" else {}
    node = jfk(*(["news@hub"] if how == "request" else []), queues=topics, **fields)
    if how == "asked":
        asked(node, "news")
    client = node.rig.client(node)
    status, _, text = client.manage("DELETE", "queue", "topic/news")
    assert (status, text) == (409, "topic 'topic/news' is federated with: hub; remove that first")
    assert node.core is not None and client.manage("READ", "queue", "topic/news")[0] == 200
    done(client, "DELETE", "queue", "topic/newspaper")
    if how == "file":
        assert read(node, queues=(), federation=()).accepted
    else:
        done(client, "DELETE", "federation", "news@hub")
    done(client, "DELETE", "queue", "topic/news")


@pytest.mark.parametrize(
    ("topic", "arguments", "status", "told"),
    [
        ("unknown", {"subject": "a"}, 404, "no topic 'unknown'"),
        ("news", {"subject": ""}, 400, "invalid subject ''; expected words joined by dots, none of them `*` or `#`"),
        ("news", {"subject": "a..b"}, 400, "invalid subject 'a..b'; expected words joined by dots"),
        ("news", {"subject": "a.#"}, 400, "invalid subject 'a.#'"),
        ("news", {"subject": "*"}, 400, "invalid subject '*'"),
        ("news", {"subject": "a.b#"}, 200, "OK"),
        ("news", {}, 200, "OK"),
        ("passing", {"subject": "a"}, 200, "OK"),
    ],
)
def test_the_tree_of_what_is_no_topic_or_no_subject_is_refused(
    topic: str, arguments: dict[str, Any], status: int, told: str
) -> None:
    node = jfk("passing@hub", queues=(QueueConfig(name="topic/news"),))
    found, _, text = node.rig.client(node).manage("TREE", "federation", topic, **arguments)
    assert found == status and text.startswith(told)
