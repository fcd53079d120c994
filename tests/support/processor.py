"""How much processor time each test takes: its own process and the children that it has waited for.

A clock tells little about a machine that is shared. `--processor 20` lists the dearest modules and tests; the reports
of the stages hold each test's as the property `processor_s` (tools/stages.py).

Rules of this file: a plugin that changes no test. A child that is killed and not waited for is missing; what a fixture
of the session takes is that of the test which it is made, or ended, for.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pytest

PROPERTY: Final = "processor_s"
_BEGAN: Final = pytest.StashKey[float]()


def processor_s() -> float:
    """Of this process and of its children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_BEGAN] = processor_s()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        item.user_properties.append((PROPERTY, round(processor_s() - item.stash[_BEGAN], 3)))


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
