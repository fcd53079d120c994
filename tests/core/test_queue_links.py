"""Links between queues, over AMQP and at two nodes (docs/links.md; docs/adr/0065)."""

from dataclasses import replace

import pytest

from holdfast.amqp.wire.extensions import LINKS
from holdfast.amqp.wire.performatives import Accepted, Header, Properties
from holdfast.amqp.wire.types import Symbol
from holdfast.broker import rewriting
from holdfast.broker.entries import annotate, entry
from holdfast.broker.entries.annotate import LINK_ID_BYTES, LINKS_MAX
from holdfast.core.undo import take_back_gathered
from holdfast.errors import ConfigError
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import LinkConfig, QueueConfig
from support.one_node import done, fill, world
from support.queue_links import copy, linked, links_of, move, numbers
from support.rig import Rig
from support.routing import network
from support.streams import LARGE, LIMITS, body, is_clean, pieces

# ------------------------------------------------------------------------------------------------ move and copy


def test_a_move_takes_all_in_order() -> None:
    rig, node, client = linked(move("work", "next"))
    fill(rig, client, 600)
    assert node.bodies("work") == [] and node.bodies("next") == numbers(1, 600)
    assert links_of(node).by_name["work-next"].moved_total == 600


def test_what_was_there_before_the_link_is_moved_too() -> None:
    rig, node, client = world()
    fill(rig, client, 3)
    done(client, "CREATE", "link", "l", **{"from": "work", "to": "next"})
    rig.settle()
    assert node.bodies("next") == numbers(1, 3)


def test_a_copy_leaves_the_messages_to_consumers() -> None:
    rig, node, client = linked(copy("work", "next"))
    fill(rig, client, 300)
    assert node.bodies("work") == node.bodies("next") == numbers(1, 300)
    held = client.receiver("work", credit=300)
    rig.settle()
    assert len(client.deliveries) == 300
    held.settle(client.deliveries[0].delivery_id, client.deliveries[-1].delivery_id, Accepted())
    client.flush()
    rig.run(1)
    assert node.bodies("work") == [] and node.bodies("next") == numbers(1, 300)
    links_of(node)


def test_a_chain_and_a_fan_in() -> None:
    rig, node, client = linked(move("work", "b"), move("b", "c"), move("other", "c"))
    fill(rig, client, 300)
    fill(rig, client, 5, "other", 301)
    assert sorted(node.bodies("c"), key=int) == numbers(1, 305)
    links_of(node)


def test_a_move_beside_a_copy_ties_what_others_read_too() -> None:
    rig, node, client = linked(move("work", "b"), copy("work", "c"))
    fill(rig, client, 300)
    rig.run(1)
    assert node.bodies("work") == [] and node.bodies("b") == node.bodies("c") == numbers(1, 300)
    links_of(node)


def test_a_move_takes_what_its_selector_says_and_leaves_the_rest_in_its_place() -> None:
    rig, node, client = linked(move("work", "high", selector="JMSPriority > 4"))
    link = client.sender("work")
    rig.settle()
    for number in range(20):
        client.send(link, str(number), header=Header(durable=True, priority=9 if number % 3 else 1))
    rig.settle()
    assert node.bodies("work") == [str(number) for number in range(0, 20, 3)]
    assert node.bodies("high") == [str(number) for number in range(20) if number % 3]
    client.receiver("work")
    rig.settle()
    assert client.bodies() == node.bodies("work")
    links_of(node)


def test_a_message_stays_as_it_was() -> None:
    rig, _, client = linked(copy("work", "b"), move("b", "c"))
    link = client.sender("work")
    rig.settle()
    client.send(
        link, "x", header=Header(durable=True, priority=7, ttl=60_000), properties=Properties(subject="s"),
        message_annotations={"x-opt-mine": 5}, application_properties={"k": "v"},
    )  # fmt: skip
    rig.settle()
    client.receiver("work")
    client.receiver("c")
    rig.settle()
    first, second = client.messages()
    for said in (first, second):
        assert said.message_annotations is not None
        for key in ("x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-holdfast-links"):
            said.message_annotations.pop(key, None)
    assert second == first and second.message_annotations == {"x-opt-mine": 5}
    assert second.header is not None and second.header.priority == 7 and second.header.ttl == 60_000


