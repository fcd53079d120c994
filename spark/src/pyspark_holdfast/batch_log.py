"""One line of JSON for each batch of a query, and how far its source is behind (docs/spark.md, "Progress").

Rules of this file: what Spark's progress says, and nothing that would have to be asked for. The lines go to the logger
`pyspark_holdfast.batches`, at level INFO; where they go from there is up to the program.
"""

import json
import logging
import sys
from contextlib import suppress
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from holdfast.lines import say
from pyspark_holdfast.offsets import Offset, offset_of

LOGGER: Final = "pyspark_holdfast.batches"

log = logging.getLogger(LOGGER)


def lag_of(progress: StreamingQueryProgress) -> dict[str, int]:
    """By queue, as `NODE/QUEUE`, how many sequences lay behind the batch when its source looked last: of those that
    were there, or with `availableNow` of those that this run reads. Nothing for sources of other kinds."""
    found: dict[str, int] = {}
    for source in progress.sources:
        end, latest = _offset(source.endOffset), _offset(source.latestOffset)
        if end is not None and latest is not None:
            places = {key: place for key, place in end.places.items() if key in latest.places}
            found |= {key: max(0, latest.places[key].seq - place.seq) for key, place in places.items()}
    return found


def record_of(progress: StreamingQueryProgress) -> dict[str, Any]:
    """What is told of a batch. Times are in seconds."""
    return {
        "query": str(progress.id),
        "batch": progress.batchId,
        "time": progress.timestamp,
        "rows": progress.numInputRows,
        "seconds": progress.durationMs.get("triggerExecution", 0) / 1000,
        "rows_per_s": round(_number(progress.processedRowsPerSecond), 3),
        "late": late_of(progress),
        "behind": lag_of(progress),
    }


def late_of(progress: StreamingQueryProgress) -> int:
    """Rows that came later than the watermark, and are left out."""
    return sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)


def tell_batch(progress: StreamingQueryProgress) -> None:
    """Logs the line of a batch; none of a trigger without rows."""
    if progress.numInputRows:
        log.info("%s", json.dumps(record_of(progress)))


class BatchFile(logging.FileHandler):
    """The lines at the end of a file. If they cannot be written that is told once, and the query goes on."""

    def __init__(self, file: str) -> None:
        super().__init__(file, encoding="utf-8")
        self._file = file
        self._has_told = False

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not self._has_told:
            self._has_told = True
            reason = getattr(error, "strerror", None) or error
            say(f"holdfast pipeline: batches are not written to {self._file} any more ({reason})", file=sys.stderr)

    def close(self) -> None:
        with suppress(OSError):  # of what could not be written before either
            super().close()


class BatchLog(StreamingQueryListener):
    """For a program's own session: `spark.streams.addListener(BatchLog())`."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        return

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        tell_batch(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        return

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        return


def _offset(text: str | None) -> Offset | None:
    try:
        return None if text is None else offset_of(json.loads(text))
    except ValueError:
        return None


def _number(value: float) -> float:
    """Spark's rates are infinite or NaN where no time went by, which JSON has not."""
    return value if value - value == 0 else 0.0
