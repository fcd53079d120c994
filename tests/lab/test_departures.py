"""The flights: counts that the data's documentation states, order, and what is said when the data is
missing.
"""

import csv
import zipfile
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast_lab.demo import departures


def archive(path: Path, lines: list[str]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("flights.csv", "\n".join(lines) + "\n")
    return path


HEADER = "month,origin,minute,time_hour"


def test_time_order_is_by_scheduled_time_then_by_row(tmp_path: Path) -> None:
    rows = [
        "10,JFK,5,2013-10-01T10:00:00Z",
        "1,EWR,40,2013-01-01T10:00:00Z",
        "1,LGA,9,2013-01-01T10:00:00Z",
        "1,EWR,9,2013-01-01T10:00:00Z",
        "1,JFK,0,2013-01-01T09:00:00Z",
    ]
    path = archive(tmp_path / "flights.csv.zip", [HEADER, *rows])
    loaded = departures.load(path=path)
    assert loaded.header == ("id", "month", "origin", "minute", "time_hour")
    assert [row[0] for row in loaded.rows] == ["5", "3", "4", "2", "1"]
    assert [row[0] for row in departures.load(2, path).rows] == ["5", "3"]
    assert loaded.counts() == {"EWR": 2, "JFK": 2, "LGA": 1}
    assert [row[0] for row in loaded.of("EWR")] == ["4", "2"]


@pytest.mark.parametrize("content", [b"", b"not a zip", None])
def test_unreadable_data_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "flights.csv.zip"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="make setup"):
        departures.load(path=path)


def test_write_csv_is_read_back(tmp_path: Path) -> None:
    departures.write_csv(tmp_path / "x.csv", ("id", "note"), [["1", 'a "b", c'], ["2", "NA"]])
    with (tmp_path / "x.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["id", "note"], ["1", 'a "b", c'], ["2", "NA"]]
    assert b"\r" not in (tmp_path / "x.csv").read_bytes()


def test_the_real_data() -> None:
    try:
        departures.data_path()
    except ConfigError as error:
        pytest.skip(str(error))
    loaded = departures.load()
    assert loaded.counts() == {"EWR": 120_835, "JFK": 111_279, "LGA": 104_662}
    assert len(loaded.rows) == departures.ROWS == len({row[0] for row in loaded.rows})
    hour = loaded.header.index("time_hour")
    assert all(before[hour] <= after[hour] for before, after in zip(loaded.rows, loaded.rows[1:], strict=False))
