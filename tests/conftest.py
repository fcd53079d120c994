"""Fixtures that tests of several packages share.

Layout: `tests/PACKAGE/test_MODULE.py` mirrors `src/holdfast/PACKAGE/MODULE.py`; folders have no `__init__.py`, and
helpers live in `tests/support`, imported as `support.MODULE`. Ports are always asked of the system.
"""

import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, seed, settings

from holdfast.collecting import collect_rarely
from holdfast.errors import ConfigError
from support import forking, processor, today, turns
from support.process import NodeProcess

# Examples follow from the day (`pytest_itemcollected`): a red check is red for whoever looks next with that `--day`.
# `--hypothesis-profile explore` looks elsewhere.
EXAMPLES = 20
settings.register_profile(
    "checks",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
    max_examples=EXAMPLES,
)
settings.register_profile("long", settings.get_profile("checks"), max_examples=EXAMPLES * today.LONG)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile("checks")

# Who starts the checks in the background may have SIGINT ignored, or SIGHUP (nohup), which every process below would
# inherit; those that are tried with them must hear them.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# JVMs compile once and not well, which halves the cost of their start, and do not verify Spark's classes, which takes
# another sixth off it: each lives for seconds here. Every JVM that a test starts, however deep, reads this.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)

forking.install()

STAGE_MARKS = frozenset({"interop", "spark", "crash", "fuzz", "sim"})

StartNode = Callable[..., Awaitable[NodeProcess]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz-seed", type=int, default=0, help="what the long scan draws from (tests/fuzz)")
    parser.addoption("--fuzz-streams", type=int, default=20_000, help="how many streams it draws")
    parser.addoption("--canary", metavar="NAME", help="plant this defect first (holdfast_lab.canaries)")
    parser.addoption(
        "--day", metavar="YYYY-MM-DD", help="what the short forms of long campaigns draw from (default: today, in UTC)"
    )
    parser.addoption("--processor", type=int, default=0, metavar="N", help="list the N dearest modules and tests")
    parser.addoption("--turns", action="store_true", help="leave out dear tests whose turn it is not (tests/turns.txt)")
    parser.addoption("--sites", type=int, default=6, help="how many sites the drill of a fleet has (tests/fleet)")
    parser.addoption("--long", action="store_true", help="every seed, more examples, invariants after every turn")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(f"the short campaigns drew from --day {config.option.day}")


@pytest.fixture(scope="session")
def day() -> int:
    """The number of the day from which the short forms of long campaigns draw: other seeds each day, the same for all
    processes of one run.
    """
    return today.number


def pytest_configure(config: pytest.Config) -> None:
    """What `--canary` names is planted in this process, before any test is collected; a day is chosen once for all
    processes, which get the options as they are after this.
    """
    if config.option.day is None:
        config.option.day = datetime.now(UTC).date().isoformat()
    try:
        today.number = date.fromisoformat(config.option.day).toordinal()
    except ValueError as error:
        raise pytest.UsageError(f"--day: {error}") from None
    today.long = config.option.long
    config.pluginmanager.register(processor)
    if today.long:
        settings.load_profile("long")
    name = config.getoption("--canary")
    if name is not None:
        from holdfast_lab.canaries import plant_to_stay  # the tests without one load no more than they need

        try:
            plant_to_stay(name)
        except ConfigError as error:
            raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays to the end: the garbage collector neither runs meanwhile nor looks at it ever after. From
    then on it runs as seldom as in a node's process.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        collect_rarely()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Hypothesis draws from the day."""
    test = getattr(item, "function", None)
    if getattr(test, "is_hypothesis_test", False):
        seed(today.number)(getattr(test, "__func__", test))


def take_turns(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests of tests/turns.txt whose turn it is not, case by case."""
    places = turns.places()
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if (name := turns.name_of(item.nodeid)) in places and item.get_closest_marker("slow") is None:
            cases.setdefault(name, []).append(item)
    left_out = {
        item for name, of_one in cases.items() for at, item in enumerate(of_one) if not turns.stays(places[name], at)
    }
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A stage collects only modules that name its mark (tools/stages.py), so one given in another way is refused."""
    if config.option.turns:
        take_turns(config, items)
    texts: dict[Path, str] = {}
    for item in items:
        for mark in item.iter_markers():
            if mark.name in STAGE_MARKS:
                text = texts.get(item.path) or texts.setdefault(item.path, item.path.read_text(encoding="utf-8"))
                if f"mark.{mark.name}" not in text:
                    raise pytest.UsageError(
                        f"{item.nodeid}: mark {mark.name} comes from elsewhere; set it in the module"
                    )


@pytest_asyncio.fixture
async def start_node(tmp_path: Path) -> AsyncIterator[StartNode]:
    """`await start_node("hub", …)`: a node with its data in the test's own directory; killed with the test.

    Arguments as `NodeProcess.start`, but the name comes first and names the directory too. With `config=` the
    file says where data lies and what is listened on, unless `data=` or `listen=` say otherwise.
    """
    nodes: list[NodeProcess] = []

    async def start(name: str = "hub", *arguments: str, **options: object) -> NodeProcess:
        if options.get("config") is None:
            options.setdefault("data", tmp_path / f"{name}.holdfast")
            options["name"] = name
        else:
            options.setdefault("listen", None)
        data = options.pop("data", None)
        node = await NodeProcess.start(data, *arguments, **options)  # type: ignore[arg-type]  # passed through
        nodes.append(node)
        return node

    yield start
    for node in nodes:
        await node.close()
