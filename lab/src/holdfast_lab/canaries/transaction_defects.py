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
        for place in [place for place in tied if place[1] in sequences[FEW:]]:
            del tied[place]

    return _retire


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
)
