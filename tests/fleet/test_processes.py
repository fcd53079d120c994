"""A fleet of two sites as an operator has it: the service, two agents and two nodes, each in a process of its own."""

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from support.eventually import eventually_async, eventually_true
from support.fleets import TWO
from support.postgresql import free_port
from support.process import Completed, NodeProcess, run_holdfast

LIMIT_S = 40.0


class Sites:
    """A fleet in `directory`, and the processes that were started."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.directory = directory
        self.service = f"127.0.0.1:{free_port()}"
        self.ports = {"hub": free_port(), "ewr": free_port()}
        self._stack = stack

    async def holdfast(self, action: str, *words: object, code: int = 0, stdin: str | None = None) -> Completed:
        done = await run_holdfast("fleet", action, *map(str, words), stdin=stdin)
        assert done.code == code, done
        return done

    async def fleet(self, action: str, *words: object, code: int = 0) -> Any:
        done = await self.holdfast(action, *words, "--dir", self.directory / "fleet", "--json", code=code)
        return json.loads(done.stdout)

    async def begin(self) -> None:
        topology = self.directory / "topology.toml"
        topology.write_text(TWO.replace("10.0.0.1:5671", f"127.0.0.1:{self.ports['hub']}"))
        fleet = self.directory / "fleet"
        await self.holdfast("init", fleet, "--topology", topology, "--service", self.service)
        (fleet / "sites" / "ewr.toml").write_text(f'[node]\nlisten = ["127.0.0.1:{self.ports["ewr"]}"]\n')
        await self.fleet("push")
        await self.run("fleet", "serve", "--dir", fleet, "--listen", self.service)

    async def run(self, *words: object, directory: Path | None = None) -> NodeProcess:
        process = NodeProcess([str(word) for word in words], directory=directory)
        await self._stack.enter_async_context(process)
        await process.restart()
        return process

    async def enrol(self, node: str) -> None:
        token = self.directory / f"{node}.token"
        await self.holdfast("token", node, "--dir", self.directory / "fleet", "--out", token)
        assert token.stat().st_mode & 0o777 == 0o600
        await self.holdfast("enrol", token, "--site", self.directory / node)

    async def node(self, node: str) -> NodeProcess:
        return await self.run("node", "config.toml", directory=self.directory / node)

    async def agent(self, node: NodeProcess, reload: str | None = None) -> NodeProcess:
        reload = reload or f"kill -HUP {node.pid}"
        return await self.run("fleet", "agent", "--site", self.directory / node.name, "--reload", reload)

    async def status(self) -> Any:
        """Of ewr, where a client on its machine comes in."""
        done = await run_holdfast("status", "--url", f"amqp://127.0.0.1:{self.ports['ewr']}", "--json")
        return json.loads(done.stdout) if done.code == 0 else {"sessions": []}

    async def session(self, *, is_up: bool) -> None:
        async def look() -> list[bool]:
            return [each["state"] == "Established" for each in (await self.status())["sessions"]]

        await eventually_async(look, lambda found: found == [is_up], what=f"a session, up: {is_up}", limit_s=LIMIT_S)


@pytest.fixture
async def sites(tmp_path: Path) -> AsyncIterator[Sites]:
    async with AsyncExitStack() as stack:
        made = Sites(tmp_path, stack)
        await made.begin()
        yield made


async def test_two_sites_enrol_and_speak_until_one_is_revoked(sites: Sites) -> None:
    await sites.enrol("hub")
    await sites.enrol("ewr")
    hub, ewr = await sites.node("hub"), await sites.node("ewr")
    await sites.session(is_up=True)
    for node in (hub, ewr):
        await sites.agent(node)

    (sites.directory / "fleet" / "sites" / "common.toml").write_text('[[queue]]\nname = "flights"\n')
    pushed = await sites.fleet("push", "--wait", LIMIT_S)
    assert (pushed["version"], pushed["late"]) == (2, []), "both agents were told"
    await ewr.logged("queue 'flights' added")
    await hub.logged("queue 'flights' added")
    await sites.session(is_up=True)

    assert len((await sites.fleet("revoke", "ewr"))["revoked"]) == 1
    await hub.logged("the peer's certificate is revoked")
    await sites.session(is_up=False)
    rows = {row["node"]: row for row in (await sites.fleet("list"))["sites"]}
    assert (rows["ewr"]["certificate"], rows["hub"]["certificate"]) == ("revoked", "good")

    await sites.enrol("ewr")
    await sites.session(is_up=True)
    assert hub.returncode is None and ewr.returncode is None, "nobody was started anew"


async def test_what_a_node_refuses_is_known_by_the_commands_that_the_document_gives(sites: Sites) -> None:
    """docs/fleet.md: a reload that waits for the answer, without users and by the node's own certificate."""
    files = sites.directory / "fleet" / "sites"
    (files / "hub.toml").write_text('[[user]]\nname = "hub"\ncertificate = "hub"\n')
    queues = "".join(f'[[queue]]\nname = "{name}"\n' for name in ("raw", "clean"))
    (files / "common.toml").write_text(queues)
    await sites.fleet("push")
    await sites.enrol("hub")
    await sites.enrol("ewr")
    hub, ewr = await sites.node("hub"), await sites.node("ewr")
    url, reload = f"amqp://127.0.0.1:{sites.ports['ewr']}", f"{sys.executable} -m holdfast reload --retry 30"
    await sites.agent(ewr, f"{reload} --url {url}")
    own = f"--ca-file {sites.directory}/hub/ca.pem --certificate-file {sites.directory}/hub/node.pem"
    await sites.agent(hub, f"{reload} --url amqps://127.0.0.1:{sites.ports['hub']} {own}")
    made = await run_holdfast("link", "create", "x", "--from", "raw", "--to", "clean", "--url", url)
    assert made.code == 0, made
    (files / "common.toml").write_text(f'{queues}[[link]]\nname = "x"\nfrom = "raw"\nto = "clean"\n')
    await sites.fleet("push")
    await hub.logged("link 'x' added")

    async def problem() -> str:
        rows = {row["node"]: row for row in (await sites.fleet("list"))["sites"]}
        return str(rows["ewr"]["problem"])

    said = await eventually_async(problem, lambda found: "link 'x'" in found, what="why", limit_s=LIMIT_S)
    assert "was made by a request, or has not ended yet" in said
    file = sites.directory / "ewr" / "config.toml"
    await eventually_true(lambda: "link" not in file.read_text(), what="the file is what the node has")


