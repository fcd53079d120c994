"""The settings of a session, without a JVM."""

import shlex
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark_holdfast.session import settings, with_retries


def test_the_log_may_lie_where_names_have_blanks() -> None:
    """Spark cuts these options as a shell does, and Java reads the file's place as a URI."""
    found = settings("local[2]", Path("/home/ann/my jobs #1"))["spark.driver.extraJavaOptions"]
    assert shlex.split(found) == ["-Dlog4j2.configurationFile=file:///home/ann/my%20jobs%20%231/log4j2.properties"]


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_streams_are_cut_the_same_each_time_on_every_master(master: str) -> None:
    assert settings(master, Path("/logs"))["spark.sql.adaptive.streaming.stateless.enabled"] == "false"


@pytest.mark.parametrize(
    ("master", "found"),
    [("local", "local[1,4]"), ("local[*]", "local[*,4]"), ("local[2]", "local[2,4]"), ("local[2,1]", "local[2,1]"),
     ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"), ("spark://h:1", "spark://h:1")],
)  # fmt: skip
def test_a_local_master_tries_a_task_again(master: str, found: str) -> None:
    assert with_retries(master) == found
