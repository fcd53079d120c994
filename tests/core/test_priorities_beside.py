"""Queues that sort, beside everything else that may be asked of a queue (docs/adr/0072)."""

from typing import Any

import pytest

from holdfast.amqp.wire.extensions import DELIVERY_DELAY, SELECTOR_CODE
from holdfast.amqp.wire.performatives import Accepted, Header, Modified, Rejected
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.broker.cursors import halting, looking
from holdfast.errors import BrokenInvariant, ConfigError
from holdfast.settings.limits import Limits
from holdfast.settings.queues import LinkConfig, QueueConfig
from support.one_node import done, world
from support.rig import Client, Node, Rig
from support.sorting import Watch
from support.streams import LIMITS
from support.transactions import Controller

FAILED = Modified(delivery_failed=True)


@pytest.fixture(autouse=True)
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def sorting(*others: QueueConfig, links: tuple[LinkConfig, ...] = (), **fields: Any) -> tuple[Rig, Node, Client]:
    return world(QueueConfig(name="work", priorities=True, **fields), *others, links=links)


def send(rig: Rig, client: Client, priorities: str, address: str = "work", **parts: Any) -> None:
    """One message for each digit, which is its priority; its body is the digit and its number from 1 on."""
    link = client.sender(address)
    rig.settle()
    for number, digit in enumerate(priorities, 1):
        client.send(link, f"{digit}{number}", header=Header(durable=True, priority=int(digit), **parts))
    rig.settle()


def taker(rig: Rig, node: Node, credit: int = 100, address: str = "work", **options: Any) -> Client:
    client = rig.client(node)
    client.receiver(address, credit=credit, **options)
    rig.settle()
    return client


def restart(rig: Rig, node: Node) -> None:
    node.crash()
    node.start()
    rig.settle()


# ------------------------------------------------------------------------------------------------ management


def test_a_queue_that_sorts_is_made_and_read_back() -> None:
    rig, node, client = world()
    assert done(client, "CREATE", "queue", "work", priorities=True)["priorities"] is True
    assert done(client, "READ", "queue", "work")["priorities"] is True
    assert done(client, "QUERY", "queue", "")["queues"][0]["priorities"] is True
    assert client.manage("CREATE", "queue", "work", priorities=False)[0] == 409
    status, _, text = client.manage("CREATE", "queue", "other", priorities="yes")
    assert status == 400 and "invalid value 'yes' for priorities; expected" in text
    status, _, text = client.manage("UPDATE", "queue", "work", priorities=False)
    assert status == 400 and "unknown key 'priorities'" in text
    restart(rig, node)
    client = rig.client(node)
    assert done(client, "READ", "queue", "work")["priorities"] is True
    send(rig, client, "19")
    assert taker(rig, node).bodies() == ["92", "11"]


def test_a_topic_has_no_priorities() -> None:
    _, _, client = world()
    status, _, text = client.manage("CREATE", "queue", "topic/news", priorities=True)
    assert status == 400 and "invalid value true for queue 'topic/news' priorities" in text
    with pytest.raises(ConfigError, match="invalid value true for queue 'topic/news' priorities"):
        world(QueueConfig(name="topic/news", priorities=True))


def test_what_lies_in_a_queue_is_sorted_from_the_start_at_which_the_file_says_so() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    send(rig, client, "0419")
    node.crash()
    for sorts, expected in ((True, ["94", "42", "13", "01"]), (False, ["01", "42", "13", "94"])):
        node.config = node.config.__class__(name="hub", queues=(QueueConfig(name="work", priorities=sorts),))
        node.start()
        rig.settle()
        assert taker(rig, node).bodies() == expected
        node.crash()


def test_single_messages_are_moved_copied_and_deleted_from_any_place() -> None:
    rig, node, client = sorting(QueueConfig(name="other", priorities=True))
    send(rig, client, "5943")

    def change(operation: str, sequence: int, **more: Any) -> None:
        rows = done(client, "QUERY", "entry", "work")
        found = next(row for row in rows["entries"] if row["sequence"] == sequence)
        done(client, operation, "entry", "work", queue_uuid=rows["queue_uuid"], sequence=sequence,
             delivery_count=found["delivery_count"], **more)  # fmt: skip

    change("DELETE", 2)
    change("MOVE", 1, to="other")
    change("COPY", 3, to="other")
    rig.run(1)
    assert taker(rig, node).bodies() == ["43", "34"]
    assert taker(rig, node, address="other").bodies() == ["51", "43"]


