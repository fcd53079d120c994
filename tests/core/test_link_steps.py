"""Steps of links between queues, through the wire (docs/links.md, "Steps"; docs/adr/0068)."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Accepted, Released
from holdfast.amqp.wire.types import Timestamp
from holdfast.broker.entries import annotate, entry
from holdfast.client import Message
from holdfast.queue_links import handing, leftovers
from holdfast.queue_links.link import QueueLink
from holdfast.queue_links.links import GRAIN_MS, QueueLinks
from holdfast.settings.queues import LinkConfig, QueueConfig
from holdfast.steps import parsing
from holdfast.steps.aggregates import Aggregate
from holdfast.steps.pipeline import Passed
from support.one_node import done, fill, world
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS, body


def stepped(*steps: dict[str, Any], queues: tuple[QueueConfig, ...] = (), **fields: Any) -> tuple[Rig, Node, Client]:
    link = LinkConfig(
        name="clean", source="raw", target=fields.pop("target", "clean"), mode=fields.pop("mode", "move"),
        steps=parsing.as_text(steps, "link 'clean'"),
    )  # fmt: skip
    return world(*queues, links=(link,), **fields)


REPEATS = {"drop_repeats": {"key": "tag", "within_s": 5}}


class Site:
    """Sends readings to `raw`: body, and properties."""

    def __init__(self, rig: Rig, client: Client) -> None:
        self.rig, self.client = rig, client
        self.link = client.sender("raw")
        rig.settle()

    def read(self, body: str, **properties: Any) -> None:
        self.client.send(self.link, body, application_properties=properties or None)
        self.rig.settle()


def test_repeats_are_dropped_until_their_window_is_over() -> None:
    rig, node, client = stepped(REPEATS)
    site = Site(rig, client)
    for text, tag in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "b")):
        site.read(text, tag=tag)
    site.read("5")
    rig.settle()
    assert node.bodies("clean") == ["1", "2", "5"] and node.bodies("raw") == []
    rig.run(6)
    site.read("6", tag="a")
    site.read("7", tag="a")
    assert node.bodies("clean") == ["1", "2", "5", "6"] and node.bodies("raw") == []
    assert node.core is not None
    told = node.core.queue_links.status("")[0]
    assert (told["moved_total"], told["dropped_total"], told["windows"]) == (4, 3, 1)
    node.core.validate()


def test_windows_outlive_a_crash() -> None:
    rig, node, client = stepped(REPEATS)
    Site(rig, client).read("1", tag="a")
    node.crash()
    node.start()
    rig.settle()
    site = Site(rig, rig.client(node))
    site.read("2", tag="a")
    site.read("3", tag="b")
    assert node.bodies("clean") == ["1", "3"] and node.bodies("raw") == []
    rig.run(10)
    assert not list(node.store.table("windows"))
    node.core.validate()  # type: ignore[union-attr]


COUNTS = {"aggregate": {"key": "tag", "within_s": 5, "of": "count"}}


def links_of(node: Node) -> QueueLinks:
    assert node.core is not None
    node.core.validate()
    return node.core.queue_links


def rows(node: Node) -> int:
    return len(list(node.store.table("windows")))


def made(node: Node, queue: str = "clean") -> list[dict[str, Any]]:
    """The properties of what is in a queue."""
    log = node.queue(queue)
    values = [log.value(sequence) for sequence in range(1, log.next_sequence)]
    found = [Message.decode(bytes(entry.unpack(value).bare)) for value in values if value is not None]
    return [dict(message.application_properties or {}) for message in found]


def counts(node: Node) -> dict[str, int]:
    return {item["tag"]: item["count"] for item in made(node)}


# ------------------------------------------------------------------------------------------------ windows that are over


def test_a_window_waits_for_what_its_source_has_and_shows_nobody_yet() -> None:
    """A message that came in its time and is not on disk yet counts, however long the disk takes."""
    rig, node, client = stepped(COUNTS)
    site = Site(rig, client)
    site.read("1", tag="a")
    rig.run(4)
    node.hold_commits = True
    site.read("2", tag="a")
    rig.run(6)
    node.hold_commits = False
    rig.run(6)
    other = rig.client(node)
    other.receiver("clean")
    rig.settle()
    assert [message.application_properties["count"] for message in other.messages()] == [2]  # type: ignore[index]


def test_a_window_that_is_over_gives_its_aggregate_though_no_message_follows() -> None:
    rig, node, client = stepped(COUNTS)
    site = Site(rig, client)
    for tag in "aab":
        site.read("x", tag=tag)
    assert node.bodies("raw") == node.bodies("clean") == [] and rows(node) == 2
    rig.run(4)
    assert node.bodies("clean") == []
    turns = node.turns
    rig.run(3)
    assert counts(node) == {"a": 2, "b": 1} and rows(node) == 0 and node.turns < turns + 20
    assert links_of(node).status("")[0]["dropped_total"] == 3
    site.read("x", tag="a")
    rig.run(7)
    assert [item["count"] for item in made(node)] == [2, 1, 1]


def test_windows_that_are_over_outlive_a_crash_and_end_without_a_message() -> None:
    rig, node, client = stepped(COUNTS)
    Site(rig, client).read("x", tag="a")
    node.crash()
    rig.run(20)
    node.start()
    rig.run(2)
    assert counts(node) == {"a": 1} and rows(node) == 0
    links_of(node)


def test_windows_wait_for_room_and_end_in_order() -> None:
    rig, node, client = stepped(COUNTS, queues=(QueueConfig(name="clean", messages_max=2),))
    site = Site(rig, client)
    for tag in "abcde":
        site.read("x", tag=tag)
    rig.run(8)
    assert [item["tag"] for item in made(node)] == ["a", "b"] and rows(node) == 3
    turns = node.turns
    rig.run(10)
    assert node.turns < turns + 30  # it waits, and does not try again and again
    for first in (0, 2):
        receiver = client.receiver("clean", credit=2)
        rig.settle()
        receiver.settle(client.deliveries[first].delivery_id, client.deliveries[first + 1].delivery_id, Accepted())
        client.flush()
        rig.run(1)
    assert [item["tag"] for item in made(node)] == ["e"] and rows(node) == 0
    links_of(node)


@pytest.mark.parametrize(("steps", "at_once", "most"), [(1, 7, 7), (16, 256, 16)])
def test_many_windows_end_bit_by_bit(steps: int, at_once: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer in a turn where what each makes passes more steps."""
    monkeypatch.setattr(handing, "CLOSED_COUNT", at_once)
    ended: Counter[int] = Counter()
    original = handing.pipeline.close
    rig, node, client = stepped(COUNTS, *[{"select": "TRUE"}] * (steps - 1))

    def close(*parts: Any) -> Passed:
        ended[node.turns] += 1
        return original(*parts)

    monkeypatch.setattr(handing.pipeline, "close", close)
    link = client.sender("raw")
    rig.settle()
    for number in range(60):
        client.send(link, "x", application_properties={"tag": f"{number:03}"})
    rig.run(8)
    assert [item["tag"] for item in made(node)] == [f"{number:03}" for number in range(60)] and rows(node) == 0
    assert max(ended.values()) == most and ended.total() == 60
    links_of(node)


