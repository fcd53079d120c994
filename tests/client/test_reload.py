"""A node that takes up its file while it runs, by SIGHUP and by `holdfast reload` (node/reload.py)."""

import asyncio
import json
import os
import signal
import ssl
from pathlib import Path

import pytest

from holdfast.client import connect
from support.certificates import needs_openssl, of_node
from support.eventually import eventually_true
from support.process import NodeProcess, run_holdfast

FILE = """
[node]
name = "hub"
data = "{dir}/data"
listen = ["127.0.0.1:0"]

[log]
level = "{level}"

[telemetry]
file = "{dir}/{telemetry}"
interval_s = 0.1

[audit]
file = "{dir}/audit.ndjson"

[[user]]
name = "root"
password_file = "{dir}/root.password"

[[queue]]
name = "work"
messages_max = {most}
{more}
"""
TOLD = {"level": "info", "telemetry": "telemetry.ndjson", "most": 5, "more": ""}


def write(directory: Path, **told: object) -> Path:
    path = directory / "hub.toml"
    path.write_text(FILE.format(dir=directory, **TOLD | told))
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "root.password").write_text("one\n")
    return tmp_path


def told(node: NodeProcess, text: str) -> int:
    return sum(text in line for line in node.stderr.splitlines())


async def reload(node: NodeProcess, password: str = "one") -> tuple[int, list[str], list[str]]:
    done = await run_holdfast("reload", "--json", "--url", node.url.replace("//", f"//root:{password}@"))
    if done.code:
        return done.code, [], [done.stderr]
    answer = json.loads(done.stdout)
    return done.code, answer["changed"], answer["restart"]


async def test_sighup_takes_up_queues_users_level_and_opens_files_anew(directory: Path) -> None:
    async with await NodeProcess.start(config=write(directory), listen=None) as node:
        for name in ("telemetry", "audit"):
            (directory / f"{name}.ndjson").rename(directory / f"{name}.1")
        more = f'[[user]]\nname = "ann"\npassword_file = "{directory}/root.password"\n'
        write(directory, level="debug", most=3, more=more)
        node.signal(signal.SIGHUP)
        await node.logged("INFO reload: log level; user 'ann' added; queue 'work' changed: messages_max 3")
        async with await connect(node.url.replace("//", "//ann:one@")) as client:
            assert (await client.manage("READ", "holdfast:queue", "work"))["messages_max"] == 3
        await eventually_true(
            lambda: (
                '"login"' in (directory / "audit.ndjson").read_text()
                and (directory / "telemetry.ndjson").stat().st_size > 0
            ),
            what="lines in the files that were opened anew",
        )
        assert (directory / "audit.ndjson").stat().st_mode & 0o777 == 0o600
        (directory / "root.password").write_text("two\n")
        node.signal(signal.SIGHUP)
        await node.logged("user 'root' changed")
        assert (await reload(node))[0] == 1 and (await reload(node, "two"))[0] == 0
        assert await node.stop() == 0


async def test_a_mistake_is_one_line_and_changes_nothing(directory: Path) -> None:
    async with await NodeProcess.start(config=write(directory), listen=None) as node:
        path = write(directory, most=3, more="[[queue]]\nname = 'b'\nwhen_full = 'never'\n")
        for number in range(2):
            node.signal(signal.SIGHUP)
            await eventually_true(lambda: told(node, "reload: nothing has changed") > number, what="the line")  # noqa: B023
        line = next(line for line in node.stderr.splitlines() if "reload" in line)
        assert f" ERROR reload: nothing has changed: {path}: invalid value 'never' for queue 'b' when_full" in line
        code, _, (error,) = await reload(node)
        assert code == 1 and error.count("\n") == 1
        assert line.split(" ERROR reload: ")[1].strip() in error, "the same words"
        for text, expected in (
            ("[[user]", "hub.toml: "),
            (path.read_text().replace("telemetry.ndjson", "none/telemetry.ndjson").replace("never", "block"), "cannot"),
        ):
            path.write_text(text)
            _, _, (error,) = await reload(node)
            assert expected in error and error.count("\n") == 1, error
        path.unlink()
        assert "hub.toml" in (await reload(node))[2][0]
        async with await connect(node.url.replace("//", "//root:one@")) as client:
            assert (await client.manage("READ", "holdfast:queue", "work"))["messages_max"] == 5
        write(directory, telemetry="other.ndjson")
        assert await reload(node) == (0, ["telemetry file"], [])
        await eventually_true(lambda: (directory / "other.ndjson").stat().st_size > 0, what="records there")
        assert len(os.listdir(f"/proc/{node.pid}/fd")) < 60, "files that were opened for nothing are closed"
        assert await node.stop() == 0


