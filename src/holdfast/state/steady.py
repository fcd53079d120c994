"""The node's steady clock over restarts.

Rules of this file: the system's clock is not read here. The steady clock begins as the wall clock of the store's first
start. At a start it advances by the smaller of two differences: wall clock now minus wall clock at the last commit, and
wall clock now minus steady clock. So setting the wall clock while the node runs does not move it. The second is smaller
if the wall clock was behind at that commit and is right now, as on a machine that keeps no time while it is off.
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
