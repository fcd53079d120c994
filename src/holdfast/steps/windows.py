"""The rows of a link's windows as they are on disk, and the changes of a turn.

Rules of this file: a turn's changes are kept separately until they are stored (`Gathered`, then `apply`), so an undone
turn has changed nothing. Rows of a step are in the order in which their windows began.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from holdfast.accounts import Account
from holdfast.steps.failure import StepFailed
from holdfast.steps.step import Step, is_over, start_of

KEYS_MAX: Final = 100_000
"""Windows of one step."""
ROW_BYTES: Final = 256
"""What a row takes of memory beside its key and its value, about."""
STEP_ID_BYTES: Final = 8

Place = tuple[int, bytes]
"""Which step, and the key."""
Changes = dict[Place, bytes | None]


def ids_of(steps: Sequence[Step]) -> dict[int, bytes]:
    """The id in the rows of each step with windows, by the step's number: the same after a restart, but another one if
    the step was changed."""
    found: dict[int, bytes] = {}
    seen: dict[str, int] = {}
    for number, step in enumerate(steps):
        if step.within_ms:
            text = step.windows_text
            seen[text] = seen.get(text, 0) + 1
            found[number] = blake2b(f"{seen[text]} {text}".encode(), digest_size=STEP_ID_BYTES).digest()
    return found


class Windows:
    """Of all steps of one link. `account` counts their memory."""

    def __init__(self, steps: Sequence[Step], account: Account) -> None:
        self.steps = steps
        self.account = account
        self.ids = ids_of(steps)
        self.rows: dict[int, OrderedDict[bytes, bytes]] = {number: OrderedDict() for number in self.ids}
        self.held_bytes = 0

    def load(self, number: int, rows: Mapping[bytes, bytes]) -> None:
        """Loads the stored rows of a step."""
        self.rows[number] = OrderedDict(sorted(rows.items(), key=lambda item: (start_of(item[1]), item[0])))
        self._count(sum(_size(key, row) for key, row in rows.items()))

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def apply(self, changes: Changes) -> None:
        """Applies stored changes."""
        more = 0
        for (number, key), row in changes.items():
            rows = self.rows[number]
            before = rows.get(key)
            if before is not None:
                more -= _size(key, before)
            if row is None:
                rows.pop(key, None)
                continue
            more += _size(key, row)
            rows[key] = row
            if before is not None and start_of(before) != start_of(row):
                rows.move_to_end(key)
        self._count(more)

    def forget(self) -> list[Place]:
        """Forgets all windows, and their memory; the caller deletes their rows."""
        places = [(number, key) for number, rows in self.rows.items() for key in rows]
        for rows in self.rows.values():
            rows.clear()
        self._count(-self.held_bytes)
        return places

    def _count(self, more: int) -> None:
        self.held_bytes += more
        if more > 0:
            self.account.add(more)
        else:
            self.account.refund(-more)

    def due_in_ms(self, time_ms: int) -> int | None:
        """How long it takes from then until the first window is over; 0 or less if one is, None without windows."""
        found: int | None = None
        for number, rows in self.rows.items():
            if rows:
                row, within_ms = next(iter(rows.values())), self.steps[number].within_ms
                left = start_of(row) + within_ms - time_ms
                if left > 0 and is_over(row, time_ms, time_ms, within_ms):
                    left = -within_ms  # the clock was set back
                found = left if found is None else min(found, left)
        return found

    def over(self, number: int, known_ms: int, now_ms: int, gathered: "Gathered") -> Iterator[tuple[bytes, bytes]]:
        """(key, row) of the step's windows that are over (`is_over`), the oldest first."""
        within_ms = self.steps[number].within_ms
        for key, row in self.rows[number].items():
            if not is_over(row, known_ms, now_ms, within_ms):
                return
            changed = gathered.get((number, key))
            if changed is not None and is_over(changed, known_ms, now_ms, within_ms):
                yield key, changed


class Gathered:
    """The changes of a link's windows in a turn: `changes`, and the resulting number of rows by step."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.changes: Changes = {}
        self._counts = {number: len(rows) for number, rows in windows.rows.items()}
        self._more_bytes = 0

    def get(self, place: Place) -> bytes | None:
        if place in self.changes:
            return self.changes[place]
        return self.windows.rows[place[0]].get(place[1])

    def check(self, place: Place) -> None:
        """StepFailed if there is no room for one more row."""
        if self._counts[place[0]] >= KEYS_MAX:
            raise StepFailed(f"it has {KEYS_MAX} windows, the most that a step may have")
        if not self.windows.account.fits(self._more_bytes + ROW_BYTES):
            raise StepFailed("the windows of all links take as much memory as they may")

    def add(self, changes: Changes) -> None:
        for place, row in changes.items():
            before = self.get(place)
            self._counts[place[0]] += (row is not None) - (before is not None)
            self._more_bytes += 0 if row is None else _size(place[1], row)
            self._more_bytes -= 0 if before is None else _size(place[1], before)
            self.changes[place] = row


def _size(key: bytes, row: bytes) -> int:
    return len(key) + len(row) + ROW_BYTES
