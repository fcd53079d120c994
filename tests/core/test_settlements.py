"""What consumers reject is a dead letter by and by, and holds up nobody else meanwhile (endpoints/settlements.py)."""

from collections import Counter
from typing import Any

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire.performatives import Error, Modified, Rejected
from holdfast.amqp.wire.types import Symbol
from holdfast.endpoints import settlements
from holdfast.endpoints.settlements import Settlements
from holdfast.names import DEAD_LETTERS
from holdfast.settings.hosts import UserConfig
from holdfast.settings.limits import Limits
from holdfast.units import KIB
from support.memory import check_accounts
from support.rig import Client, Node, Rig

LARGE = 100_000
SHARE = 1_000_000
"""What one batch takes of them here."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlements, "SETTLED_BYTES_MAX", SHARE)


def held(
    rig: Rig, node: Node, queue: str, count: int, size: int = LARGE, client: Client | None = None, **terms: Any
) -> Receiver:
    """A consumer that holds so many messages of a queue of theirs, and has no credit for more."""
    producer = rig.client(node)
    link = producer.sender(queue)
    rig.settle()
    for number in range(count):
        producer.send(link, f"{queue} {number}".ljust(size))
        rig.settle()
    receiver = (client or rig.client(node)).receiver(queue, credit=count, **terms)
    rig.run(1)
    return receiver


def reject(client: Client, receiver: Receiver) -> None:
    """All that it holds, with one disposition."""
    mine = [item for item in client.deliveries if item.link is receiver]
    receiver.settle(mine[0].delivery_id, mine[-1].delivery_id, Rejected())
    client.deliveries = [item for item in client.deliveries if item.link is not receiver]


def commit(rig: Rig, node: Node) -> None:
    """One commit ends; the next is under way, or there is none."""
    if node.pending is None:
        rig.pass_time(0.1)
        rig.settle()
    if node.pending is not None:
        node.finish_commit()
        rig.settle()


def commits_until(rig: Rig, node: Node, done: Any) -> int:
    for count in range(1_000):
        if done():
            return count
        commit(rig, node)
    raise AssertionError("it never comes")


def dead(node: Node, queue: str) -> int:
    found = node.core is not None and DEAD_LETTERS in node.core.catalog.queues
    return sum(body.startswith(f"{queue} ") for body in node.bodies(DEAD_LETTERS)) if found else 0


def waiting(node: Node) -> Settlements:
    assert node.core is not None
    return node.core.jobs.settlements


@pytest.mark.parametrize("same", ["queue", "connection", "nothing"])
def test_another_consumer_is_served_while_one_has_rejected_a_great_deal(same: str) -> None:
    """`same`: what the two share. The other one has rejected a message too, and has credit for more."""
    rig = Rig()
    node = rig.node("hub")
    greedy = rig.client(node)
    receiver = held(rig, node, "a", 100, client=greedy)
    client = greedy if same == "connection" else rig.client(node)
    queue = "a" if same == "queue" else "v"
    producer = rig.client(node)
    link = producer.sender(queue)
    rig.settle()
    producer.send(link, f"{queue} first")
    other = client.receiver(queue, credit=1)
    rig.run(1)
    node.hold_commits = True
    reject(greedy, receiver)
    rig.settle()
    reject(client, other)
    other.grant(10)
    producer.send(link, "second")
    rig.settle()
    assert commits_until(rig, node, lambda: client.bodies(other) == ["second"]) <= 2
    assert dead(node, "a") < 40
    assert commits_until(rig, node, lambda: f"{queue} first" in node.bodies(DEAD_LETTERS)) <= 2
    node.hold_commits = False
    rig.run(1)
    assert dead(node, "a") == 100 + (same == "queue") and not waiting(node).waiting
    assert [body.split()[1] for body in node.bodies(DEAD_LETTERS) if len(body) == LARGE] == list(map(str, range(100)))


def left(node: Node) -> Counter[str]:
    """How many wait of each queue."""
    found: Counter[str] = Counter()
    for rejection in waiting(node).waiting:
        found[rejection.cursor.queue.name] += len(rejection.sequences)
    return found


def test_who_waits_has_the_same_share_by_bytes() -> None:
    """Of large messages as of small ones, and however many consumers a connection has."""
    rig = Rig()
    node = rig.node("hub")
    clients = [rig.client(node) for _ in range(3)]
    many = [held(rig, node, f"many{number}", 12, client=clients[0]) for number in range(5)]
    large = held(rig, node, "large", 60, client=clients[1])
    small = held(rig, node, "small", 600, size=LARGE // 10, client=clients[2])
    node.hold_commits = True
    reject(clients[1], large)
    rig.settle()
    for receiver in many:
        reject(clients[0], receiver)
    reject(clients[2], small)
    rig.settle()
    before = left(node)
    for _ in range(5):
        commit(rig, node)
    ended = before - left(node)
    of_one = [ended[f"many{number}"] for number in range(5)]
    shares = [sum(of_one), ended["large"], ended["small"] // 10]
    assert min(shares) >= 10 and max(shares) - min(shares) <= 5, shares
    assert max(of_one) - min(of_one) <= 1
    node.hold_commits = False
    rig.run(1)
    assert node.queue(DEAD_LETTERS).messages == 60 + 60 + 600


def test_what_waits_counts_for_its_consumer_as_if_it_held_it() -> None:
    """It gets no more than it may hold together with it; then all of it."""
    rig = Rig()
    node = rig.node("hub", limits=Limits(unsettled_max=40))
    client = rig.client(node)
    receiver = held(rig, node, "a", 80, client=client)
    assert len(client.deliveries) == 40
    node.hold_commits = True
    reject(client, receiver)
    rig.settle()
    assert waiting(node).waiting, "two batches are not all of it"
    while waiting(node).waiting:
        (rejection,) = waiting(node).waiting
        assert len(client.deliveries) == 40 - len(rejection.sequences)
        commit(rig, node)
    node.hold_commits = False
    rig.run(1)
    assert len(client.deliveries) == 40


@pytest.mark.parametrize("who", ["ann", "bob"])
def test_who_comes_again_to_reject_more_waits_for_what_it_rejected(monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    """On another connection, too: what one user's consumers of a queue may have rejected is bounded. Others go on."""
    monkeypatch.setattr(settlements, "WAITING_MAX", 50)
    rig = Rig()
    users = tuple(UserConfig(name=name, password=name) for name in ("ann", "bob"))
    node = rig.node("hub", users=users)
    client, producer, fresh = (
        rig.client(node, mechanism="PLAIN", user=name, password=name) for name in ("ann", "bob", who)
    )
    link = producer.sender("a")
    receiver = client.receiver("a", credit=100)
    rig.settle()
    for number in range(100):
        producer.send(link, f"a {number}".ljust(LARGE))
        rig.settle()
    rig.run(1)
    producer.send(link, "next")
    rig.settle()
    node.hold_commits = True
    reject(client, receiver)
    rig.settle()
    client.close_transport()
    rig.settle()
    again = fresh.receiver("a")
    rig.settle()
    commits = commits_until(rig, node, lambda: fresh.bodies(again) == ["next"])
    rest = left(node)["a"]
    assert (20 <= rest < 50) if who == "ann" else (commits <= 2 and rest >= 60)
    node.hold_commits = False
    rig.run(1)
    assert dead(node, "a") == 100 and not waiting(node).counts


