"""The Spark side: a streaming source over a named subscription, and the jobs that use it.

Spark's Python workers import each package whose name begins with `pyspark_`, and register its `DefaultSource`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_holdfast.source import HoldfastDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    """`DefaultSource` when it is asked for: importing PySpark takes a second, and a grammar needs none."""
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_holdfast.source import HoldfastDataSource

    return HoldfastDataSource
