"""Custody over several hops: the histories of CUSTODY.md that need a node in between, and lines that break."""

from uuid import UUID

import pytest

from holdfast.amqp.wire.performatives import Header
from holdfast.broker.entries import entry
from holdfast.custody.sent_back import RETURN_S
from holdfast.errors import ConfigError
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig
from holdfast.storage.memory import MemoryStore
from support import today
from support.hops import (
    STRICT,
    Source,
    apart,
    check_exact,
    cut_any,
    held,
    is_empty,
    names,
    reroute,
    send,
    snapshot,
    toggle,
    until_done,
)
from support.rig import Node, Rig

# ------------------------------------------------------------------------------------------------ lines


def test_along_a_line_and_back() -> None:
    rig = Rig()
    nodes = rig.line("a", "b", "c", "d", a=STRICT, d=STRICT)
    a, b, c, d = nodes
    rig.run(3)
    send(rig, a, *names(1, 3000))
    send(rig, d, *names(1, 500), to="a")
    rig.run(1)
    assert d.bodies("work") == names(1, 3000) and a.bodies("work") == names(1, 500)
    assert is_empty(*nodes)
    value = d.queue("work").read(0, count_max=1, bytes_max=1)[0][1]
    assert entry.unpack(value).trace == b"".join(node.store.uuid.bytes for node in (a, b, c))


def test_a_destination_never_heard_of_is_refused() -> None:
    rig = Rig()
    a, b = rig.graph("a-b", routes={"a": {"nowhere": "b"}})
    rig.run(2)
    send(rig, a, "1", to="nowhere")
    rig.run(100)
    assert a.queue("@nowhere").messages == 1
    assert "@nowhere" not in b.core.catalog.queues
    refused = [line for line in a.logs if "amqp:not-found" in line]
    assert 1 < len(refused) < 12  # tried again, later each time
    other = rig.client(b).sender("work@nowhere")
    rig.settle()
    assert other.refused


def test_time_to_live_and_tombstones_pass_through() -> None:
    rig = Rig()
    a, b, c, d = rig.line("a", "b", "c", "d", d=STRICT)
    rig.run(3)
    d.crash()
    send(rig, a, "1")
    send(rig, a, "2", header=Header(ttl=60_000))
    send(rig, a, "3", header=Header(ttl=1_000))
    send(rig, a, "4")
    assert c.queue("@d").messages == 4
    c.crash()
    c.start()
    rig.run(10)
    d.start()
    rig.run(10)
    assert d.bodies("work") == ["1", "2", "4"] and is_empty(a, b, c, d)
    client = rig.client(d)
    client.receiver("work")
    rig.settle()
    ttl = [message.header.ttl for message in client.messages() if message.header is not None]
    assert ttl[0] is None and ttl[2] is None and 0 < ttl[1] < 51_000


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("hours", [-1, 1])
def test_each_node_tells_by_its_own_clock_when_a_message_came(hours: int, count: int) -> None:
    """By the clock on its wall, whatever that was set to while it ran; one by one, and in a run."""
    rig = Rig()
    a, b, d = rig.line("a", "b", "d", d=STRICT)
    rig.run(3)
    b.clock_error_ms = d.clock_error_ms = hours * 3_600_000
    rig.run(1)
    d.hold_commits = True
    send(rig, a, *names(1, count))
    rig.run(0.5)
    for node, name in ((a, "@d"), (b, "@d"), (d, "work")):
        if name == "work":
            d.hold_commits = False
            rig.settle()
        for _, value in node.queue(name).read(0, count_max=100, bytes_max=10**6):
            assert abs(entry.unpack(value).enqueued_ms - node.wall_ms) < 2_000, node.name
    assert d.bodies("work") == names(1, count)


