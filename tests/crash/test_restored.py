"""Real nodes whose stores are backed up, lost and restored: what is new arrives once and in order, and nobody waits."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from crash.world import LIMIT_S, World, world
from holdfast_lab.base.processes import holdfast_command
from holdfast_lab.judge.arrivals import judge

pytestmark = pytest.mark.crash


async def run_store(here: World, *arguments: str | Path) -> dict[str, object]:
    child = await here.children.start(f"store-{arguments[0]}", holdfast_command("store", *arguments, "--json"))
    await child.success(LIMIT_S)
    return dict(json.loads(child.out_path.read_text()))


async def send(here: World, lines: list[str]) -> None:
    sender = await here.sender(here.addresses["site"], "events@hub", lines)
    await sender.success()


async def replace(here: World, name: str, backup: Path) -> None:
    """The node is killed, its disk gone; it starts again on what the backup held."""
    data = here.work / f"{name}.holdfast"
    await here.nodes[name].kill()
    await asyncio.to_thread(shutil.rmtree, data)
    await run_store(here, "restore", backup, data)
    await here.restart(name)


async def test_a_restored_site_goes_on_under_a_new_name(tmp_path: Path) -> None:
    """What it had sent after the backup has arrived; what it still holds of before is known at the hub."""
    first, forgotten, fresh = ([f"{name} {number}" for number in range(40)] for name in ("first", "later", "new"))
    async with world(tmp_path) as here, asyncio.timeout(100):
        await here.start_site()
        await send(here, first)  # no hub yet: the backup holds them all
        made = await run_store(here, "backup", tmp_path / "site.holdfast", tmp_path / "backup")
        assert made["messages"] == 40
        await here.start_hub()
        await send(here, forgotten)
        arrived = await here.receive(here.addresses["hub"], "events", 80)
        await replace(here, "site", tmp_path / "backup")
        await send(here, fresh)
        arrived += await here.receive(here.addresses["hub"], "events", 40)
        assert judge(first + forgotten + fresh, arrived).ok


async def test_a_restored_hub_waits_for_nothing_that_its_former_life_had(tmp_path: Path) -> None:
    first, forgotten, fresh = ([f"{name} {number}" for number in range(40)] for name in ("first", "later", "new"))
    async with world(tmp_path) as here, asyncio.timeout(100):
        await here.start_hub()
        await here.start_site()
        await send(here, first)
        assert len(await here.receive(here.addresses["hub"], "events", 40)) == 40
        await run_store(here, "backup", tmp_path / "hub.holdfast", tmp_path / "backup")
        await send(here, forgotten)
        assert await here.receive(here.addresses["hub"], "events", 40) == forgotten
        await replace(here, "hub", tmp_path / "backup")
        await send(here, fresh)
        assert await here.receive(here.addresses["hub"], "events", 40) == fresh


@pytest.mark.parametrize("victim", ["site", "hub"])
async def test_a_store_that_was_killed_in_the_midst_of_it_is_sound(tmp_path: Path, victim: str) -> None:
    lines = [f"{number}" for number in range(6_000)]
    async with world(tmp_path) as here, asyncio.timeout(100):
        await here.start_hub()
        await here.start_site()
        sender = await here.sender(here.addresses["site"], "events@hub", lines, "p")
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await here.nodes[victim].wait(0.15)
            await here.nodes[victim].kill()
            checked = await run_store(here, "check", tmp_path / f"{victim}.holdfast")
            assert checked["findings"] == []
            await here.restart(victim)
        await sender.success()