def test_a_drain_is_answered_and_what_is_given_back_is_offered_meanwhile() -> None:
    rig = Rig()
    node = rig.node("hub")
    greedy, client = rig.client(node), rig.client(node)
    receiver = held(rig, node, "a", 100, client=greedy)
    producer = rig.client(node)
    link = producer.sender("a")
    other = client.receiver("a", credit=2)
    rig.settle()
    producer.send(link, "one")
    producer.send(link, "two")
    rig.run(1)
    node.hold_commits = True
    reject(greedy, receiver)
    rig.settle()
    assert client.accept(Modified(delivery_failed=True), link=other) == ["one", "two"]
    other.grant(5, drain=True)
    rig.settle()
    assert client.bodies(other) == ["one", "two"] and other.credit == 0
    assert waiting(node).waiting


@pytest.mark.parametrize("mode", [0, 1])
def test_what_waits_is_counted_and_its_words_are_short(mode: int) -> None:
    """A disposition may say 64 KiB; what is kept of it is what a dead letter says, and the answer says no more."""
    rig = Rig()
    node = rig.node("hub")
    core = node.core
    assert core is not None
    client = rig.client(node)
    held(rig, node, "a", 40, client=client, rcv_settle_mode=mode)
    node.hold_commits = True
    for item in client.deliveries:
        error = Error(Symbol("x:" + "c" * 1_000), "d" * 50_000, {Symbol("x:info"): "i" * 1_000})
        client.session.write_disposition(True, item.delivery_id, item.delivery_id, not mode, Rejected(error))
    rig.settle()
    rejecting = waiting(node)
    assert len(rejecting.waiting) >= 20 and core.memory.settling.held == rejecting.held_bytes
    for rejection in rejecting.waiting:
        assert len(rejection.reason) <= 500 and rejection.counted_bytes < 3 * KIB
        answer = rejection.answer
        assert (answer is not None) == bool(mode)
        assert answer is None or (len(str(answer[3])) < 700 and "x:info" not in str(answer[3]))
    check_accounts(core)
    core.validate()
    node.hold_commits = False
    rig.run(1)
    assert dead(node, "a") == 40 and core.memory.settling.held == 0