@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize("wrong", ["a", "b", "d"])
def test_a_clock_an_hour_wrong_expires_nothing_early_or_late(wrong: str, hours: int) -> None:
    """Time to live is time spent; no node's clock is compared with another's."""
    rig = Rig()
    a, b, d = nodes = rig.line("a", "b", "d", d=STRICT, start=False)
    rig.nodes[wrong].clock_error_ms = hours * 3_600_000
    for node in nodes:
        node.start()
    rig.run(3)
    d.crash()
    for number, ttl in enumerate((None, 20_000, 8_000, 3_000_000), 1):
        send(rig, a, str(number), header=Header(ttl=ttl))
    rig.run(5)
    b.crash()
    b.start()
    rig.run(5)
    d.start()
    rig.run(5)
    assert d.bodies("work") == ["1", "2", "4"] and is_empty(*nodes)
    rig.run(2)
    client = rig.client(d)
    client.receiver("work")
    rig.settle()
    left = [message.header.ttl if message.header is not None else None for message in client.messages()]
    assert left[0] is None and 0 < left[1] < 8_000 and 2_900_000 < left[2] < 2_990_000
    rig.run(5)
    assert client.bodies() == ["1", "2", "4"]


@pytest.mark.parametrize("order", ["strict", "bounded"])
@pytest.mark.parametrize("seed", today.some(range(8), 2))
def test_a_line_that_breaks_at_random(seed: int, order: str) -> None:
    """Thousands both ways over two nodes in between, which crash, are cut, run full and stop answering."""
    rig = Rig(seed * 11 + len(order))
    ends = {"queues": (QueueConfig(name="work", order=order),), "limits": Limits(ranges_max=(1024, 2)[seed % 2])}
    nodes = rig.line("a", "b", "c", "d", a=ends, d=ends)
    random = rig.random
    sources = [Source(rig, nodes[0], "d", 1000), Source(rig, nodes[3], "a", 300)]
    for _ in range(2500):
        dice = random.random()
        node = random.choice(nodes if random.random() < 0.2 else nodes[1:3])
        if dice < 0.006:
            toggle(node)
        elif dice < 0.012:
            cut_any(rig)
        elif dice < 0.016:
            node.refuse = 1
        elif dice < 0.06:
            rig.pass_time(random.choice((0.05, 0.5, 4.0)))
        elif dice < 0.2:
            random.choice(sources).act()
        else:
            rig.step()
    for node in nodes:
        node.refuse = 0
        if node.core is None:
            node.start()
    until_done(rig, sources, nodes, 400)
    rig.run(3)
    check_exact(nodes[0], nodes[3], 1000)
    check_exact(nodes[3], nodes[0], 300)
    assert is_empty(*nodes)


# ------------------------------------------------------------------------------------------------ the trace


def stale(rig: Rig) -> list[Node]:
    """a's way to d is right (by b, who has it from elsewhere soon), b's is stale: back to a."""
    return rig.graph("a-b", "b-d", routes={"a": {"d": "b"}, "b": {"d": "a"}}, d=STRICT)


def test_stale_return() -> None:
    """What comes back is held, does not go round, and goes again once the neighbour's table is another one."""
    rig = Rig()
    a, b, d = nodes = stale(rig)
    rig.run(3)
    send(rig, a, *names(1, 50))
    assert held(a) == 50 and a.queue("@d").messages == 50 and b.queue("@d").messages == 0
    rig.run(20)
    assert b.queue("@d").in_total == 50  # it went once, and rests
    routes = rig.client(a).manage("STATUS", "node")[1]["routes"]
    assert [(route["next_hop"], route["held"]) for route in routes] == [("b", 50)]
    send(rig, a, *names(51, 60))
    reroute(rig, b)  # d is its neighbour
    rig.run(2)
    assert d.bodies("work") == names(1, 60) and is_empty(*nodes) and not held(a)
    traces = {entry.unpack(value).trace for _, value in d.queue("work").read(0, count_max=100, bytes_max=2**30)}
    assert traces == {a.store.uuid.bytes + b.store.uuid.bytes}


def test_what_is_held_holds_nothing_up() -> None:
    rig = Rig()
    a, b, d = nodes = stale(rig)
    rig.run(3)
    send(rig, a, *names(1, 5))
    assert held(a) == 5
    b.core.forwarding.table.clear()  # right again, and nobody says so
    b.core.forwarding.steer("d")
    other = send(rig, a, "6", queue="other")
    assert not other.detached and held(a) == 5 and d.queue("$waiting").messages == 1
    rig.run(RETURN_S[1] + 1)
    assert d.bodies("work") == names(1, 5) and d.bodies("other") == ["6"] and is_empty(*nodes)


