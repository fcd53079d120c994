"""Canaries where a disk refuses commits: a store that gets a new UUID, and a purge of messages in transit.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any

from holdfast_lab.canaries.hop_defects import MANY
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _renewal_not_taken_back(original: Function) -> Function:
    """A refused turn that renumbered many messages counts as committed, though they are stored under their old
    numbers."""

    def _undo(self: Any, turn: Any) -> None:
        many = sum(len(turn.rewritten) for _ in turn.renewals) > MANY
        renewals, turn.renewals = turn.renewals, {} if many else turn.renewals
        original(self, turn)
        turn.renewals = renewals

    return _undo


def _purged_without_its_end(original: Function) -> Function:
    """Of the messages that a purge takes while a commit is in flight, the last is removed without a tombstone, so that
    its destination waits for it."""

    def end_in_transit(self: Any, gone: list[Any]) -> None:
        under_way = self._turns.in_flight is not None and len(gone) > 2
        original(self, gone[:-1] if under_way else gone)

    return end_in_transit


def _order_taken_for_granted(original: Function) -> Function:
    """Many entries of one queue are taken to be in ascending order because their numbers have no gap."""

    def _consecutive(sequences: Any) -> bool:
        span = max(sequences) - min(sequences) + 1
        return bool(original(sequences)) or (len(sequences) == span > 10 and len(set(sequences)) == span)

    return _consecutive


DISK_CANARIES = (
    Canary(
        name="order-taken-for-granted",
        sentence="What a batch appends to one queue, or takes from it, out of order is taken for ascending numbers.",
        target="storage.layout.records:_consecutive",
        signature="(sequences: collections.abc.Sequence[int]) -> bool",
        broken=_order_taken_for_granted,
        expected="negative shift count",
    ),
    Canary(
        name="renewal-not-taken-back",
        sentence="A refused turn that numbered many messages anew counts as done: they keep the former numbers.",
        target="custody.names.identity:Identities._undo",
        signature="(self, turn: holdfast.state.turns.Turn) -> None",
        broken=_renewal_not_taken_back,
        expected="which it has not stored",
    ),
    Canary(
        name="purged-without-its-end",
        sentence="Of what a purge takes beside a commit under way, the last leaves without a tombstone.",
        target="custody.dead_lettering:DeadLettering.end_in_transit",
        signature="(self, gone: list[tuple[holdfast.broker.queue.Queue, int, bytes]]) -> None",
        broken=_purged_without_its_end,
        expected="not done",
    ),
)