def test_a_window_is_over_at_its_time_though_others_were_over_while_the_disk_was_slow() -> None:
    """A turn of somebody else comes while the results of the first window are on their way to the disk."""
    rig, node, client = stepped(COUNTS)
    rig.wall_ms += 400  # so that nothing else is due when windows are over
    site = Site(rig, client)
    site.read("x", tag="a")
    rig.run(3)
    site.read("x", tag="b")
    over_ms = rig.wall_ms + 5_000 + -rig.wall_ms % GRAIN_MS
    node.hold_commits = True
    rig.run(3.5)
    assert node.pending is not None and rows(node) == 2, "the first is over, and the disk has yet to store it"
    rig.client(node)
    rig.settle()
    node.hold_commits = False
    rig.settle()
    assert counts(node) == {"a": 1} and rows(node) == 1
    rig.run((over_ms - rig.wall_ms) / 1_000 + 0.01)
    assert counts(node) == {"a": 1, "b": 1} and rows(node) == 0


def test_a_stopped_link_ends_no_window() -> None:
    rig, node, client = stepped(COUNTS)
    Site(rig, client).read("x", tag="a")
    done(client, "STOP", "link", "clean")
    rig.run(8)
    assert made(node) == [] and rows(node) == 1
    done(client, "START", "link", "clean")
    rig.run(1)
    assert counts(node) == {"a": 1}


