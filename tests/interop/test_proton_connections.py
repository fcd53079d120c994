"""Connections of Qpid Proton: SASL, idle time-outs, frame sizes, reconnecting (CLIENTS 1, 3 to 8)."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")

from proton import ConnectionException, Delivery, Message  # noqa: E402
from proton.handlers import MessagingHandler  # noqa: E402
from proton.reactor import Container  # noqa: E402
from proton.utils import ConnectionClosed  # noqa: E402

from interop.nodes import Nodes  # noqa: E402
from interop.proton_peer import LIMIT_S, Client, bare  # noqa: E402
from interop.recorder import CLOSE, TRANSFER, Recorder  # noqa: E402
from support.process import NodeProcess  # noqa: E402

pytestmark = pytest.mark.interop


def configured(nodes: Nodes, folder: Path, text: str) -> NodeProcess:
    config = folder / "node.toml"
    config.write_text(
        f'[node]\nname = "hub"\ndata = "{folder}/hub.holdfast"\nlisten = ["127.0.0.1:0"]\ncreate_queues = true\n{text}'
    )
    return nodes.start(None, config=config, listen=None)


# ------------------------------------------------------------------------------------------------ SASL


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"allowed_mechs": "ANONYMOUS"},
        {"allowed_mechs": "PLAIN", "user": "anyone", "password": "anything"},
        {"sasl_enabled": False},
    ],
    ids=["default", "anonymous", "plain", "no-sasl"],
)
def test_without_users_anyone_is_let_in(hub: NodeProcess, address: str, options: dict[str, Any]) -> None:
    with Recorder(hub.port) as line, Client(line.port, **options) as client:
        client.serves(address)
        spoke_sasl = any(frame.sasl for frame in line.frames if frame.from_client)
        assert spoke_sasl == options.get("sasl_enabled", True)


def test_user_with_the_right_password(guarded: NodeProcess, address: str) -> None:
    with Client(guarded.port, user="alice", password="pass word", allowed_mechs="PLAIN") as client:
        client.serves(address)
    with Client(guarded.port, url=f"amqp://alice:pass%20word@127.0.0.1:{guarded.port}") as client:
        client.serves(address)


@pytest.mark.parametrize(
    "options",
    [
        {"user": "alice", "password": "wrong", "allowed_mechs": "PLAIN"},
        {"user": "alice", "password": "", "allowed_mechs": "PLAIN"},
        {"user": "bob", "password": "pass word", "allowed_mechs": "PLAIN"},
        {"allowed_mechs": "ANONYMOUS"},
        {"sasl_enabled": False},
    ],
    ids=["wrong-password", "no-password", "unknown-user", "anonymous", "no-sasl"],
)
def test_with_users_others_are_refused_at_once(guarded: NodeProcess, options: dict[str, Any]) -> None:
    with pytest.raises(ConnectionException) as caught:
        Client(guarded.port, **options)
    assert not isinstance(caught.value, proton.Timeout)
    if options.get("sasl_enabled", True) and "password" in options:
        assert "amqp:unauthorized-access" in str(caught.value)
    with Client(guarded.port, user="alice", password="pass word", allowed_mechs="PLAIN") as client:
        client.serves("after")


@pytest.mark.parametrize("node", ["hub", "guarded"])
def test_no_mechanism_in_common(request: pytest.FixtureRequest, node: str) -> None:
    """Proton looks through the node's list, finds nothing that it may use, and goes."""
    port = request.getfixturevalue(node).port
    with pytest.raises(ConnectionException, match="amqp:unauthorized-access"):
        Client(port, allowed_mechs="SCRAM-SHA-1", user="alice", password="pass word")
    with Client(port, allowed_mechs="PLAIN SCRAM-SHA-1", user="alice", password="pass word") as client:
        client.serves("mechanisms")


# ------------------------------------------------------------------------------------------------ too many of them

