"""The node's steady clock over restarts.

Rules of this file: pure. The steady clock starts as the wall clock of the store's first start and then counts what has
passed. Only while nobody counts, between the last commit and the next start, the wall clock says how much that was. It
is compared with itself, so that whoever set it while the node ran has moved nothing; and a wall clock that was wrong at
that commit and is right since (a machine that keeps no time when it is off) adds no more than it is ahead of the steady
one. So what is counted is the less of both.
"""

from collections.abc import Mapping
from typing import Final

from holdfast.engine.clock import Clock
from holdfast.engine.port import Batch

STEADY_KEY: Final = b"steady"
"""The row of table `node` with the steady clock of the last turn."""

WALL_KEY: Final = b"wall"
"""The row beside it with the wall clock of that turn. Earlier versions write none."""


def put(batch: Batch, clock: Clock) -> None:
    """Adds both to the batch."""
    batch.puts["node", STEADY_KEY] = clock.steady_ms.to_bytes(8, "big")
    batch.puts["node", WALL_KEY] = clock.wall_ms.to_bytes(8, "big")


def at_start(rows: Mapping[bytes, bytes], wall_ms: int) -> int:
    """The steady clock at a start, by the rows of table `node`; it never goes back."""
    steady_ms = int.from_bytes(rows.get(STEADY_KEY, b""), "big")
    passed_ms = min(wall_ms - steady_ms, wall_ms - int.from_bytes(rows.get(WALL_KEY, b""), "big"))
    return steady_ms + max(0, passed_ms)
