"""Writes what is in the queue `flights` to a Parquet table with Spark, and counts its rows by carrier.

    python examples/spark_stream.py amqp://127.0.0.1:5672 DIRECTORY

Start it again after more messages have arrived: each message is in the table once.
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_holdfast.session import start_session, stop_session
from pyspark_holdfast.tables import count_by, read_table


def write(spark: SparkSession, url: str, table: Path) -> None:
    checkpoint = f"{table}.checkpoint"
    rows = (
        spark.readStream.format("holdfast")
        .option("url", url)
        .option("address", "flights")
        .option("subscription", "example")
        .option("checkpoint", checkpoint)  # the same as checkpointLocation below
        .option("sinkPath", str(table))
        .load()
    )
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(table))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(url: str, directory: Path) -> None:
    spark = start_session("example", logs=directory / "logs")
    try:
        write(spark, url, directory / "table")
        count_by(read_table(spark, directory / "table"), "carrier").show()
    finally:
        stop_session(spark)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url", help="the node, amqp://127.0.0.1:5672 say")
    parser.add_argument("directory", type=Path, help="where the table is written")
    args = parser.parse_args()
    main(args.url, args.directory)
