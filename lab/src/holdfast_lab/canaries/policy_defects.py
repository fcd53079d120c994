"""Canaries in policies of queues and messages: deliveries_max, delays, priorities, groups that are shown together.

Rules of this file: as in `hop_defects.py`.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]

FEW: Final = 2
SHOWN: Final = 20
"""Tests of fewer messages do not find it."""


def _one_life(original: Function) -> Function:
    """Messages of a long queue that may have been delivered when the node was killed do not count as failed
    deliveries."""

    def begin_life(self: Any, queue: Any, cursor: Any) -> None:
        original(self, queue, cursor)
        if cursor.is_counted:
            cursor.lives = tuple(end for end in cursor.lives if end <= SHOWN)

    return begin_life


def _due_and_forgotten(original: Function) -> Function:
    """Of many messages that are due in a turn whose commit is refused, all but the first few are forgotten until the
    node restarts."""

    def _decided(self: Any, effect: Any, stored: bool) -> None:
        if not stored:
            del effect.moved[FEW:]
        original(self, effect, stored)

    return _decided


def _waits_and_forgotten(original: Function) -> Function:
    """What is due and found no room is forgotten where a commit is refused beside which it waits."""

    def decided(self: Any, effect: Any, stored: bool) -> None:
        if not stored:
            self.waiting.clear()
        original(self, effect, stored)

    return decided


def _goes_before(original: Function) -> Function:
    """One of the second priority goes before a released message of the highest priority."""

    def _next(self: Any, group: Any, consumers: Any) -> Any:
        levels = [level for level in reversed(group.ready.levels) if level]
        if len(levels) > 1 and levels[0].came_back is not None and len(group.ready) > FEW:
            return levels[1], levels[1].first
        return original(self, group, consumers)

    return _next


def _group_forgotten(original: Function) -> Function:
    """Of many messages that wait to be shown together while a commit is refused, all but the first few no longer wait
    for the others."""

    def restore(self: Any, record: Any, waiting: Any) -> None:
        original(self, record, waiting)
        for group in list(self.groups.by_first.values()):
            if len(group.members) > FEW:
                self.give_up(group)

    return restore


def _publisher_forgotten(original: Function) -> Function:
    """A connection that has published some messages is identified as another one from then on."""
    told: Counter[int] = Counter()

    def connection(self: Any, peer: Any) -> bytes:
        told[peer.number] += 1
        found: bytes = original(self, peer)
        return found if told[peer.number] <= SHOWN else bytes(len(found))

    return connection


def _outlives_its_topic(original: Function) -> Function:
    """When a temporary topic ends, all but the first few of its subscriptions stay."""

    def subscribed_queues(self: Any) -> Any:
        return original(self)[:FEW]

    return subscribed_queues


LEAST: Final = 4
"""Dead letters of a test."""


def _looks_new(original: Function) -> Function:
    """Of many messages that go to another queue, those behind the first few look there as if nobody had seen them."""
    told = 0

    def with_earlier(value: bytes, failures: int | None) -> bytes:
        nonlocal told
        told += failures is not None
        found: bytes = original(value, failures)
        return found if told <= LEAST else value

    return with_earlier


POLICY_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="deliveries-of-one-life",
        sentence="A message that ends its node each time is given to consumers more often than its queue allows.",
        target="state.delivery_rows:DeliveryRows.begin_life",
        signature="(self, queue: holdfast.broker.queue.Queue, cursor: holdfast.broker.cursors.cursor.Cursor) -> None",
        broken=_one_life,
        expected="deliveries_max is",
    ),
    Canary(
        name="due-and-forgotten",
        sentence="Of many messages that are due while the disk is full, some are never delivered.",
        target="custody.delays:Delays._decided",
        signature="(self, effect: holdfast.custody.delays.Delivered, stored: bool) -> None",
        broken=_due_and_forgotten,
        expected="that nobody will deliver",
    ),
    Canary(
        name="waiting-and-forgotten",
        sentence="Messages that are due and wait for room are never delivered, because the disk was full meanwhile.",
        target="custody.delays:HostDelays.decided",
        signature="(self, effect: holdfast.custody.delays.Delivered, stored: bool) -> None",
        broken=_waits_and_forgotten,
        expected="that nobody will deliver",
    ),
    Canary(
        name="second-before-first",
        sentence="A queue that sorts hands out a lower priority while a message of the highest that came back waits.",
        target="broker.cursors.looking:Looking._next",
        signature="(self, group: holdfast.broker.cursors.ranked.Ranked, "
        "consumers: list[holdfast.broker.cursors.entry_consumer.EntryConsumer]) -> "
        "tuple[holdfast.broker.cursors.ready.Level, int | None] | None",
        broken=_goes_before,
        expected="was handed out while",
    ),
    Canary(
        name="group-forgotten",
        sentence="A part of a transaction is shown at another node, because the disk there was full as the rest came.",
        target="broker.stored.origins:Origin.restore",
        signature="(self, record: holdfast.broker.stored.custody_records.OriginRecord, "
        "waiting: list[tuple[int, holdfast.broker.stored.groups.Waiting | None]]) -> None",
        broken=_group_forgotten,
        expected="messages of one transaction",
    ),
    Canary(
        name="publisher-forgotten",
        sentence="A subscription with no-local is shown what its own connection publishes, once that is much.",
        target="endpoints.publishers:Publishers.connection",
        signature="(self, peer: holdfast.peers.peer.Peer) -> bytes",
        broken=_publisher_forgotten,
        expected="which its own connection published",
    ),
    Canary(
        name="looks-new-elsewhere",
        sentence="A message that consumers have failed to process looks new where it is moved to another queue.",
        target="broker.entries.entry:with_earlier",
        signature="(value: bytes, failures: int | None) -> bytes",
        broken=_looks_new,
        expected="and says that",
    ),
    Canary(
        name="outlives-its-topic",
        sentence="Of many subscriptions of a temporary topic some stay when it ends.",
        target="endpoints.addresses.dynamic_nodes:TemporaryTopic.subscribed_queues",
        signature="(self) -> list[holdfast.endpoints.addresses.dynamic_nodes.TemporaryQueue]",
        broken=_outlives_its_topic,
        expected="ended, and",
    ),
)
