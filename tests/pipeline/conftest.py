"""One Spark session for all tests of this folder: it takes seconds to start."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import ConfigError
from support.packages import OURS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.fake_bus import FakeQueue

TESTS = Path(__file__).resolve().parent.parent


def worker_path() -> str:
    """What Spark's workers need on PYTHONPATH to find the tests' own sources."""
    return os.pathsep.join(map(str, (TESTS, *(package.parent for package in OURS))))


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that use the session go to one worker: a second one would start a JVM and its Python workers again."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):  # or by way of `our_session`
            item.add_marker(pytest.mark.xdist_group("session"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """`local[2,4]`, with the sources `holdfast` and `fakebus`; the tests skip where there is no Java."""
    pytest.importorskip("pyspark")
    from pyspark_holdfast.java import find_java_home
    from pyspark_holdfast.session import start_session, stop_session

    try:
        find_java_home(os.environ)
    except ConfigError as error:
        pytest.skip(str(error))
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = worker_path()
    options = {"spark.driver.memory": "1g"}
    session = start_session("tests", logs=tmp_path_factory.mktemp("spark"), master="local[2]", extra=options)
    from pipeline.fake_bus import FakeDataSource

    session.dataSource.register(FakeDataSource)
    yield session
    stop_session(session)
    os.environ.clear()
    os.environ.update(before)
    assert "pyspark" in sys.modules


@pytest.fixture
def our_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> "SparkSession":
    """Commands and programs that start a session get that of the tests, and leave it running."""
    from pyspark_holdfast import session

    monkeypatch.setattr(session, "start_session", lambda *arguments, **options: spark)
    monkeypatch.setattr(session, "stop_session", lambda stopped: None)
    return spark


@pytest.fixture
def queue(tmp_path: Path) -> "FakeQueue":
    from pipeline.fake_bus import FakeQueue

    made = FakeQueue(tmp_path / "queue.db")
    made.make()
    return made
