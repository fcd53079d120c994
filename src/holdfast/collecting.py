"""How often Python looks for cycles among its objects, where messages come by the thousand.

Rules of this file: messages and rows hold no cycles and are freed by their counts; looking for cycles among those that
live takes up to a third of the time of reading them (docs/adr/0005-node-runtime.md).
"""

import gc
from typing import Final

__all__ = ["collect_rarely"]

THRESHOLDS: Final = (50_000, 20, 50)
"""Of the three generations. Only connections and failures leave cycles."""


def collect_rarely() -> None:
    """From now on. What this process has made before the first call is not looked at again; what it makes between two
    calls is, as it may be garbage."""
    if not gc.get_freeze_count():
        gc.freeze()
    gc.set_threshold(*THRESHOLDS)
