"""The histories of CUSTODY.md that one hop can show, each by its name."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Header, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.custody.hop.links import hop_key
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.storage.memory import MemoryStore
from support.hops import names, snapshot
from support.rig import Client, Node, Rig


def send(rig: Rig, node: Node, *bodies: str, address: str = "work@hub", **parts: Any) -> Client:
    client = rig.client(node)
    link = client.sender(address)
    rig.settle()
    for body in bodies:
        client.send(link, body, **parts)
    rig.settle()
    return client


def joined(rig: Rig) -> None:
    rig.run(8)
    assert rig.between("jfk", "hub")


def cut(rig: Rig, *, silent: bool = False) -> None:
    for wire in rig.between("jfk", "hub"):
        wire.cut(silent=silent)


def together(order: str = "strict", **hub: Any) -> tuple[Rig, Node, Node]:
    rig = Rig()
    jfk, node = rig.pair(queues=(QueueConfig(name="work", order=order),), **hub)
    joined(rig)
    return rig, jfk, node


def test_restored_backup() -> None:
    rig, jfk, hub = together()
    send(rig, jfk, *names(1, 3))
    kept = snapshot(jfk)
    send(rig, jfk, *names(4, 6))
    assert hub.bodies("work") == names(1, 6)
    jfk.crash()
    jfk.store = kept
    rig.refuse_dials = True
    jfk.start()
    send(rig, jfk, *names(7, 12))  # more than what was forgotten, before the first contact
    rig.refuse_dials = False
    rig.run(10)
    assert hub.bodies("work") == names(1, 12)
    assert {jfk.core.identities.store_uuid} < set(hub.core.catalog.ledger.origins)
    send(rig, jfk, "13")
    assert hub.bodies("work") == names(1, 13)


@pytest.mark.parametrize("silent", [False, True])
def test_late_old_connection(silent: bool) -> None:
    rig, jfk, hub = together()
    send(rig, jfk, *names(1, 3))
    hub.hold_commits = True
    send(rig, jfk, *names(4, 6))
    cut(rig, silent=silent)
    rig.run(8)
    send(rig, jfk, "7")
    hub.hold_commits = False
    rig.run(8)
    assert hub.bodies("work") == names(1, 7)


def test_batch_hole() -> None:
    rig, jfk, hub = together()
    hub.refuse = 1
    send(rig, jfk, "7")
    send(rig, jfk, "8")
    cut(rig)
    rig.run(8)
    assert hub.bodies("work") == ["7", "8"]


def test_batch_hole_with_a_turn_gathered_behind() -> None:
    rig, jfk, hub = together()
    hub.hold_commits = True
    send(rig, jfk, "7")
    send(rig, jfk, "8")
    hub.refuse, hub.hold_commits = 1, False
    rig.settle()
    cut(rig)
    rig.run(8)
    assert hub.bodies("work") == ["7", "8"] and jfk.queue("@hub").messages == 0


@pytest.mark.parametrize("refused", [False, True])
def test_commit_in_flight(refused: bool) -> None:
    rig, jfk, hub = together()
    hub.hold_commits = True
    send(rig, jfk, "7")
    cut(rig)
    rig.run(2)  # attached again: the answer waits for the commit
    assert jfk.queue("@hub").messages == 1
    hub.refuse, hub.hold_commits = int(refused), False
    rig.run(8)
    assert hub.bodies("work") == ["7"] and jfk.queue("@hub").messages == 0


def test_low_water() -> None:
    """Nothing but the destination's word moves its mark: a number that sleeps is waited for."""
    rig, jfk, hub = together(order="bounded")
    origin_uuid = jfk.core.identities.store_uuid
    jfk.core.catalog.ledger.identities["hub"] = 2  # 1 sleeps elsewhere
    send(rig, jfk, "2")
    assert hub.bodies("work") == [] and jfk.queue("@hub").messages == 0
    rig.run(29)
    assert hub.bodies("work") == []
    rig.run(4)
    assert hub.bodies("work") == ["2"]
    assert hub.core.catalog.ledger.origins[origin_uuid].mark == 0
    jfk.core.catalog.ledger.identities["hub"] = 1
    send(rig, jfk, "1")
    assert hub.bodies("work") == ["2", "1"]
    client = rig.client(hub)
    client.receiver("work")
    rig.settle()
    late = ["x-opt-holdfast-late" in (message.message_annotations or {}) for message in client.messages()]
    assert late == [False, True]


def test_sender_restart() -> None:
    rig, jfk, hub = together()
    send(rig, jfk, *names(1, 4))
    hub.hold_commits = True
    send(rig, jfk, "5")
    send(rig, jfk, "6", header=Header(ttl=1000))
    send(rig, jfk, "7")
    jfk.crash()
    hub.crash()
    rig.pass_time(5)
    hub.hold_commits = False
    jfk.start()
    hub.start()
    rig.run(10)
    assert hub.bodies("work") == [*names(1, 5), "7"] and jfk.queue("@hub").messages == 0