def test_an_expired_message_is_not_moved() -> None:
    rig, node, client = linked(move("work", "b"), queues=(QueueConfig(name="b", messages_max=1),))
    link = client.sender("work")
    rig.settle()
    for text in ("1", "2"):
        client.send(link, text, header=Header(durable=True, ttl=1_000))
    rig.settle()
    assert node.bodies("work") == ["2"] and node.bodies("b") == ["1"]
    rig.run(3)
    assert node.bodies("work") == node.bodies("b") == []
    links_of(node)


def test_a_large_message_is_the_same_blob() -> None:
    rig, node, client = linked(copy("work", "b"), limits=LIMITS)
    link = client.sender("work")
    rig.settle()
    client.send(link, body(LARGE))
    rig.settle()
    assert node.bodies("work") == node.bodies("b") == [body(LARGE)]
    held = pieces(node)
    for name in ("work", "b"):
        assert pieces(node) == held
        receiver = client.receiver(name)
        rig.settle()
        receiver.settle(client.deliveries[-1].delivery_id, client.deliveries[-1].delivery_id, Accepted())
        client.flush()
        rig.run(1)
    assert is_clean(node)


# ------------------------------------------------------------------------------------------------ loops


def test_a_ring_of_moves_takes_a_message_round_once() -> None:
    rig, node, client = linked(move("work", "b"), move("b", "c"), move("c", "work"))
    fill(rig, client, 300)
    rig.run(1)
    assert node.bodies("work") == numbers(1, 300) and node.bodies("b") == node.bodies("c") == []
    assert [link.moved_total for link in links_of(node).by_name.values()] == [300, 300, 300]
    node.crash()
    node.start()
    rig.settle()
    assert node.bodies("work") == numbers(1, 300)
    assert [link.moved_total for link in links_of(node).by_name.values()] == [0, 0, 0]


def test_a_ring_over_two_nodes_takes_a_message_round_once() -> None:
    rig = Rig()
    jfk, hub = rig.pair(jfk={"links": (move("work", "work@hub", "out"),)}, links=(move("work", "work@jfk", "back"),))
    rig.run(1)
    client = rig.client(jfk)
    fill(rig, client, 20)
    rig.run(2)
    assert jfk.bodies("work") == numbers(1, 20) and hub.bodies("work") == []
    assert links_of(jfk).by_name["out"].moved_total == links_of(hub).by_name["back"].moved_total == 20


def test_what_has_passed_64_links_becomes_a_dead_letter() -> None:
    rig, node, client = linked(move("work", "b"))
    links = links_of(node)
    links.by_name["work-b"].is_stopped = True
    fill(rig, client, 2)
    queue = node.queue("work")
    for sequence, count in ((1, LINKS_MAX), (2, LINKS_MAX - 1)):
        value = queue.value(sequence)
        marked = annotate.merge(value, annotate.to_add({LINKS: bytes(LINK_ID_BYTES * count)}), 10_000)
        rewriting.replace(queue, sequence, value, marked, node.core.turns.gathered.rewritten)  # type: ignore[union-attr]
        queue.uncache(sequence)
    links.stop(links.by_name["work-b"], is_stopped=False)
    rig.settle()
    assert node.bodies("b") == ["2"] and node.bodies("$dead-letters") == ["1"] and node.bodies("work") == []
    notes = annotate.notes_of(entry.unpack(node.queue("$dead-letters").value(1)))
    text = "link 'work-b': it has passed 64 links, the most that a message may"
    assert notes["x-opt-dead-letter-reason"] == text and notes["x-opt-dead-letter-from"] == "work"
    assert links_of(node).by_name["work-b"].dead_total == 1


def test_a_client_cannot_say_which_links_a_message_passed() -> None:
    rig, node, client = linked(move("work", "b"))
    link_id = links_of(node).by_name["work-b"].link_id
    link = client.sender("work")
    rig.settle()
    client.send(link, "x", message_annotations={LINKS: link_id})
    rig.settle()
    assert node.bodies("b") == ["x"]


# ------------------------------------------------------------------------------------------------ room


def test_a_full_target_is_given_what_it_has_room_for() -> None:
    rig, node, client = linked(move("work", "b"), queues=(QueueConfig(name="b", messages_max=3),))
    fill(rig, client, 10)
    assert node.bodies("b") == numbers(1, 3) and node.bodies("work") == numbers(4, 10)
    assert links_of(node).status("")[0]["state"] == "no room"
    receiver = client.receiver("b", credit=2)
    rig.settle()
    receiver.settle(client.deliveries[0].delivery_id, client.deliveries[-1].delivery_id, Accepted())
    client.flush()
    rig.settle()
    assert node.bodies("b") == numbers(3, 5) and node.bodies("work") == numbers(6, 10)


