"""Where a range ends that a reader by sequence asks for, and where a subscription begins (PEEK and OPEN)."""

from typing import Any

import pytest

from core.test_readers import held, open_subscription
from holdfast.amqp.wire.performatives import Header
from holdfast.broker.entries import packed
from holdfast.broker.entries.gone import RANGES_MAX, Gone
from holdfast.management.operations import ranges
from holdfast.settings.queues import QueueConfig
from support.one_node import fill, world
from support.rig import Client, Node, Rig


def peeked(client: Client, body: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    status, told, text = client.manage("PEEK", "subscription", "sub", **held(body), **arguments)
    assert status == 200, text
    return told


def sent(rig: Rig, client: Client, *sizes: int) -> None:
    link = client.sender("work")
    rig.settle()
    for size in sizes:
        client.send(link, "x" * size)
    rig.settle()


def sizes_of(node: Node) -> list[int]:
    return [packed.size_of(value) for _, value in node.queue("work").read(0, count_max=1_000, bytes_max=10**9)]


def test_the_tail_is_told_with_the_end() -> None:
    rig, node, client = world()
    fill(rig, client, 5)
    body = open_subscription(client)
    average = sizes_of(node)[0]
    assert peeked(client, body, start=2, messages_max=2) == {"end": 4, "tail": 6, "average": average}
    assert peeked(client, body, start=2, bytes_max=3 * average)["end"] == 5
    assert peeked(client, body, start=6) == {"end": 6, "tail": 6, "average": average}
    status, _, text = client.manage("PEEK", "subscription", "sub", **held(body), start=9)
    assert (status, text) == (412, "queue 'work' ends at 6, before 9: its store was put back to an older state")


@pytest.mark.parametrize("step", [1, 2, 3, 4_096])
def test_an_exact_range_has_as_many_bytes_as_fit_and_no_more(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a single answer looks at."""
    monkeypatch.setattr(ranges, "LOOK_COUNT", step)
    rig, node, client = world()
    sent(rig, client, 10, 300, 20, 5_000, 40, 50)
    body = open_subscription(client)
    sizes = sizes_of(node)
    for start in range(1, 8):
        for bytes_max in {sum(sizes[start - 1 : end]) + extra for end in range(start, 7) for extra in (-1, 0, 1)}:
            end, messages, size, more = start, 0, 0, True
            while more and size < bytes_max:
                told = peeked(client, body, start=end, bytes_max=bytes_max - size, exact=True)
                if messages and size + told["bytes"] > bytes_max:
                    break
                end, messages, size = told["end"], messages + told["messages"], size + told["bytes"]
                more = told["more"]
            assert size == sum(sizes[start - 1 : end - 1]) and messages == end - start
            assert size <= bytes_max or messages == 1, "one at least"
            assert end == 7 or not messages or size + sizes[end - 1] > bytes_max, "and as many as fit"


def test_an_exact_range_counts_messages_not_sequences() -> None:
    rig, _, client = world()
    link = client.sender("work")
    rig.settle()
    for number in range(1, 7):
        client.send(link, str(number), header=Header(ttl=500 if number in (2, 3) else None))
    rig.settle()
    body = open_subscription(client, "copy")
    rig.run(3.0)
    assert peeked(client, body, start=1, messages_max=2, exact=True)["end"] == 5
    told = peeked(client, body, start=1, exact=True)
    assert (told["end"], told["messages"], told["more"]) == (7, 4, False)
    assert peeked(client, body, start=1, messages_max=0, exact=True)["end"] == 1


def test_what_is_no_flag_is_refused() -> None:
    _, _, client = world()
    body = open_subscription(client)
    status, _, text = client.manage("PEEK", "subscription", "sub", **held(body), start=1, exact=1)
    assert status == 400 and text == "invalid value 1 for exact; expected true or false"


def test_a_subscription_begins_at_a_time() -> None:
    rig, node, client = world()
    for first in range(1, 41, 4):  # four at a time
        fill(rig, client, 4, first=first)
        rig.run(1.5)
    times = [packed.enqueued_ms_of(value) for _, value in node.queue("work").read(0, count_max=99, bytes_max=10**9)]
    assert len(set(times)) == 10
    for wall_ms in {time + extra for time in times for extra in (-1, 0, 1)}:
        body = open_subscription(client, "copy", name="sub", start_ms=wall_ms)
        assert body["advanced"] == 1 + sum(time < wall_ms for time in times)
        assert client.manage("DELETE", "subscription", "sub", queue="work")[0] == 200
    for given, said in (({"start": "next", "start_ms": 5}, "exclude each other"), ({"start_ms": -1}, "invalid value")):
        arguments = {"queue": "work", "mode": "copy", **given}
        status, _, text = client.manage("OPEN", "subscription", "sub", **arguments)
        assert status == 400 and said in text


def gaps(client: Client, body: dict[str, Any], *ranges: int) -> tuple[int, int]:
    status, told, text = client.manage(
        "GAPS", "subscription", "sub", queue="work", queue_uuid=body["queue_uuid"], ranges=list(ranges)
    )
    assert status == 200, text
    return told["expired"], told["dropped"]


def test_what_expired_and_what_was_dropped_is_told() -> None:
    rig, node, client = world(QueueConfig(name="work", messages_max=4, when_full="drop-oldest"))
    body = open_subscription(client, "copy")
    link = client.sender("work")
    rig.settle()
    for number in range(1, 7):
        client.send(link, str(number), header=Header(ttl=500 if number == 5 else None))
    rig.settle()
    assert gaps(client, body, 1, 7) == (0, 2)
    rig.run(3.0)
    assert [sequence for sequence, _ in node.queue("work").read(0, count_max=9, bytes_max=9_999)] == [3, 4, 6]
    assert gaps(client, body, 1, 7) == (1, 2)
    assert gaps(client, body, 2, 3, 5, 6) == (1, 1)
    assert gaps(client, body, 3, 5) == (0, 0)
    arguments = {"queue": "work", "queue_uuid": body["queue_uuid"]}
    for wrong in ([1], [1, -1], "x", [0, 1] * 257):
        status, _, text = client.manage("GAPS", "subscription", "sub", ranges=wrong, **arguments)
        assert status == 400 and "invalid value for ranges" in text
    status, _, text = client.manage("GAPS", "subscription", "sub", ranges=[], queue="work", queue_uuid="x")
    assert status == 412 and "deleted and created again" in text


def test_a_bounded_number_of_gaps_is_remembered() -> None:
    known = Gone()
    for sequence in range(1, 1_000, 3):
        known.note_expired([sequence])
        known.note_dropped([sequence + 1])
    assert len(known.expired) == len(known.dropped) == RANGES_MAX
    assert known.count(0, 1_000) == (RANGES_MAX, RANGES_MAX)
    assert known.count(998, 1_000) == (0, 1)