def test_a_neighbour_whose_table_changes_all_the_time_is_tried_ever_later() -> None:
    rig = Rig()
    a, b, _ = stale(rig)
    rig.run(3)
    send(rig, a, "1")
    for turn in range(100):
        reroute(rig, b, d="a", **{f"x{turn}": "a"})
        rig.run(1)
    assert held(a) == 1 and 3 < b.queue("@d").in_total < 12


def test_held_over_a_restart_and_a_full_disk() -> None:
    rig = Rig()
    a, b, d = nodes = stale(rig)
    rig.run(3)
    send(rig, a, "1")
    a.crash()
    a.start()
    rig.run(5)  # tried once more
    assert held(a) == 1 and b.queue("@d").in_total == 2
    apart(rig, "a", "b")
    rig.refuse_dials = True
    send(rig, a, "2")
    a.refuse = 2
    rig.refuse_dials = False
    rig.run(5)
    assert held(a) == a.queue("@d").messages == 2
    reroute(rig, b)
    rig.run(5)
    assert d.bodies("work") == ["1", "2"] and is_empty(*nodes)


def test_held_until_the_own_table_changes() -> None:
    rig = Rig()
    a, b, d = nodes = rig.graph("a-b", "a-d", "b-d", routes={"a": {"d": "b"}, "b": {"d": "a"}}, d=STRICT)
    rig.run(3)
    send(rig, a, *names(1, 9))
    assert held(a) == 9
    reroute(rig, a)
    rig.run(2)
    assert d.bodies("work") == names(1, 9) and is_empty(*nodes)
    assert b.queue("@d").in_total == 9


def test_own_origin() -> None:
    """What begins anew at the hub comes home: that it is for here is asked before the trace is."""
    rig = Rig()
    jfk, hub = rig.graph("jfk-hub", jfk=STRICT)
    rig.run(3)
    send(rig, jfk, "1", to="hub", queue="in")
    client = rig.client(hub)  # the internal link of hub: from its queue `in` to work@jfk
    client.receiver("in")
    link = client.sender("work@jfk")
    rig.settle()
    for message in client.messages():
        link.send(message.encode(), context=None)
    client.accept()
    rig.settle()
    assert jfk.bodies("work") == ["1"] and is_empty(jfk, hub)
    item = entry.unpack(jfk.queue("work").read(0, count_max=1, bytes_max=1)[0][1])
    assert item.identity == (hub.store.uuid, 1) and item.trace == hub.store.uuid.bytes


def test_the_destination_takes_what_it_finds_itself_in_the_trace_of() -> None:
    rig = Rig()
    a, b, d = rig.line("a", "b", "d", d=STRICT)
    rig.run(3)
    d.crash()
    send(rig, a, "1")
    queue = b.queue("@d")
    (sequence, value) = queue.read(0, count_max=1, bytes_max=1)[0]
    item = entry.unpack(value)
    b.store._queues[queue.queue_id].values[sequence] = entry.repack(
        item._replace(trace=a.store.uuid.bytes + d.store.uuid.bytes)
    )
    queue.uncache(sequence)
    d.start()
    rig.run(5)
    assert d.bodies("work") == ["1"]


def test_a_full_trace_ends_as_a_dead_letter_and_a_tombstone() -> None:
    rig = Rig()
    a, b, d = nodes = rig.line("a", "b", "d", d=STRICT)
    rig.run(3)
    b.crash()
    send(rig, a, "1", "2")
    queue = a.queue("@d")
    (sequence, value) = queue.read(0, count_max=1, bytes_max=1)[0]
    trace = b"".join(UUID(int=number).bytes for number in range(1, entry.TRACE_MAX))
    a.store._queues[queue.queue_id].values[sequence] = entry.repack(entry.unpack(value)._replace(trace=trace))
    queue.uncache(sequence)
    b.start()
    rig.run(5)
    assert d.bodies("work") == ["2"] and b.bodies("$dead-letters") == ["1"] and is_empty(*nodes)
    assert len([line for line in b.logs if "the trace is full" in line]) == 1


# ------------------------------------------------------------------------------------------------ receipts


