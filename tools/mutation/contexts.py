"""A pytest plugin for a run under coverage: which test reached a line, and how long each took.

Rules of this file: loaded by `-p mutation.contexts`; the times go to the file that HOLDFAST_TEST_TIMES names.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

_times: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    running = coverage.Coverage.current()
    if running is not None:
        running.switch_context(item.nodeid)
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _times[report.nodeid] = round(_times.get(report.nodeid, 0.0) + report.duration, 4)


def pytest_sessionfinish() -> None:
    Path(os.environ["HOLDFAST_TEST_TIMES"]).write_text(json.dumps(_times))
