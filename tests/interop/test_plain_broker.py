"""A topic's messages at a broker that knows nothing of Holdfast, which `examples/bridge.py` passes on to it; and what a
node says of such a broker as its neighbour (docs/federation.md)."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("proton", reason="Qpid Proton for Python (python-qpid-proton) is not installed")

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from holdfast.client import connect as connect_soon
from holdfast.client.blocking import BlockingConnection as connect
from interop.nodes import Nodes
from interop.peer_process import PeerProcess
from support.documents import ROOT
from support.postgresql import free_port
from support.process import NodeProcess

pytestmark = pytest.mark.interop


NEIGHBOUR = """
[node]
name = "hub"
data = "{folder}/hub.holdfast"
listen = ["127.0.0.1:0"]

[[neighbour]]
name = "broker"
remote = "127.0.0.1:{port}"
"""


def broker(port: int, *, releases: int = 0, rejected: str = "-") -> PeerProcess:
    program = Path(__file__).with_name("plain_broker.py")
    found = PeerProcess([sys.executable, str(program), str(port), str(releases), rejected])
    found.hear("listens")
    return found


@contextmanager
def bridge(hub: NodeProcess, topic: str, port: int, address: str) -> Iterator[None]:
    command = [
        sys.executable,
        str(ROOT / "examples" / "bridge.py"),
        hub.url,
        topic,
        f"amqp://127.0.0.1:{port}",
        address,
    ]
    with subprocess.Popen(command, env=dict(os.environ), stderr=subprocess.DEVNULL) as process:
        try:
            asyncio.run(_subscribed(hub.url, "/".join(topic.split("/")[:2])))
            yield
            assert process.poll() is None, "it goes on"
        finally:
            process.kill()


async def _subscribed(url: str, topic: str) -> None:
    """Waits until the program has its subscription; nothing tells of it."""
    async with asyncio.timeout(30), await connect_soon(url) as connection:
        while topic not in [row["queue"] for row in await connection.admin.subscriptions()]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def passed_on(url: str, queue: str) -> None:
    """Waits until all of that queue or topic is settled: what is in doubt as its broker ends comes again."""
    async with asyncio.timeout(30), await connect_soon(url) as connection:
        while (await connection.admin.queue(queue))["messages"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def publish(hub: NodeProcess, topic: str, *subjects: str) -> None:
    with connect(hub.url) as connection:
        sender = connection.sender(topic)
        for subject in subjects:
            sender.send(Message(properties=Properties(subject=subject), value=subject))


def came(broker: PeerProcess, count: int) -> list[tuple[str, str]]:
    """Address and subject of the next messages, whose bodies are as their subjects."""
    events = [broker.hear("came", 60) for _ in range(count)]
    assert all(event["subject"] == event["body"] for event in events)
    return [(event["address"], event["subject"]) for event in events]


def test_a_broker_gets_what_a_topic_s_pattern_selects(hub: NodeProcess, address: str) -> None:
    topic, port = f"topic/{address}", free_port()
    other = broker(port, releases=2)
    with bridge(hub, f"{topic}/delayed.#", port, "flights"):
        publish(hub, topic, "delayed.jfk", "on-time.jfk", "delayed.ewr")
        assert sorted(came(other, 2)) == [("flights", "delayed.ewr"), ("flights", "delayed.jfk")]


def test_what_is_published_while_the_broker_is_away_waits_for_it(hub: NodeProcess, address: str) -> None:
    topic, port = f"topic/{address}", free_port()
    other = broker(port)
    with bridge(hub, topic, port, "flights"):
        publish(hub, topic, "1")
        assert came(other, 1) == [("flights", "1")]
        asyncio.run(passed_on(hub.url, topic))
        other.close()
        publish(hub, topic, *"23456")
        assert [subject for _, subject in came(broker(port), 5)] == [*"23456"]


def test_what_the_broker_rejects_is_a_dead_letter(hub: NodeProcess, address: str) -> None:
    topic, port = f"topic/{address}", free_port()
    other = broker(port, rejected="bad")
    with bridge(hub, topic, port, "flights"):
        publish(hub, topic, "bad", "good")
        assert came(other, 1) == [("flights", "good")]
        with connect(hub.url) as connection:
            (dead,) = connection.receiver("$dead-letters", browse=True, count_max=1)
            assert dead.message.properties is not None and dead.message.properties.subject == "bad"


def test_a_broker_that_is_a_neighbour_is_told_apart_from_a_node(nodes: Nodes, tmp_path: Path) -> None:
    """Custody takes two nodes: one line says so, and what helps."""
    port = free_port()
    broker(port)
    config = tmp_path / "hub.toml"
    config.write_text(NEIGHBOUR.format(folder=tmp_path, port=port))
    node = nodes.start(None, config=config, listen=None)
    nodes.run(node.logged("what answers at its remote is not a Holdfast node"))
    assert "list it as a [[remote]]" in node.stderr and "Traceback" not in node.stderr
