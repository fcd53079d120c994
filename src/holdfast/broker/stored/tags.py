"""The last stored delivery tags of a link that counts its tags, as runs (AMQP 1.0 §2.6.12).

Rules of this file: pure data. A tag is a 32-bit number, 4 bytes on the wire; runs stay in the order in which they were
added, so that at the bound the oldest tag is forgotten. Most links make one run; the wrap at 2^32 only splits one.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from holdfast.errors import StorageError

TAG_BYTES: Final = 4

_RUN: Final = Struct(">II")


class TagRing:
    """The last `count_max` tags added."""

    __slots__ = ("_runs", "count", "count_max")

    def __init__(self, count_max: int, runs: Iterable[tuple[int, int]] = ()) -> None:
        self.count_max = count_max
        self.count = 0
        self._runs: deque[tuple[int, int]] = deque()
        for first, last in runs:
            self.add(first, last)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Runs (first, last), oldest first."""
        return iter(self._runs)

    @property
    def runs(self) -> int:
        """How many there are."""
        return len(self._runs)

    def copy(self) -> "TagRing":
        return TagRing(self.count_max, self._runs)

    def add(self, first: int, last: int) -> None:
        """Adds the tags `first` to `last`, both inclusive, the newest."""
        runs = self._runs
        self.count += last - first + 1
        if runs and runs[-1][1] + 1 == first:
            first = runs.pop()[0]
        runs.append((first, last))
        while self.count > self.count_max:
            first, last = runs.popleft()
            over = min(self.count - self.count_max, last - first + 1)
            self.count -= over
            if first + over <= last:
                runs.appendleft((first + over, last))

    def members(self) -> set[bytes]:
        """All of them, as they are on the wire."""
        return {number.to_bytes(TAG_BYTES) for first, last in self._runs for number in range(first, last + 1)}

    def pack(self) -> bytes:
        return b"".join(_RUN.pack(first, last) for first, last in self._runs)

    @classmethod
    def unpack(cls, data: bytes, count_max: int) -> "TagRing":
        """What `pack` wrote; StorageError if it is something else."""
        runs = list(_RUN.iter_unpack(data)) if len(data) % _RUN.size == 0 else [(1, 0)]
        if any(first > last for first, last in runs):
            raise StorageError("a record of delivery tags cannot be read")
        return cls(count_max, runs)