def test_a_dead_letter_that_is_requeued_has_its_priority() -> None:
    rig, node, client = sorting()
    send(rig, client, "92")
    held = taker(rig, node, credit=1)
    held.accept(Rejected())
    rig.run(1)
    rows = done(client, "QUERY", "entry", "$dead-letters")
    sequence, count = rows["entries"][0]["sequence"], rows["entries"][0]["delivery_count"]
    done(client, "REQUEUE", "entry", "$dead-letters", queue_uuid=rows["queue_uuid"], sequence=sequence,
         delivery_count=count)  # fmt: skip
    rig.run(1)
    assert taker(rig, node).bodies() == ["91", "22"]


# ------------------------------------------------------------------------------------------------ other readers


@pytest.mark.parametrize("mode", ["copy", "move"])
def test_a_subscription_of_a_link_is_sorted(mode: str) -> None:
    rig, node, client = sorting()
    lasting = {"durable": 2, "expiry_policy": Symbol("never"), "distribution_mode": Symbol(mode)}
    one = taker(rig, node, credit=3, name="one", source=lasting)
    send(rig, client, "31493")
    assert one.bodies() == ["94", "43", "31"]
    one.accept()
    rig.run(1)
    restart(rig, node)
    again = taker(rig, node, name="one", source=lasting)
    assert again.bodies() == ["35", "12"]
    if mode == "copy":
        assert taker(rig, node).bodies() == ["94", "43", "31", "35", "12"]


@pytest.mark.parametrize("count", [1, 3, 1_024])
def test_a_subscription_with_a_selector_is_given_what_that_selects(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "SCAN_COUNT", count)
    rig, node, client = sorting()
    lasting = {"durable": 2, "expiry_policy": Symbol("never"), "distribution_mode": Symbol("copy")}

    def subscribed(text: str, credit: int) -> Client:
        chosen = {Symbol("s"): Described(Ulong(SELECTOR_CODE), text)}
        return taker(rig, node, credit=credit, name="one", source={**lasting, "filter": chosen})

    one = subscribed("JMSPriority > 3", 1)
    send(rig, client, "3111193511114")
    assert [body[0] for body in one.accept()] == ["9"]
    rig.run(1)
    rest = subscribed("JMSPriority > 3", 100)
    assert [body[0] for body in rest.bodies()] == ["5", "4"]
    assert [body[0] for body in taker(rig, node).accept()] == list("9543311111111")
    rig.run(1)
    assert node.queue("work").messages
    rest.accept()
    rig.run(1)
    assert node.queue("work").messages == 0


def test_what_reads_by_sequence_reads_all_of_a_range_in_the_order_of_arrival() -> None:
    """As the Spark source does: its offsets are sequences, and priorities move none."""
    rig, node, client = sorting()
    send(rig, client, "0419")
    body = done(client, "OPEN", "subscription", "spark", queue="work", mode="take")
    epoch = body["lease_epoch"]
    reader = rig.client(node)
    for _ in range(2):
        link = reader.reader("work", 1, 5, filters={
            Symbol("subscription"): _subscription("spark"), Symbol("lease-epoch"): _lease(epoch)
        })  # fmt: skip
        rig.settle()
        assert reader.bodies(link) == ["01", "42", "13", "94"]
    told = {"queue": "work", "queue_uuid": body["queue_uuid"], "lease_epoch": epoch}
    done(client, "ADVANCE", "subscription", "spark", sequence=4, **told)
    rig.run(1)
    assert node.bodies("work") == ["94"]
    done(client, "DELETE", "subscription", "spark", queue="work")
    send(rig, client, "29")
    assert taker(rig, node).bodies() == ["94", "92", "21"]


def _subscription(name: str) -> Any:
    return Described(Symbol("holdfast:subscription:string"), name)


def _lease(epoch: int) -> Any:
    return Described(Symbol("holdfast:lease-epoch:ulong"), Ulong(epoch))


def test_a_subscription_that_finished_too_much_out_of_order_goes_on_with_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(halting, "FINISHED_MAX", 3)
    rig, node, client = sorting()
    lasting = {"durable": 2, "expiry_policy": Symbol("never"), "distribution_mode": Symbol("copy")}
    done(client, "OPEN", "subscription", "one", queue="work", mode="copy", start="first")
    send(rig, client, "19" * 10)
    one = taker(rig, node, credit=1, name="one", source=lasting)
    seen: list[str] = []
    while one.deliveries:
        link = one.deliveries[0].link
        seen += one.accept()
        rig.run(0.2)
        link.grant(1)
        rig.settle()
    sent = [f"{digit}{number}" for number, digit in enumerate("19" * 10, 1)]
    assert sorted(seen) == sorted(sent)
    assert seen[:3] == ["92", "94", "96"] and seen != sorted(sent, key=lambda body: (-int(body[0]), int(body[1:])))


