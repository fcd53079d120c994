"""Brokers of others as remotes of a node: RabbitMQ, and a small one on Qpid Proton (docs/remotes.md)."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("proton", reason="Qpid Proton for Python (python-qpid-proton) is not installed")

from proton import Message as ProtonMessage

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from holdfast.client.blocking import BlockingConnection as connect
from interop.nodes import Nodes
from interop.proton_peer import Client
from interop.test_plain_broker import broker, came, passed_on
from support.certificates import needs_openssl, of_node
from support.documents import ROOT
from support.postgresql import free_port
from support.process import NodeProcess

pytestmark = pytest.mark.interop

HUB = """
[node]
name = "hub"
data = "{folder}/hub.holdfast"
listen = ["127.0.0.1:0"]
create_queues = true

[[remote]]
name = "mq"
remote = "{remote}"
{more}
"""


def hub_with(nodes: Nodes, folder: Path, remote: int | str, more: str = "") -> NodeProcess:
    """`remote`: where it listens: a port, or HOST:PORT of TLS."""
    config = folder / "hub.toml"
    where = f"127.0.0.1:{remote}" if isinstance(remote, int) else f"amqps://{remote}"
    config.write_text(HUB.format(folder=folder, remote=where, more=more))
    return nodes.start(None, config=config, listen=None)


def send(hub: NodeProcess, address: str, *subjects: str, size: int = 0) -> None:
    """Messages whose bodies are as their subjects."""
    with connect(hub.url) as connection:
        sender = connection.sender(address)
        for subject in subjects:
            body = subject + " " * size
            sender.send(Message(properties=Properties(subject=subject), value=body))


def bodies(hub: NodeProcess, address: str, count: int) -> list[str]:
    with connect(hub.url) as connection:
        found = []
        for delivery in connection.receiver(address, count_max=count):
            found.append(str(delivery.message.value).strip())
            delivery.accept()
        return found


# ------------------------------------------------------------------------------------------------------ Qpid Proton


def test_messages_pass_while_a_broker_comes_and_goes(nodes: Nodes, peers: None, tmp_path: Path) -> None:
    port = free_port()
    hub = hub_with(nodes, tmp_path, port)
    send(hub, "flights@mq", "1", "2")
    other = broker(port, releases=1)
    assert sorted(came(other, 2)) == [("flights", "1"), ("flights", "2")]
    asyncio.run(passed_on(hub.url, "flights@mq"))
    other.close()
    send(hub, "flights@mq", *"345")
    nodes.kill(hub)
    nodes.run(hub.restart())
    assert sorted({*came(broker(port), 3)}) == [("flights", number) for number in "345"]
    assert "Traceback" not in hub.stderr


def test_what_a_broker_rejects_is_a_dead_letter(nodes: Nodes, peers: None, tmp_path: Path) -> None:
    port = free_port()
    other = broker(port, rejected="bad")
    hub = hub_with(nodes, tmp_path, port)
    send(hub, "flights@mq", "bad", "good")
    assert came(other, 1) == [("flights", "good")]
    assert bodies(hub, "$dead-letters", 1) == ["bad"]


# ------------------------------------------------------------------------------------------------------ over TLS

TLS_BROKER = """
[node]
name = "far"
data = "{folder}/far.holdfast"
listen = ["amqps://127.0.0.1:0"]
create_queues = true

[tls]
certificate_file = "{certificate}"
key_file = "{key}"

