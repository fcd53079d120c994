"""What is told of a batch: a line of JSON, and how far its queues are behind."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from holdfast.errors import ConfigError
from pyspark_holdfast.batch_log import LOGGER, BatchLog, lag_of, record_of
from pyspark_holdfast.commands import _batch_log
from pyspark_holdfast.offsets import Offset, Place


def offset(**places: int) -> str:
    return json.dumps(Offset("s", {f"a/{name}": Place("u", seq) for name, seq in places.items()}).json())


def progress(*sources: tuple[str | None, str | None], rows: int = 5, rate: float = 2.5) -> Any:
    return SimpleNamespace(
        id="7", batchId=3, timestamp="2026-11-30T01:00:00.000Z", numInputRows=rows, processedRowsPerSecond=rate,
        durationMs={"triggerExecution": 1_234},
        stateOperators=[SimpleNamespace(numRowsDroppedByWatermark=2), SimpleNamespace(numRowsDroppedByWatermark=1)],
        sources=[SimpleNamespace(endOffset=end, latestOffset=latest) for end, latest in sources],
    )  # fmt: skip


def test_how_far_each_queue_is_behind() -> None:
    assert lag_of(progress((offset(x=5, y=9, z=1), offset(x=7, y=9)), (offset(w=2), offset(w=1)))) == {
        "a/x": 2, "a/y": 0, "a/w": 0,
    }  # fmt: skip


@pytest.mark.parametrize("other", [None, "null", "{", '{"partition": 5}', "17"])
def test_sources_of_other_kinds_are_left_out(other: str | None) -> None:
    assert lag_of(progress((offset(x=5), other), (other, other), (other, offset(x=5)))) == {}


def test_a_line_of_json(tmp_path: Path) -> None:
    with _batch_log(str(tmp_path / "log")):
        for rows in (5, 0):
            BatchLog().onQueryProgress(SimpleNamespace(progress=progress((offset(x=5), offset(x=7)), rows=rows)))  # type: ignore[arg-type]
    BatchLog().onQueryProgress(SimpleNamespace(progress=progress()))  # type: ignore[arg-type]
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(line) == {
        "query": "7", "batch": 3, "time": "2026-11-30T01:00:00.000Z", "rows": 5, "seconds": 1.234, "rows_per_s": 2.5,
        "late": 3, "behind": {"a/x": 2},
    }  # fmt: skip
    assert logging.getLogger(LOGGER).handlers == []


@pytest.mark.parametrize("rate", [float("inf"), float("nan")])
def test_a_rate_that_is_no_number_is_0(rate: float) -> None:
    assert record_of(progress(rate=rate))["rows_per_s"] == 0


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"for --batch-log \(Is a directory\); expected a file"),
        _batch_log(str(tmp_path)),
    ):
        pass


def test_a_disk_that_is_full_is_told_once_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with _batch_log("/dev/full"):
        for _ in range(3):
            BatchLog().onQueryProgress(SimpleNamespace(progress=progress((offset(x=5), offset(x=7)))))  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert said == "holdfast pipeline: batches are not written to /dev/full any more (No space left on device)\n"