def test_links_out_of_it_and_into_it() -> None:
    into = LinkConfig(name="into", source="first", target="work")
    out = LinkConfig(name="out", source="work", target="last", selector="JMSPriority <> 5")
    rig, node, client = sorting(links=(into,))
    send(rig, client, "0495", "first")
    assert taker(rig, node, credit=1).bodies() == ["93"], "the target sorts"
    done(client, "CREATE", "link", "out", **{"from": "work", "to": "last", "selector": "JMSPriority <> 5"})
    rig.settle()
    assert node.bodies("last") == ["42", "01"], "the source's order"
    assert out.selector and taker(rig, node).bodies() == ["54"]


def test_messages_of_another_node_are_sorted_where_they_end() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", priorities=True, order="none"),))
    rig.run(3)
    send(rig, rig.client(jfk), "14094", "work@hub")
    rig.run(3)
    assert taker(rig, hub).bodies() == ["94", "42", "45", "11", "03"]


# ------------------------------------------------------------------------------------------------ policies


def test_most_deliveries_and_a_crash() -> None:
    rig, node, client = sorting(deliveries_max=2)
    send(rig, client, "19")
    for _ in range(2):
        assert taker(rig, node, credit=1).bodies() == ["92"]
        restart(rig, node)
    assert taker(rig, node).bodies() == ["11"], "what was never shown counts for nothing"
    assert [body[-2:] for body in node.bodies("$dead-letters")] == ["92"]


def test_a_delayed_message_has_its_place_when_it_is_due() -> None:
    rig, node, client = sorting()
    link = client.sender("work")
    rig.settle()
    client.send(link, "late", header=Header(durable=True, priority=9), message_annotations={DELIVERY_DELAY: 5_000})
    rig.settle()
    send(rig, client, "52")
    held = taker(rig, node, credit=1)
    assert held.bodies() == ["51"]
    rig.run(6)
    held.deliveries[0].link.grant(2)
    rig.settle()
    assert held.bodies() == ["51", "late", "22"]


def test_what_expires_leaves_and_is_shown_to_nobody() -> None:
    rig, node, client = sorting()
    send(rig, client, "99", ttl=1_000)
    send(rig, client, "1")
    rig.run(5)
    assert node.queue("work").messages == 1
    assert taker(rig, node).bodies() == ["11"]


def test_what_expires_before_a_subscription_has_passed_it_keeps_nothing_back() -> None:
    rig, node, client = sorting()
    done(client, "OPEN", "subscription", "s", queue="work", mode="copy", start="first")
    send(rig, client, "94", ttl=1_000)
    send(rig, client, "12")
    rig.run(5)
    lasting = {"durable": 2, "expiry_policy": Symbol("never"), "distribution_mode": Symbol("copy")}
    one, other = taker(rig, node, name="s", source=lasting), taker(rig, node)
    assert one.accept() == other.accept() == ["22", "11"]
    rig.run(2)
    assert node.queue("work").messages == 0 and node.bodies("work") == []


def test_what_a_transaction_sends_and_takes() -> None:
    rig, node, client = sorting()
    controller = Controller(client)
    send(rig, client, "51")
    link = client.sender("work")
    client.receiver("work", credit=1)
    rig.settle()
    mine = controller.begin()
    assert controller.take(mine, count=1, settled=True) == ["51"]
    assert controller.send(mine, link, "9x", header=Header(durable=True, priority=9)) == Accepted()
    assert controller.commit(mine) == Accepted()
    rig.run(1)
    assert taker(rig, node).bodies() == ["9x", "12"]
    other = controller.begin()
    assert controller.send(other, link, "8x", header=Header(durable=True, priority=8)) == Accepted()
    assert controller.abort(other) == Accepted()
    assert sorted(node.bodies("work")) == ["12", "9x"]


@pytest.mark.parametrize(
    ("outcome", "left"),
    [
        (Accepted(), ["23", "11"]),
        (Rejected(), ["92", "81", "23", "11"]),
        (FAILED, ["92", "23", "11"]),
    ],
)
def test_a_refused_commit_changes_nothing(outcome: Any, left: list[str]) -> None:
    """What was accepted leaves with a later commit; a message that was refused with it is not there."""
    rig, node, client = sorting()
    send(rig, client, "192")
    held = taker(rig, node, credit=1)
    node.refuse, node.refuse_all = 1, True
    held.accept(outcome)
    send(rig, client, "8")
    rig.run(2)
    rest = taker(rig, node)
    assert rest.bodies() == left


