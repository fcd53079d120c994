"""Another way: tables that change while numbers are in doubt, and nodes and disks that are full on the way."""

import pytest

from holdfast.broker.cursors.cursor import PUMP_BYTES
from holdfast.engine import events
from holdfast.settings.limits import Limits
from holdfast.storage.memory import MemoryStore
from support import today
from support.hops import (
    STRICT,
    Source,
    apart,
    check_exact,
    cut_any,
    diamond,
    held,
    is_empty,
    names,
    reroute,
    send,
    toggle,
    until_done,
)
from support.rig import Node, Rig


def test_low_water() -> None:
    """5 sleeps at a dark node while 6 travels another way: it is waited for, and nothing moves the mark past it."""
    rig = Rig()
    a, b, c, d = nodes = diamond(rig)
    rig.run(3)
    send(rig, a, *names(1, 4))
    apart(rig, "b", "d")
    d_of_b = b.core.neighbours["d"]
    d_of_b.dial_at = None
    send(rig, a, "5")
    assert b.queue("@d").messages == 1 and a.queue("@d").messages == 0
    b.crash()
    reroute(rig, a, d="c")
    send(rig, a, "6")
    rig.run(500)
    assert is_empty(a, c) and d.bodies("work") == names(1, 4) and d.bodies("$waiting") == ["6"]
    assert d.core.catalog.ledger.origins[a.store.uuid].mark == 4
    assert a.core.catalog.ledger.receipts["d"] == 4
    d.crash()
    d.start()
    rig.run(100)  # nor does a restart of the destination give it up
    assert d.bodies("work") == names(1, 4)
    b.start()
    rig.run(5)
    assert d.bodies("work") == names(1, 6) and is_empty(*nodes) and not d.core.losses


@pytest.mark.parametrize("stored", [False, True])
def test_rerouted_while_in_doubt(stored: bool) -> None:
    """The old neighbour falls silent with numbers in doubt; its copies come late, and are known as copies."""
    rig = Rig()
    a, b, c, d = nodes = diamond(rig)
    rig.run(3)
    send(rig, a, "1")
    b.hold_commits = True
    send(rig, a, *names(2, 20))
    if stored:
        commit = b.pending
        assert commit is not None
        b.store.commit(commit.batch)  # on disk, and not answered
        b.remember(commit.batch)
    apart(rig, "b", "d", silent=True)
    apart(rig, "a", "b", silent=True)
    reroute(rig, a, d="c")
    send(rig, a, *names(21, 30))
    assert d.bodies("work") == names(1, 30) and is_empty(a, c, d)
    b.crash()
    b.hold_commits = False
    b.start()
    rig.run(10)
    assert d.bodies("work") == names(1, 30) and is_empty(*nodes)
    assert d.core.catalog.ledger.origins[a.store.uuid].duplicates in ((19, 20) if stored else (0, 1))


def test_an_answer_of_the_old_way_still_retires() -> None:
    """Accepted there is stored there: it leaves, though it was given to the new way meanwhile; it leaves once."""
    rig = Rig()
    a, b, c, d = nodes = diamond(rig)
    rig.run(3)
    reroute(rig, a, d="c")
    send(rig, a, "1")
    reroute(rig, a, d="b")
    send(rig, a, "2")
    b.hold_commits = c.hold_commits = True
    send(rig, a, *names(3, 20))
    reroute(rig, a, d="c")
    assert len(a.core.next_hops["c"].senders["d"].in_doubt) == 18
    send(rig, a, *names(21, 25))
    b.hold_commits = False
    rig.settle()
    assert d.bodies("work") == names(1, 20) and a.queue("@d").messages == 5
    c.hold_commits = False
    rig.settle()
    assert d.bodies("work") == names(1, 25) and is_empty(*nodes)
    assert d.core.catalog.ledger.origins[a.store.uuid].duplicates == 18
    a.crash()
    a.start()
    rig.run(3)
    assert a.queue("@d").messages == 0 and is_empty(*nodes)


def test_an_answer_of_the_old_way_retires_what_waits_for_the_new() -> None:
    rig = Rig()
    a, b, c, d = nodes = diamond(rig)
    rig.run(3)
    send(rig, a, "1")
    b.hold_commits = True
    send(rig, a, *names(2, 20))
    c.crash()
    reroute(rig, a, d="c")
    b.hold_commits = False
    rig.run(1)
    assert a.queue("@d").messages == a.queue("@d").bytes_held == 0
    c.start()
    send(rig, a, "21")
    rig.run(5)
    assert d.bodies("work") == names(1, 21) and is_empty(*nodes)
    assert not d.core.catalog.ledger.origins[a.store.uuid].duplicates


def test_to_and_fro_while_in_doubt() -> None:
    rig = Rig()
    a, b, c, d = nodes = diamond(rig)
    rig.run(3)
    b.hold_commits = c.hold_commits = True
    for turn in range(6):
        send(rig, a, *names(turn * 10 + 1, turn * 10 + 10))
        reroute(rig, a, d="bc"[turn % 2])
    c.hold_commits = False
    rig.run(2)
    b.hold_commits = False
    rig.run(5)
    assert d.bodies("work") == names(1, 60) and is_empty(*nodes) and a.queue("@d").bytes_held == 0


