"""How often Python looks for cycles."""

import gc
import weakref

from holdfast.collecting import THRESHOLDS, collect_rarely


class Circle:
    def __init__(self) -> None:
        self.itself = self


def test_what_is_left_between_two_calls_is_still_collected() -> None:
    """A worker of Spark's calls it for each of its tasks, for weeks."""
    collect_rarely()
    left = weakref.ref(Circle())
    collect_rarely()
    assert gc.get_threshold() == THRESHOLDS and left() is not None
    gc.collect()
    assert left() is None
