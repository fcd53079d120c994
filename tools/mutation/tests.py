"""A pytest plugin: collects all tests, and runs those that the tool asks for in forks, each with a mistake.

Rules of this file: loaded by `-p mutation.tests` in the process that `forks.Server` starts.
"""

import pytest

from mutation import forks


class _Failures:
    """What a fork's test has reported."""

    def __init__(self) -> None:
        self.last = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.last:
            self.last = f"{report.when}: {report.longreprtext.splitlines()[-1] if report.longreprtext else ''}"


def pytest_runtestloop(session: pytest.Session) -> bool:
    """In place of pytest's own."""
    items = {item.nodeid: item for item in session.items}
    failures = _Failures()
    session.config.pluginmanager.register(failures)

    def run(name: str) -> str:
        if name not in items:
            return ""  # its parameters are drawn, and others now
        item = items[name]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return failures.last

    forks.serve(run)
    return True