@pytest.mark.parametrize("seed", today.some(range(8), 2))
def test_rerouted_at_random(seed: int) -> None:
    """Tables change under way at every node, rightly and wrongly, while nodes in between crash and wires break."""
    rig = Rig(seed + 77)
    a, b, c, d = nodes = diamond(rig, a=STRICT | {"limits": Limits(ranges_max=(1024, 2)[seed % 2])})
    random = rig.random
    sources = [Source(rig, a, "d", 600), Source(rig, d, "a", 300)]
    for _ in range(3000):
        dice = random.random()
        node = random.choice([b, c])
        if dice < 0.004:
            toggle(node)
        elif dice < 0.008:
            cut_any(rig)
        elif dice < 0.02:
            random.choice([a, d]).handle(
                events.ForwardingChanged(table={"d": random.choice("bc"), "a": random.choice("bc")})
            )
        elif dice < 0.026:
            node.handle(events.ForwardingChanged(table=random.choice([{}, {"d": "a"}, {"a": "d"}])))
        elif dice < 0.07:
            rig.pass_time(random.choice((0.05, 0.5, 4.0)))
        elif dice < 0.2:
            random.choice(sources).act()
        else:
            rig.step()
    for node in (b, c):
        if node.core is None:
            node.start()
        node.handle(events.ForwardingChanged(table={}))
    until_done(rig, sources, nodes, 600)
    check_exact(a, d, 600)
    check_exact(d, a, 300)
    assert is_empty(*nodes)
    for node in nodes:
        assert all(not queue.bytes_held for name, queue in node.core.catalog.queues.items() if name.startswith("@"))


def test_what_comes_back_where_the_way_has_changed_goes_on_at_once() -> None:
    rig = Rig()
    a, b, c, d = nodes = rig.graph(
        "a-b", "b-c", "a-d", "d-c", routes={"a": {"c": "b"}, "b": {"c": "c"}, "d": {"c": "c"}}, c=STRICT
    )
    rig.run(3)
    c.crash()
    send(rig, a, "1", "2", to="c")
    assert b.queue("@c").messages == 2
    reroute(rig, a, c="d")
    reroute(rig, b, c="a")  # hands back what it has
    assert held(a, "c") == 0 and d.queue("@c").messages == 2
    c.start()
    rig.run(5)
    assert c.bodies("work") == ["1", "2"] and is_empty(*nodes)


def test_a_table_that_changes_while_the_node_stops_is_borne() -> None:
    rig = Rig()
    a, _, _ = rig.line("a", "b", "d")
    rig.run(3)
    reroute(rig, a, d="b", x="b")
    send(rig, a, "1", to="x")  # b knows no way to x and refuses the link
    rig.run(0.5)
    a.handle(events.Stopping())
    a.handle(events.ForwardingChanged(table={}))
    a.handle(events.ForwardingChanged(table={"x": "b"}))
    rig.run(3)
    assert a.stopped


# ------------------------------------------------------------------------------------------------ full


def test_strict_full() -> None:
    """The missing number is behind the same full link, one hop before the destination: it gets through."""
    rig = Rig()
    nodes = rig.line("a", "b", "d", d={"queues": STRICT["queues"], "limits": Limits(ranges_max=2)})
    a, b, d = nodes
    rig.run(3)
    d.crash()
    a.core.catalog.ledger.identities["d"] = 2  # 1 sleeps elsewhere
    send(rig, a, *names(2, 2500))
    a.core.catalog.ledger.identities["d"] = 1
    send(rig, a, "1")
    assert b.queue("@d").messages == 2500
    d.start()
    rig.run(30)
    assert d.bodies("work") == names(1, 2500) and is_empty(*nodes)
    assert not d.core.losses


def test_an_origin_whose_number_is_missing_holds_up_no_other() -> None:
    """So much of one origin waits that no more is taken: others use the same link, for days if need be."""
    rig = Rig()
    limited = {"queues": STRICT["queues"], "limits": Limits(ranges_max=2)}
    a, b, c, d = nodes = rig.graph("a-b", "c-b", "b-d", routes={"a": {"d": "b"}, "c": {"d": "b"}}, d=limited)
    rig.run(3)
    a.core.catalog.ledger.identities["d"] = 2  # 1 sleeps elsewhere
    send(rig, a, *names(2, 200))
    rig.run(10)
    send(rig, c, *[f"c{number}" for number in range(1, 100)])
    rig.run(100)
    assert d.bodies("work") == [f"c{number}" for number in range(1, 100)]
    assert b.queue("@d").messages == 200 - 1 - 32
    b.crash()
    b.start()
    rig.run(3)
    send(rig, c, *[f"c{number}" for number in range(100, 200)])
    rig.run(40)
    assert d.bodies("work") == [f"c{number}" for number in range(1, 200)]
    a.core.catalog.ledger.identities["d"] = 1
    send(rig, a, "1")
    rig.run(3)
    assert d.bodies("work")[199:] == names(1, 200) and is_empty(*nodes)


