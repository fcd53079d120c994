"""What a node lets go and reference counts alone do not free: it waits for the garbage collector, which seldom runs
(ADR 0005).
"""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected() -> "Iterator[Counter[str]]":
    """Has, at its end, how many objects of each of Holdfast's types were only the garbage collector's to free."""
    left: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield left
        gc.collect()
        left.update(type(item).__name__ for item in gc.garbage if type(item).__module__.startswith("holdfast."))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
