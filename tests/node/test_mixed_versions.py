"""Nodes of the version before, from the repository's history, beside those of today, as processes: they talk, and a
store goes forward and back (docs/operations.md, "Upgrading"; ADR 0104)."""

import asyncio
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from holdfast import __version__
from support.eventually import eventually_async
from support.process import NodeProcess, run_holdfast

EARLIER = "c62de0b28fd167b78d05d1b055cb0caac83eb979"
"""The last one before nodes told their versions. Once a version is released, its tag stands here."""
LIMIT_S = 200.0
START_S = 60.0
"""The first start of sources that were never compiled."""

TOPOLOGY = """
[[node]]
name = "jfk"
[[node]]
name = "hub"
roles = ["super"]
[[node]]
name = "ewr"
[[link]]
from = "jfk"
to = "hub"
[[link]]
from = "ewr"
to = "hub"
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the version before."""
    root = Path(__file__).parents[2]
    archive = subprocess.run(["git", "archive", EARLIER, "src"], cwd=root, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history of this checkout does not have {EARLIER[:8]}")
    directory = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    return directory / "src"


def config(tmp_path: Path, name: str, hub: str | None = None) -> Path:
    (tmp_path / "topology.toml").write_text(TOPOLOGY)
    text = f'[node]\nname = "{name}"\n[[queue]]\nname = "work"\n[topology]\nfile = "{tmp_path}/topology.toml"\n'
    neighbours = ("hub",) if hub else ("jfk", "ewr")
    for neighbour in neighbours:
        text += f'[[neighbour]]\nname = "{neighbour}"\n' + (f'remote = "{hub}"\n' if hub else "")
    file = tmp_path / f"{name}.toml"
    file.write_text(text)
    return file


async def told(node: NodeProcess, line: str) -> Any:
    ended = await run_holdfast(*line.split(), "--json", "--url", node.url)
    assert ended.code == 0, ended.stderr
    return json.loads(ended.stdout)


async def send(node: NodeProcess, address: str, *bodies: str) -> None:
    ended = await run_holdfast("send", address, "--url", node.url, stdin="".join(f"{body}\n" for body in bodies))
    assert ended.code == 0, ended.stderr


async def received(node: NodeProcess, count: int) -> list[str]:
    line = f"receive work --count {count} --idle-timeout 30 --url {node.url}"
    ended = await run_holdfast(*line.split())
    assert ended.code == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.parametrize("which", ["hub", "jfk"])
async def test_they_talk_and_a_store_goes_forward_and_back(tmp_path: Path, earlier: Path, which: str) -> None:
    """One of three nodes is of the version before: the hub, or a site."""
    async with asyncio.timeout(LIMIT_S):
        hub_source, jfk_source = (earlier, None) if which == "hub" else (None, earlier)
        hub = await NodeProcess.start(
            tmp_path / "hub", config=config(tmp_path, "hub"), source=hub_source, limit_s=START_S
        )
        async with hub:
            at = hub.ready["amqp"]
            jfk_file, ewr_file = config(tmp_path, "jfk", at), config(tmp_path, "ewr", at)
            jfk = await NodeProcess.start(tmp_path / "jfk", config=jfk_file, source=jfk_source, limit_s=START_S)
            async with jfk, await NodeProcess.start(tmp_path / "ewr", config=ewr_file) as ewr:
                await send(jfk, "work@ewr", "1", "2")
                await send(ewr, "work@jfk", "3", "4")
                assert await received(ewr, 2) == ["1", "2"] and await received(jfk, 2) == ["3", "4"]
                await _check_view(ewr, which)
                await send(jfk, "work", "kept")
                for source in (None if which == "jfk" else earlier, earlier, None):
                    assert await jfk.stop() == 0
                    jfk.source = source
                    await jfk.restart(limit_s=START_S)
                    await send(ewr, "work@jfk", "5")
                    assert (await received(jfk, 2))[-1] == "5"
                    await send(jfk, "work", "kept")
                assert await jfk.stop() == 0
    for name in ("hub", "jfk", "ewr"):
        checked = await run_holdfast("store", "check", str(tmp_path / name))
        assert checked.code == 0, checked.stdout + checked.stderr


async def _check_view(ewr: NodeProcess, which: str) -> None:
    """The view of the network has the nodes that it can ask, and names the others."""

    async def is_whole() -> bool:
        rows = {row["node"]: row for row in await told(ewr, "network status --limit 1")}
        assert list(rows) == ["ewr", "hub", "jfk"] and rows["ewr"]["version"] == __version__
        if not all(row["state"] == "up" for row in rows.values()):
            return False
        answered = [name for name, row in rows.items() if row["age_s"] is not None]
        return answered == (["ewr"] if which == "hub" else ["ewr", "hub"])

    await eventually_async(is_whole)