def test_a_message_that_is_still_on_its_way_to_the_disk_is_counted_in_its_window() -> None:
    rig, node, client = stepped(COUNTS)
    site = Site(rig, client)
    site.read("x", tag="a")
    rig.run(4.9)
    node.hold_commits = True
    site.read("x", tag="a")
    assert node.pending is not None
    rig.run(1)
    node.hold_commits = False
    node.finish_commit()
    rig.run(2)
    assert counts(node) == {"a": 2} and len(made(node)) == 1


# ------------------------------------------------------------------------------------------------ commits


@pytest.mark.parametrize("step", [REPEATS, COUNTS])
def test_a_refused_commit_leaves_messages_and_windows_as_they_were(step: dict[str, Any]) -> None:
    rig, node, client = stepped(step)
    site = Site(rig, client)
    links = links_of(node)
    link = links.by_name["clean"]
    links.stop(link, is_stopped=True)
    for text in "123":
        site.read(text, tag="a")
    node.refuse, node.refuse_all = 1, step is COUNTS
    tries = node.tries
    links.stop(link, is_stopped=False)
    rig.settle()
    assert node.refuse == 0 and node.tries > tries
    rig.run(8)
    assert node.bodies("raw") == [] and rows(node) == 0
    assert node.bodies("clean") == ["1"] if step is REPEATS else counts(node) == {"a": 3}
    links_of(node)


def test_a_refused_commit_ends_no_window() -> None:
    rig, node, client = stepped(COUNTS)
    site = Site(rig, client)
    for tag in "abc":
        site.read("x", tag=tag)
    node.refuse, node.refuse_all = 1, True
    rig.run(6)
    assert node.refuse == 0 and rows(node) in (0, 3)
    node.crash()  # what is on disk counts
    node.start()
    rig.run(20)
    assert counts(node) == {"a": 1, "b": 1, "c": 1} and len(made(node)) == 3 and rows(node) == 0
    links_of(node)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("step", [REPEATS, COUNTS])
def test_a_crash_counts_each_message_once(step: dict[str, Any], stored: bool) -> None:
    rig, node, client = stepped(step)
    site = Site(rig, client)
    site.read("1", tag="a")
    node.hold_commits = True
    site.read("2", tag="a")
    for _ in range(6):
        assert node.pending is not None
        if any(table == "windows" for table, _ in node.pending.batch.puts) or node.pending.batch.retires:
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
    rig.run(8)
    assert node.bodies("raw") == []
    assert node.bodies("clean") == ["1"] if step is REPEATS else counts(node) == {"a": 2}
    links_of(node)


