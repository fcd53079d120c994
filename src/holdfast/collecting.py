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
    """From now on; what this process has made so far is not looked at again."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
