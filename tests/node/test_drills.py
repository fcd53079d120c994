"""The drills of docs/drills.md on processes: what goes wrong, what a person sees of it, and what comes of the messages.

Rules of this file: a test says what the document says, in its words, and ends with every message once.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import holdfast
from support.certificates import authority, needs_openssl
from support.eventually import eventually_async
from support.large import Relay
from support.process import NodeProcess, run_holdfast

LIMIT_S = 150.0


def file(
    directory: Path, name: str, *, hub: str | None = None, node: str = "", queue: str = "", more: str = ""
) -> Path:
    """A site's file with the hub as its neighbour, or the hub's with `jfk`; both have the queue `work`."""
    neighbour = 'name = "jfk"\n' if hub is None else f'name = "hub"\nremote = "{hub}"\n'
    directory.mkdir(exist_ok=True)
    path = directory / "node.toml"
    text = f'[node]\nname = "{name}"\ndata = "{directory}/store"\n{node}[[queue]]\nname = "work"\n{queue}'
    path.write_text(f"{text}[[neighbour]]\n{neighbour}{more}")
    return path


async def start(config: Path, listen: str | None = "127.0.0.1:0", source: Path | None = None) -> NodeProcess:
    return await NodeProcess.start(config=config, listen=listen, source=source)


async def run(node: NodeProcess, line: str, stdin: str | None = None, code: int = 0) -> str:
    ended = await run_holdfast(*line.split(), "--url", node.url, stdin=stdin)
    assert ended.code == code, (line, ended.stdout, ended.stderr)
    return ended.stdout if code == 0 else ended.stderr


async def told(node: NodeProcess, line: str = "status") -> Any:
    return json.loads(await run(node, f"{line} --json"))


async def send(node: NodeProcess, address: str, first: int, last: int, more: str = "") -> None:
    await run(node, f"send {address} {more}", stdin="".join(f"{number}\n" for number in range(first, last + 1)))


async def took(node: NodeProcess, count: int) -> list[int]:
    """So many messages of `work`, and that there are no more."""
    found = await run(node, f"receive work --count {count} --idle-timeout 60")
    left = await run(node, "receive work --idle-timeout 0.5")
    return [int(line) for line in (found + left).splitlines()]


async def until_up(node: NodeProcess, neighbour: str, *, is_up: bool = True) -> None:
    async def look() -> bool:
        [session] = [row for row in (await told(node))["sessions"] if row["neighbour"] == neighbour]
        return (session["state"] == "Established") is is_up

    await eventually_async(look, what=f"session of {node.name} with {neighbour}", limit_s=60)


async def until_warned(node: NodeProcess, text: str) -> None:
    async def look() -> bool:
        return any(text in line for line in (await told(node))["warnings"])

    await eventually_async(look, what=f"a warning of {node.name}: {text}", limit_s=60)


async def test_two_nodes_with_one_name(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), await start(file(tmp_path / "hub", "hub")) as hub:
        at = hub.ready["amqp"]
        async with await start(file(tmp_path / "first", "jfk", hub=at)) as first:
            await until_up(first, "hub")
            async with await start(file(tmp_path / "second", "jfk", hub=at)) as second:
                await second.logged("another node named 'jfk', with another store, has a session already", 60)
                await until_up(first, "hub")
                await until_warned(hub, "two nodes with different stores use this name")
                await send(second, "work@hub", 101, 102)
                await send(hub, "work@jfk", 1, 3)
                await send(first, "work@hub", 1, 3)
                assert await took(first, 3) == [1, 2, 3] and await took(hub, 3) == [1, 2, 3]
                assert await second.stop() == 0
            renamed = file(tmp_path / "second", "ewr", hub=at)
            hub_file = tmp_path / "hub" / "node.toml"
            hub_file.write_text(hub_file.read_text() + '[[neighbour]]\nname = "ewr"\n')
            await run(hub, "reload")
            async with await start(renamed) as second:
                assert await took(hub, 2) == [101, 102]
                assert await second.stop() == 0


@needs_openssl
async def test_a_certificate_that_has_expired(tmp_path: Path) -> None:
    signer = authority(tmp_path / "ca", "an authority")
    good = signer.sign("hub", alternatives="IP:127.0.0.1", stem="good")
    bad = signer.sign("hub", alternatives="IP:127.0.0.1", days=-1, stem="bad")
    certificate, key = tmp_path / "hub.pem", tmp_path / "hub.key"
    certificate.write_bytes(bad.certificate.read_bytes())
    key.write_bytes(bad.key.read_bytes())
    hub_file = file(
        tmp_path / "hub", "hub", node='listen = ["127.0.0.1:0", "amqps://127.0.0.1:0"]\n',
        more=f'[tls]\ncertificate_file = "{certificate}"\nkey_file = "{key}"\n',
    )  # fmt: skip
    async with asyncio.timeout(LIMIT_S), await start(hub_file, listen=None) as hub:
        jfk_file = file(
            tmp_path / "jfk", "jfk", hub=f"amqps://{hub.ready['amqps']}",
            more=f'[tls]\nca_file = "{signer.certificate}"\n',
        )  # fmt: skip
        async with await start(jfk_file) as jfk:
            await until_warned(jfk, "certificate has expired")
            await send(jfk, "work@hub", 1, 3)
            for path, made in ((certificate, good.certificate), (key, good.key)):
                path.write_bytes(made.read_bytes())
            await run(hub, "reload")
            assert await took(hub, 3) == [1, 2, 3]
            await until_up(jfk, "hub")


async def test_a_clock_that_is_wrong(tmp_path: Path) -> None:
    """Three days ahead: a message that lives for an hour arrives, in both directions, and the offset is told."""
    ahead = tmp_path / "ahead"
    ahead.mkdir()
    (ahead / "sitecustomize.py").write_text(
        "import time\n_time, _ns = time.time, time.time_ns\n"
        "time.time = lambda: _time() + 259_200\ntime.time_ns = lambda: _ns() + 259_200 * 10**9\n"
    )
    source = Path(holdfast.__file__).parents[1]
    async with asyncio.timeout(LIMIT_S), await start(file(tmp_path / "hub", "hub")) as hub:
        config = file(tmp_path / "jfk", "jfk", hub=hub.ready["amqp"])
        async with await start(config, source=Path(f"{ahead}:{source}")) as jfk:
            await send(jfk, "work@hub", 1, 3, "--ttl 3600")
            await send(hub, "work@jfk", 4, 6, "--ttl 3600")
            assert await took(hub, 3) == [1, 2, 3] and await took(jfk, 3) == [4, 5, 6]

            async def look() -> bool:
                [session] = (await told(hub))["sessions"]
                return abs((session["clock_offset_s"] or 0) - 259_200) < 5

            await eventually_async(look, what="the offset", limit_s=60)
            await send(jfk, "work@hub", 7, 9)
            assert await jfk.stop() == 0
            jfk.source = None  # the clock is set right, so it goes back
            await jfk.restart()
            await send(jfk, "work@hub", 10, 12)
            assert await took(hub, 6) == [7, 8, 9, 10, 11, 12]


async def test_the_disk_of_a_site_is_full(tmp_path: Path) -> None:
    """Nobody takes what the site gets: what it has no room for waits at the hub, and the hub says so."""
    body = "x" * 50_000
    count = 400  # 20 MB for a store of 8
    async with asyncio.timeout(LIMIT_S), await start(file(tmp_path / "hub", "hub")) as hub:
        small = file(
            tmp_path / "jfk", "jfk", hub=hub.ready["amqp"], queue="bytes_max = 100_000_000\n",
            more="[store]\nbytes_max = 8_388_608\n",
        )  # fmt: skip
        async with await start(small) as jfk:
            await run(hub, "send work@jfk", stdin="".join(f"{number} {body}\n" for number in range(count)))

            async def is_full() -> bool:
                rows = {row["node"]: row for row in await told(hub, "network status")}
                return 0 < rows["jfk"]["messages"] < count and rows["hub"]["in_transmission"] > count // 4

            await eventually_async(is_full, what="a full site", limit_s=60)
            await until_up(jfk, "hub")
            await jfk.kill()
            await jfk.restart()
            found = await run(jfk, f"receive work --count {count} --idle-timeout 60")
            assert [int(line.split()[0]) for line in found.splitlines()] == list(range(count))
            assert (await run(jfk, "receive work --idle-timeout 0.5")) == ""


async def test_a_message_that_the_next_node_cannot_take(tmp_path: Path) -> None:
    """It becomes a dead letter where it is, with the reason, and those behind it pass."""
    async with asyncio.timeout(LIMIT_S), await start(file(tmp_path / "hub", "hub")) as hub:
        limited = file(tmp_path / "jfk", "jfk", hub=hub.ready["amqp"], more="[limits]\nmessage_bytes_max = 65_536\n")
        async with await start(limited) as jfk:
            await until_up(jfk, "hub")
            await send(hub, "work@jfk", 1, 1)
            await run(hub, "send work@jfk", stdin="y" * 200_000 + "\n")
            await send(hub, "work@jfk", 2, 3)
            assert await took(jfk, 3) == [1, 2, 3]
            lines = await run(hub, "receive $dead-letters --browse --json --count 1 --idle-timeout 30")
            [letter] = [json.loads(line) for line in lines.splitlines()]
            assert letter["annotations"]["x-opt-dead-letter-reason"] == "larger than 'jfk' takes"
            assert letter["annotations"]["x-opt-dead-letter-from"] == "work@jfk"
            assert (await told(hub))["dead_letters"]["messages"] == 1


async def test_the_network_splits(tmp_path: Path) -> None:
    """Each part works on; what is for the other part waits, and is there once when the line is back."""
    async with asyncio.timeout(LIMIT_S), await start(file(tmp_path / "hub", "hub")) as hub, Relay(hub.port) as line:
        jfk = await start(file(tmp_path / "jfk", "jfk", hub=f"127.0.0.1:{line.port}"))
        port = line.port
        async with jfk:
            await until_up(jfk, "hub")
            await line.__aexit__()
            await until_up(jfk, "hub", is_up=False)
            await send(jfk, "work@hub", 1, 5)
            await send(hub, "work@jfk", 6, 9)
            await send(jfk, "work", 100, 101)
            assert await took(jfk, 2) == [100, 101], "the site works on"
            rows = {row["node"]: row for row in await told(jfk, "network status")}
            assert rows["hub"]["state"] == "unreachable" and rows["jfk"]["in_transmission"] == 5
            server = await asyncio.start_server(line._serve, "127.0.0.1", port)
            async with server:
                assert await took(hub, 5) == [1, 2, 3, 4, 5] and await took(jfk, 4) == [6, 7, 8, 9]
                assert await jfk.stop() == 0


async def test_a_dead_node_is_replaced_with_an_empty_disk(tmp_path: Path) -> None:
    """docs/operations.md, "Replacing a dead node": what others hold arrives once, and in order; the rest is gone."""
    async with asyncio.timeout(LIMIT_S), await start(file(tmp_path / "hub", "hub")) as hub:
        config = file(tmp_path / "jfk", "jfk", hub=hub.ready["amqp"])
        async with await start(config) as jfk:
            await send(jfk, "work@hub", 1, 3)
            await send(hub, "work@jfk", 11, 13)
            assert await took(hub, 3) == [1, 2, 3] and await took(jfk, 3) == [11, 12, 13]
            await send(hub, "work@jfk", 14, 16)

            async def has_come() -> bool:
                queues = {row["name"]: row["messages"] for row in (await told(jfk))["queues"]}
                return queues.get("work") == 3

            await eventually_async(has_come)
            former = (await told(jfk))["store"]
            await jfk.kill()
            await send(hub, "work@jfk", 17, 20)
            (tmp_path / "jfk" / "store").rename(tmp_path / "dead disk")
            await jfk.restart()
            assert (await told(jfk))["store"] != former
            assert await took(jfk, 4) == [17, 18, 19, 20], "14 to 16 were on the dead disk alone"
            await send(jfk, "work@hub", 4, 6)
            assert await took(hub, 3) == [4, 5, 6]
            assert "has a new store" in hub.stderr