async def test_a_site_gets_its_first_address_and_a_push_that_came_too_early_is_made_up_for(sites: Sites) -> None:
    """docs/fleet.md: the version with its first users is taken up, and from then on another command is needed."""
    await sites.enrol("ewr")
    ewr, port, files = await sites.node("ewr"), free_port(), sites.directory / "fleet" / "sites"
    reload = f"{sys.executable} -m holdfast reload --retry 30"
    agent = await sites.agent(ewr, f"{reload} --url amqp://127.0.0.1:{sites.ports['ewr']}")
    topology = sites.directory / "fleet" / "topology.toml"
    nobody, somebody = 'from = "ewr"\nto = "hub"', 'from = "hub"\nto = "ewr"'
    text = topology.read_text().replace(nobody, somebody)
    topology.write_text(text.replace('name = "ewr"', f'name = "ewr"\naddress = "amqps://127.0.0.1:{port}"', 1))
    (files / "ewr.toml").write_text('[[user]]\nname = "ewr"\ncertificate = "ewr"\n')
    assert (await sites.fleet("push", "--wait", LIMIT_S))["late"] == []
    await ewr.logged("from the next start on: node listen")

    common = files / "common.toml"
    common.write_text('[[queue]]\nname = "early"\n')
    await sites.fleet("push")
    await agent.logged("a login without a user was refused")
    await agent.stop()
    await sites.holdfast("agent", "--site", sites.directory / "ewr", "--once")
    place = sites.directory / "ewr"
    assert 'name = "early"' in (place / "config.toml").read_text()
    await ewr.stop()
    await ewr.restart()
    own = f"--url amqps://127.0.0.1:{port} --ca-file {place}/ca.pem --certificate-file {place}/node.pem"
    await sites.agent(ewr, f"{reload} {own}")
    common.write_text('[[queue]]\nname = "later"\n')
    assert (await sites.fleet("push", "--wait", LIMIT_S))["late"] == []
    await ewr.logged("queue 'later' added")


async def test_a_site_without_a_way_to_the_service_is_served_by_files(sites: Sites) -> None:
    fleet, site = sites.directory / "fleet", sites.directory / "ewr"
    request, provision = sites.directory / "ewr.csr", sites.directory / "ewr.provision"
    await sites.holdfast("request", "--site", site, "--out", request)
    assert "PRIVATE" not in request.read_text()
    await sites.holdfast("sign", "ewr", request, "--dir", fleet, "--out", provision)
    assert "PRIVATE" not in provision.read_text()
    refused = await sites.holdfast("install", provision, "--site", site, code=2)
    assert "give --fingerprint" in refused.stderr and refused.stderr.count("\n") == 1
    told = await run_holdfast("fleet", "install", str(provision), "--site", str(site), "--fingerprint", "00" * 32)
    assert told.code == 2 and "somebody else answers" in told.stderr
    fingerprint = told.stderr.partition("has fingerprint ")[2][:64]
    await sites.holdfast("install", provision, "--site", site, "--fingerprint", fingerprint)
    node = await sites.node("ewr")
    assert node.ready["name"] == "ewr"
    await sites.holdfast("sign", "ewr", "--dir", fleet, "--out", provision)
    done = await sites.holdfast("install", provision, "--site", site)
    assert "node ewr: revocation list 1, configuration 1" in done.stdout


async def test_an_agent_outlives_its_service_and_says_so_once(sites: Sites) -> None:
    await sites.enrol("ewr")
    site = sites.directory / "ewr"
    state = json.loads((site / "site.json").read_text())
    (site / "site.json").write_text(json.dumps({**state, "service": f"127.0.0.1:{free_port()}"}))
    done = await sites.holdfast("agent", "--site", site, "--once", code=1)
    assert "does not answer (Connection refused)" in done.stderr and done.stderr.count("\n") == 1
    agent = await sites.run("fleet", "agent", "--site", site)
    await agent.logged("does not answer")
    assert agent.returncode is None
    agent.signal(signal.SIGTERM)
    await agent.wait()


async def test_the_service_ends_properly(sites: Sites) -> None:
    service = await sites.run("fleet", "serve", "--dir", sites.directory / "fleet", "--listen", "127.0.0.1:0")
    assert await service.stop() == 0 and service.stderr == ""