def test_large_messages_are_sorted_too() -> None:
    rig, node, client = world(QueueConfig(name="work", priorities=True), limits=LIMITS)
    link = client.sender("work")
    rig.settle()
    for number, (priority, size) in enumerate(((1, 10), (5, 100_000), (9, 10), (5, 100_000))):
        client.send(link, f"{number}".ljust(size, "."), header=Header(durable=True, priority=priority))
        rig.settle()
    held = taker(rig, node)
    rig.run(1)
    assert [body[0] for body in held.bodies()] == ["2", "1", "3", "0"]


def test_drop_oldest_leaves_what_a_consumer_holds_and_counts_what_went() -> None:
    rig, node, client = sorting(bytes_max=60, when_full="drop-oldest")
    send(rig, client, "10")
    held = taker(rig, node, credit=1)
    assert held.bodies() == ["11"]
    for digit in "5678":
        send(rig, client, digit * 2)
    assert node.queue("work").dropped_total and node.queue("work").bytes_held <= 60
    held.accept()
    rest = taker(rig, node)
    assert rest.bodies()[0].startswith("8") and not any(body.startswith("0") for body in rest.bodies())


# ------------------------------------------------------------------------------------------------ bounds


@pytest.mark.parametrize("most", [2, 7, 50])
def test_an_index_that_may_not_know_all_forgets_the_youngest_of_the_lowest(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "READY_MAX", most)
    rig, node, client = sorting()
    digits = "".join(str(number * 7 % 10) for number in range(300))
    send(rig, client, digits)
    held = taker(rig, node, credit=10)
    group = next(iter(node.queue("work").shared.sharing))
    seen: list[str] = []
    while held.deliveries:
        assert len(group.ready) <= max(most, looking.SCAN_COUNT)
        link = held.deliveries[0].link
        seen += held.accept()
        link.grant(10)
        rig.settle()
    expected = sorted(range(1, 301), key=lambda number: (-int(digits[number - 1]), number))
    assert seen == [f"{digits[number - 1]}{number}" for number in expected]


def test_the_index_is_counted_and_given_back() -> None:
    rig, node, client = sorting()
    assert node.core is not None
    account = node.core.memory.withheld.ready
    send(rig, client, "5" * 400)
    held = taker(rig, node, credit=1)
    assert 2 * 300 < account.held < 20 * 400
    held.close_transport()
    client.close_transport()
    rig.settle()
    done(rig.client(node), "DELETE", "queue", "work")
    assert account.held == 0


def test_what_the_index_has_lost_is_found_by_the_invariants() -> None:
    rig, node, client = sorting()
    send(rig, client, "5555")
    taker(rig, node, credit=1)
    assert node.core is not None
    node.core.validate()
    next(iter(node.queue("work").shared.sharing)).ready.skip(1)
    with pytest.raises(BrokenInvariant, match="passed over what matches"):
        node.core.validate()
    node.checks = False


def test_what_one_cannot_have_waits_for_another_and_keeps_nobody_back() -> None:
    rig, node, client = sorting()
    one = taker(rig, node, credit=3)
    send(rig, client, "9951")
    assert one.bodies() == ["91", "92", "53"]
    one.accept(Modified(undeliverable_here=True), count=2)
    rig.settle()
    one.deliveries[0].link.grant(5)
    rig.settle()
    assert one.bodies() == ["53", "14"]
    assert taker(rig, node).bodies() == ["91", "92"]


def test_no_more_waits_for_others_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "FOR_OTHERS_MAX", 2)
    rig = Rig()
    node = rig.node("hub", queues=(QueueConfig(name="work", priorities=True),), limits=Limits(excluded_max=50))
    client = rig.client(node)
    one = taker(rig, node, credit=3)
    send(rig, client, "9990")
    one.accept(Modified(undeliverable_here=True))
    rig.settle()
    assert one.bodies() == []
    assert taker(rig, node).bodies() == ["91", "92", "93", "04"]


def test_what_one_consumer_has_finished_is_not_handed_to_another_beside_a_subscription() -> None:
    """It stays on disk for the subscription, and in the index of consumers that did not want it then."""
    rig, node, client = sorting()
    done(client, "OPEN", "subscription", "one", queue="work", mode="copy", start="first")
    send(rig, client, "444444")
    every = taker(rig, node, credit=1)
    assert every.bodies() == ["41"]
    selecting = {"filter": {Symbol("s"): Described(Ulong(SELECTOR_CODE), "TRUE")}}
    other = taker(rig, node, credit=3, source=selecting)
    assert other.accept() == ["42", "43", "44"]
    rig.run(1)
    every.deliveries[0].link.grant(10)
    rig.settle()
    assert every.bodies() == ["41", "45", "46"]