async def test_a_log_that_was_moved_away_is_opened_anew_in_json(directory: Path) -> None:
    path = write(directory)
    path.write_text(path.read_text().replace("[log]", f'[log]\nfile = "{directory}/hub.log"'))
    log = directory / "hub.log"
    async with await NodeProcess.start(config=path, listen=None) as node:
        await eventually_true(lambda: " hub INFO node hub starts" in log.read_text(), what="the first line")
        assert not node.stderr
        log.rename(directory / "hub.log.1")
        path.write_text(path.read_text().replace("[log]", '[log]\nformat = "json"'))
        assert await reload(node) == (0, ["log format"], [])
        assert await node.stop() == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {(line["node"], line["level"]) for line in lines} == {("hub", "INFO")}
    assert lines[-1]["text"] == "node hub has stopped"
    assert "has stopped" not in (directory / "hub.log.1").read_text()


async def test_what_needs_a_restart_is_told(directory: Path) -> None:
    async with await NodeProcess.start(config=write(directory), listen=None) as node:
        path = write(directory, most=4)
        path.write_text(path.read_text() + "[store]\nbytes_max = 8_000_000\n\n[limits]\ncredit = 7\n")
        for _ in range(2):
            code, changed, restart = await reload(node)
            assert (code, restart) == (0, ["store bytes_max", "limits credit"])
        assert changed == []
        told_to_person = await run_holdfast("reload", "--url", node.url.replace("//", "//root:one@"))
        assert told_to_person.stdout == ""
        assert "nothing has changed\nfrom the next start on: store bytes_max\n" in told_to_person.stderr


async def test_hanging_up_never_ends_a_node_not_even_while_it_stops(directory: Path) -> None:
    async with await NodeProcess.start(config=write(directory), listen=None) as node:
        for _ in range(20):
            node.signal(signal.SIGHUP)
        await node.logged("reload: nothing has changed")
        node.signal(signal.SIGTERM)
        for _ in range(1_000):
            if node.returncode is not None:
                break
            try:
                os.kill(node.pid, signal.SIGHUP)
            except ProcessLookupError:
                break
            await asyncio.sleep(0.001)
        assert await node.wait() == 0


async def test_two_nodes_become_neighbours_and_one_moves_to_another_port(tmp_path: Path) -> None:
    names = ("hub", "jfk")
    for name in names:
        (tmp_path / f"{name}.toml").write_text(f'[node]\nname = "{name}"\ndata = "{tmp_path}/{name}"\n')
    hub, jfk = [await NodeProcess.start(config=tmp_path / f"{name}.toml") for name in names]
    async with hub, jfk:
        with (tmp_path / "hub.toml").open("a") as file:
            file.write('[[neighbour]]\nname = "jfk"\n')
        done = await run_holdfast("reload", "--url", hub.url)
        assert (done.code, done.stdout) == (0, "neighbour 'jfk' added\n"), done.stderr
        assert (await run_holdfast("queue", "create", "work", "--url", hub.url)).code == 0
        with (tmp_path / "jfk.toml").open("a") as file:
            file.write('[[neighbour]]\nname = "hub"\nremote = "127.0.0.1:1"\n')
        jfk.signal(signal.SIGHUP)
        await jfk.logged("reload: neighbour 'hub' added")
        async with await connect(jfk.url) as client:
            await (await client.sender("work@hub")).send(b"held")
        path = tmp_path / "jfk.toml"
        path.write_text(path.read_text().replace("127.0.0.1:1", hub.ready["amqp"]))
        jfk.signal(signal.SIGHUP)
        await jfk.logged("neighbour hub: OpenConfirm -> Established")
        done = await run_holdfast("receive", "work", "--count", "1", "--idle-timeout", "20", "--url", hub.url)
        assert done.stdout == "held\n", done.stderr
        path.write_text(path.read_text().partition("[[neighbour]]")[0])
        jfk.signal(signal.SIGHUP)
        await jfk.logged("neighbour 'hub' removed")
        assert await jfk.stop() == 0 and await hub.stop() == 0