@pytest.mark.parametrize("step", [REPEATS, COUNTS])
def test_a_failure_that_is_contained_takes_windows_back(step: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    original = QueueLinks.step
    failures = 0

    def fails_once_it_has_handed_over(self: QueueLinks) -> None:
        nonlocal failures
        original(self)
        if not failures and any(link.moving is not None for link in self.by_name.values()):
            failures += 1
            raise RuntimeError("planted")

    monkeypatch.setattr(QueueLinks, "step", fails_once_it_has_handed_over)
    rig, node, client = stepped(step)
    site = Site(rig, client)
    for text in "123":
        site.read(text, tag="a")
    rig.run(20)
    assert failures == 1 and rows(node) == 0 and node.bodies("raw") == []
    assert node.bodies("clean") == ["1"] if step is REPEATS else counts(node) == {"a": 3}
    links_of(node)


# ------------------------------------------------------------------------------------------------ failures


def test_what_a_step_cannot_take_is_a_dead_letter_that_names_it() -> None:
    rig, node, client = stepped(REPEATS, {"convert": {"from": "json", "to": "csv"}})
    site = Site(rig, client)
    site.read("no json", tag="a")
    site.read('{"n": 1}', tag="a")  # a message that fails keeps nothing away
    assert node.bodies("clean") == ["n\r\n1\r\n"] and node.bodies("$dead-letters") == ["no json"]
    notes = annotate.notes_of(entry.unpack(node.queue("$dead-letters").value(1) or b""))
    assert str(notes["x-opt-dead-letter-reason"]).startswith("link 'clean': step 2 (convert): the body is no JSON")
    assert notes["x-opt-dead-letter-from"] == "raw"
    assert links_of(node).by_name["clean"].dead_total == 1


def test_an_aggregate_that_fails_behind_is_a_dead_letter_and_what_it_counted_is_gone() -> None:
    rig, node, client = stepped(COUNTS, {"convert": {"from": "csv", "to": "json"}})
    Site(rig, client).read("x", tag="a")
    rig.run(8)
    assert node.bodies("clean") == node.bodies("raw") == [] and rows(node) == 0
    (dead,) = made(node, "$dead-letters")
    assert dead["count"] == 1 and links_of(node).by_name["clean"].dead_total == 1


@pytest.mark.parametrize("value", [float("nan"), Timestamp(2**60)])
def test_a_key_without_a_form_in_json_ends_its_window_and_holds_up_nothing(value: Any) -> None:
    clean = LinkConfig(name="clean", source="raw", target="clean", steps=parsing.as_text([COUNTS], "link 'clean'"))
    rig, node, client = world(links=(clean, LinkConfig(name="other", source="work", target="next")))
    site = Site(rig, client)
    site.read("x", tag=value)
    site.read("x", tag="a")
    rig.run(8)
    fill(rig, client, 3)
    assert [item["count"] for item in made(node)] == [1, 1] and rows(node) == 0 and node.logs == []
    assert node.bodies("next") == ["1", "2", "3"]
    links_of(node)


@pytest.mark.parametrize("where", ["apply", "close"])
def test_a_link_that_fails_rests_alone(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = LinkConfig(name="clean", source="raw", target="clean", steps=parsing.as_text([COUNTS], "link 'clean'"))
    rig, node, client = world(links=(clean, LinkConfig(name="other", source="work", target="next")))
    with monkeypatch.context() as patch:

        def fail(*given: object) -> None:
            raise RuntimeError("planted")

        patch.setattr(Aggregate, where, fail)
        site = Site(rig, client)
        site.read("x", tag="a")
        rig.run(7)
        turns = node.turns
        fill(rig, client, 3)
        rig.run(60)
        assert node.bodies("next") == ["1", "2", "3"] and node.bodies("clean") == []
        told = [line for line in node.logs if "QueueLink" in line]
        assert node.turns - turns < 100 and 3 < len(told) < 10
        assert all(line.startswith("QueueLink clean: failure RuntimeError: planted") for line in told)
        links_of(node)
    rig.run(70)
    assert counts(node) == {"a": 1} and node.bodies("raw") == []
    links_of(node)


def test_a_message_that_comes_back_late_ends_no_other_window() -> None:
    rig, node, client = stepped(REPEATS)
    done(client, "STOP", "link", "clean")
    Site(rig, client).read("old", tag="old")
    holder = rig.client(node)
    link = holder.receiver("raw", credit=1)
    rig.settle()
    assert holder.bodies() == ["old"]
    done(client, "START", "link", "clean")
    rig.run(30)
    site = Site(rig, client)
    for tag in "abc":
        site.read(tag, tag=tag)
    link.settle(0, 0, Released())
    holder.flush()
    rig.settle()
    for tag in "abc":
        site.read(f"{tag}2", tag=tag)
    assert node.bodies("clean") == ["a", "b", "c", "old"] and node.bodies("raw") == []
    links_of(node)


def test_a_key_more_than_a_step_may_have_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.steps.windows.KEYS_MAX", 3)
    rig, node, client = stepped(REPEATS)
    link = client.sender("raw")
    rig.settle()
    for tag in "abcda":
        client.send(link, tag, application_properties={"tag": tag})
    rig.settle()
    assert node.bodies("clean") == ["a", "b", "c"] and node.bodies("$dead-letters") == ["d"]
    links_of(node)


# ------------------------------------------------------------------------------------------------ links with steps


def told_steps(*steps: dict[str, Any]) -> list[dict[str, Any]]:
    return list(steps)


def test_a_link_with_steps_is_created_told_and_deleted_with_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "DELETED_COUNT", 2)
    rig, node, client = world()
    asked = {"from": "raw", "to": "clean", "steps": told_steps(REPEATS, {"select": "TRUE"})}
    assert done(client, "CREATE", "link", "l", **asked)["created"]
    assert not done(client, "CREATE", "link", "l", **asked)["created"]
    other = client.manage("CREATE", "link", "l", **{**asked, "steps": told_steps(REPEATS)})
    assert other[0] == 409
    site = Site(rig, client)
    for tag in "abcde":
        site.read(tag, tag=tag)
    node.crash()
    node.start()
    rig.settle()
    client = rig.client(node)
    (told,) = done(client, "QUERY", "link", "")["links"]
    assert told["steps"] == ["drop_repeats", "select"] and told["windows"] == rows(node) == 5
    Site(rig, client).read("f", tag="a")
    assert node.bodies("clean") == list("abcde")
    node.refuse, node.refuse_all = 0, False
    done(client, "DELETE", "link", "l")
    rig.run(1)
    links = links_of(node)
    assert rows(node) == 0 and not links.leftovers.keys and not links.windowed
    assert node.core is not None and node.core.memory.windows.held == 0


def test_rows_whose_deletion_was_refused_are_deleted_later() -> None:
    rig, node, client = world()
    done(client, "CREATE", "link", "l", **{"from": "raw", "to": "clean", "steps": told_steps(REPEATS)})
    Site(rig, client).read("x", tag="a")
    links = links_of(node)
    links.delete(links.by_name["l"])
    node.refuse, node.refuse_all = 2, True
    rig.run(5)
    node.refuse = 0
    rig.run(60)
    assert rows(node) == 0 and not links_of(node).leftovers.keys


def test_a_step_that_became_another_one_leaves_its_rows() -> None:
    rig, node, client = stepped(REPEATS)
    Site(rig, client).read("x", tag="a")
    (link,) = node.config.links
    node.crash()
    changed = parsing.as_text([{"drop_repeats": {"key": "tag", "within_s": 6}}], "")
    node.config = replace(node.config, links=(replace(link, steps=changed),))
    node.start()
    rig.settle()
    Site(rig, rig.client(node)).read("y", tag="a")
    assert node.bodies("clean") == ["x", "y"] and rows(node) == 1
    node.crash()
    node.config = replace(node.config, links=())
    node.start()
    rig.run(1)
    assert rows(node) == 0


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ("x", "invalid value 'x' for link 'l' steps; expected a list of tables"),
        ([{"drop_repeats": {"key": "tag"}}], "link 'l' step 1 drop_repeats has no within_s"),
        ([{"lookup": {"key": "a", "value": "x", "file": "/x"}}], "unknown key 'file' in link 'l' step 1 lookup"),
        ([{"properties": {"add": {"a": b"x"}}}], "invalid steps of link 'l'"),
    ],
)  # fmt: skip
def test_steps_that_cannot_be_are_refused_in_one_line(told: Any, text: str) -> None:
    _, node, client = world()
    status, _, line = client.manage("CREATE", "link", "l", **{"from": "raw", "to": "clean", "steps": told})
    assert status == 400 and line.startswith(text) and "\n" not in line
    assert not links_of(node).by_name


