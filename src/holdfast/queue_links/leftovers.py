"""Stored rows of windows at the start of a node: they are given to their links, or deleted in small steps if there is
none.

Rules of this file: a row belongs to the id of a link and of a step. The rows of a link that is deleted, or of a step
that was changed since the last start, are left over and are deleted here; after a crash this continues.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from holdfast.broker.stored import records
from holdfast.engine.effects import Effect
from holdfast.state.tables import Tables
from holdfast.state.turns import Turns
from holdfast.steps.windows import Place, Windows

DELETED_COUNT: Final = 1_000
"""The maximum number of rows that one turn deletes."""


@dataclass(frozen=True, slots=True, eq=False)
class Deleted(Effect):
    """Rows are deleted with the turn: it is told whether the turn was stored."""

    keys: list[bytes] = field(repr=False)


class Leftovers:
    """`keys`: of rows without a link; `going`: whether a commit that deletes some is in progress."""

    def __init__(self, turns: Turns, store: Tables) -> None:
        self._turns = turns
        self._found: dict[bytes, dict[bytes, dict[bytes, bytes]]] = {}
        self.keys: dict[bytes, None] = {}
        self.going = False
        for key, row in store.table("windows"):
            link_id, step_id = records.WINDOW.unpack_from(key)
            rows = self._found.setdefault(link_id, {}).setdefault(step_id, {})
            rows[key[records.WINDOW.size :]] = row
        turns.effects.on_decided(Deleted, self._decided)

    # ------------------------------------------------------------------------------------------------ at start

    def give(self, link_id: bytes, windows: Windows) -> None:
        """Gives a link its rows."""
        mine = self._found.get(link_id, {})
        for number, step_id in windows.ids.items():
            windows.load(number, mine.pop(step_id, {}))

    def keep_rest(self) -> None:
        """All links have their rows: the rest is to be deleted."""
        for link_id, steps in self._found.items():
            for step_id, rows in steps.items():
                self._add(link_id, step_id, rows)
        self._found.clear()

    # ------------------------------------------------------------------------------------------------ deleted

    def leave(self, link_id: bytes, windows: Windows) -> None:
        """The link was deleted, and its rows are left over."""
        ids = windows.ids
        places: list[Place] = windows.forget()
        for number, key in places:
            self._add(link_id, ids[number], (key,))

    def _add(self, link_id: bytes, step_id: bytes, keys: Iterable[bytes]) -> None:
        head = records.WINDOW.pack(link_id, step_id)
        self.keys.update((head + key, None) for key in keys)

    @property
    def has_work(self) -> bool:
        return bool(self.keys) and not self.going

    def step(self) -> None:
        """Deletes some of them with this turn."""
        turn, keys = self._turns.gathered, list(islice(self.keys, DELETED_COUNT))
        turn.batch.deletes += [("windows", key) for key in keys]
        turn.decided.append(Deleted(self._turns.event, keys))
        self.going = True

    def _decided(self, effect: Deleted, stored: bool) -> None:
        self.going = False
        if stored:
            for key in effect.keys:
                self.keys.pop(key, None)