def test_a_tombstone_outlives_a_full_disk() -> None:
    rig, jfk, hub = together()
    cut(rig)
    rig.refuse_dials = True
    send(rig, jfk, "1", header=Header(ttl=1000))
    send(rig, jfk, "2")
    rig.pass_time(5)
    jfk.refuse = 1
    rig.refuse_dials = False
    rig.run(20)
    assert hub.bodies("work") == ["2"] and jfk.bodies("@hub") == []  # its end was told without storing anything


def test_replaced_disk_of_the_receiver() -> None:
    rig, jfk, hub = together()
    send(rig, jfk, *names(1, 4))
    rig.run(3)
    hub.crash()
    hub.store = MemoryStore(mint_from=rig.uuid)
    send(rig, jfk, *names(5, 6))
    hub.start()
    rig.run(8)
    assert hub.bodies("work") == names(5, 6)


def test_replaced_disk_of_the_sender() -> None:
    rig, jfk, hub = together()
    send(rig, jfk, *names(1, 4))
    old = jfk.core.identities.store_uuid
    jfk.crash()
    jfk.store = MemoryStore(mint_from=rig.uuid)
    jfk.start()
    rig.run(8)
    send(rig, jfk, *names(5, 6))
    assert hub.bodies("work") == names(1, 6)
    assert old in hub.core.destination.closing
    rig.run(70)
    assert not hub.core.destination.closing


def test_strict_full() -> None:
    """At the bound on what waits, later ones go back, and the missing one gets through."""
    rig, jfk, hub = together(limits=Limits(ranges_max=1))
    jfk.checks = False
    jfk.core.catalog.ledger.identities["hub"] = 2
    send(rig, jfk, *names(2, 30))
    rig.run(3)
    assert hub.bodies("work") == [] and jfk.queue("@hub").messages > 0
    jfk.core.catalog.ledger.identities["hub"] = 1
    send(rig, jfk, "1")
    status, body, _ = rig.client(hub).manage("STATUS", "node")
    assert status == 200 and body["origins"]


@pytest.mark.parametrize("bound", [2, 5])
def test_full_neighbours(bound: int) -> None:
    """Each full for the other's traffic: nothing is dead-lettered, and both flow on as consumers take."""
    rig = Rig()
    queues = (QueueConfig(name="work", messages_max=bound),)
    jfk, hub = rig.pair(jfk={"queues": queues}, queues=queues)
    joined(rig)
    send(rig, jfk, *names(1, 12))
    send(rig, hub, *names(1, 12), address="work@jfk")
    for node in (jfk, hub):
        assert node.bodies("work") == names(1, bound)
        client = rig.client(node)
        client.receiver("work")
        taken: list[str] = []
        for _ in range(30):
            rig.run(0.5)
            taken += client.accept()
        assert taken == names(1, 12) and "$dead-letters" not in node.core.catalog.queues


@pytest.mark.parametrize("waits", [600, 2_500, 20_000])
def test_a_small_queue_fills_as_fast_as_it_is_emptied_however_little_may_wait_for_it(waits: int) -> None:
    """Whatever is refused costs a new epoch, a second of it idle, so there is little of that."""
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", messages_max=2),), limits=Limits(parked_bytes_max=waits))
    joined(rig)
    bodies = [name * (1 + number % 40) for number, name in enumerate(names(1, 300))]
    send(rig, jfk, *bodies)
    client = rig.client(hub)
    client.receiver("work")
    rig.settle()
    taken: list[str] = []
    for _ in range(40):
        for _ in range(10):
            taken += client.accept()
            rig.settle()
        rig.run(0.5)
    assert taken == bodies
    assert hub.core.memory.parked.held == 0


def test_a_hop_that_overflowed_has_as_much_credit_as_could_wait() -> None:
    rig = Rig()
    limits = Limits(parked_bytes_max=3_000)
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", messages_max=1),), limits=limits)
    joined(rig)
    send(rig, jfk, *names(1, 20))
    assert 3 * 650 < hub.core.memory.parked.most <= 3_000, "of some 700 bytes each, four"
    assert hub.core.forwarding.hop_credits.credit(hop_key("jfk", "hub"), 1_000) == 4


def test_numbers_that_wait_for_room_raise_no_credit() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", messages_max=60),))
    joined(rig)
    hop = hop_key("jfk", "hub")
    hub.core.forwarding.hop_credits.overflowed(hop, 5)
    send(rig, jfk, *names(1, 115))
    client = rig.client(hub)
    client.receiver("work")
    rig.settle()
    taken: list[str] = []
    for _ in range(20):
        taken += client.accept()
        rig.run(0.5)
    assert taken == names(1, 115)
    assert hub.core.forwarding.hop_credits.credit(hop, 1_000) == 5, "60 in a row, and 55 behind those that waited"


