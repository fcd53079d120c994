"""The reports on a table of flights, against numbers counted by hand."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from holdfast.errors import ConfigError
from holdfast.pipeline.flights import flights_report
from holdfast.pipeline.rows import COLUMNS
from holdfast.pipeline.tables import check_table, property_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHTS = [
    ("1", "EWR", "UA", "5", "2"),
    ("2", "EWR", "UA", "5", "4"),
    ("3", "JFK", "B6", "6", "NA"),
    ("4", "JFK", "B6", "6", "-3"),
    ("5", "LGA", "DL", "6", "30"),
]


def table(spark: "SparkSession") -> "DataFrame":
    """The last flight twice, under a sequence of its own; odd ones with their properties in the body alone."""
    rows = []
    for sequence, flight in enumerate([*FLIGHTS, FLIGHTS[-1]], start=1):
        names = ("id", "origin", "carrier", "hour", "dep_delay")
        properties = dict(zip(names, flight, strict=True))
        rows.append(
            (
                "flights", sequence, f"m-{flight[0]}", None, None, None, None, None,
                properties if sequence % 2 == 0 else {}, {}, bytearray(json.dumps(properties).encode()),
            )
        )  # fmt: skip
    return spark.createDataFrame(rows, COLUMNS)


@pytest.mark.spark
def test_flights_report(spark: "SparkSession") -> None:
    report = flights_report(table(spark))
    assert report["rows"] == 6
    assert report["by_origin"] == {"EWR": 2, "JFK": 2, "LGA": 2}
    assert report["identities"] == {
        "rows": 6, "sequences": 6, "message_ids": 5, "bodies": 5, "first": 1, "last": 6, "ids": 5,
    }  # fmt: skip
    assert report["delays"] == [
        {"carrier": "B6", "hour": 6, "flights": 2, "departed": 1, "mean_min": -3.0, "median_min": -3.0,
         "p90_min": -3.0},
        {"carrier": "DL", "hour": 6, "flights": 2, "departed": 2, "mean_min": 30.0, "median_min": 30.0,
         "p90_min": 30.0},
        {"carrier": "UA", "hour": 5, "flights": 2, "departed": 2, "mean_min": 3.0, "median_min": 3.0,
         "p90_min": 3.8},
    ]  # fmt: skip


@pytest.mark.spark
def test_a_property_comes_from_the_body_where_there_is_none(spark: "SparkSession") -> None:
    found = table(spark).orderBy("sequence").select(property_of("origin").alias("origin")).collect()
    assert [row["origin"] for row in found] == ["EWR", "EWR", "JFK", "JFK", "LGA", "LGA"]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pipeline ingest"):
        check_table(tmp_path)