ALICE = '[[user]]\nname = "alice"\npassword_file = "{folder}/password"\nconnections_max = 1\n'


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("[limits]\nconnections_max = 1\n", "(connections_max)"),
        ("[limits]\naddress_connections_max = 1\n", "(address_connections_max)"),
        ("[limits]\nuser_connections_max = 1\n", "(user_connections_max)"),
        (ALICE, "user 'alice' has 1 connections, the most it may have (connections_max of the [[user]])"),
    ],
    ids=["node", "address", "nameless", "user"],
)
def test_one_connection_too_many_is_told_why(nodes: Nodes, tmp_path: Path, config: str, reason: str) -> None:
    """With SASL and without it; and there is room again once the first has gone."""
    (tmp_path / "password").write_text("word\n")
    node = configured(nodes, tmp_path, config.format(folder=tmp_path))
    if "[[user]]" in config:
        logins: list[dict[str, Any]] = [{"user": "alice", "password": "word", "allowed_mechs": "PLAIN"}]
    else:
        logins = [{}, {"sasl_enabled": False}]
    with Client(node.port, **logins[0]) as first:
        first.serves("place")
        for login in logins * 3:
            with pytest.raises(ConnectionException) as caught, Client(node.port, **login) as more:
                more.serves("place")
            assert "amqp:resource-limit-exceeded" in str(caught.value) and reason in str(caught.value)
        first.serves("place")
    with Client(node.port, **logins[0]) as later:
        later.serves("place")
    assert node.stderr.count("refused: ") == len(logins) * 3


# ------------------------------------------------------------------------------------------------ idle time-outs


def test_node_sends_empty_frames_for_a_heartbeat_of_one_second(hub: NodeProcess, address: str) -> None:
    with Recorder(hub.port) as line, Client(line.port, heartbeat=1) as client:
        # Proton itself ends the connection where nothing comes for a second.
        client.wait(lambda: line.count(from_client=False, code=None) >= 6, limit_s=10.0)
        client.serves(address)


