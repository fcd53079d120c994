"""A pytest plugin: which mistakes each test reaches, how long it takes, and whether it passes without any.

Rules of this file: loaded by `-p mutation.contexts` where the sources are a copy with probes; what it found goes to the
file that HOLDFAST_TEST_HITS names: `{test: {"hits": [number, …], "seconds": …, "passed": …}}`.
"""

import json
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mutation import probes

_hits: set[int] = import_module(probes.MODULE).hits
_found: dict[str, dict[str, Any]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _hits.clear()
    _found[item.nodeid] = found = {"hits": [], "seconds": 0.0, "passed": True}
    result = yield
    found["hits"] = sorted(_hits)
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    found = _found[report.nodeid]
    found["seconds"] = round(found["seconds"] + report.duration, 4)
    found["passed"] = found["passed"] and not report.failed


def pytest_sessionfinish() -> None:
    Path(os.environ["HOLDFAST_TEST_HITS"]).write_text(json.dumps(_found))
