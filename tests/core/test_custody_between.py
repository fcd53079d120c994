"""Custody where two turns are refused at once, an end is told, and what is on its way is asked for twice."""

from typing import Any

from core.test_departed import begun, leave, queued
from core.test_departed import line as given
from holdfast.amqp.wire.performatives import Header
from holdfast.broker.entries.host_names import hosted
from holdfast.broker.stored.custody_records import origin_key
from support.crossing import bodies, line, say
from support.hops import STRICT, names, reroute, send
from support.rig import Node, Rig


def origin_of(node: Node, other: Node) -> Any:
    """What a node knows of the numbers of another one's store."""
    assert node.core is not None
    return node.core.catalog.ledger.by_host[""].get(other.store.uuid)


def test_two_refused_turns_leave_the_record_of_before_both() -> None:
    rig = Rig()
    jfk, hub = rig.pair(**STRICT)
    rig.run(1)
    send(rig, jfk, "1", to="hub")
    rig.run(3)
    table, key = origin_key(jfk.store.uuid, "")
    before = dict(hub.store.table(table))[key]
    hub.hold_commits = True
    for body in ("2", "3"):
        send(rig, jfk, body, to="hub")
    assert hub.core is not None and hub.core.turns.in_flight is not None and hub.core.turns.gathered
    assert hub.core.turns.gathered.origins and hub.core.turns.in_flight.origins
    hub.refuse = 1
    hub.finish_commit()
    assert hub.core.turns.gathered.batch.puts[table, key] == before
    hub.hold_commits = False
    rig.run(20)
    hub.core.validate()
    assert hub.bodies("work") == names(1, 3)


def test_what_waited_for_a_message_goes_as_soon_as_its_end_is_told() -> None:
    rig = Rig()
    a, b, _, d = rig.graph(
        "a-b",
        "a-c",
        "b-d",
        "c-d",
        routes={"a": {"d": "b"}, "b": {"a": "a"}, "c": {"a": "a"}, "d": {"a": "b"}},
        d=STRICT,
    )
    rig.run(2)
    send(rig, a, "0")
    rig.run(2)
    rig.refuse_dials = True
    for wire in rig.between("b", "d"):
        wire.cut()
    send(rig, a, "1", header=Header(durable=True, ttl=2_000))
    rig.run(1)
    assert b.bodies("@d") == ["1"]
    reroute(rig, a, d="c")
    send(rig, a, "2")
    rig.run(0.2)
    origin = origin_of(d, a)
    assert d.bodies("work") == ["0"] and origin.waiting
    rig.run(3)
    assert d.core is not None and b.queue("@d").tombstones == 1 and d.bodies("work") == ["0"]
    rig.refuse_dials = False
    for _ in range(2_000):
        if origin.in_order() is not None or not origin.waiting:
            break
        rig.pass_time(0.01)
        rig.settle()
    rig.settle()
    assert d.bodies("work") == ["0", "2"] and not origin.waiting, "it does not wait for the next look"
    d.core.validate()


def test_who_asks_again_ends_what_came_meanwhile_too() -> None:
    rig, a, _, c = given(unknown_destination="keep")
    queued(rig, a, c, *names(1, 3))
    leave(rig, a)
    client = begun(rig, a)
    link = client.sender("work@c")
    rig.settle()
    client.send(link, "4")
    rig.settle()
    assert a.core is not None
    a.core.departures.begin(a.queue("@c"), lambda made, left: None, with_tombstones=False)
    a.hold_commits = False
    rig.run(1)
    assert a.bodies("$dead-letters") == names(1, 4)
    a.core.validate()


def test_what_waits_for_a_node_that_left_becomes_a_dead_letter_of_its_own_host() -> None:
    rig, (jfk, hub) = line("jfk", "hub")
    hub.crash()
    rig.run(1)
    say(jfk, "acme", "acme-1", "acme-2", to="work@hub")
    assert jfk.core is not None
    queue = jfk.core.catalog.transit["acme@hub"]
    jfk.core.departures.begin(queue, lambda made, left: None, with_tombstones=False)
    jfk.core.departures._cancel_of_known = lambda: None  # type: ignore[method-assign]  # its name is in the file still
    rig.run(1)
    jfk.core.validate()
    assert bodies(jfk, "acme", "$dead-letters") == ["acme-1", "acme-2"]
    assert hosted("", "$dead-letters") not in jfk.core.catalog.queues or not bodies(jfk, "", "$dead-letters")


def test_a_mark_that_is_known_is_not_written_again() -> None:
    rig, (a, b) = line("a", "b")
    assert a.core is not None
    receipts, turns, uuid = a.core.forwarding.receipts, a.core.turns, b.store.uuid
    receipts.note(uuid, "b", 5)
    assert turns.gathered.batch.puts
    rig.run(1)
    receipts.note(uuid, "b", 5)
    assert not turns.gathered.batch.puts


def test_who_brings_it_no_more_has_been_told_nothing_of_it() -> None:
    rig, (_, b, _) = line("a", "b", "c")
    assert b.core is not None
    receipts, hops, uuid = b.core.forwarding.receipts, b.core.next_hops, rig.uuid()
    receipts.brought_by(uuid, "d", "a")
    hops["a"].told["d", uuid] = 5
    receipts.brought_by(uuid, "d", "c")
    assert ("d", uuid) not in hops["a"].told and (uuid, "d") in hops["c"].brings
