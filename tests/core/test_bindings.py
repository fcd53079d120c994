"""Federation on joined nodes: who learns what is wanted of a topic, and what is left of it after a crash, a full disk
and a hostile neighbour (docs/adr/0079, docs/adr/0081)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.amqp.wire.types import Ulong
from holdfast.core.node import NodeCore
from holdfast.federation.federation import Federation
from holdfast.federation.messages import Message
from holdfast.federation.rows import LIFE_HIGH, Row, Stamp
from holdfast.federation.sets import Key, stamped
from holdfast.federation.settings import Entry
from holdfast.peering import binding_messages, binding_status
from holdfast.peering import control as control_link
from holdfast.peering.binding_control import PAUSE_S, BindingControl
from holdfast.peering.binding_messages import WAITING_MAX, BindingMessages
from holdfast.peers.neighbours import features
from holdfast.peers.neighbours.session_port import BINDINGS_RESERVE
from support.rig import Node, Rig
from support.routing import network

TOPIC = "prices"


def core_of(node: Node) -> NodeCore:
    assert node.core is not None
    return node.core


def control(node: Node) -> BindingControl:
    assert node.core is not None
    return node.core.bindings


def federate(rig: Rig, node: Node, *neighbours: str) -> None:
    for neighbour in neighbours:
        control(node).add(Entry(TOPIC, neighbour))
    rig.settle()


def bind(rig: Rig, node: Node, *patterns: str) -> None:
    """A client subscribes to these patterns, and ends what an earlier one of that node had."""
    whose = f"subscriber of {node.name}"
    formers = [one for one in rig.clients if one.amqp.settings.container_id == whose and not one.over]
    client = rig.client(node, container_id=whose)
    for pattern in patterns:
        client.receiver(f"topic/{TOPIC}/{pattern}")
    rig.settle()
    for former in formers:
        former.close_transport()
    rig.run(2 * PAUSE_S)


def known(node: Node, origin: str) -> set[str] | None:
    """What this node has stored of what that one wants; None where it has nothing."""
    federation = control(node).federation
    held = None if federation is None else federation.sets.committed(Key(origin, TOPIC))
    return None if held is None else {row.pattern for row in held.rows}


def wanting(node: Node, subject: str) -> Iterable[str]:
    return control(node).choose(TOPIC, subject).branches


def test_what_is_wanted_at_one_node_is_known_at_the_other() -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    bind(rig, b, "us.#", "eu.*")
    assert known(a, "b") == {"us.#", "eu.*"} and known(b, "a") is None
    assert wanting(a, "us.ibm") == ("b",) and wanting(a, "asia.x") == ()
    bind(rig, b, "eu.*")
    assert known(a, "b") == {"eu.*"} and wanting(a, "us.ibm") == ()


def test_a_node_without_federation_holds_nothing() -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    assert control(a).federation is None and control(b).federation is None
    bind(rig, b, "us.#")
    federate(rig, a, "b")
    assert control(b).federation is not None


def test_what_is_known_survives_a_crash() -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    bind(rig, b, "us.#")
    a.crash()
    a.start()
    assert known(a, "b") == {"us.#"} and wanting(a, "us.ibm") == ("b",)
    b.crash()
    rig.run(3)
    assert known(a, "b") == {"us.#"}
    b.start()
    bind(rig, b, "eu.#")
    rig.run(3)
    assert known(a, "b") == {"eu.#"}


def test_a_line_without_a_topology_file_routes_over_its_entries() -> None:
    """Entries one way; c forwards nothing, and is known to a while it is away."""
    rig = Rig()
    a, b, c = rig.graph("a-b", "b-c")
    rig.run(3)
    federate(rig, a, "b")
    federate(rig, b, "c")
    bind(rig, c, "us.#")
    rig.run(10)
    assert known(a, "c") == {"us.#"} and wanting(a, "us.ibm") == ("c",)
    c.crash()
    rig.run(10)
    assert wanting(a, "us.ibm") == ("c",)


# ---------------------------------------------------------------------------------------------- what goes wrong


def test_what_is_not_stored_is_not_said_and_a_refused_commit_leaves_all_as_it_was() -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    bind(rig, b, "us.#")
    assert known(a, "b") == {"us.#"}
    b.refuse_all, b.refuse = True, 3
    rig.client(b).receiver(f"topic/{TOPIC}/eu.#")
    rig.settle()
    assert known(b, "b") == known(a, "b") == {"us.#"}
    rig.run(10)
    assert b.refuse == 0 and known(a, "b") == {"us.#", "eu.#"}


def test_what_a_neighbour_said_in_a_refused_turn_is_asked_for_again() -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    a.refuse_all, a.refuse = True, 2
    bind(rig, b, "us.#")
    assert known(a, "b") != {"us.#"} and not wanting(a, "us.ibm")
    rig.run(10)
    assert a.refuse == 0 and known(a, "b") == {"us.#"} and wanting(a, "us.ibm") == ("b",)


def test_an_entry_of_a_refused_turn_is_stored_with_the_next() -> None:
    """As all that requests change: who asked is answered once it is on disk."""
    rig = Rig()
    a, _ = network(rig, "a-b")
    rig.run(3)
    a.refuse_all, a.refuse = True, 1
    control(a).add(Entry(TOPIC, "b"))
    rig.run(2)
    assert a.refuse == 0
    a.crash()
    a.start()
    assert control(a).entries == (Entry(TOPIC, "b"),)


def test_what_a_refused_turn_was_to_delete_is_on_disk_still() -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    bind(rig, b, "us.#", "eu.#")
    a.refuse_all, a.refuse = True, 1
    bind(rig, b, "eu.#")
    assert a.refuse == 0
    b.crash()  # it says nothing again
    rig.run(3)
    assert known(a, "b") == {"us.#", "eu.#"}
    a.crash()
    a.start()
    assert known(a, "b") == {"us.#", "eu.#"}


def test_a_contained_failure_takes_back_what_came_in_its_turn() -> None:
    """The set came in the turn that is undone; it comes again, and what is under way stays."""
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    a.hold_commits = True
    bind(rig, b, "us.#")
    bind(rig, b, "us.#", "eu.#")
    assert a.core is not None
    federation = control(a).federation
    assert federation is not None and federation.sets.under_way and federation.sets.staged
    a.core.recovery.take_back_gathered(())
    assert not federation.sets.staged and federation.sets.under_way
    a.hold_commits = False
    rig.settle()
    rig.run(3)
    assert known(a, "b") == {"us.#", "eu.#"}


def test_what_became_false_in_memory_heals() -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    bind(rig, b, "us.#", "eu.#")
    federation = control(a).federation
    assert federation is not None
    key = Key("b", TOPIC)
    held = federation.sets.stored[key]
    a.checks = False
    federation.sets.stored[key] = replace(held, rows=frozenset([Row("asia.#")]))
    for _ in range(7):
        rig.run(10)
        bind(rig, b, "us.#", "eu.#")  # clients that say nothing for a minute are gone
    a.checks = True
    assert known(a, "b") == {"us.#", "eu.#"} and federation.voided == 1
    assert wanting(a, "us.ibm") == ("b",) and wanting(a, "asia.x") == ()
    assert a.core is not None
    a.core.validate()


def test_an_entry_that_is_removed_withdraws_all_that_came_by_it() -> None:
    rig = Rig()
    a, b, _ = network(rig, "a-b", "b-c")
    rig.run(3)
    federate(rig, a, "b")
    bind(rig, b, "us.#")
    control(a).remove(TOPIC, "b")
    rig.run(1)
    assert known(a, "b") is None and not wanting(a, "us.ibm")
    a.crash()
    a.start()
    rig.run(3)
    assert known(a, "b") is None and control(a).entries == ()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kind": "federate", "rows": [[Ulong(19_999), "dynamic"]]}, "unknown alias for a topic"),
        ({"kind": "federate", "rows": [[[Ulong(0), "t"], "other"]]}, "invalid row of federate"),
        ({"kind": "follow", "rows": "all"}, "invalid rows of follow"),
        ({"kind": "change"}, "unknown alias for an origin"),
        ({"kind": "stored", "origin": "a@b", "topic": "t"}, "invalid an origin"),
    ],
)
def test_what_is_no_message_of_federation_ends_that_session_alone(fields: dict[str, Any], why: str) -> None:
    rig = Rig()
    a, b, c = network(rig, "a-b", "b-c")
    rig.run(3)
    federate(rig, b, "a")
    federate(rig, b, "c")
    bind(rig, c, "us.#")
    assert a.core is not None and b.core is not None
    before = {name: one.established_count for name, one in b.core.neighbours.items()}
    assert a.core.neighbours["b"].send(fields)
    rig.run(1)
    assert any(f"invalid message of federation: {why}" in line for line in b.logs), b.logs
    rig.run(5)
    after = {name: one.established_count for name, one in b.core.neighbours.items()}
    assert after == {"a": before["a"] + 1, "c": before["c"]}
    assert known(b, "c") == {"us.#"} and known(b, "a") == set()


def test_a_node_that_left_for_good_wants_nothing() -> None:
    rig = Rig()
    a, b, c = rig.graph("a-b", "b-c")
    rig.run(3)
    federate(rig, a, "b")
    federate(rig, b, "c")
    bind(rig, c, "us.#")
    rig.run(10)
    assert wanting(a, "us.ibm") == ("c",)
    c.crash()
    rig.run(10)
    control(b).remove(TOPIC, "c")
    rig.run(10)
    assert known(a, "c") is None and known(b, "c") is None


def test_a_node_that_is_forgotten_wants_nothing() -> None:
    rig = Rig()
    a, b, c = rig.graph("a-b", "b-c")
    rig.run(3)
    federate(rig, a, "b")
    federate(rig, b, "c")
    bind(rig, c, "us.#")
    rig.run(10)
    c.crash()
    rig.run(10)
    assert known(a, "c") == {"us.#"}
    assert a.core is not None and a.core.routing is not None
    a.core.routing.upkeep.forget("c", "by hand")
    rig.run(1)
    assert known(a, "c") is None and not wanting(a, "us.ibm")


def test_requests_are_refused_in_a_virtual_host_and_with_another_form() -> None:
    rig = Rig()
    a, _ = network(rig, "a-b")
    rig.run(3)
    client = rig.client(a)
    for name, arguments, why in (
        ("news", {}, "expected TOPIC@NEIGHBOUR"),
        ("news@b", {"modes": "push"}, "unknown key 'modes'"),
        ("news@b", {"patterns": "us.#"}, "invalid value for patterns"),
        ("news@b", {"mode": "static"}, "invalid patterns"),
        ("news@a", {}, "expected the name of a [[neighbour]]"),
        ("$x@b", {}, "invalid name"),
    ):
        status, _, text = client.manage("CREATE", "federation", name, **arguments)
        assert status == 400 and why in text, text
    assert client.manage("CREATE", "federation", "news@b", mode="static", patterns=["us.#"])[0] == 201
    (row,) = client.manage("QUERY", "federation")[1]["federation"]
    assert (row["mode"], row["patterns"], row["state"]) == ("static", ["us.#"], "up")
    assert client.manage("TREE", "federation", "news", subject="us.x")[1]["tree"][0]["relay"]
    assert client.manage("DELETE", "federation", "news@b")[0] == 200
    assert any("federation 'news@b' removed" in line for line in a.logs)


def test_a_neighbour_of_an_earlier_version_is_plain() -> None:
    rig = Rig()
    a, b = network(rig, "a-b", start=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "ALL", tuple(one for one in features.ALL if one != features.BINDINGS))
        patch.setattr(features.offered_by, "__defaults__", (features.ALL,))
        a.start()
        b.start()
        rig.run(3)
        federate(rig, a, "b")
        bind(rig, b, "us.#")
        rig.run(3)
        assert known(a, "b") is None
        client = rig.client(a)
        assert client.manage("QUERY", "federation")[1]["federation"][0]["state"] == "plain"


def test_what_one_turn_takes_in_of_a_neighbour_is_bounded() -> None:
    """The rest waits for the next turns, in order; nothing is lost, and others are heard meanwhile."""
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, b, "a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding_messages, "EFFORT_A_TURN", 3)
        apply, waited = Federation.apply, []

        def watched(federation: Federation, name: str, message: Message) -> None:
            waited.append(len(control(b).messages.waiting.get(name, ())))
            apply(federation, name, message)

        patch.setattr(Federation, "apply", watched)
        session = core_of(a).neighbours["b"]
        for number in range(10):
            assert session.send({"kind": "federate", "rows": [[f"t{number}", "dynamic"]]})
        rig.run(1)
    assert max(waited) > 3 and not control(b).messages.waiting
    federation = control(b).federation
    assert federation is not None and federation.neighbours["a"].modes == {"t9": "dynamic"}


def test_a_neighbour_that_says_more_than_is_taken_in_loses_its_session() -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, b, "a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding_messages, "EFFORT_A_TURN", 1)
        patch.setattr(binding_messages, "WAITING_MAX", 5)
        for _ in range(20):
            assert core_of(a).neighbours["b"].send({"kind": "federate", "rows": []})
        rig.run(1)
    assert any("more than 5 messages" in line for line in b.logs)


def test_a_neighbour_is_given_no_credit_for_what_waits() -> None:
    """So it stops before it is one too many, other messages have credit meanwhile, and nothing is lost."""
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, b, "a")
    session, messages, sent = core_of(a).neighbours["b"], control(b).messages, 0

    def say(count: int) -> bool:
        nonlocal sent
        for _ in range(count):
            fields = {"kind": "federate", "rows": [[f"t{sent}", "dynamic"]]}
            if not session.send(fields, reserve=BINDINGS_RESERVE):
                return False
            sent += 1
        rig.run(1)
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding_messages, "EFFORT_A_TURN", 0)
        patch.setattr(BindingMessages, "is_due", False)
        while say(20):
            assert sent < WAITING_MAX
        rig.run(1)
        assert 64 < sent == messages.count("a") <= control_link.CONTROL_CREDIT
        for number in range(20):
            assert session.send({"kind": "table", "version": Ulong(number)})
            rig.run(1)
    rig.settle()
    link = None if session.control is None else session.control.link
    assert messages.count("a") == 0 and link is not None and link.credit > 2 * BINDINGS_RESERVE, "at once"
    assert say(20)
    federation = control(b).federation
    assert federation is not None and federation.neighbours["a"].modes == {f"t{sent - 1}": "dynamic"}
    assert core_of(b).neighbours["a"].established_count == 1


def test_what_found_no_credit_is_said_when_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    session = core_of(b).neighbours["a"]
    with monkeypatch.context() as patch:
        patch.setattr(session, "send", lambda fields, *, reserve: False)
        federate(rig, b, "a")
    assert control(b).messages.unsent["a"]["kind"] == "federate"
    control(b).credited(session)
    rig.run(1)
    federation = control(a).federation
    assert federation is not None and federation.neighbours["b"].modes == {TOPIC: "dynamic"}


def test_a_due_message_without_credit_does_not_keep_the_node_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    a, b, c = network(rig, "a-b", "b-c")
    rig.run(3)
    federate(rig, b, "a", "c")
    federate(rig, a, "b")
    federate(rig, c, "b")
    bind(rig, a, "us.#")
    session, federation = core_of(b).neighbours["a"], control(b).federation
    assert federation is not None
    with monkeypatch.context() as patch:
        patch.setattr(session, "send", lambda fields, *, reserve: False)
        bind(rig, c, "us.ibm")
        assert "a" in control(b).messages.unsent
        neighbour = federation.neighbours["a"]
        neighbour.later = {Key("a", TOPIC): rig.now}
        control(b)._moved()
        rig.run(1)  # the rig finds a node that goes on for nothing
        assert neighbour.later and control(b).next_deadline() > rig.now
    control(b).credited(session)
    rig.run(2)
    assert not neighbour.later and not control(b).messages.unsent and known(a, "c") == {"us.ibm"}


def test_what_waits_is_in_the_account_of_memory_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, b, "a")
    messages, account = control(b).messages, core_of(b).memory.bindings
    held: list[int] = []
    keep = messages._keep

    def watched(name: str, message: Message) -> None:
        keep(name, message)
        held.append(account.held)

    monkeypatch.setattr(binding_messages, "EFFORT_A_TURN", 1)
    monkeypatch.setattr(messages, "_keep", watched)
    monkeypatch.setattr(messages, "_bytes_max", 20_000)
    for _ in range(50):
        assert core_of(a).neighbours["b"].send({"kind": "federate", "rows": []})
    rig.run(1)
    assert 15_000 < max(held) <= 20_000 and account.held == 0
    assert any("or 20000 bytes of them, wait" in line for line in b.logs)


def test_a_node_that_is_forwarded_something_begins_again_when_it_is_told() -> None:
    """At a start it has its own sets alone; they begin a new life, and nothing is withdrawn meanwhile."""
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    bind(rig, b, "us.#")
    federation = control(b).federation
    assert federation is not None
    before = federation.sets.stored[Key("b", TOPIC)].stamp
    a.crash()
    b.crash()
    b.start()
    rig.run(3)
    assert control(b).federation is None
    bind(rig, b, "us.#")
    a.start()
    rig.run(3)
    federation = control(b).federation
    assert federation is not None and federation.sets.stored[Key("b", TOPIC)].stamp.life > before.life
    assert known(a, "b") == {"us.#"}


def test_while_the_store_has_no_room_sets_wait() -> None:
    """So that no commit is refused for them; they are stored once there is room."""
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(a.store, "room_bytes", lambda: -1)
        rig.run(3)
        bind(rig, b, "us.#")
        rig.run(3)
        assert known(a, "b") == set()
    rig.run(3)
    assert known(a, "b") == {"us.#"}


def test_the_status_tells_of_who_is_away_too() -> None:
    """At the entry by which it came, or might come: once, however many lead there."""
    rig = Rig()
    a, b, c, d = network(rig, "a-b", "a-c", "b-d", "c-d")
    rig.run(3)
    for node, neighbours in ((a, "bc"), (b, "d"), (c, "d")):
        federate(rig, node, *neighbours)
    bind(rig, d, "us.#")
    rig.run(3)

    def told() -> list[tuple[str, list[Any]]]:
        return [(row["neighbour"], row["bindings"]) for row in binding_status.rows(control(a))]

    (_, by_b), (_, by_c) = told()
    assert by_b + by_c == [{"pattern": "us.#", "origins": ["d"]}]
    d.crash()
    rig.run(10)
    (_, by_b), (_, by_c) = told()
    assert by_b + by_c == [{"pattern": "us.#", "origins": ["d"]}]


def test_the_status_tells_of_who_is_away_beside_its_own_entry() -> None:
    """Entries of both directions lead from each neighbour to the other, by way of the node itself."""
    rig = Rig()
    a, b, c = network(rig, "a-b", "a-c")
    rig.run(3)
    for one, other in ((a, "b"), (a, "c"), (b, "a"), (c, "a")):
        federate(rig, one, other)
    bind(rig, c, "us.#")
    rig.run(1)
    c.crash()
    rig.run(10)
    told = {row["neighbour"]: row["bindings"] for row in binding_status.rows(control(a))}
    assert told == {"b": [], "c": [{"pattern": "us.#", "origins": ["c"]}]}


def test_what_a_status_looks_at_is_bounded_for_all_entries_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding_status, "ROWS_LOOKED_AT", 5)
    rig = Rig()
    a, b, c = network(rig, "a-b", "a-c")
    rig.run(3)
    for one, other in ((a, "b"), (a, "c"), (b, "a"), (c, "a")):
        federate(rig, one, other)
    bind(rig, b, "b.1", "b.2", "b.3")
    bind(rig, c, "c.1", "c.2", "c.3")
    rig.run(1)
    rows = binding_status.rows(control(a))
    assert [(row["rows"], len(row["bindings"])) for row in rows] == [(3, 3), (3, 2)]


def test_a_set_whose_stamp_is_at_its_end_begins_anew() -> None:
    """Its origin tells all to void it, also beside routing, which has such a message of its own."""
    rig = Rig()
    a, b = network(rig, "a-b")
    rig.run(3)
    federate(rig, a, "b")
    bind(rig, b, "us.#")
    federation = control(a).federation
    assert federation is not None
    key, end = Key("b", TOPIC), Stamp(2**63 - 1, 2**63 - 1)
    federation.sets.stored[key] = stamped(federation.sets.stored[key], end)
    rig.run(100)
    bind(rig, b, "eu.#")
    assert known(a, "b") == {"eu.#"}
    held = federation.sets.committed(key)
    assert held is not None and held.stamp.life < LIFE_HIGH
