"""How much processor time each test takes: its own process, the children that it has waited for, and those that live.

A clock tells little about a machine that is shared. `--processor 20` lists the dearest modules and tests; the reports
of the stages hold each test's as the property `processor_s` (tools/stages.py).

Rules of this file: a plugin that changes no test. A child that is killed and not waited for is missing; what a process
that many tests share takes, as Spark's, is that of the test which it does it for.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pytest

PROPERTY: Final = "processor_s"
_BEGAN: Final = pytest.StashKey[float]()
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def processor_s() -> float:
    """Of this process, of its children that have ended, and of those that live, with theirs."""
    return sum(os.times()[:4]) + sum(map(_living_s, _children(f"/proc/self/task/{os.getpid()}")))


def _children(thread: str) -> list[str]:
    """The processes that this thread has started, where Linux tells."""
    try:
        with open(f"{thread}/children", encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def _living_s(process: str) -> float:
    """Nothing where it has just ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:
        return 0.0
    of_it = sum(map(int, fields[11:15])) / _TICKS
    return of_it + sum(_living_s(child) for thread in threads for child in _children(f"/proc/{process}/task/{thread}"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_BEGAN] = processor_s()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        item.user_properties.append((PROPERTY, round(max(0.0, processor_s() - item.stash[_BEGAN]), 3)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    count = config.option.processor
    if not count:
        return
    tests: defaultdict[str, float] = defaultdict(float)
    modules: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "teardown":
                took = sum(float(str(value)) for name, value in report.user_properties if name == PROPERTY)
                tests[report.nodeid] += took
                modules[report.nodeid.partition("::")[0]] += took
    terminalreporter.section(f"processor time: {sum(tests.values()):.1f} s")
    for found in (modules, tests):
        for name, took in sorted(found.items(), key=lambda item: -item[1])[:count]:
            terminalreporter.write_line(f"{took:8.2f} s  {name}")