[[user]]
name = "ann"
password_file = "{folder}/password"
"""
LOGIN = """
user = "ann"
password_file = "{folder}/password"
fetch = [{{ from = "back", to = "back" }}]
"""
TRUST = """
[tls]
ca_file = "{authority}"
"""


@pytest.fixture
def tls_broker(nodes: Nodes, tmp_path: Path) -> NodeProcess:
    """Another node, which plays a broker: with TLS alone, and a user."""
    identity = of_node()
    (tmp_path / "password").write_text("secret\n")
    config = tmp_path / "far.toml"
    config.write_text(TLS_BROKER.format(folder=tmp_path, certificate=identity.certificate, key=identity.key))
    return nodes.start(None, config=config, listen=None)


def far(broker: NodeProcess) -> connect:
    return connect(f"amqps://ann:secret@{broker.ready['amqps']}", ca_file=of_node().authority)


@needs_openssl
def test_messages_go_to_a_broker_over_tls_and_come_from_it(
    nodes: Nodes, tls_broker: NodeProcess, tmp_path: Path
) -> None:
    more = (LOGIN + TRUST).format(folder=tmp_path, authority=of_node().authority)
    hub = hub_with(nodes, tmp_path, tls_broker.ready["amqps"], more)
    send(hub, "flights@mq", *"123", size=100_000)
    with far(tls_broker) as connection:
        found = []
        for delivery in connection.receiver("flights", count_max=3):
            found.append(str(delivery.message.value).strip())
            delivery.accept()
        assert found == [*"123"]
        connection.sender("back").send(Message(value="4"))
    assert bodies(hub, "back", 1) == ["4"]
    assert "Traceback" not in hub.stderr


@needs_openssl
def test_a_broker_whose_certificate_is_not_trusted_gets_nothing(
    nodes: Nodes, tls_broker: NodeProcess, tmp_path: Path
) -> None:
    hub = hub_with(nodes, tmp_path, tls_broker.ready["amqps"], LOGIN.format(folder=tmp_path))
    send(hub, "flights@mq", "1")
    nodes.run(hub.logged("remote mq: no connection: TLS: the peer's certificate is not trusted"))
    with connect(hub.url) as connection:
        assert connection.admin.queue("flights@mq")["messages"] == 1
    assert "Traceback" not in hub.stderr


# ------------------------------------------------------------------------------------------------------ RabbitMQ

RABBITMQ = """
user = "guest"
password_file = "{folder}/password"
addresses = {{ "topic/flights" = "/exchange/amq.topic", out = "/queue/out" }}
fetch = [{{ from = "/queue/back", to = "back" }}]

[[federation]]
topic = "flights"
neighbour = "mq"
mode = "static"
patterns = ["delayed.#"]
"""


@pytest.fixture(scope="module")
def rabbitmq_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    sys.path[:0] = [str(ROOT / "benchmarks" / "macro"), str(ROOT / "benchmarks")]
    import _peers  # the benchmarks are scripts, which are found where they lie

    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(_peers, "START_S_MAX", 180.0)  # beside the other lane of tests
    server = _peers.RabbitMq()
    try:
        server.start(tmp_path_factory.mktemp("rabbitmq"))
    except _peers.PeerMissing as missing:
        pytest.skip(str(missing))
    finally:
        monkeypatch.undo()
    yield server.port
    server.stop()


def test_messages_go_to_rabbitmq_and_come_from_it(nodes: Nodes, rabbitmq_port: int, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("guest\n")
    with Client(rabbitmq_port, url=f"guest:guest@127.0.0.1:{rabbitmq_port}", allowed_mechs="PLAIN") as rabbit:
        delayed = rabbit.receiver("/topic/delayed.*").flow(10)
        hub = hub_with(nodes, tmp_path, rabbitmq_port, RABBITMQ.format(folder=tmp_path))
        send(hub, "topic/flights", "delayed.jfk", "on-time.jfk", "delayed.ewr")
        assert [str(arrival.message.subject) for arrival in delayed.take(2)] == ["delayed.jfk", "delayed.ewr"]
        send(hub, "out@mq", *"123", size=300_000)
        out = rabbit.receiver("/queue/out").flow(10)
        assert [str(arrival.body).strip() for arrival in out.take(3)] == [*"123"]
        back = rabbit.sender("/queue/back")  # it is not closed: RabbitMQ 3.10 does not answer that
        for text in "456":
            back.send(ProtonMessage(body=text))
        assert bodies(hub, "back", 3) == [*"456"]
    assert "Traceback" not in hub.stderr


def test_a_wrong_password_is_one_line(nodes: Nodes, rabbitmq_port: int, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("wrong\n")
    hub = hub_with(nodes, tmp_path, rabbitmq_port, f'user = "guest"\npassword_file = "{tmp_path}/password"')
    nodes.run(hub.logged("remote mq: no connection: amqp:unauthorized-access: wrong user or password"))
    assert "Traceback" not in hub.stderr