def open_and_fall_silent(port: int, said: list[bytes]) -> None:
    """A header and an open, then nothing; `said` is all that the node said until it ended the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10.0) as silent:
        silent.sendall(b"AMQP\x00\x01\x00\x00\x00\x00\x00\x11\x02\x00\x00\x00\x00\x53\x10\xc0\x04\x01\xa1\x01z")
        while data := silent.recv(65536):
            said.append(data)


def test_node_keeps_who_sends_empty_frames_and_ends_who_is_silent(nodes: Nodes, tmp_path: Path) -> None:
    node = configured(nodes, tmp_path, "[limits]\nidle_time_out_s = 1.0\n")
    with Recorder(node.port) as line, Client(line.port) as client:
        client.wait(lambda: line.count(from_client=True, code=None) >= 5, limit_s=10.0)
        client.serves("alive")
        said: list[bytes] = []
        listening = threading.Thread(target=open_and_fall_silent, args=(node.port, said))
        listening.start()
        client.wait(lambda: not listening.is_alive(), limit_s=10.0)
        assert b"\x00\x53\x18" in b"".join(said) and b"amqp:resource-limit-exceeded" in b"".join(said)
        client.serves("alive")
        assert line.count(from_client=False, code=CLOSE) == 0


# ------------------------------------------------------------------------------------------------ frame sizes


@pytest.mark.parametrize("size", [512, 513, 1_024, 32_768, 1_048_576])
def test_node_keeps_to_the_client_s_frame_size(hub: NodeProcess, address: str, size: int) -> None:
    bodies = [b"", b"a" * 300, b"b" * 512, b"c" * 100_000, b"d" * 1_000_000]
    with Recorder(hub.port) as line, Client(line.port, max_frame_size=size) as client:
        sent = [Message(body=body, inferred=True).encode() for body in bodies]
        sender = client.sender(address)
        for payload in sent:
            assert client.stream(sender, payload).remote_state == Delivery.ACCEPTED
        receiver = client.receiver(address).flow(len(sent))
        assert [bare(item.payload) for item in receiver.take(len(sent))] == [bare(payload) for payload in sent]
        assert max(line.sizes(from_client=False)) <= min(size, 65_536)
        assert max(line.sizes(from_client=True)) <= 65_536


@pytest.mark.parametrize("part_bytes", [1, 100, 400, 5_000])
def test_node_takes_deliveries_in_small_frames(hub: NodeProcess, address: str, part_bytes: int) -> None:
    payload = Message(body=bytes(range(256)) * 8, inferred=True).encode()
    with Recorder(hub.port) as line, Client(line.port) as client:
        sender = client.sender(address)
        assert client.stream(sender, payload, part_bytes=part_bytes).remote_state == Delivery.ACCEPTED
        assert line.count(from_client=True, code=TRANSFER) >= len(payload) // part_bytes
        assert bare(client.receiver(address).one().payload) == bare(payload)


def test_aborted_delivery_never_happened(hub: NodeProcess, address: str) -> None:
    with Client(hub.port) as client:
        sender = client.sender(address)
        link = sender.link
        client.wait(lambda: link.credit)
        delivery = link.delivery("gone")
        link.stream(b"\x00\x53\x75\xb0\x00\x01\x00\x00" + b"x" * 1_000)
        client.wait(lambda: not delivery.pending)
        delivery.abort()
        sender.send(Message(body="next"))
        assert [item.body for item in client.receiver(address).drain()] == ["next"]


# ------------------------------------------------------------------------------------------------ restarts


def test_client_is_told_when_the_node_stops(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes.start(tmp_path / "hub.holdfast", name="hub")
    client = Client(node.port)
    stopping = threading.Thread(target=nodes.stop, args=(node,))
    stopping.start()
    with pytest.raises(ConnectionClosed) as caught:
        client.wait(lambda: False)
    client.connection.close()
    stopping.join(LIMIT_S)
    assert caught.value.condition == "amqp:connection:forced"
    assert node.returncode == 0


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_durable_messages_outlive_the_node(nodes: Nodes, tmp_path: Path, end: str) -> None:
    node = nodes.start(tmp_path / "hub.holdfast", name="hub")
    messages = [Message(body=number, id=str(number), durable=True, priority=number % 10) for number in range(50)]
    with Client(node.port) as client:
        client.send("kept", *messages)
        receiver = client.receiver("kept").flow(10)
        for arrival in receiver.take(10):
            arrival.accept()
        client.barrier("other")
        held = receiver.flow(5).take(5)
        assert all(item.message.first_acquirer for item in held)
    nodes.stop(node) if end == "stop" else nodes.kill(node)
    nodes.restart(node)
    with Client(node.port) as client:
        found = client.receiver("kept").flow(40).take(40)
        assert [item.body for item in found] == list(range(10, 50))
        assert [item.message.priority for item in found] == [number % 10 for number in range(10, 50)]
        assert all(item.message.durable for item in found)
        # What a consumer held is marked; after a crash, perhaps more.
        marked = [not item.message.first_acquirer for item in found]
        assert all(marked[:5])
        if end == "stop":
            assert not any(marked[5:])


class Resuming(MessagingHandler):
    """Sends `total` numbered messages and receives them all, over two connections at least.

    `under_way` is set in the midst of the first half; the second half waits for another connection.
    """

    def __init__(self, url: str, total: int, under_way: threading.Event) -> None:
        super().__init__(prefetch=50)
        self.url = url
        self.total = total
        self.under_way = under_way
        self.sequences: set[int] = set()
        self.unmarked: list[int] = []
        """Entries that came again as if for the first time."""
        self.sent = 0
        self.accepted: set[int] = set()
        self.received: list[int] = []
        self.in_flight: dict[Any, int] = {}
        self.opened = 0
        self.gave_up = False
        self.redo: list[int] = []

    def on_start(self, event: Any) -> None:
        # After a close with amqp:connection:forced Proton waits for its own next write, or its heartbeat's end,
        # before it looks at the socket again.
        self.connection = event.container.connect(self.url, reconnect=[0] + [0.1] * 900, heartbeat=1)
        self.receiver = event.container.create_receiver(self.connection, "resumed")
        self.sender = event.container.create_sender(self.connection, "resumed")
        self.timer = event.container.schedule(LIMIT_S, self)

    def on_timer_task(self, event: Any) -> None:
        self.gave_up = True
        event.container.stop()

    def on_connection_opened(self, event: Any) -> None:
        self.opened += 1
        if self.opened > 1:
            self.redo += self.in_flight.values()
            self.in_flight.clear()

    def on_sendable(self, event: Any) -> None:
        limit = self.total // 2 if self.opened == 1 else self.total
        while event.sender.credit and (self.redo or self.sent < limit):
            if self.redo:
                number = self.redo.pop(0)
            else:
                number = self.sent
                self.sent += 1
            self.in_flight[event.sender.send(Message(body=number, durable=True)).tag] = number

    def on_accepted(self, event: Any) -> None:
        number = self.in_flight.pop(event.delivery.tag, None)
        if number is not None:
            self.accepted.add(number)
        if len(self.accepted) >= self.total // 5:
            self.under_way.set()
        self.end_if_done()

    def on_message(self, event: Any) -> None:
        message = event.message
        sequence = message.annotations["x-opt-sequence-number"]
        if sequence in self.sequences and message.first_acquirer:
            self.unmarked.append(sequence)
        self.sequences.add(sequence)
        self.received.append(message.body)
        self.end_if_done()

    def end_if_done(self) -> None:
        if len(self.accepted) == self.total and set(self.received) == set(range(self.total)):
            self.timer.cancel()
            self.connection.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_reactor_reconnects_and_resumes(nodes: Nodes, tmp_path: Path, end: str) -> None:
    node = nodes.start(tmp_path / "hub.holdfast", name="hub")
    under_way = threading.Event()
    handler = Resuming(node.url, 2_000, under_way)
    running = threading.Thread(target=Container(handler).run, daemon=True)
    running.start()
    assert under_way.wait(LIMIT_S)
    nodes.stop(node) if end == "stop" else nodes.kill(node)
    nodes.restart(node)
    running.join(LIMIT_S + 5)
    assert not handler.gave_up
    assert not running.is_alive()
    assert handler.opened >= 2
    assert handler.accepted == set(handler.received) == set(range(2_000))
    assert handler.unmarked == []


# ------------------------------------------------------------------------------------------------ virtual hosts


HOSTS = """
[[vhost]]
name = "acme"
[[vhost]]
name = "globex"
[[user]]
name = "ann"
password_file = "{folder}/password"
[[user]]
name = "ann"
vhost = "acme"
password_file = "{folder}/other"
"""


@pytest.fixture
def hosts(nodes: Nodes, tmp_path: Path) -> NodeProcess:
    (tmp_path / "password").write_text("default")
    (tmp_path / "other").write_text("acme's")
    return configured(nodes, tmp_path, HOSTS.format(folder=tmp_path))


@pytest.mark.parametrize("name", ["acme", "vhost:acme"])
def test_virtual_host_chooses_the_host_and_its_user(hosts: NodeProcess, address: str, name: str) -> None:
    """Proton says it in its open, and not in its SASL layer: there the password tells."""
    ann = {"user": "ann", "allowed_mechs": "PLAIN"}
    with Client(hosts.port, **ann, password="acme's", virtual_host=name) as client:
        client.serves(address)
        with Client(hosts.port, **ann, password="default") as other:
            other.serves(address)
    with Client(hosts.port, **ann, password="acme's") as client:
        client.serves(address)
    with pytest.raises(ConnectionException, match="amqp:unauthorized-access"):
        Client(hosts.port, **ann, password="neither")


def test_a_virtual_host_of_others_or_of_nobody_is_refused(hosts: NodeProcess) -> None:
    ann = {"user": "ann", "password": "default", "allowed_mechs": "PLAIN"}
    for host in ("globex", "nosuch"):  # the answer does not say which of the two there is
        with pytest.raises((ConnectionException, ConnectionClosed), match="amqp:not-found"):
            Client(hosts.port, **ann, virtual_host=host).serves("q")