async def test_a_changed_topology_file_makes_the_neighbours_and_the_routes_of_running_nodes(tmp_path: Path) -> None:
    def write(addresses: dict[str, str], *links: str) -> None:
        lines = [f'[[node]]\nname = "{name}"\naddress = "{address}"' for name, address in addresses.items()]
        drawn.write_text("\n".join([*lines, *links]))

    drawn = tmp_path / "topology.toml"
    write({"hub": "127.0.0.1:1", "jfk": "127.0.0.1:1"})
    for name in ("hub", "jfk"):
        common = f'name = "{name}"\ndata = "{tmp_path}/{name}"\nlisten = ["127.0.0.1:0"]'
        (tmp_path / f"{name}.toml").write_text(f'[node]\n{common}\n[topology]\nfile = "{drawn}"\n')
    hub, jfk = [await NodeProcess.start(config=tmp_path / f"{name}.toml") for name in ("hub", "jfk")]
    async with hub, jfk:
        write({"hub": hub.ready["amqp"], "jfk": "127.0.0.1:1"}, '[[link]]\nfrom = "jfk"\nto = "hub"\ncost = 2')
        done = await run_holdfast("reload", "--url", hub.url)
        assert "topology link 'jfk' to 'hub' added" in done.stdout, done.stderr
        jfk.signal(signal.SIGHUP)
        await jfk.logged("neighbour hub: OpenConfirm -> Established")
        drawn.write_text(drawn.read_text().replace("cost = 2", "cost = 7"))
        done = await run_holdfast("reload", "--url", jfk.url)
        assert done.stdout == "topology link 'jfk' to 'hub' changed\n", done.stderr
        status = json.loads((await run_holdfast("status", "--json", "--url", jfk.url)).stdout)
        assert [row["cost"] for row in status["routes"] if row["destination"] == "hub"] == [7]
        drawn.write_text(drawn.read_text().replace("cost = 7", "cost = 0"))
        done = await run_holdfast("reload", "--url", jfk.url)
        assert done.code == 1 and "topology.toml: invalid value 0 for link 'jfk' to 'hub' cost" in done.stderr
        assert await jfk.stop() == 0 and await hub.stop() == 0


@needs_openssl
async def test_other_certificates_are_used_from_a_reload_on(directory: Path) -> None:
    identity = of_node()
    certificate = directory / "node.pem"
    certificate.write_text(identity.certificate.read_text())
    tls = '[tls]\ncertificate_file = "{}"\nkey_file = "{}"\nversion_min = "{}"\n'
    listen = 'listen = ["127.0.0.1:0"'
    path = write(directory, more=tls.format(certificate, identity.key, "1.2"))
    path.write_text(path.read_text().replace(listen, listen + ', "amqps://127.0.0.1:0"'))
    async with await NodeProcess.start(config=path, listen=None) as node:
        port = int(node.ready["amqps"].rpartition(":")[2])
        old = ssl.create_default_context(cafile=identity.authority)
        old.maximum_version = ssl.TLSVersion.TLSv1_2

        async def works() -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=old, server_hostname="localhost")
            except (ssl.SSLError, ConnectionError):
                return False
            writer.close()
            return True

        assert await works()
        path.write_text(path.read_text().replace('version_min = "1.2"', 'version_min = "1.3"'))
        assert await reload(node) == (0, ["tls"], [])
        assert not await works()
        for _ in range(5):  # a watch looks at the files too, every 5 s, and may be first
            certificate.write_text(certificate.read_text() + "\n")
            answer = await reload(node)
            if answer != (0, [], []):
                break
        assert answer == (0, ["tls certificates"], [])
        path.write_text(path.read_text().replace(str(identity.key), str(directory / "none.key")))
        code, _, (error,) = await reload(node)
        assert code == 1 and "tls key_file" in error and "cannot be used" in error