@pytest.mark.parametrize("who", ["ann", "bob"])
def test_where_too_much_waits_its_user_gets_no_more_from_any_queue_until_less_does(who: str) -> None:
    rig = Rig()
    users = tuple(UserConfig(name=name, password=name) for name in ("ann", "bob"))
    node = rig.node("hub", users=users)
    core = node.core
    assert core is not None
    core.memory.settling.held_max = 60 * settlements.ROW_BYTES
    greedy, client, producer = (
        rig.client(node, mechanism="PLAIN", user=name, password=name) for name in ("ann", who, "bob")
    )
    filling, link = producer.sender("a"), producer.sender("b")
    receiver, other = greedy.receiver("a", credit=100), client.receiver("b")
    rig.settle()
    for number in range(100):
        producer.send(filling, f"a {number}".ljust(LARGE))
        rig.settle()
    node.hold_commits = True
    reject(greedy, receiver)
    rig.settle()
    producer.send(link, "next")
    rig.settle()
    commits = commits_until(rig, node, lambda: client.bodies(other) == ["next"])
    assert commits >= 3 if who == "ann" else commits <= 2
    node.hold_commits = False
    rig.run(1)
    assert dead(node, "a") == 100 and not waiting(node).crowded and core.memory.settling.held == 0


def test_what_waits_of_a_queue_that_is_deleted_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlements, "SETTLED_BYTES_MAX", 1)
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    receiver = held(rig, node, "a", 10, size=10, client=client)
    node.hold_commits = True
    reject(client, receiver)
    rig.settle()
    assert node.core is not None and waiting(node).waiting and waiting(node).account.held
    node.core.delete_queue(node.queue("a"))
    node.hold_commits = False
    rig.run(2)
    assert not waiting(node).waiting and waiting(node).account.held == 0


def test_a_batch_takes_a_quarter_of_what_may_be_unstored_where_that_is_less() -> None:
    """What is put anew counts there: the rest is left to what is received."""
    rig = Rig()
    node = rig.node("hub", limits=Limits(unstored_bytes_max=4 * 3 * LARGE, connection_unstored_bytes_max=3 * LARGE))
    client = rig.client(node)
    receiver = held(rig, node, "a", 30, client=client)
    node.hold_commits = True
    reject(client, receiver)
    rig.settle()
    ended = []
    while waiting(node).waiting:
        before = left(node)["a"]
        commit(rig, node)
        ended.append(before - left(node)["a"])
    assert max(ended) == 3 and sum(ended) >= 20, ended
    node.hold_commits = False
    rig.run(1)
    assert dead(node, "a") == 30
