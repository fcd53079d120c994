"""The Spark side: a streaming source over a named subscription, and the jobs that use it.

Spark's Python workers import each package whose name begins with `pyspark_`, and register its `DefaultSource`.
"""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_holdfast.source import HoldfastDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    """`DefaultSource` when it is asked for: importing PySpark takes a second, and a grammar needs none."""
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from pyspark_holdfast.source import HoldfastDataSource
    except ImportError as error:  # one of Spark's look-ups, which would then find no source of anybody's
        text = f"the source holdfast is not registered: it needs pyspark 4.2 or 4.3, pyarrow and holdfast ({error})"
        logging.getLogger(__name__).warning("%s", text)
        raise AttributeError(text) from error
    return HoldfastDataSource
