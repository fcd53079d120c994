"""A node that left configuration and topology: new mail for it is unknown mail again, and an operator ends what is
queued for it (ADR 0024)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Properties, Rejected, Source, Target
from holdfast.broker import deletion
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.exclusions import Exclusions
from holdfast.broker.queue import Queue
from holdfast.custody import dead_lettering, departed
from holdfast.custody.hop.links import HopLinks, hop_key
from holdfast.custody.names.identity import Identities
from holdfast.endpoints.background_jobs import BackgroundJobs
from holdfast.management.status import warnings
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.state.catalog import Catalog
from holdfast.storage.upkeep.check import check
from support.hops import STRICT, names, reroute, send, snapshot
from support.rig import Client, Node, Rig
from support.stores import LoneNode


def line(**a: Any) -> tuple[Rig, Node, Node, Node]:
    """a knows c by a given route by b alone."""
    rig = Rig()
    nodes = rig.graph("a-b", "b-c", routes={"a": {"c": "b"}, "b": {"a": "a"}, "c": {"a": "b"}}, c=STRICT, a=a)
    rig.run(2)
    one, two, three = nodes
    return rig, one, two, three


def leave(rig: Rig, *nodes: Node) -> None:
    for node in nodes:
        reroute(rig, node)


def delete(rig: Rig, node: Node, queue: str, **arguments: Any) -> tuple[int, dict[str, Any], str]:
    return rig.client(node).manage("DELETE", "queue", queue, **arguments)


def queued(rig: Rig, a: Node, c: Node, *bodies: str) -> Client:
    """Messages that wait at a for c, which is down and then leaves."""
    c.crash()
    rig.refuse_dials = True
    for wire in rig.between("a", "b"):
        wire.cut()
    client = send(rig, a, *bodies, to="c")
    assert a.queue("@c").messages == len(bodies)
    return client


@pytest.mark.parametrize("unknown", ["refuse", "dead-letter", "keep"])
def test_new_mail_for_a_node_that_left_is_unknown_mail(unknown: str) -> None:
    rig, a, _, c = line(unknown_destination=unknown)
    client = queued(rig, a, c, "1")
    link = client.sender("work@c")
    relay = client.session.attach_sender("relay", Source(), Target())
    rig.settle()

    def by_relay(body: str) -> object:
        relay.send(Message(properties=Properties(to="work@c"), data=[body.encode()]).encode(), context=body)
        rig.settle()
        return dict(client.outcomes)[body]

    assert isinstance(by_relay("2"), Accepted)
    leave(rig, a)
    assert any("2 messages wait for node 'c'" in line for line in a.logs)
    told = rig.client(a).manage("STATUS", "node")[1]["warnings"]
    assert [line for line in told if "`holdfast queue delete @c` makes them dead letters" in line] == [
        "2 messages wait for node 'c', in neither the configuration nor the topology: `holdfast queue delete @c` makes "
        "them dead letters"
    ]
    assert link.detached == (unknown != "keep")
    again = client.sender("work@c")
    rig.settle()
    state = by_relay("3")
    if unknown == "refuse":
        assert again.refused and isinstance(state, Rejected) and a.queue("@c").messages == 2
        assert [str(told.error.condition) for told in client.detached if told.error] == ["amqp:not-found"] * 3
    elif unknown == "keep":
        assert not again.refused and isinstance(state, Accepted) and a.queue("@c").messages == 3
    else:
        assert isinstance(state, Accepted) and a.bodies("$dead-letters") == ["3"] and a.queue("@c").messages == 2


def test_what_is_kept_for_a_node_that_was_never_known_is_a_warning_as_soon() -> None:
    """Its queue is made, and gets its first message, when no table changes any more."""
    rig, a, _, _ = line(unknown_destination="keep")
    client = rig.client(a)
    link = client.sender("work@nowhere")
    rig.run(20)
    assert not any("nowhere" in line for line in a.logs)
    client.send(link, "1")
    rig.run(warnings.LOOK_S)
    wanted = "1 message waits for node 'nowhere', in neither the configuration nor the topology"
    assert sum(line.startswith(wanted) for line in rig.client(a).manage("STATUS", "node")[1]["warnings"]) == 1
    rig.run(60)
    assert sum(wanted in line for line in a.logs) == 1
    assert delete(rig, a, "@nowhere")[1] == {"dead_lettered": 1, "tombstones": 1}
    assert not any("nowhere" in line for line in rig.client(a).manage("STATUS", "node")[1]["warnings"])


def test_what_is_queued_stays_over_restarts_until_an_operator_ends_it() -> None:
    rig, a, _, c = line()
    queued(rig, a, c, *names(1, 3))
    assert delete(rig, a, "@c")[0] == 409
    a.crash()
    a.config = replace(a.config, forwarding=())
    a.start()
    rig.settle()
    assert a.queue("@c").messages == 3 and any("3 messages wait for node 'c'" in text for text in a.logs)
    status, body, _ = delete(rig, a, "@c")
    assert (status, body) == (200, {"dead_lettered": 3, "tombstones": 3})
    assert a.bodies("$dead-letters") == names(1, 3)
    assert not any("'c'" in line for line in rig.client(a).manage("STATUS", "node")[1]["warnings"])
    client = rig.client(a)
    client.receiver("$dead-letters")
    rig.settle()
    notes = [message.message_annotations or {} for message in client.messages()]
    assert {str(note["x-opt-dead-letter-from"]) for note in notes} == {"work@c"}
    assert all("'c' left" in str(note["x-opt-dead-letter-reason"]) for note in notes)
    status, body, _ = delete(rig, a, "@c")  # once more: nothing is left to be done
    assert (status, body) == (200, {"dead_lettered": 0, "tombstones": 3})


def test_a_node_that_comes_back_waits_for_none_of_the_numbers_that_were_ended() -> None:
    rig, a, _, c = line()
    send(rig, a, "0", to="c")
    rig.run(2)
    queued(rig, a, c, *names(1, 3))
    leave(rig, a)
    assert delete(rig, a, "@c")[1] == {"dead_lettered": 3, "tombstones": 3}
    rig.refuse_dials = False
    c.start()
    reroute(rig, a, c="b")
    send(rig, a, "4", to="c")
    rig.run(40)
    assert c.bodies("work") == ["0", "4"] and a.queue("@c").tombstones == 0
    assert c.core is not None and not c.core.losses


def test_tombstones_are_given_up_where_that_is_said() -> None:
    rig, a, _, c = line()
    queued(rig, a, c, *names(1, 3))
    leave(rig, a)
    assert delete(rig, a, "@c")[1] == {"dead_lettered": 3, "tombstones": 3}
    assert delete(rig, a, "@c", tombstones=1)[0] == 400
    assert delete(rig, a, "@c", tombstones=True)[1] == {"dead_lettered": 0, "tombstones": 0}
    assert a.core is not None and "@c" not in a.core.catalog.queues
    rig.refuse_dials = False
    c.start()
    reroute(rig, a, c="b")
    send(rig, a, "4", to="c")
    rig.run(40)
    assert c.bodies("work") == [] and c.queue("$waiting").messages == 1  # as the documentation says
    rig.client(c).manage("SKIP", "queue", "work")
    assert c.bodies("work") == ["4"]


def test_an_empty_queue_for_a_node_that_left_just_goes() -> None:
    rig, a, _, c = line()
    send(rig, a, "1", to="c")
    rig.run(2)
    leave(rig, a)
    assert delete(rig, a, "@c")[1] == {"dead_lettered": 0, "tombstones": 0}
    assert a.core is not None and "@c" not in a.core.catalog.queues
    reroute(rig, a, c="b")
    send(rig, a, "2", to="c")
    rig.run(2)
    assert c.bodies("work") == ["1", "2"]  # its number is the one after


def test_a_queue_that_is_deleted_ends_the_links_of_its_producers() -> None:
    """Where new mail for unknown nodes is kept, a producer may hold the queue that an operator deletes."""
    rig, a, _, c = line(unknown_destination="keep")
    client = send(rig, a, "1", to="c")
    rig.run(2)
    leave(rig, a)
    link = client.sender("work@c")
    rig.settle()
    assert link.attached and delete(rig, a, "@c")[1] == {"dead_lettered": 0, "tombstones": 0}
    assert a.core is not None and "@c" not in a.core.catalog.queues and "c" not in a.core.catalog.transit
    assert [str(told.error.condition) for told in client.detached if told.error][-1] == "amqp:resource-deleted"
    again = client.sender("work@c")
    rig.settle()
    client.send(again, "2")
    rig.settle()
    assert a.bodies("@c") == ["2"]
    reroute(rig, a, c="b")
    rig.run(10)
    assert c.bodies("work") == ["1", "2"]


def begun(rig: Rig, a: Node, **arguments: Any) -> Client:
    """The client of an operator who deletes `@c`, which cannot end while a commit is under way."""
    client = rig.client(a)
    replies = client.session.attach_receiver("replies", Source(address="$management"), Target(address="replies"))
    replies.grant(10)
    requests, link = client.sender("$management"), client.sender("local")
    rig.settle()
    a.hold_commits = True
    client.send(link, "x")
    rig.settle()
    request = Message(
        properties=Properties(message_id="m", reply_to="replies"),
        application_properties={"operation": "DELETE", "type": "holdfast:queue", "name": "@c"},
        value=arguments,
    )
    requests.send(request.encode(), context=None, settled=True)
    rig.settle()
    assert a.core is not None and a.core.departures.under_way
    return client


@pytest.mark.parametrize("with_tombstones", [False, True])
def test_a_node_that_comes_back_ends_the_deletion_of_its_queue(with_tombstones: bool) -> None:
    rig, a, _, c = line()
    queued(rig, a, c, *names(1, 3))
    leave(rig, a)
    if with_tombstones:
        assert delete(rig, a, "@c")[0] == 200
    client = begun(rig, a, tombstones=with_tombstones)
    reroute(rig, a, c="b")
    assert a.core is not None
    assert (a.queue("@c") in a.core.departures.under_way) is not with_tombstones, "until what leaves has left"
    link = client.sender("work@c")
    rig.settle()
    client.send(link, "4")
    rig.settle()
    a.hold_commits = False
    rig.settle()
    assert not a.core.departures.under_way and not a.queue("@c").stopped
    assert a.bodies("$dead-letters") == names(1, 3) and a.bodies("@c")[-1:] == ["4"] and not link.detached
    answer = next(message for message in client.messages() if message.application_properties)
    assert (answer.application_properties or {})["statusCode"] == 409
    assert "node 'c' came back" in (answer.application_properties or {})["statusDescription"]
    rig.refuse_dials = False
    c.start()
    rig.run(60)
    assert c.bodies("work") == ["4"]


def test_what_comes_while_a_queue_is_deleted_stays() -> None:
    rig, a, _, c = line(unknown_destination="keep")
    queued(rig, a, c, *names(1, 3))
    leave(rig, a)
    client = begun(rig, a)
    link = client.sender("work@c")
    rig.settle()
    client.send(link, "4")
    rig.settle()
    a.hold_commits = False
    rig.settle()
    assert a.bodies("$dead-letters") == names(1, 3) and a.queue("@c").messages == 4
    assert a.queue("@c").tombstones == 3 and not a.queue("@c").stopped


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (Exclusions, "left"),
        (Cursor, "requeue"),
        (Queue, "touch"),
        (HopLinks, "gone"),
        (Identities, "forget"),
        (BackgroundJobs, "forget"),
        (Catalog, "delete"),
        (Queue, "uncache"),
        (deletion, "forget_entries"),
        (deletion, "part"),
    ],
)
def test_the_end_of_a_queue_that_fails_halfway_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, owner: Any, step: str
) -> None:
    rig, a, _, c = line()
    queued(rig, a, c, "1", "2")
    leave(rig, a)
    left = [RuntimeError("for once")]
    forget, original = departed.Departures._forget, getattr(owner, step)

    def fails(*given: Any, **options: Any) -> Any:
        if left:
            raise left.pop()
        return original(*given, **options)

    def under_watch(self: departed.Departures, queue: Queue) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, fails)
            forget(self, queue)

    monkeypatch.setattr(departed.Departures, "_forget", under_watch)
    begun(rig, a, tombstones=True)
    a.hold_commits = False
    rig.run(5)
    assert not left and a.core is not None and a.core.containment.parts_failed + a.core.containment.peers_ended == 1
    assert "@c" not in a.core.catalog.queues and "c" not in a.core.catalog.transit
    assert a.bodies("$dead-letters")[:2] == ["1", "2"]
    a.core.validate()


def test_a_node_in_between_ends_what_others_sent() -> None:
    rig, a, b, c = line()
    send(rig, a, "1", to="c")
    rig.run(2)
    c.crash()
    send(rig, a, *names(2, 4), to="c")
    rig.run(5)
    assert b.queue("@c").messages == 3
    b.crash()
    neighbours = tuple(item for item in b.config.neighbours if item.name != "c")
    b.config = replace(b.config, neighbours=neighbours)
    b.start()
    rig.run(5)
    send(rig, a, "5", to="c")
    rig.run(5)
    assert a.queue("@c").messages == 1  # b refuses the link: it stays where it is
    assert delete(rig, b, "@c")[1] == {"dead_lettered": 3, "tombstones": 3}
    b.crash()
    b.config = replace(b.config, neighbours=(*neighbours, NeighbourConfig(name="c", remote="127.0.0.1:1")))
    b.start()
    c.start()
    rig.run(60)
    assert c.bodies("work") == ["1", "5"]


def test_a_link_that_a_neighbour_has_for_it_ends_and_nothing_of_it_is_lost() -> None:
    rig = Rig()
    a, b, _, c = rig.graph("a-b", "b-x", "x-c", routes={"a": {"c": "b"}, "b": {"c": "x"}, "x": {"a": "b"}})
    rig.run(2)
    send(rig, a, "1", to="c")
    rig.run(2)
    leave(rig, b)
    send(rig, a, "2", "3", to="c")
    rig.run(5)
    assert a.queue("@c").messages == 2 and b.queue("@c").messages == 0
    reroute(rig, b, c="x")
    rig.run(40)
    assert c.bodies("work") == names(1, 3)


def test_a_full_disk_ends_nothing_in_part() -> None:
    rig, a, _, c = line()
    queued(rig, a, c, *names(1, 5))
    leave(rig, a)
    a.refuse = 2
    assert delete(rig, a, "@c")[1] == {"dead_lettered": 5, "tombstones": 5} and not a.refuse
    assert sorted(a.bodies("$dead-letters")) == names(1, 5)
    assert a.queue("@c").messages == a.queue("@c").tombstones == 5


def test_queues_of_several_share_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_lettering, "MOVED_COUNT", 30)
    node = LoneNode(tmp_path)
    for name in ("@one", "@other"):
        node.fill(name, 25)
    for name in ("@one", "@other"):
        node.core.departures.begin(node.queue(name), lambda *ended: None, with_tombstones=False)
    node.commits.clear()
    node.settle()
    assert max(len(batch.retires) for batch in node.commits) == 30
    assert node.core.catalog.own("", "$dead-letters").messages == 50


def test_a_deep_queue_becomes_dead_letters_in_shares_and_over_a_restart(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.fill("@gone", 1_000)
    told: list[tuple[int, int]] = []
    node.core.departures.begin(node.queue("@gone"), lambda *ended: told.append(ended), with_tombstones=False)
    node.turn()
    assert not told
    node.crash()
    node = LoneNode(tmp_path)
    queue = node.queue("@gone")
    assert queue.tombstones == dead_lettering.MOVED_COUNT and queue.messages == 1_000
    node.commits.clear()
    node.core.departures.begin(queue, lambda *ended: told.append(ended), with_tombstones=False)
    node.settle()
    assert told == [(1_000 - dead_lettering.MOVED_COUNT, 1_000)]
    assert max(len(batch.retires) for batch in node.commits) == dead_lettering.MOVED_COUNT
    assert queue.tombstones == 1_000
    assert node.core.catalog.own("", "$dead-letters").messages == 1_000
    node.core.departures.begin(queue, lambda *ended: told.append(ended), with_tombstones=True)
    node.settle()
    assert "@gone" not in node.core.catalog.queues and told[-1] == (0, 0)
    node.stop()
    left = check(tmp_path)
    assert left.findings == [] and left.entries == 1_000


def test_who_asks_meanwhile_for_the_end_of_the_tombstones_too_has_it(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.fill("@gone", 10)
    told: list[tuple[int, int]] = []
    for with_tombstones in (False, True, False):
        node.core.departures.begin(
            node.queue("@gone"), lambda *ended: told.append(ended), with_tombstones=with_tombstones
        )
    node.settle()
    assert told == [(10, 0)] * 3 and "@gone" not in node.core.catalog.queues
    node.stop()


def test_without_room_for_the_dead_letters_it_waits_and_does_not_spin(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.fill("@gone", 10)
    node.turn()
    room = node.store.room_bytes
    node.store.room_bytes = lambda: -(1 << 40)  # type: ignore[method-assign]  # a full disk
    node.core.room.bytes = -(1 << 40)
    told: list[tuple[int, int]] = []
    node.core.departures.begin(node.queue("@gone"), lambda *ended: told.append(ended), with_tombstones=False)
    for _ in range(5):
        node.turn()
    assert not told and not node.core.jobs.busy and node.queue("@gone").messages == 10
    node.store.room_bytes = room  # type: ignore[method-assign]
    node.core.room.bytes = room()
    node.settle()
    assert told == [(10, 10)]
    node.stop()


def test_it_does_not_end_before_what_it_moved_is_on_disk() -> None:
    """A refusal brings the messages back: the queue must be there still."""
    rig, a, _, c = line()
    queued(rig, a, c, *names(1, 3))
    leave(rig, a)
    assert a.core is not None
    told: list[tuple[int, int]] = []
    a.hold_commits = True
    a.core.departures.begin(a.queue("@c"), lambda *ended: told.append(ended), with_tombstones=True)
    rig.client(a)
    rig.run(2)
    assert not told and "@c" in a.core.catalog.queues
    a.refuse, a.hold_commits = 1, False
    rig.run(3)
    assert told == [(3, 0)] and a.bodies("$dead-letters") == names(1, 3) and not a.refuse


def test_a_link_that_stays_brings_what_comes_later_to_the_new_queue() -> None:
    """With `keep` the neighbour's link is not ended: the queue that it had is deleted all the same."""
    rig = Rig()
    routes = {"a": {"c": "b"}, "b": {"c": "x"}, "x": {"a": "b"}}
    a, b, _, c = rig.graph("a-b", "b-x", "x-c", routes=routes, b={"unknown_destination": "keep"})
    rig.run(2)
    send(rig, a, "1", to="c")
    rig.run(2)
    leave(rig, b)
    assert delete(rig, b, "@c")[1] == {"dead_lettered": 0, "tombstones": 0}
    assert b.core is not None and "@c" not in b.core.catalog.queues
    send(rig, a, "2", to="c")
    rig.run(2)
    reroute(rig, b, c="x")
    rig.run(10)
    assert c.bodies("work") == ["1", "2"]


