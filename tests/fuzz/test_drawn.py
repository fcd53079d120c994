"""Hostile clients whose every act is drawn, against nodes whose limits are drawn: in memory, and a node's process.

A stream of the first is printed with the command that says it again. One of the second is what
`HostileClient(Random(f"{SEED}/{NUMBER}"), …)` says; what the node does beside it, the machine decides.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from random import Random

import pytest

from fuzz import in_process, world
from fuzz.findings import Report
from fuzz.in_process import fuzz, run_batch, told
from fuzz.limits import DRAWN, draw_limits
from fuzz.test_scan import healthy_client
from fuzz.world import ACTS_MAX, PLACES
from holdfast.settings.limits import Limits
from holdfast_lab.hostile import ACTS, HostileClient
from support.garbage import collected
from support.process import NodeProcess

pytestmark = pytest.mark.fuzz

SEED = 5
STREAMS = 300
LONGEST_MS = 500.0
"""No goal, but a bound that a busy machine keeps: `make fuzz` tells the longest turn."""
CONFIGS = 2
STREAMS_OF_EACH = 60
AT_ONCE = 10
LIMIT_S = 30.0
LEFT_STREAMS = 100

StartNode = Callable[..., Awaitable[NodeProcess]]


def test_streams_in_process(day: int) -> None:
    report = fuzz(day, STREAMS, 1)
    assert not report.findings, told(report, day, 0.0)["findings"]
    assert report.longest_s * 1_000 < LONGEST_MS, report.longest
    assert set(report.acts) == set(ACTS)


def test_a_batch_is_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "STREAMS", 20)
    said: list[list[str]] = [[], []]
    for lines in said:
        run_batch(SEED, 1, tell=lines.append)
    assert said[0] == said[1] and len(said[0]) > 100


def test_whatever_clients_did_leaves_nothing_for_the_garbage_collector(
    day: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node collects rarely (ADR 0005), so what reference counts alone do not free makes its memory grow."""
    monkeypatch.setattr(world, "KILL_SHARE", 0.0)  # a node that was killed leaves all that it was
    node = world.World(day, 0, Report())
    with collected() as left:
        node.run(LEFT_STREAMS)
    assert not left


def test_every_value_of_a_limit_is_drawn() -> None:
    random = Random(1)
    drawn = [asdict(draw_limits(random)) for _ in range(300)]
    for key, values in DRAWN.items():
        assert {limits[key] for limits in drawn} >= set(values), key
    assert asdict(Limits()).keys() == drawn[0].keys()


async def speak(node: NodeProcess, seed: int, number: int) -> None:
    """One stream over a socket: what it says is drawn from seed and number, and from what the node answers."""
    random = Random(f"{seed}/{number}")
    client = HostileClient(random, PLACES, name=f"x{number}", acts=ACTS, rude_share=random.choice((0.0, 0.1, 0.3)))
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    try:
        async with asyncio.timeout(LIMIT_S):
            writer.write(client.opening())
            for _ in range(random.randint(1, random.choice(ACTS_MAX))):
                try:
                    async with asyncio.timeout(0.01):  # what it says next does not wait for an answer
                        data = await reader.read(65_536)
                    if not data:
                        return
                    client.hear(data)
                except TimeoutError:
                    pass
                if client.over:
                    return
                writer.write(client.act()[1])
                await writer.drain()
    except (ConnectionError, TimeoutError):
        pass  # the node has ended it, or does not read any more
    finally:
        writer.transport.abort()


def config_of(random: Random) -> str:
    """A node with drawn limits; those that a table of TOML writes as they are."""
    limits = "\n".join(f"{key} = {value}" for key, value in asdict(draw_limits(random)).items())
    return f'[node]\nname = "hub"\ncreate_queues = true\n\n[limits]\n{limits}\n'


async def scan(start_node: StartNode, directory: Path, seed: int, configs: int, streams: int) -> None:
    """`configs` nodes, one after the other; a healthy client beside the streams of each must be served throughout."""
    random = Random(seed)
    for place in range(configs):
        config = directory / f"hub-{place}.toml"
        config.write_text(config_of(random))
        node = await start_node("hub", config=config, data=directory / f"hub-{place}", listen="127.0.0.1:0")
        async with healthy_client(node):
            first = place * streams
            for number in range(first, first + streams, AT_ONCE):
                await asyncio.gather(*(speak(node, seed, one) for one in range(number, number + AT_ONCE)))
                assert node.returncode is None, f"seed {seed}, streams from {number}, {config}: {node.stderr[-2_000:]}"
        assert await node.stop() == 0
        assert " ERROR " not in node.stderr and "Traceback" not in node.stderr, (seed, config, node.stderr[-2_000:])


async def test_streams_against_a_process(start_node: StartNode, tmp_path: Path, day: int) -> None:
    await scan(start_node, tmp_path, day, CONFIGS, STREAMS_OF_EACH)


@pytest.mark.slow
async def test_more_streams_against_a_process(
    start_node: StartNode, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    seed = pytestconfig.getoption("--fuzz-seed") or Random().randrange(2**32)
    count = pytestconfig.getoption("--fuzz-streams") // 50
    print(f"seed {seed}: make fuzz SEED={seed}")
    await scan(start_node, tmp_path, seed, max(1, count // 200), 200)