def test_a_copy_leaves_the_messages() -> None:
    rig, node, client = stepped(REPEATS, mode="copy")
    site = Site(rig, client)
    for text in "123":
        site.read(text, tag="a")
    assert node.bodies("raw") == ["1", "2", "3"] and node.bodies("clean") == ["1"]
    links_of(node)


def test_from_memory_to_memory() -> None:
    queues = (QueueConfig(name="raw", durable=False), QueueConfig(name="clean", durable=False))
    rig, node, client = stepped(REPEATS, COUNTS, queues=queues)
    node.unwatched.add("raw")
    site = Site(rig, client)
    for _ in range(3):
        site.read("x", tag="a")
    rig.run(8)
    assert len(node.bodies("clean")) == 1 and node.bodies("raw") == [] and rows(node) == 0
    links_of(node)


def test_to_a_topic_and_to_another_node() -> None:
    rig, node, client = stepped(COUNTS, target="topic/clean")
    client.receiver("topic/clean")
    Site(rig, client).read("x", tag="a")
    rig.run(8)
    (delivery,) = client.deliveries
    assert (Message.decode(delivery.payload).application_properties or {})["count"] == 1
    links_of(node)
    rig = Rig()
    link = LinkConfig(name="out", source="raw", target="clean@hub", steps=parsing.as_text([COUNTS], ""))
    jfk, hub = rig.pair(jfk={"links": (link,)})
    rig.run(1)
    Site(rig, rig.client(jfk)).read("x", tag="a")
    rig.run(8)
    assert counts(hub) == {"a": 1} and jfk.bodies("raw") == []
    links_of(jfk)