def test_a_node_that_comes_back_does_not_wait_for_room_for_the_dead_letters(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.fill("@gone", 10)
    node.turn()
    node.store.room_bytes = lambda: -(1 << 40)  # type: ignore[method-assign]  # a full disk
    node.core.room.bytes = -(1 << 40)
    told: list[tuple[int, int]] = []
    node.core.departures.begin(node.queue("@gone"), lambda *ended: told.append(ended), with_tombstones=False)
    node.turn()
    node.core.forwarding.knows = lambda name: True  # type: ignore[method-assign]  # it is back
    node.core.departures.look()
    assert told == [(0, 0)] and not node.queue("@gone").stopped and node.queue("@gone").messages == 10
    node.stop()


def test_what_is_on_its_way_to_the_disk_when_the_end_is_asked_for_becomes_a_dead_letter_too() -> None:
    rig, a, _, c = line(unknown_destination="keep")
    client = queued(rig, a, c)
    link = client.sender("work@c")
    rig.settle()
    a.hold_commits = True
    client.send(link, "1")
    rig.settle()
    queue = a.queue("@c")
    assert a.core is not None and a.core.turns.in_flight is not None and queue.visible < queue.next_sequence
    leave(rig, a)
    told: list[tuple[int, ...]] = []
    a.core.departures.begin(queue, lambda *ended: told.append(ended), with_tombstones=False)
    rig.client(a)
    rig.settle()  # a turn that meets nothing there
    a.hold_commits = False
    rig.run(2)
    assert told == [(1, 1)] and a.bodies("$dead-letters") == ["1"]


def test_what_is_sent_anew_by_a_store_that_was_put_back_is_numbered_anew_from_the_new_queues_beginning() -> None:
    """How far the deleted queue had come at the node's start says nothing of the new one."""
    rig, a, _, c = line()
    send(rig, a, *names(1, 3), to="c")
    rig.run(2)
    kept = snapshot(a)
    send(rig, a, *names(4, 6), to="c")
    rig.run(2)
    a.crash()
    a.store = kept
    rig.refuse_dials = True
    a.start()
    leave(rig, a)
    assert delete(rig, a, "@c")[0] == 200
    reroute(rig, a, c="b")
    send(rig, a, "7", "8", to="c")
    rig.refuse_dials = False
    rig.run(40)
    assert a.core is not None and a.core.identities.renewed and c.bodies("work") == names(1, 8)


@pytest.mark.parametrize("suffix", ["", "x" * 198])
def test_how_far_its_hops_came_is_forgotten_with_its_queue(suffix: str) -> None:
    """A row stayed for each neighbour and destination that ever was, and was read at each start."""
    rig = Rig()
    one, left = f"a{suffix}", f"c{suffix}"
    routes = {one: {left: "b"}, "b": {left: "x"}, "x": {one: "b"}}
    a, b, _, c = rig.graph(f"{one}-b", "b-x", f"x-{left}", routes=routes)
    rig.run(2)
    send(rig, a, "1", to=left)
    rig.run(2)
    assert b.core is not None
    row = "custody", b"h" + hop_key(one, left)
    assert row in b.store._tables and b.core.catalog.ledger.hops
    leave(rig, b)
    assert delete(rig, b, f"@{left}")[1] == {"dead_lettered": 0, "tombstones": 0}
    assert row not in b.store._tables and not b.core.catalog.ledger.hops
    reroute(rig, b, **{left: "x"})
    rig.run(40)
    send(rig, a, "2", to=left)
    rig.run(2)
    assert c.bodies("work") == ["1", "2"] and row in b.store._tables


def test_how_far_a_hop_with_a_link_came_is_kept() -> None:
    """Where mail for nodes that left is kept its link goes on, and so may the epoch."""
    rig = Rig()
    routes = {"a": {"c": "b"}, "b": {"c": "x"}, "x": {"a": "b"}}
    a, b, _, c = rig.graph("a-b", "b-x", "x-c", routes=routes, b={"unknown_destination": "keep"})
    rig.run(2)
    send(rig, a, "1", to="c")
    rig.run(2)
    leave(rig, b)
    assert delete(rig, b, "@c")[1] == {"dead_lettered": 0, "tombstones": 0}
    assert b.core is not None and hop_key("a", "c") in b.core.catalog.ledger.hops
    b.hold_commits = True
    send(rig, a, "2", to="c")  # in doubt when the line is cut
    for wire in rig.between("a", "b"):
        wire.cut()
    b.hold_commits = False
    rig.run(10)
    assert b.bodies("@c") == ["2"]
    reroute(rig, b, c="x")
    rig.run(10)
    assert c.bodies("work") == ["1", "2"]


def test_of_a_neighbour_that_left_nothing_is_kept_of_what_it_brought() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    send(rig, jfk, "1", to="hub")
    send(rig, hub, "2", to="jfk")
    rig.run(2)
    jfk.crash()
    jfk.config = replace(jfk.config, neighbours=())
    jfk.start()
    rig.settle()
    assert jfk.core is not None and hop_key("hub", "jfk") in jfk.core.catalog.ledger.hops
    assert delete(rig, jfk, "@hub")[0] == 200
    assert not any(table == "custody" and key[:1] == b"h" for table, key in jfk.store._tables)