def test_a_message_that_does_not_fit_waits_and_all_behind_it() -> None:
    rig, node, client = linked(move("work", "b"), queues=(QueueConfig(name="b", bytes_max=1_000),))
    link = client.sender("work")
    rig.settle()
    for text in ("1", "2" * 2_000, "3"):
        client.send(link, text)
    rig.settle()
    assert node.bodies("b") == ["1"] and node.bodies("work") == ["2" * 2_000, "3"]
    turns = node.turns
    rig.run(10)
    assert node.turns < turns + 100  # it waits, and does not try again and again
    receiver = client.receiver("b", credit=1)
    rig.settle()
    receiver.settle(client.deliveries[0].delivery_id, client.deliveries[0].delivery_id, Accepted())
    client.flush()
    rig.settle()
    assert node.bodies("b") == ["2" * 2_000]
    links_of(node)


def test_without_a_route_a_link_waits() -> None:
    rig = Rig()
    jfk = rig.node("jfk", links=(move("work", "work@hub", "out"),))
    hub = rig.node("hub", neighbours=(NeighbourConfig(name="jfk"),))
    fill(rig, rig.client(jfk), 3)
    assert jfk.bodies("work") == numbers(1, 3)
    assert links_of(jfk).status("")[0]["state"] == "no route"
    jfk.crash()
    jfk.config = replace(jfk.config, neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1"),))
    jfk.start()
    rig.run(5)
    assert jfk.bodies("work") == [] and hub.bodies("work") == numbers(1, 3)


# ------------------------------------------------------------------------------------------------ commits


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("target", ["b", "b@hub"])
def test_a_refused_commit_leaves_all_where_it_was(target: str, beside: bool) -> None:
    rig = Rig()
    more = (copy("work", "c"),) if beside else ()
    jfk, hub = rig.pair(jfk={"links": (*more, move("work", target, "out"))})
    rig.run(1)
    client = rig.client(jfk)
    links = links_of(jfk)
    for link in links.by_name.values():
        links.stop(link, is_stopped=True)
    fill(rig, client, 5)
    jfk.refuse, jfk.refuse_all = 1, False
    for link in links.by_name.values():
        links.stop(link, is_stopped=False)
    tries = jfk.tries
    rig.settle()
    assert jfk.refuse == 0 and jfk.tries > tries
    rig.run(10)
    found = hub.bodies("b") if "@" in target else jfk.bodies("b")
    assert found == numbers(1, 5) and jfk.bodies("work") == []
    assert not beside or jfk.bodies("c") == numbers(1, 5)
    links_of(jfk)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("beside", [False, True])
def test_a_crash_finds_a_message_in_one_of_both(stored: bool, beside: bool) -> None:
    rig, node, client = linked(move("work", "b"), *((copy("work", "c"),) if beside else ()))
    links = links_of(node)
    for link in links.by_name.values():
        links.stop(link, is_stopped=True)
    fill(rig, client, 3)
    for link in links.by_name.values():
        links.stop(link, is_stopped=False)
    rig.settle()
    assert node.bodies("b") == numbers(1, 3)
    fill(rig, client, 1, first=4)
    node.hold_commits = True
    link = client.sender("work")
    rig.settle()
    client.send(link, "5")
    rig.settle()
    for _ in range(4):
        assert node.core is not None
        if node.pending is None:
            break
        if any(queue_id == node.queue("b").queue_id for queue_id, _, _ in node.pending.batch.appends):
            break
        node.finish_commit()
        rig.settle()
    assert node.pending is not None
    if stored:
        node.store.commit(node.pending.batch)
        node.remember(node.pending.batch)
    node.crash()
    node.hold_commits = False
    node.start()
    rig.run(1)
    assert node.bodies("b") == numbers(1, 5) and node.bodies("work") == []
    assert not beside or node.bodies("c") == numbers(1, 5)


def test_a_failure_that_is_contained_takes_the_move_back() -> None:
    rig, node, client = linked(move("work", "b"), copy("work", "c"))
    node.hold_commits = True
    fill(rig, client, 3)
    node.finish_commit()
    rig.settle()
    while node.pending is not None and not node.core.turns.gathered.decided:  # type: ignore[union-attr]
        node.finish_commit()
        rig.settle()
    take_back_gathered(node.core, ())  # type: ignore[arg-type]
    links_of(node)
    node.hold_commits = False
    if node.pending is not None:
        node.finish_commit()
    rig.run(2)
    assert node.bodies("b") == node.bodies("c") == numbers(1, 3) and node.bodies("work") == []
    links_of(node)


# ------------------------------------------------------------------------------------------------ kinds of queues


def test_from_a_queue_in_memory() -> None:
    queues = (QueueConfig(name="work", durable=False), QueueConfig(name="m", durable=False))
    rig, node, client = linked(move("work", "b"), move("x", "y"), queues=queues)
    node.unwatched.add("work")
    fill(rig, client, 300)
    assert node.bodies("work") == [] and node.bodies("b") == numbers(1, 300)
    links_of(node)


@pytest.mark.parametrize("mode", ["move", "copy"])
def test_from_memory_to_memory(mode: str) -> None:
    queues = (QueueConfig(name="work", durable=False), QueueConfig(name="m", durable=False))
    rig, node, client = linked(move("work", "m", mode=mode), queues=queues)
    node.unwatched.add("work")
    fill(rig, client, 300)
    assert node.bodies("m") == numbers(1, 300)
    assert node.bodies("work") == (numbers(1, 300) if mode == "copy" else [])
    links_of(node)


def test_to_a_topic() -> None:
    rig, node, client = linked(move("work", "topic/news"))
    client.receiver("topic/news", name="listens")
    client.receiver("topic/news", name="lasting", credit=0, source={"durable": 2, "expiry_policy": Symbol("never")})
    rig.settle()
    fill(rig, client, 3)
    assert client.bodies() == numbers(1, 3) and node.bodies("topic/news") == numbers(1, 3)
    assert node.bodies("work") == []
    links_of(node)


# ------------------------------------------------------------------------------------------------ administration


@pytest.mark.parametrize(
    ("link", "text"),
    [
        (move("work", "work", "l"), "invalid value 'work' for link 'l' to; expected another queue or topic"),
        (move("topic/a", "b", "l"), "invalid value 'topic/a' for link 'l' from; expected a queue of this node"),
        (move("$dead-letters", "b", "l"), "for link 'l' from; expected a queue"),
        (move("work", "topic/a/b", "l"), "invalid value 'topic/a/b' for link 'l' to; expected"),
        (move("work", "topic/a/b@jfk", "l"), "without a subject"),
        (move("work", "@hub", "l"), "for link 'l' to: invalid address"),
        (move("work", "memory", "l"), "queue 'memory' is in memory, and 'work' is durable"),
        (move("work", "b", "l", selector="a >"), "invalid selector of link 'l': "),
        (move("work", "b", "l", mode="both"), "invalid value 'both' for link 'l' mode; expected one of move, copy"),
        (move("work", "b", "$l"), "invalid name"),
    ],
)
def test_what_cannot_be_is_one_line(link: LinkConfig, text: str) -> None:
    memory = QueueConfig(name="memory", durable=False)
    with pytest.raises(ConfigError) as found:
        linked(link, queues=(memory,))
    assert text in str(found.value) and "\n" not in str(found.value)
    _, node, client = world(memory)
    status, _, told = client.manage(
        "CREATE", "link", link.name, **{"from": link.source, "to": link.target, "selector": link.selector},
        mode=link.mode,
    )  # fmt: skip
    assert (status, told) == (400, str(found.value)) and not links_of(node).by_name


def test_links_are_made_listed_stopped_and_deleted() -> None:
    rig, node, client = linked(copy("work", "b", "fixed"))
    made = done(client, "CREATE", "link", "l", **{"from": "b", "to": "c", "selector": "a = 1"})
    assert (
        made["created"]
        and not done(client, "CREATE", "link", "l", **{"from": "b", "to": "c", "selector": "a = 1"})["created"]
    )
    assert client.manage("CREATE", "link", "l", **{"from": "b", "to": "d"})[0] == 409
    assert client.manage("CREATE", "link", "m", **{"from": "b", "to": "d"}, colour=1)[0] == 400
    found = done(client, "QUERY", "link", "")["links"]
    assert [(row["name"], row["mode"], row["configured"], row["state"]) for row in found] == [
        ("fixed", "copy", True, "running"), ("l", "move", False, "running"),
    ]  # fmt: skip
    assert done(client, "STATUS", "node", "")["links"] == found
    for name in ("work", "b", "c"):
        status, _, text = client.manage("DELETE", "queue", name)
        assert status == 409 and "is named by links" in text, name
    assert done(client, "STOP", "link", "fixed")["state"] == "stopped"
    fill(rig, client, 2)
    assert node.bodies("b") == []
    node.crash()
    node.start()
    rig.settle()
    client = rig.client(node)
    assert node.bodies("b") == [] and len(done(client, "QUERY", "link", "")["links"]) == 2
    assert done(client, "START", "link", "fixed")["state"] == "running"
    rig.settle()
    assert node.bodies("b") == ["1", "2"]
    assert client.manage("DELETE", "link", "fixed")[0] == 409
    done(client, "DELETE", "link", "l")
    assert client.manage("DELETE", "link", "l")[0] == client.manage("STOP", "link", "l")[0] == 404
    done(client, "DELETE", "queue", "c")
    links_of(node)


def test_the_file_wins_at_the_next_start() -> None:
    rig, node, client = linked(copy("work", "b", "l"))
    fill(rig, client, 3)
    link_id = links_of(node).by_name["l"].link_id
    node.crash()
    node.config = replace(node.config, links=(move("work", "c", "l"),))
    node.start()
    rig.run(1)
    assert node.bodies("b") == node.bodies("c") == numbers(1, 3) and node.bodies("work") == []
    assert links_of(node).by_name["l"].link_id == link_id and not node.queue("work").named
    node.crash()
    node.config = replace(node.config, links=())
    node.start()
    rig.run(1)
    assert not links_of(node).by_name and not node.queue("work").shared.consumers


def test_a_links_cursor_is_no_subscription_of_a_client() -> None:
    _, node, client = linked(copy("work", "b", "l"))
    assert done(client, "QUERY", "subscription", "")["subscriptions"] == []
    assert done(client, "READ", "queue", "work")["subscriptions"] == []
    for operation in ("READ", "DELETE"):
        assert client.manage(operation, "subscription", "$link:l", queue="work")[0] == 404
    assert client.manage("OPEN", "subscription", "$link:l", queue="work", mode="copy")[0] == 400
    assert list(node.queue("work").named) == ["$link:l"]


def test_a_link_that_is_deleted_while_it_moves_goes_once_that_is_stored() -> None:
    rig, node, client = world()
    for name, mode in (("m", "move"), ("c", "copy")):
        done(client, "CREATE", "link", name, **{"from": "work", "to": f"{name}-out"}, mode=mode)
    node.hold_commits = True
    fill(rig, client, 3)
    node.finish_commit()
    rig.settle()
    links = links_of(node)
    while all(link.is_idle for link in links.by_name.values()):
        node.finish_commit()
        rig.settle()
    for link in list(links.by_name.values()):
        links.delete(link)
    links_of(node)
    node.hold_commits = False
    node.finish_commit()
    rig.run(1)
    assert not links_of(node).by_name and not node.queue("work").named
    assert node.bodies("m-out") == node.bodies("c-out") == numbers(1, 3)
    assert node.bodies("work") == []


def test_the_number_of_links_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.queue_links.links.LINKS_MAX", 2)
    _, _, client = world()
    for name in ("a", "b"):
        done(client, "CREATE", "link", name, **{"from": "work", "to": name})
    status, _, text = client.manage("CREATE", "link", "c", **{"from": "work", "to": "c"})
    assert status == 400 and text == "link 'c' cannot be made; there are 2 links, and the limit is 2"


def test_a_link_to_a_node_that_a_topology_names_finds_its_way() -> None:
    rig = Rig()
    jfk, hub = network(rig, "jfk-hub")
    rig.run(5)
    done(rig.client(jfk), "CREATE", "link", "l", **{"from": "work", "to": "work@hub"})
    for _ in range(2):  # and again from the rows, where routes are put together before links
        fill(rig, rig.client(jfk), 2)
        rig.run(5)
        jfk.crash()
        jfk.start()
        rig.run(5)
    assert hub.bodies("work") == ["1", "2", "1", "2"] and jfk.bodies("work") == []
    links_of(jfk)


@pytest.mark.parametrize(
    ("source", "target"),
    [("topic/news", "other"), ("new", "new"), ("new", "@x"), ("new", "topic/a/b@jfk"), ("$dead-letters", "other")],
)
def test_a_link_that_is_refused_makes_no_queue(source: str, target: str) -> None:
    _, node, client = world(create_queues=True)
    before = set(node.core.catalog.queues)
    status, _, text = client.manage("CREATE", "link", "l", **{"from": source, "to": target})
    assert status == 400 and "for link 'l'" in text
    assert set(node.core.catalog.queues) == before
