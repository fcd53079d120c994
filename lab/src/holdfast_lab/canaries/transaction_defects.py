"""Canaries in the commit of a transaction.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]

FEW: Final = 3
"""More than most tests have of it."""


def _untied(original: Function) -> Function:
    """Of many messages that one transaction takes, those behind the first few leave though its commit is refused."""

    def _retire(self: Any, transaction: Any, cursor: Any, sequences: list[int]) -> None:
        original(self, transaction, cursor, sequences)
        tied = self._parts.turns.gathered.tied
        for sequence in sequences[FEW:]:
            tied.pop((cursor.queue.queue_id, sequence), None)

    return _retire


def _apart(original: Function) -> Function:
    """Messages of one transaction for another node are shown there by themselves where they are more than a few."""

    def __init__(self: Any, posts: Any, messages_max: int, spread: Any) -> None:
        original(self, posts, min(FEW, messages_max), spread)

    return __init__


def _finished_of_few(original: Function) -> Function:
    """Of many messages of a subscription that one transaction takes, its batch has the first few as finished."""

    def retire(catalog: Any, turn: Any, cursor: Any, holder: object, sequences: list[int]) -> None:
        original(catalog, turn, cursor, holder, sequences[:FEW] if cursor.name else sequences)

    return retire


def _credit_without_a_time(original: Function) -> Function:
    """Links that are to be given credit in the next turn wait for the next event."""

    def wanted(core: Any) -> float:
        refills, core.links.refills = core.links.refills, {}
        try:
            return float(original(core))
        finally:
            core.links.refills = refills

    return wanted


TRANSACTION_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="untied-beyond-few",
        sentence="Of many messages that a transaction takes, some leave though the disk refuses it.",
        target="endpoints.transactions.discharge:Commits._retire",
        signature=(
            "(self, transaction: holdfast.endpoints.transactions.work.Transaction, "
            "cursor: holdfast.broker.cursors.cursor.Cursor, sequences: list[int]) -> None"
        ),
        broken=_untied,
        expected="owed to subscriptions",
    ),
    Canary(
        name="together-up-to-few",
        sentence="Of a transaction for another node with more than a few messages a part is shown there.",
        target="endpoints.transactions.together:Together.__init__",
        signature=(
            "(self, posts: collections.abc.Iterable[holdfast.endpoints.transactions.work.Post], messages_max: int, "
            "spread: collections.abc.Mapping[holdfast.endpoints.transactions.work.Post, "
            "collections.abc.Iterable[holdfast.endpoints.spreading.Branch]]) -> None"
        ),
        broken=_apart,
        expected="messages of one transaction",
    ),
    Canary(
        name="finished-of-few",
        sentence="A subscription is given again after a crash what a transaction that was committed had taken of it.",
        target="state.tied:retire",
        signature=(
            "(catalog: holdfast.state.catalog.Catalog, turn: holdfast.state.turns.Turn, "
            "cursor: holdfast.broker.cursors.cursor.Cursor, holder: object, sequences: list[int]) -> None"
        ),
        broken=_finished_of_few,
        expected="came again at",
    ),
    Canary(
        name="credit-without-a-time",
        sentence="Who declares a transaction at a full queue is given credit with the next event.",
        target="core.node:wanted",
        signature="(core: holdfast.core.parts.Parts) -> float",
        broken=_credit_without_a_time,
        expected="what it does when it is roused",
    ),
)