@pytest.mark.parametrize("small_between", [False, True])
def test_a_hop_that_brings_large_messages_has_more_credit_again(small_between: bool) -> None:
    rig = Rig()
    limits = Limits(stream_bytes=20_000)
    jfk, hub = rig.pair(jfk={"limits": limits}, queues=(QueueConfig(name="work"),), limits=limits)
    joined(rig)
    hop = hop_key("jfk", "hub")
    hub.core.forwarding.hop_credits.overflowed(hop, 1)
    bodies = [
        name + "x" * (0 if small_between and number % 2 else 100_000) for number, name in enumerate(names(1, 140))
    ]
    send(rig, jfk, *bodies)
    rig.run(60)
    assert len(hub.bodies("work")) == 140
    assert hub.core.forwarding.hop_credits.credit(hop, 1_000) == 4


@pytest.mark.parametrize("streams", [1, 2])
def test_large_messages_come_as_fast_as_they_are_taken_however_few_may_be_under_way(streams: int) -> None:
    """One that waits for room counts among them: what came with it would be refused, and cost a new epoch."""
    rig = Rig()
    limits = Limits(stream_bytes=20_000, streams_max=streams)
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", messages_max=1),), limits=limits)
    joined(rig)
    bodies = [name + "x" * 100_000 for name in names(1, 100)]
    send(rig, jfk, *bodies)
    client = rig.client(hub)
    client.receiver("work")
    taken: list[str] = []
    for _ in range(120):
        rig.run(0.1)
        taken += client.accept()
    assert taken == bodies
    assert hub.core.forwarding.hop_credits.credit(hop_key("jfk", "hub"), 1_000) == streams


def test_parked_numbers_go_back_when_the_disk_is_full() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", messages_max=1),))
    joined(rig)
    send(rig, jfk, *names(1, 4))
    client = rig.client(hub)
    client.receiver("work")
    rig.settle()
    hub.core.room.bytes = -(10**9)
    client.accept()
    rig.settle()
    taken = ["1"]
    for _ in range(20):
        rig.run(0.5)
        taken += client.accept()
    assert taken == names(1, 4)


def test_late_after_tombstone() -> None:
    rig, jfk, hub = together()
    origin = hub.core.catalog.ledger.origin("", jfk.core.identities.store_uuid)
    origin.end(1)
    send(rig, jfk, "1", "2")
    client = rig.client(hub)
    client.receiver("work")
    rig.settle()
    late = ["x-opt-holdfast-late" in (message.message_annotations or {}) for message in client.messages()]
    assert client.bodies() == ["1", "2"] and late == [True, False]


def test_bounded_restarts() -> None:
    """The time waited is kept over restarts: a gap does not begin it anew every 20 s."""
    rig, jfk, hub = together(order="bounded")
    jfk.core.catalog.ledger.identities["hub"] = 2
    send(rig, jfk, "2")
    for _ in range(2):
        rig.run(18)
        if hub.bodies("work"):
            break
        hub.crash()
        hub.start()
    rig.run(3)
    assert hub.bodies("work") == ["2"]


def test_dead_letter_back() -> None:
    """A dead letter that is moved back to work is a new message."""
    rig, jfk, hub = together(create_queues=False)
    send(rig, jfk, "1", address="nowhere@hub")
    assert hub.bodies("$dead-letters") == ["1"]
    client = rig.client(hub)
    client.receiver("$dead-letters")
    rig.settle()
    message = client.messages()[0]
    assert "no queue 'nowhere'" in message.message_annotations["x-opt-dead-letter-reason"]
    link = client.sender("work")
    rig.settle()
    link.send(message.encode(), context=None)
    client.accept()
    rig.settle()
    assert hub.bodies("work") == ["1"] and hub.bodies("$dead-letters") == []


def test_purged_on_the_way() -> None:
    rig, jfk, hub = together()
    cut(rig)
    rig.refuse_dials = True
    client = send(rig, jfk, *names(1, 3))
    assert client.manage("PURGE", "queue", "@hub")[1]["purged"] == 3
    send(rig, jfk, "4")
    rig.refuse_dials = False
    rig.run(8)
    assert hub.bodies("work") == ["4"]


@pytest.mark.parametrize("address", ["$holdfast/custody", "$holdfast/control", "$waiting", "@hub", "$x@hub"])
def test_a_stranger_cannot_speak_as_a_neighbour(address: str) -> None:
    rig, jfk, _ = together()
    client = rig.client(jfk)
    ours = client.session.attach_sender("x", Source(), Target(address=address), properties={Symbol("a"): 1})
    theirs = client.receiver(address)
    rig.settle()
    assert ours.refused and theirs.refused
