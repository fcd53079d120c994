"""What is asked of a node, whose answers are given; and a link to one that cannot be reached."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

from holdfast.errors import ConfigError, HoldfastError
from pyspark_holdfast.bus import Lease
from pyspark_holdfast.node_bus import NodeLink
from pyspark_holdfast.options import parse_options

LIMIT_S = 30.0


def test_a_link_that_is_closed_ends_the_call_of_another_thread_and_is_not_made_anew() -> None:
    link = NodeLink(parse_options({"url": "amqp://127.0.0.1:1", "address": "q"}), retry_s=2 * LIMIT_S)
    ended = threading.Event()

    def call() -> None:
        with contextlib.suppress(BaseException):
            link.name()
        ended.set()

    threading.Thread(target=call, daemon=True).start()
    until = time.monotonic() + LIMIT_S
    while not ended.wait(0.05):
        link.close()
        assert time.monotonic() < until, "the node is still tried"
    with pytest.raises(HoldfastError, match="the connection was closed"):
        link.name()


class ScriptedLink(NodeLink):
    """A node of which each answer is given, and each request is kept."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        super().__init__(parse_options({"url": "amqp://hub:1", "address": "q", "subscription": "s"}))
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def connected(self) -> Any:
        return self

    def manage(
        self, operation: str, type: str, name: str | None, arguments: dict[str, Any], *, limit_s: float
    ) -> dict[str, Any]:
        self.asked.append({"operation": operation, **arguments})
        return self.answers.pop(0)


LEASE = Lease("s", "u", 1)


def looked(end: int, messages: int, size: int, *, more: bool, tail: int = 100) -> dict[str, Any]:
    return {"end": end, "tail": tail, "messages": messages, "bytes": size, "more": more}


@pytest.mark.parametrize(
    ("answers", "window", "asked"),
    [
        # One look has all that is asked for, or all that is there.
        ([looked(11, 10, 50, more=False)], (11, 10, 50, True), [(1, 10, 100)]),
        ([looked(100, 7, 50, more=False)], (100, 7, 50, False), [(1, 10, 100)]),
        # The next look has what the bounds leave, from where the one before ended; each counts once.
        (
            [looked(4, 3, 30, more=True), looked(6, 2, 20, more=True), looked(9, 3, 30, more=False)],
            (9, 8, 80, True),
            [(1, 10, 100), (4, 7, 70), (6, 5, 50)],
        ),
        # Its only message is larger than what is left: the next batch has it.
        (
            [looked(4, 3, 30, more=True), looked(5, 1, 71, more=False)],
            (4, 3, 30, True),
            [(1, 10, 100), (4, 7, 70)],
        ),
        # It fits to the byte.
        (
            [looked(4, 3, 30, more=True), looked(5, 1, 70, more=False)],
            (5, 4, 100, True),
            [(1, 10, 100), (4, 7, 70)],
        ),
        # One that is larger alone is a batch by itself, also after a look that found none.
        ([looked(2, 1, 500, more=True)], (2, 1, 500, True), [(1, 10, 100)]),
        (
            [looked(50, 0, 0, more=True), looked(51, 1, 500, more=True)],
            (51, 1, 500, True),
            [(1, 10, 100), (50, 10, 100)],
        ),
        # A bound that is used up ends it, though there is more to look at.
        ([looked(4, 3, 100, more=True)], (4, 3, 100, True), [(1, 10, 100)]),
        ([looked(11, 10, 30, more=True)], (11, 10, 30, True), [(1, 10, 100)]),
    ],
)
def test_the_bytes_of_a_range_are_counted_over_all_looks(
    answers: list[dict[str, Any]], window: tuple[int, int, int, bool], asked: list[tuple[int, int, int]]
) -> None:
    link = ScriptedLink(*answers)
    found = link.bus("q").measure(LEASE, 1, 10, 100)
    assert (found.end, found.messages, found.bytes, found.more) == window and found.tail == 100
    assert not link.answers
    assert [(one["start"], one["messages_max"], one["bytes_max"]) for one in link.asked] == asked
    assert all(one["operation"] == "PEEK" and one["exact"] is True for one in link.asked)
    assert all((one["queue_uuid"], one["lease_epoch"]) == ("u", 1) for one in link.asked)


def test_a_node_that_goes_on_nowhere_is_asked_no_more() -> None:
    link = ScriptedLink(looked(4, 3, 30, more=True), looked(4, 0, 0, more=True))
    with pytest.raises(HoldfastError, match=r"^queue 'q' at amqp://hub:1: the node counts from 4 to 4, .*; expected"):
        link.bus("q").measure(LEASE, 1, 10, 100)
    pages = [{"queues": [{"name": "a"}], "more": True}, {"queues": [{"name": "a"}], "more": True}]
    with pytest.raises(HoldfastError, match=r"^queues at amqp://hub:1: the node's pages do not go on behind 'a'"):
        ScriptedLink(*pages).queues()
    pages = [{"queues": [], "more": True, "offset": 5}, {"queues": [], "more": True, "offset": 5}]
    with pytest.raises(HoldfastError, match=r"^queues at amqp://hub:1: the node's pages do not go on behind 5"):
        ScriptedLink(*pages).queues()


def test_all_pages_of_queues_are_asked_for() -> None:
    link = ScriptedLink(
        {"queues": [{"name": "b"}, {"name": "$management"}, {"name": "@x"}], "more": True},
        {"queues": [{"name": "c"}], "more": True, "offset": 7},
        {"queues": [{"name": "a"}], "more": False},
    )
    assert link.queues() == ["a", "b", "c"]
    assert [{**one, "operation": ""} for one in link.asked] == [
        {"operation": ""}, {"operation": "", "after": "@x"}, {"operation": "", "offset": 7},
    ]  # fmt: skip


def test_an_earlier_node_that_counts_no_bytes_is_told() -> None:
    with pytest.raises(ConfigError, match="does not count the bytes of a batch; leave out maxBytesPerTrigger"):
        ScriptedLink({"end": 4, "tail": 9}).bus("q").measure(LEASE, 1, 10, 100)


@pytest.mark.parametrize(
    ("call", "answer", "name"),
    [
        (lambda bus: bus.measure(LEASE, 1, 10, 100), {"end": "x", "messages": 1, "bytes": 1, "more": False}, "end"),
        (lambda bus: bus.peek(LEASE, 1, 10, 100), {}, "end"),
        (lambda bus: bus.advance(LEASE, 5), {"advanced": None}, "advanced"),
        (lambda bus: bus.place(), {"queue_uuid": "u", "advanced": 1, "head": 1, "lease_epoch": 1}, "tail"),
        (lambda bus: bus.bounds(), {"uuid": "u", "next_sequence": True}, "next_sequence"),
        (lambda bus: bus.bounds(), {"next_sequence": 5}, "uuid"),
        (lambda bus: bus.place(), {"advanced": 1, "head": 1, "tail": 1, "lease_epoch": 1}, "queue_uuid"),
        (lambda bus: bus.gaps(LEASE, [(1, 2)]), {"expired": 1}, "dropped"),
    ],
)
def test_an_answer_without_what_is_needed_is_one_line(
    call: Callable[[Any], object], answer: dict[str, Any], name: str
) -> None:
    with pytest.raises(HoldfastError, match=rf"^queue 'q' at amqp://hub:1: .* answer .* {name!r}; expected") as caught:
        call(ScriptedLink(answer).bus("q"))
    assert "\n" not in str(caught.value)