def fill(rig: Rig, node: Node, to: str, body: str) -> int:
    """Sends until the node refuses; returns how many it took."""
    client = rig.client(node)
    link = client.sender(f"work@{to}")
    rig.settle()
    taken = 0
    while True:
        while link.sendable and len(link.unsettled) < 20:
            client.send(link, f"{node.name}-{taken + len(link.unsettled) + 1} {body}")
        rig.settle()
        states = [type(state).__name__ for _, state in client.outcomes]
        client.outcomes.clear()
        taken += states.count("Accepted")
        if "Rejected" in states or not states:
            client.close_transport()
            return taken


@pytest.fixture
def small_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept aside is an eighth of what it is, so that disks can be as small."""
    for name in ("state.room.FORWARDING_BYTES", "custody.forwarding.RESERVE_BYTES"):
        monkeypatch.setattr(f"holdfast.{name}", 128 * 1024)
    monkeypatch.setattr("holdfast.custody.forwarding.ROOM_BYTES", 32 * 1024)
    monkeypatch.setattr("holdfast.links.disk.ROOM_BYTES", 512)  # clients may fill it to the last message


@pytest.mark.usefixtures("small_disks")
def test_full_neighbours() -> None:
    """Two nodes in the middle at their disks' bound, each full of what must pass the other: both flow on."""
    rig = Rig()
    a, b, c, d = nodes = rig.line("a", "b", "c", "d", a=STRICT, d=STRICT)
    for node in (b, c):
        node.store = MemoryStore(bytes_max=4 * 2**20, mint_from=rig.uuid)
    for node in nodes:
        node.crash()
    b.start()
    from_b = fill(rig, b, "d", "x" * 3_750)
    b.crash()
    c.start()
    from_c = fill(rig, c, "a", "x" * 3_750)
    assert min(from_b, from_c) > 300
    more = [f"{number} {'x' * 3_750}" for number in range(200)]
    d.start()
    send(rig, d, *more, to="a")  # would fill what c keeps for forwarding
    rig.run(5)
    c.crash()
    a.start()
    b.start()
    send(rig, a, *more)
    rig.run(5)
    assert a.queue("@d").messages == d.queue("@a").messages == 200  # the way through is kept free of it
    assert max(b.core.room.bytes, c.store.room_bytes()) < 3_750
    c.start()
    rig.run(200)
    assert len(d.bodies("work")) == from_b + 200 and len(a.bodies("work")) == from_c + 200 and is_empty(*nodes)
    assert all("$dead-letters" not in node.core.catalog.queues for node in nodes)


@pytest.mark.usefixtures("small_disks")
def test_a_full_node_in_between_withholds_credit() -> None:
    rig = Rig()
    a, b, d = nodes = rig.line("a", "b", "d", d=STRICT)
    b.crash()
    b.store = MemoryStore(bytes_max=2 * 2**20, mint_from=rig.uuid)
    b.start()
    rig.run(3)
    d.crash()
    send(rig, a, *[f"{number} {'x' * 3_750}" for number in range(1, 701)])
    rig.run(10)
    assert 0 < b.queue("@d").messages < 600 and a.queue("@d").messages + b.queue("@d").messages == 700
    assert not any("the disk is full" in line for line in b.logs)
    d.start()
    rig.run(30)
    assert [body.split()[0] for body in d.bodies("work")] == names(1, 700) and is_empty(*nodes)


def test_what_is_tried_again_is_a_turns_bytes_at_a_time() -> None:
    """However many numbers the window allows, and not into a socket that takes nothing."""
    rig = Rig()
    a, c = rig.graph("a-c", c={"queues": STRICT["queues"], "limits": Limits(ranges_max=1)})
    rig.run(3)
    a.core.catalog.ledger.identities["c"] = 2  # 1 sleeps elsewhere
    send(rig, a, *[f"{number} {'x' * 200_000}" for number in range(60)], to="c")
    rig.run(3)
    sender = a.core.next_hops["c"].senders["c"]
    while not sender.open:  # each try that is refused ends its link
        rig.run(0.1)
    (blocked,) = sender.blocked.values()
    aside, in_doubt = len(blocked.aside), len(sender.in_doubt)
    assert aside > 30
    for writable in (False, True):
        blocked.window, blocked.due, blocked.probe = 1_000, rig.now, None
        sender.peer.writable = writable
        sender.tick(rig.now)
        sent = 200_000 * (aside - len(blocked.aside))
        assert PUMP_BYTES <= sent <= PUMP_BYTES + 200_000 if writable else not sent
    assert len(sender.in_doubt) - in_doubt == aside - len(blocked.aside)
    assert blocked.probe in sender.in_doubt.values()
    a.checks = False  # the number below is given again
    a.core.catalog.ledger.identities["c"] = 1
    send(rig, a, "1", to="c")
    rig.run(60)
    assert is_empty(a, c) and len(c.bodies("work")) == 61