def test_an_aggregate_goes_round_a_ring_once() -> None:
    queues = (QueueConfig(name="raw"), QueueConfig(name="clean"))
    back = LinkConfig(name="back", source="clean", target="raw")
    there = LinkConfig(name="there", source="raw", target="clean", steps=parsing.as_text([COUNTS], ""))
    rig, node, client = world(*queues, links=(there, back))
    Site(rig, client).read("x", tag="a")
    rig.run(60)
    assert made(node, "raw") == [made(node, "raw")[0]] and made(node, "raw")[0]["count"] == 1
    assert [link.moved_total for link in links_of(node).by_name.values()] == [1, 1] and made(node) == []


def test_a_large_message_passes_steps_that_do_not_take_it_apart() -> None:
    rig, node, client = stepped(REPEATS, {"select": "tag = 'a'"}, limits=LIMITS)
    link = client.sender("raw")
    rig.settle()
    client.send(link, body(LARGE), application_properties={"tag": "a"})
    rig.settle()
    assert node.bodies("clean") == [body(LARGE)]
    done(client, "CREATE", "link", "l", **{"from": "clean", "to": "b", "steps": [{"properties": {"drop": ["tag"]}}]})
    rig.run(1)
    assert node.bodies("clean") == node.bodies("b") == [] and node.bodies("$dead-letters") == [body(LARGE)]
    links_of(node)


def test_a_link_with_many_steps_takes_less_in_a_turn() -> None:
    rig, node, client = stepped(*[{"select": "TRUE"}] * 16)
    link = links_of(node).by_name["clean"]
    assert (link.count_max, link.taken_bytes_max) == (16, 65_536)
    sender = client.sender("raw")
    rig.settle()
    for number in range(100):
        client.send(sender, str(number))
    most = 0
    original = handing.Handing.hand_over

    def watched(self: handing.Handing, of: QueueLink) -> None:
        nonlocal most
        most = max(most, len(of.taken))
        original(self, of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handing.Handing, "hand_over", watched)
        rig.settle()
    assert most == 16 and node.bodies("clean") == [str(number) for number in range(100)]
