"""Conditions that a person can act on: a line in `status`, one WARNING in the log."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from holdfast.custody.arrival import full_queues
from holdfast.custody.hop.blocked import Blocked
from holdfast.engine import incidents
from holdfast.engine.events import CertificateRead, UsersFileProblem
from holdfast.federation.settings import Entry
from holdfast.links.disk import ROOM_BYTES
from holdfast.management.status import warnings as warnings_module
from holdfast.management.status.condition import Condition
from holdfast.names import HostPort
from holdfast.peers.neighbours import features
from holdfast.settings.hosts import UserConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig
from holdfast.storage.memory import MemoryStore
from holdfast.units import iso8601
from support.hops import apart, names, replaced_disk, reroute, send
from support.rig import Node, Rig
from support.routing import topology


def status(rig: Rig, node: Node) -> dict[str, Any]:
    code, body, _ = rig.client(node).manage("STATUS", "node")
    assert code == 200
    return body


def warned(node: Node, text: str) -> int:
    return sum(text in line for line in node.logs)


def test_a_strict_queue_that_waits_for_a_missing_number() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.run(1)
    jfk.core.catalog.ledger.identities["hub"] = 3
    send(rig, jfk, "3", "4", to="hub")
    rig.run(25)
    store = jfk.core.identities.store_uuid
    wanted = (
        f"queue work: 2 messages wait for numbers 1 to 2 of jfk ({store}); `holdfast queue skip work` gives them up"
    )
    assert status(rig, hub)["warnings"] == [wanted]
    rig.run(100)
    assert warned(hub, wanted) == 1
    rig.client(hub).manage("SKIP", "queue", "work")
    rig.run(1)
    assert status(rig, hub)["warnings"] == []


def test_a_refused_login_is_said_where_the_password_is() -> None:
    rig = Rig()
    hub = rig.node(
        "hub",
        neighbours=(NeighbourConfig(name="jfk", user="from-jfk"),),
        users=(UserConfig(name="from-jfk", password="right"),),
    )
    jfk = rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="h:1", user="from-jfk", password="wrong"),))
    rig.run(60)
    (line,) = status(rig, jfk)["warnings"]
    assert line.startswith("neighbour hub (h:1): no session: ") and line.endswith(": wrong user or password")
    assert warned(jfk, "neighbour hub (h:1): no session") == 1
    assert warned(hub, "the login failed")


def test_a_neighbour_that_nobody_answers_for() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    assert status(rig, jfk)["warnings"] == []
    hub.crash()
    rig.run(60)
    assert status(rig, jfk)["warnings"] == ["neighbour hub (127.0.0.1:1): no session: nobody there"]
    hub.start()
    rig.run(20)
    assert status(rig, jfk)["warnings"] == []
    assert warned(jfk, "no session") == 1


def test_a_neighbour_that_dials_and_has_not_come_is_said_where_it_is_awaited() -> None:
    """The side that listens can do nothing but say so: once for an absence, until it comes."""
    rig = Rig()
    jfk, hub = rig.pair(start=False)
    hub.start()
    rig.run(warnings_module.AWAY_S - 1)
    assert status(rig, hub)["warnings"] == []
    rig.run(30)
    wanted = "neighbour jfk: it has not connected since this node started; it should connect to this node: check"
    (line,) = status(rig, hub)["warnings"]
    assert line.startswith(wanted) and warned(hub, wanted) == 1
    rig.run(600)
    assert warned(hub, wanted) == 1 and not warned(hub, "its session is up again")
    jfk.start()
    rig.run(20)
    assert status(rig, hub)["warnings"] == [] and warned(hub, "neighbour jfk: its session is up again") == 1

    jfk.crash()
    rig.run(warnings_module.AWAY_S - 1)
    assert status(rig, hub)["warnings"] == []
    rig.run(30)
    (line,) = status(rig, hub)["warnings"]
    assert line.startswith("neighbour jfk: away since 20") and "(cut); it should connect to this node" in line
    assert warned(hub, "neighbour jfk: away since") == 1
    jfk.start()
    rig.run(20)
    assert status(rig, hub)["warnings"] == [] and warned(hub, "neighbour jfk: its session is up again") == 2


def test_a_neighbour_that_comes_and_goes_is_not_away() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    for _ in range(8):
        rig.run(warnings_module.AWAY_S / 3)
        jfk.crash()
        rig.run(warnings_module.AWAY_S / 3)
        assert status(rig, hub)["warnings"] == []
        jfk.start()
    assert not warned(hub, "away since") and not warned(hub, "has not connected")


@pytest.mark.parametrize("more", [0, 1])
def test_of_many_neighbours_that_are_away_some_are_named_and_the_others_counted(more: int) -> None:
    """They leave room for other warnings."""
    count = warnings_module.AWAY_MAX + more
    rig = Rig()
    hub = rig.node("hub", neighbours=tuple(NeighbourConfig(name=f"n{number:03}") for number in range(count)))
    rig.run(warnings_module.AWAY_S)
    hub.core.room.bytes = 0
    found = status(rig, hub)["warnings"]
    assert sum("has not connected" in line for line in found) == warnings_module.AWAY_MAX
    assert [line for line in found if "more neighbours" in line] == more * [
        "1 more neighbours that dial this node are away: see sessions"
    ]
    assert any("the disk is full" in line for line in found)


def test_two_stores_under_one_name() -> None:
    """A copied configuration: two nodes call themselves jfk, and dial the hub by turns."""
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    other = MemoryStore(mint_from=rig.uuid)
    for _ in range(2):
        jfk.crash()
        jfk.store, other = other, jfk.store
        jfk.start()
        rig.run(3)
    assert len(status(rig, hub)["warnings"]) == 1
    before_ms, at = rig.wall_ms, "two nodes with different stores use this name, last at "
    rig.run(30)
    assert warned(hub, at) == 1
    (line,) = status(rig, hub)["warnings"]
    assert iso8601(before_ms - 3_000) <= line.partition(at)[2][:24] <= iso8601(before_ms), line
    rig.run(600)
    assert status(rig, hub)["warnings"] == []


def test_two_nodes_with_one_name_at_the_same_time() -> None:
    """One of them has the session, and the other is refused at each try: both sides say why."""
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    to_hub = NeighbourConfig(name="hub", remote="127.0.0.1:1")
    other = rig.nodes["other"] = Node(rig, NodeConfig(name="jfk", neighbours=(to_hub,)))
    other.start()
    rig.run(30)
    sessions = [node.core.neighbours["hub"].established for node in (jfk, other)]
    assert sorted(sessions) == [False, True]
    loser = jfk if sessions[1] else other
    (line,) = status(rig, hub)["warnings"]
    assert line.startswith("neighbour jfk: two nodes with different stores use this name, last at ")
    (line,) = status(rig, loser)["warnings"]
    assert "another node named 'jfk', with another store, has a session already" in line
    other.crash()
    rig.run(620)
    assert status(rig, hub)["warnings"] == []


def test_the_first_of_two_nodes_with_one_name_keeps_its_session() -> None:
    """However new the dials of the second are: what is for the first goes to it alone."""
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(5)
    to_hub = NeighbourConfig(name="hub", remote="127.0.0.1:1")
    other = rig.nodes["other"] = Node(rig, NodeConfig(name="jfk", neighbours=(to_hub,)))
    other.start()
    for _ in range(30):
        rig.run(1)
        assert jfk.core is not None and other.core is not None and hub.core is not None
        assert jfk.core.neighbours["hub"].established and not other.core.neighbours["hub"].established
    assert hub.core.catalog.ledger.neighbour_stores["jfk"] == jfk.store.uuid
    jfk.crash()
    rig.run(10)
    assert other.core.neighbours["hub"].established


def test_a_node_that_comes_back_with_a_new_store_is_not_two() -> None:
    """Its old session is not known to be over yet, and it is refused meanwhile: that is no second node."""
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    for end in list(jfk.ends.values()):
        end.wire.silent = True
    jfk.core = None
    jfk.ends.clear()
    jfk.store = MemoryStore(mint_from=rig.uuid)
    jfk.start()
    rig.run(30)
    assert hub.core.neighbours["jfk"].established and status(rig, hub)["warnings"] == []


def test_a_link_that_one_sides_topology_has() -> None:
    rig = Rig()
    whole, part = topology("a-b", "b-c"), topology("b-c", "c-a")
    a = rig.node("a", topology=whole, neighbours=(NeighbourConfig(name="b", remote="127.0.0.1:1"),))
    b = rig.node("b", topology=part, neighbours=(NeighbourConfig(name="a"),))
    rig.run(30)
    (line,) = status(rig, a)["warnings"]
    assert line.startswith("neighbour b: its topology file has no link to this node")
    (line,) = status(rig, b)["warnings"]
    assert line.startswith("neighbour a: its session is up, but this node's topology file has no link to it")
    assert warned(a, "no link to this node") == warned(b, "no link to it") == 1


def test_a_full_disk() -> None:
    rig = Rig()
    node = rig.node("hub")
    node.core.room.bytes = 0
    (line,) = (condition.text for condition in node.core.warnings.all())
    assert line.startswith("the disk is full")


def test_a_full_disk_has_its_warning_as_long_as_its_state() -> None:
    """What is gathered and not on disk yet has taken its room already."""
    rig = Rig()
    core = rig.node("hub").core
    core.room.bytes = ROOM_BYTES
    assert core.disk.status()["state"] == "ok" and not core.warnings.all()
    core.work.batch.bytes_appended += 1
    assert core.disk.status()["state"] == "full"
    (key,) = (condition.key for condition in core.warnings.all())
    assert key == "disk"


def test_what_was_on_a_disk_that_is_gone_is_listed() -> None:
    """GUARANTEES: by origin and numbers, in status and telemetry."""
    rig, jfk, hub = replaced_disk()
    assert hub.bodies("work") == names(5, 6)
    (loss,) = status(rig, hub)["losses"]
    assert (loss["origin"], loss["first"], loss["last"]) == (str(jfk.core.identities.store_uuid), 1, 4)
    (record,) = [fields for kind, fields in hub.records if kind == "loss"]
    assert record == {key: loss[key] for key in ("origin", "first", "last", "reason")}


def test_a_condition_is_logged_at_its_second_look_and_anew_when_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    hub = rig.node("hub")
    warnings = hub.core.warnings
    found: list[Condition] = []
    monkeypatch.setattr(warnings, "all", lambda: found)
    said = []
    for there in (True, True, True, False, True, True):
        found[:] = [Condition("disk", "it is so")] * there
        rig.run(warnings_module.LOOK_S)
        said.append(warned(hub, "it is so"))
    assert said == [0, 1, 1, 1, 1, 2]


def test_a_node_that_is_not_listed_is_told_at_both_ends_what_to_add() -> None:
    rig = Rig()
    hub = rig.node("hub")
    jfk = rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="h:1"),))
    rig.run(30)
    cure = """it is not listed at 'hub': add [[neighbour]] name = "jfk" there"""
    (line,) = status(rig, hub)["warnings"]
    assert line.startswith("a node 'jfk' at ") and line.endswith(f" tried to be a neighbour; {cure}")
    assert warned(hub, "tried to be a neighbour") == 1
    (line,) = status(rig, jfk)["warnings"]
    assert line.startswith("neighbour hub (h:1): no session: ") and cure in line
    jfk.crash()
    rig.run(incidents.CONTESTED_S + 10)
    assert status(rig, hub)["warnings"] == []


@pytest.mark.parametrize(
    ("addresses", "links", "cure"),
    [
        (
            (),
            "a-hub",
            """[[node]] name = "jfk" and [[link]] from = "jfk" to = "hub" there, """
            """[[neighbour]] name = "jfk" to the file of 'hub', and reload 'hub'""",
        ),
        (("hub",), "a-hub", """[[node]] name = "jfk" and [[link]] from = "jfk" to = "hub" there"""),
        (("hub",), "a-hub a-jfk", """[[link]] from = "jfk" to = "hub" there"""),
        ((), "a-hub jfk-hub", """[[neighbour]] name = "jfk" there"""),
    ],
)
def test_where_a_topology_is_it_has_to_join_the_two(addresses: tuple[str, ...], links: str, cure: str) -> None:
    """A [[neighbour]] that the topology does not join ends the node at its next start."""
    whole = topology(*links.split())
    nodes = tuple(replace(node, address=HostPort("h", 1) if node.name in addresses else None) for node in whole.nodes)
    rig = Rig()
    hub = rig.node("hub", topology=replace(whole, nodes=nodes))
    jfk = rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="h:1"),))
    rig.run(30)
    for node in (hub, jfk):
        (line,) = status(rig, node)["warnings"]
        assert cure in line, line
    joined = "jfk-hub" in links
    assert ("the topology of 'hub' has no link between the two: add " in line) is not joined
    assert ("reload 'hub'" in line) is not joined


def test_a_node_that_logs_in_as_another_user_than_is_expected() -> None:
    rig = Rig()
    hub = rig.node("hub", neighbours=(NeighbourConfig(name="jfk"),), users=(UserConfig(name="app", password="x"),))
    jfk = rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="h:1", user="app", password="x"),))
    rig.run(30)
    cure = (
        """it did not log in as 'hub' expects it to: compare user and password with [[neighbour]] name = "jfk" there"""
    )
    client = rig.client(hub, mechanism="PLAIN", user="app", password="x")
    (line,) = client.manage("STATUS", "node")[1]["warnings"]
    assert cure in line
    (line,) = status(rig, jfk)["warnings"]
    assert cure in line


def test_a_node_that_has_this_ones_name() -> None:
    """What dials says whom it takes us for, and hears that the name is ours."""
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub, container_id="hub", offered_capabilities=(features.CUSTODY,))
    client.sender("$holdfast/control")
    rig.settle()
    (line,) = status(rig, hub)["warnings"]
    assert line.endswith("both nodes are called 'hub': give one of them another name")


def test_nodes_that_are_not_listed_are_bounded_in_number_and_in_the_log() -> None:
    rig = Rig()
    hub = rig.node("hub")
    for number in range(3 * incidents.STRANGERS_MAX):
        client = rig.client(hub, container_id=f"node{number:03}" + 200 * "x", offered_capabilities=(features.CUSTODY,))
        client.sender("$holdfast/control")
        rig.settle()
        assert client.detached[-1].error is not None
    found = status(rig, hub)["warnings"]
    assert len(found) == incidents.STRANGERS_MAX and "node059" in found[-1] and len(found[-1]) < 500
    rig.run(60)
    assert warned(hub, "tried to be a neighbour") <= hub.core.config.limits.log_lines_per_minute


def test_a_client_that_attaches_to_a_neighbours_address_is_no_matter_for_an_operator() -> None:
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    client.sender("$holdfast/control")
    rig.settle()
    assert client.detached[-1].error is not None
    assert status(rig, hub)["warnings"] == []


FULL = QueueConfig(name="work", messages_max=3)


def test_a_full_queue_that_other_nodes_wait_for() -> None:
    """Said at the node that has no room, once it has lasted, and over with the first place in the queue."""
    rig = Rig()
    a, b, c = rig.line("a", "b", "c", c={"queues": (FULL,)})
    rig.run(3)
    send(rig, a, *names(1, 20), to="c")
    rig.run(warnings_module.FULL_S - 1)
    assert status(rig, c)["warnings"] == []
    rig.run(30)
    (line,) = status(rig, c)["warnings"]
    size = c.queue("work").bytes_held
    waits = "17 messages from b wait for room, or behind others that do; take messages out of it"
    wanted = f"queue work: full (3 messages, {size} bytes): {waits}"
    assert line.startswith(wanted)
    assert warned(c, wanted) == 1 and status(rig, a)["warnings"] == status(rig, b)["warnings"] == []
    rig.run(200)
    assert warned(c, wanted) == 1
    client = rig.client(c)
    link = client.receiver("work")
    rig.settle()
    while client.accept(link=link):
        rig.settle()
    assert status(rig, c)["warnings"] == []
    rig.run(30)
    assert not c.core.destination.full.by_key


def test_a_queue_that_had_room_in_between_is_full_since_then() -> None:
    """Between two looks a consumer took all, and it filled again: nobody waited for so long."""
    rig = Rig()
    a, c = rig.graph("a-c", c={"queues": (FULL,)})
    rig.run(warnings_module.LOOK_S / 2)
    send(rig, a, *names(1, 4), to="c")
    since = c.core.destination.full.by_key["work"].since
    rig.run(1)
    client = rig.client(c)
    link = client.receiver("work", credit=3)
    rig.settle()
    assert client.accept(link=link) == names(1, 3)
    rig.settle()
    assert not c.core.destination.full.by_key
    send(rig, a, *names(5, 8), to="c")
    assert c.core.destination.full.is_full("work") and c.core.destination.full.by_key["work"].since > since
    rig.run(since + warnings_module.FULL_S + 0.5 - rig.now)
    assert status(rig, c)["warnings"] == []
    rig.run(1)
    assert len(status(rig, c)["warnings"]) == 1


def test_a_queue_that_is_full_for_what_lies_here_already() -> None:
    rig = Rig()
    a, c = rig.graph("a-c", c={"queues": (QueueConfig(name="work", messages_max=3, order="strict"),)})
    rig.run(1)
    a.core.catalog.ledger.identities["c"] = 2
    send(rig, a, *names(2, 9), to="c")
    rig.run(1)
    rig.client(c).manage("SKIP", "queue", "work")
    rig.run(60)
    (line,) = status(rig, c)["warnings"]
    assert "1 origins have messages in $waiting for it" in line and line.startswith("queue work: full (3 messages")


def test_a_full_queue_whose_neighbour_is_gone_is_no_warning() -> None:
    rig = Rig()
    a, c = rig.graph("a-c", c={"queues": (FULL,)})
    rig.run(1)
    send(rig, a, *names(1, 20), to="c")
    a.crash()
    rig.run(60)
    assert "full" not in str(status(rig, c)["warnings"])


def test_full_queues_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_queues, "FULL_QUEUES_MAX", 2)
    rig = Rig()
    queues = tuple(QueueConfig(name=name, messages_max=1) for name in ("one", "two", "three"))
    nodes = rig.graph("a-c", "b-c", "d-c", c={"queues": queues})
    a, c = nodes[0], nodes[1]
    rig.run(1)
    for node, queue in zip([a, *nodes[2:]], ("one", "two", "three"), strict=True):
        send(rig, node, *names(1, 3), to="c", queue=queue)
    rig.run(30)
    assert sorted(c.core.destination.full.by_key) == ["one", "two"]
    assert len(status(rig, c)["warnings"]) == 2


def test_a_neighbour_that_takes_nothing_for_a_destination() -> None:
    """Its routes lack the node: who sends there says so as long as something waits, and the neighbour takes nothing."""
    rig = Rig()
    a, b, c = rig.graph("a-b", "b-c", routes={"a": {"d": "b"}})
    rig.run(3)
    assert status(rig, a)["warnings"] == []  # nothing waits
    send(rig, a, "1", "2", to="d")
    rig.run(30)
    (line,) = status(rig, a)["warnings"]
    why = "amqp:not-found: 'b' has no route to 'd'"
    assert line == f"neighbour b: it takes nothing for 'd', 2 messages wait: {why}; compare the routes of both nodes"
    assert warned(a, line) == 1
    reroute(rig, b, d="c")
    rig.run(30)
    assert status(rig, a)["warnings"] == []
    (line,) = status(rig, b)["warnings"]
    assert "neighbour c: it takes nothing for 'd', 2 messages wait" in line and c.core
    apart(rig, "b", "c")
    rig.run(30)
    assert len(status(rig, b)["warnings"]) == 1


def test_of_many_origins_that_one_neighbour_has_no_place_for_some_are_named() -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(3)
    core = jfk.core
    assert core is not None
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    client.send(link, "1")
    rig.run(1)
    sender = core.next_hops["hub"].senders["hub"]
    for number in range(warnings_module.BLOCKED_MAX + 3):
        sender.blocked[UUID(int=number)] = Blocked(rig.now + 1e6, 7, rig.now - warnings_module.BLOCKED_S)
    told = [line for line in status(rig, jfk)["warnings"] if "it has no place for number 7" in line]
    assert len(told) == warnings_module.BLOCKED_MAX


def test_bindings_that_are_too_many_to_be_taken() -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(1)
    jfk.core.bindings.add(Entry("flights", "hub"))
    following = jfk.core.bindings.federation.following
    following._bounds = replace(following._bounds, origins_max=0)
    rig.run(25)
    (line,) = status(rig, jfk)["warnings"]
    assert line.startswith("1 sets of bindings") and warned(jfk, line) == 1


# ---------------------------------------------------------------------------------------------- its own certificate


@pytest.mark.parametrize(
    ("days", "left_days", "said"),
    [
        (365, 15, ""), (365, 13, "expires soon; it is valid until"), (365, -1, "has expired: others refuse"),
        (8, 3, ""), (8, 1.5, "expires soon; it is valid until"),
    ],
)  # fmt: skip
def test_a_node_warns_before_its_own_certificate_expires(days: float, left_days: float, said: str) -> None:
    rig = Rig()
    node = rig.node("hub")
    ends_ms = rig.wall_ms + int(left_days * 86_400_000)
    node.handle(CertificateRead(begins_ms=ends_ms - int(days * 86_400_000), ends_ms=ends_ms))
    rig.run(30)
    told = [line for line in status(rig, node)["warnings"] if "this node's certificate" in line]
    assert [said in line and "put a new one into the file" in line for line in told] == ([True] if said else [])
    assert warned(node, "tls certificate_file: this node's certificate") == len(told)
    node.handle(CertificateRead())
    assert status(rig, node)["warnings"] == []


def test_a_node_warns_while_its_own_certificate_is_not_valid_yet() -> None:
    rig = Rig()
    node = rig.node("hub")
    node.handle(CertificateRead(begins_ms=rig.wall_ms + 60_000, ends_ms=rig.wall_ms + 10**12))
    (told,) = status(rig, node)["warnings"]
    assert told.startswith("tls certificate_file: this node's certificate is not valid yet: others refuse connections")
    rig.run(61)
    assert status(rig, node)["warnings"] == []


def test_a_node_warns_of_files_of_tls_that_it_cannot_use() -> None:
    """Also while the certificate that it uses has expired: which is both to be done."""
    rig = Rig()
    node = rig.node("hub")
    problem = "tls key_file k.pem is not the key of certificate_file c.pem; give the two that belong together"
    node.handle(CertificateRead(begins_ms=0, ends_ms=rig.wall_ms - 1, problem=problem))
    rig.run(30)
    told = status(rig, node)["warnings"]
    assert [line.partition(";")[0] for line in told] == [
        "tls key_file k.pem is not the key of certificate_file c.pem",
        "tls certificate_file: this node's certificate has expired: others refuse connections over TLS",
    ]
    assert told[0].endswith("; the previous certificates are used until the files are corrected")
    assert warned(node, problem) == 1
    node.handle(CertificateRead(begins_ms=0, ends_ms=rig.wall_ms + 10**12))
    assert status(rig, node)["warnings"] == []


def test_a_node_warns_of_a_file_of_users_that_it_cannot_use() -> None:
    rig = Rig()
    node = rig.node("hub")
    problem = "users_file 'users.json' may be read by others (mode 0644); make it private: chmod 600"
    node.handle(UsersFileProblem(problem=problem))
    assert warned(node, problem) == 1
    rig.run(30)
    assert status(rig, node)["warnings"] == [f"{problem}; the previous users are kept"] and warned(node, problem) == 1
    node.handle(UsersFileProblem(problem=""))
    assert status(rig, node)["warnings"] == []
