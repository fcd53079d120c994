"""The client and its commands at a real node that has no place for them."""

import asyncio
from pathlib import Path

import pytest

from client.fake_broker import FakeBroker
from holdfast.client import Accepted, ConnectionFailed, LinkError, connect
from holdfast.client.network.backoff import Outage
from support.process import NodeProcess, run_holdfast

CONFIG = """
[node]
name = "hub"
data = "{folder}/hub.holdfast"
listen = ["127.0.0.1:0"]
create_queues = true

[limits]
{bound} = 1
"""


@pytest.mark.parametrize("bound", ["connections_max", "address_connections_max", "user_connections_max"])
async def test_who_finds_no_place_is_told_why_and_comes_in_once_there_is_one(tmp_path: Path, bound: str) -> None:
    config = tmp_path / "hub.toml"
    config.write_text(CONFIG.format(folder=tmp_path, bound=bound))
    async with await NodeProcess.start(None, config=config, listen=None) as node:
        first = await connect(node.url)
        with pytest.raises(
            ConnectionFailed, match=rf"(?:have|has) 1 connections.*\({bound}\) \(amqp:resource-limit-exc"
        ):
            await connect(node.url, retry_s=0)
        done = await run_holdfast("send", "q", "--url", node.url, "--count", "1", "--size", "1", "--retry", "0")
        assert done.code == 1 and f"({bound}) (amqp:resource-limit-exceeded)" in done.stderr
        waiting = asyncio.create_task(connect(node.url, retry_s=30))
        await node.logged("refused: ")
        await first.close()
        async with await asyncio.wait_for(waiting, 30) as second:
            assert await (await second.sender("q")).send(b"x") == Accepted()


DRAINED = "node 'hub' is being drained: it takes no new messages; send to another node"


async def test_without_a_retry_a_refused_link_is_tried_once(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.refuse = ("amqp:resource-limit-exceeded", DRAINED)
    async with await connect(broker.url, retry_s=0) as connection:
        with pytest.raises(LinkError) as ended:
            await connection.sender("q")
    assert str(ended.value).endswith(f"the node ended the link: {DRAINED} (amqp:resource-limit-exceeded)")
    assert broker.attaches == 1 and caplog.text == ""


async def test_a_refused_link_is_given_up_in_time_and_says_so(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.refuse = ("amqp:resource-limit-exceeded", DRAINED)
    async with await connect(broker.url, retry_s=0.3) as connection:
        began = connection.loop.time()
        with pytest.raises(LinkError, match=r"\(amqp:resource-limit-exceeded\); given up after 0\.\d s$"):
            await connection.sender("q")
        assert connection.loop.time() - began >= 0.3
    assert broker.attaches > 2 and caplog.messages[0].endswith("; trying again for 0.3 s") and len(caplog.messages) == 1


async def test_the_last_wait_of_a_refused_link_ends_with_its_time(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Outage, "next_wait_s", lambda self: 600.0)
    broker.refuse = ("amqp:resource-limit-exceeded", DRAINED)
    async with asyncio.timeout(60), await connect(broker.url, retry_s=0.2) as connection:
        with pytest.raises(LinkError, match=r"given up after 0\.\d s$"):
            await connection.sender("q")
    assert broker.attaches == 2


async def test_a_link_that_was_there_is_attached_again_without_a_retry_too(broker: FakeBroker) -> None:
    async with await connect(broker.url, retry_s=0) as connection:
        sender = await connection.sender("q")
        broker.detach_all("amqp:link:detach-forced", "closed by an operator")
        assert await sender.send(b"x") == Accepted()
