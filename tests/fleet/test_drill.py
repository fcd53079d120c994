"""A fleet under traffic: all sites enrol, one is revoked and let in again, one gets another machine, all get another
configuration, one is drained and removed, all get another version, and one goes back. Whatever was accepted arrives
once. `make fleet` does it with forty sites."""

import ensurepip
import shutil
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from holdfast.fleet.upgrade import Versions
from holdfast.fleet.versions import push, roll_back
from support import bundles
from support.fleet_drill import Drill
from support.process import run_holdfast

pytestmark = pytest.mark.slow
NEW = '[[queue]]\nname = "new"\n'
EARLIER, LATER = "0.1.1", "0.1.2"
PIPS = [
    *Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl"),
    *Path("/usr/share/python-wheels").glob("pip-*.whl"),
]


async def test_a_fleet_under_traffic(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    count = pytestconfig.getoption("--sites")
    assert 4 <= count <= 250, "each has a part in it, and an address of its own"
    async with AsyncExitStack() as stack:
        drill = Drill(tmp_path, count, stack)
        await drill.serve()
        earlier, later = (
            bundles.make(tmp_path, version, PIPS[0], drill.fleet.authority) for version in (EARLIER, LATER)
        )
        revoked, replaced, removed, tried = drill.names[:4]
        await begin(drill, earlier, tried)
        before = drill.sent[revoked]
        await revoke(drill, revoked)
        await change_and_take_back(drill, revoked, replaced)
        await replace(drill, revoked, replaced)
        await remove(drill, revoked, removed)
        name = await upgrade(drill, later, tried)

        assert drill.sent[revoked] > before, "it took messages all the time"
        await drill.enrol(revoked)
        await drill.end_traffic()
        await drill.arrived()
        assert set(drill.received.values()) == {1}, "and nothing twice"
        drill.say(f"{len(drill.received)} messages have arrived, each once; {revoked} is let in again")
        await check_network(drill, tried, removed, name)


async def begin(drill: Drill, bundle: Path, tried: str) -> None:
    """The sites share a machine, and so what is installed; but for the one at which a version is tried."""
    prefix = drill.fleet.place / "prefix"
    shared, own = Versions(prefix / "all"), Versions(prefix / tried)
    drill.versions = {name: own if name == tried else shared for name in ("hub", *drill.names)}
    for name in drill.versions:
        await drill.enrol(name)
    drill.say(f"{len(drill.names)} sites and the hub are enrolled")
    for versions in (shared, own):
        await drill.upgrade(versions, bundle, None)
    await drill.start(*drill.versions)
    drill.say(f"their nodes run, with version {EARLIER}")
    drill.begin_traffic()
    await drill.arrived()


async def revoke(drill: Drill, revoked: str) -> None:
    """What the node accepts meanwhile waits at it."""
    with drill.fleet.directory.changing() as register:
        for each in register.sites[revoked].certificates:
            each.revoked_s = int(time.time())
        register.crl_number += 1
    await drill.agents(revoked)
    await drill.nodes["hub"].logged(f"neighbour {revoked}: Established -> Idle: TLS: the peer's certificate is revoked")
    drill.say(f"{revoked} is revoked")
    await drill.arrived(revoked)


async def change_and_take_back(drill: Drill, revoked: str, looked_at: str) -> None:
    directory = drill.fleet.directory
    (directory.sites / "common.toml").write_text(NEW)
    assert len(push(directory).changed) == len(drill.names) + 1
    await drill.agents(revoked)
    await drill.nodes[looked_at].logged("queue 'new' added")
    roll_back(directory, None)
    await drill.agents(revoked)
    site = drill.fleet.site(looked_at)
    assert site.known().version == directory.register().version and NEW not in site.config_file.read_text()
    drill.say("all others got another configuration, and lost it again")


async def replace(drill: Drill, revoked: str, replaced: str) -> None:
    """Another machine, with an empty disk, once the one before has passed on what it had."""
    await drill.end_client(replaced)
    await drill.arrived(revoked)
    await drill.nodes.pop(replaced).stop()
    shutil.rmtree(drill.fleet.site(replaced).path)
    await drill.enrol(replaced)
    await drill.start(replaced)
    drill.begin_client(replaced)
    drill.say(f"{replaced} has another machine")


async def remove(drill: Drill, revoked: str, removed: str) -> None:
    done = await run_holdfast("drain", "--url", drill.url(removed), limit_s=300)
    assert done.code == 0 and f"{removed} is empty" in done.stdout, done
    await drill.end_client(removed)
    assert await drill.nodes.pop(removed).stop() == 0
    directory = drill.fleet.directory
    directory.topology_file.write_text(drill.topology(removed))
    (directory.sites / f"{removed}.toml").unlink()
    (directory.sites / "common.toml").unlink()
    assert push(directory).left == [removed]
    done = await run_holdfast("fleet", "revoke", removed, "--dir", str(directory.path))
    assert done.code == 0, done
    await drill.agents(revoked)
    done = await run_holdfast("topology", "forget", removed, "--url", drill.hub_url)
    assert done.code == 0, done  # before a restart of all, after which nobody may know it
    drill.say(f"{removed} is drained, out of the topology, and forgotten")


async def upgrade(drill: Drill, bundle: Path, tried: str) -> str:
    """One site first, then all; it goes back. The name of the version that it had."""
    versions = drill.versions[tried]
    before = versions.name()
    assert before is not None

    async def restart() -> None:
        await drill.restart(tried)

    await drill.upgrade(versions, bundle, restart)
    drill.say(f"{tried} runs with version {LATER}")
    await drill.upgrade(drill.versions["hub"], bundle, None)
    await drill.restart(*(name for name in drill.nodes if name != tried))
    drill.say("all others, too")
    assert await drill.roll_back(versions, restart) == before
    drill.say(f"{tried} has gone back to {EARLIER}")
    return before


async def check_network(drill: Drill, tried: str, removed: str, name: str) -> None:
    rows = await drill.network()
    assert rows.keys() == {"hub", *drill.names} - {removed}
    wanted = {each: EARLIER if each == tried else LATER for each in rows}
    assert {each: row["version"] for each, row in rows.items()} == wanted and name.startswith(EARLIER)
    assert {row["state"] for row in rows.values()} == {"up"}
    drill.say("the network has all nodes but that one, each with its version")
