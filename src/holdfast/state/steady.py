"""The node's steady clock over restarts.

Rules of this file: the system's clock is not read here. The steady clock begins as the wall clock of the store's first
start. At a start it advances by the smaller of two differences: wall clock now minus wall clock at the last commit, and
wall clock now minus steady clock. So setting the wall clock while the node runs does not move it. The second is smaller
if the wall clock was behind at that commit and is right now, as on a machine that keeps no time while it is off.
"""

from collections.abc import Mapping

from holdfast.broker.stored.custody_records import STEADY, WALL
from holdfast.engine.clock import Clock
from holdfast.engine.port import Batch


def put(batch: Batch, clock: Clock) -> None:
    """Adds the steady and the wall clock to the batch."""
    batch.puts["node", STEADY] = clock.steady_ms.to_bytes(8, "big")
    batch.puts["node", WALL] = clock.wall_ms.to_bytes(8, "big")


def at_start(rows: Mapping[bytes, bytes], wall_ms: int) -> int:
    """The steady clock at a start, by the rows of table `node`; it never goes back."""
    steady_ms = int.from_bytes(rows.get(STEADY, b""), "big")
    passed_ms = min(wall_ms - steady_ms, wall_ms - int.from_bytes(rows.get(WALL, b""), "big"))
    return steady_ms + max(0, passed_ms)