def test_receipts_reach_an_origin_three_hops_away() -> None:
    rig = Rig()
    nodes = a, b, c, d = rig.line("a", "b", "c", "d", d=STRICT)
    rig.run(3)
    send(rig, a, *names(1, 40))
    rig.run(5)
    assert a.core.catalog.ledger.receipts["d"] == 40
    pair = (a.store.uuid, "d")
    assert [node.core.catalog.ledger.passing.get(pair) for node in (b, c)] == [40, 40]
    for node in (b, c):  # the way back is learnt anew
        node.crash()
        node.start()
    rig.run(5)
    send(rig, a, *names(41, 50))
    rig.run(5)
    assert a.core.catalog.ledger.receipts["d"] == 50
    d.crash()
    d.store = MemoryStore(mint_from=rig.uuid)
    send(rig, a, *names(51, 60))
    for node in (b, c):
        node.crash()
        node.start()
    d.start()
    rig.run(5)
    assert d.bodies("work") == names(51, 60) and is_empty(*nodes)
    assert d.core.catalog.ledger.origins[a.store.uuid].mark == 60


def test_marks_of_a_message_that_went_round_do_not_go_round() -> None:
    rig = Rig()
    nodes = rig.graph("a-b", "b-c", "c-a", "c-d", routes={"a": {"d": "b"}, "b": {"d": "c"}, "c": {"d": "a"}}, d=STRICT)
    _, b, c, d = nodes
    rig.run(3)
    send(rig, b, *names(1, 10))  # b, c, a, and back to b
    assert held(b) == 10
    reroute(rig, c)
    rig.run(RETURN_S[1] + 5)
    assert d.bodies("work") == names(1, 10) and is_empty(*nodes)
    assert b.core.catalog.ledger.receipts["d"] == 10
    said = {node.name: sum(len(end.inbox) for end in node.ends.values()) for node in nodes}
    assert not any(said.values())


def test_a_restored_origin_hears_of_it_three_hops_away() -> None:
    rig = Rig()
    nodes = a, b, _, d = rig.line("a", "b", "c", "d", d=STRICT)
    rig.run(3)
    send(rig, a, *names(1, 3))
    kept = snapshot(a)
    send(rig, a, *names(4, 6))
    rig.run(5)  # the mark has reached b
    a.crash()
    a.store = kept
    rig.refuse_dials = True
    a.start()
    send(rig, a, *names(7, 12))
    b.crash()
    b.start()
    rig.refuse_dials = False
    rig.run(10)
    assert d.bodies("work") == names(1, 12) and is_empty(*nodes)


def test_a_number_that_comes_back_shows_that_the_own_store_was_restored() -> None:
    """Nobody had told a mark, but a number that we have not given comes back on a stale way."""
    rig = Rig()
    a, b, d = nodes = rig.line("a", "b", "d", d=STRICT)
    kept = snapshot(a)
    rig.run(3)
    d.crash()
    send(rig, a, *names(1, 3))
    a.crash()
    a.store = kept
    old = kept.uuid
    a.start()
    reroute(rig, b, d="a")
    d.start()
    rig.run(3)
    assert a.core.identities.store_uuid != old and held(a) + held(b) == 3
    send(rig, a, "4")
    reroute(rig, b)
    rig.run(3)
    assert sorted(d.bodies("work")) == names(1, 4) and is_empty(*nodes)


# ------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("forwarding", "said"),
    [
        ((("d", "c"),), "invalid value 'c' for route 'd' via; expected the name of a [[neighbour]] (b)"),
        ((("a", "b"),), "route 'a' leads to the node itself"),
        ((("d", "b"), ("d", "b")), "route 'd' is listed twice"),
        ((("$d", "b"),), "name '$d'"),
    ],
)
def test_routes_are_checked(forwarding: tuple[tuple[str, str], ...], said: str) -> None:
    config = NodeConfig(name="a", neighbours=(NeighbourConfig(name="b"),), forwarding=forwarding)
    with pytest.raises(ConfigError) as error:
        config.validate()
    assert said in str(error.value)


def test_a_table_given_while_running_is_checked_too() -> None:
    rig = Rig()
    a, _ = rig.graph("a-b")
    reroute(rig, a, a="b", d="nobody", e="b")
    assert a.core.forwarding.table == {"e": "b"}
    assert len([line for line in a.logs if line.startswith("invalid route to")]) == 2


def test_the_longest_names_can_be_neighbours() -> None:
    rig = Rig()
    one, two = "a" * 200, "b" * 200
    a, b = rig.graph(f"{one}-{two}")
    rig.run(3)
    send(rig, a, "1", to=two)
    assert b.bodies("work") == ["1"] and is_empty(a, b)
