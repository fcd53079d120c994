"""Qpid Proton in C and C++ against a node: Debian's example programs, and scenarios of `proton_c/peer.c` and `.cpp`.

CLIENTS 1 to 4, 18, 20 to 23, 27, 28, 34.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from interop.nodes import Nodes
from interop.peer_process import PeerProcess
from interop.recorder import ATTACH, BEGIN, OPEN, TRANSFER, Recorder
from support.process import NodeProcess

pytestmark = pytest.mark.interop

Native = Callable[..., PeerProcess]


def came(peer: PeerProcess, count: int) -> list[tuple[int, int, bool]]:
    """(body, delivery-count, first-acquirer) of the next messages."""
    events = [peer.hear("came") for _ in range(count)]
    return [(event["body"], event["count"], event["first"]) for event in events]


# ------------------------------------------------------------------------------------------------ C


def test_c_sends_and_receives(hub: NodeProcess, address: str, native: Native) -> None:
    said = native("c/send.c", "127.0.0.1", hub.port, address, 1_000).ended()
    assert said == ["1000 messages sent and acknowledged"]
    *bodies, last = native("c/receive.c", "127.0.0.1", hub.port, address, 1_000).ended()
    assert bodies == [f'{{"sequence"={number}}}' for number in range(1, 1_001)]
    assert last == "1000 messages received"


def test_c_opens_without_sasl_and_waits_for_nothing(hub: NodeProcess, address: str, native: Native) -> None:
    with Recorder(hub.port) as line:
        native("c/send.c", "127.0.0.1", line.port, address, 1).ended()
        assert not any(frame.sasl for frame in line.frames)
        opening = [(frame.from_client, frame.code) for frame in line.frames[:4]]
        assert opening == [(True, -1), (True, OPEN), (True, BEGIN), (True, ATTACH)]


def test_c_aborts_what_it_began(hub: NodeProcess, address: str, native: Native) -> None:
    said = native("c/send-abort.c", "127.0.0.1", hub.port, address, 20).ended()
    assert said == ["20 messages started and aborted"]
    assert native("peer.c", "drain", hub.port, address, 100).done() == {"event": "done", "came": 0, "credit": 0}


@pytest.mark.parametrize("part_bytes", [1_000, 50_000])
def test_c_large_messages_in_parts(hub: NodeProcess, address: str, native: Native, part_bytes: int) -> None:
    sizes = (0, 1, 255, 256, 65_535, 65_536, 1_048_576)
    with Recorder(hub.port) as line:
        peer = native("peer.c", "large", line.port, address, part_bytes, *sizes)
        assert peer.done()["same"] == len(sizes)
        assert line.count(from_client=True, code=TRANSFER) > len(sizes) + 15
        assert line.count(from_client=False, code=TRANSFER) > len(sizes) + 15
        assert max(line.sizes(from_client=True)) <= 65_536


def test_c_outcomes(hub: NodeProcess, address: str, native: Native) -> None:
    native("peer.c", "burst", hub.port, address, 5, "unsettled").done()
    # Released and failed come back to the link that said so; what is undeliverable here does not.
    peer = native("peer.c", "outcomes", hub.port, address, "lfurla", "first")
    assert came(peer, 6) == [(1, 0, True), (1, 0, False), (1, 1, False), (2, 0, True), (3, 0, True), (3, 0, False)]
    peer.done()
    peer = native("peer.c", "drain", hub.port, address, 10)
    assert came(peer, 3) == [(1, 2, False), (4, 0, True), (5, 0, True)]
    assert peer.done()["credit"] == 0


def test_c_outcomes_of_mode_second_are_settled_by_the_node(hub: NodeProcess, address: str, native: Native) -> None:
    native("peer.c", "burst", hub.port, address, 4, "unsettled").done()
    peer = native("peer.c", "outcomes", hub.port, address, "alfra", "second")
    assert came(peer, 5) == [(1, 0, True), (2, 0, True), (2, 0, False), (2, 1, False), (3, 0, True)]
    peer.done()
    peer = native("peer.c", "drain", hub.port, address, 10)
    assert came(peer, 1) == [(4, 0, True)]


@pytest.mark.parametrize("settled", ["settled", "unsettled"])
def test_c_burst(hub: NodeProcess, address: str, native: Native, settled: str) -> None:
    accepted = native("peer.c", "burst", hub.port, address, 3_000, settled).done()["accepted"]
    assert accepted == (3_000 if settled == "unsettled" else 0)
    peer = native("peer.c", "drain", hub.port, address, 5_000)
    assert [body for body, _, _ in came(peer, 3_000)] == list(range(1, 3_001))
    assert peer.done()["credit"] == 0


# ------------------------------------------------------------------------------------------------ C++


def test_cpp_sends_browses_and_receives(hub: NodeProcess, address: str, native: Native) -> None:
    url = f"127.0.0.1:{hub.port}/{address}"
    assert native("cpp/simple_send.cpp", "-a", url, "-m", 500).ended() == ["all messages confirmed"]
    expected = [f'{{"sequence"={number}}}' for number in range(1, 501)]
    browser = native("cpp/queue_browser.cpp", f"127.0.0.1:{hub.port}", address)
    assert [re.sub(r"\s", "", browser.line("a body")) for _ in expected] == [re.sub(r"\s", "", e) for e in expected]
    browser.close()
    bodies = native("cpp/simple_recv.cpp", "-a", url, "-m", 500).ended()
    assert [re.sub(r"\s", "", body) for body in bodies] == expected


@pytest.mark.parametrize(
    ("password", "told"), [("pass word", (True, None)), ("wrong", (False, "amqp:unauthorized-access"))]
)
def test_cpp_logs_in(
    guarded: NodeProcess, address: str, native: Native, password: str, told: tuple[bool, str | None]
) -> None:
    result = native("peer.cpp", "login", guarded.port, address, "alice", password).done()
    assert (result["open"], result.get("why")) == told


def test_cpp_types_come_back_as_they_were(hub: NodeProcess, address: str, native: Native) -> None:
    result = native("peer.cpp", "types", hub.port, address).done()
    assert result["wrong"] == 0
    assert result["messages"] == 33


def test_cpp_drains_with_and_without_messages(hub: NodeProcess, address: str, native: Native) -> None:
    native("peer.c", "burst", hub.port, address, 3, "unsettled").done()
    assert native("peer.cpp", "drain", hub.port, address).done()["rounds"] == [[3, 0], [0, 0]]


def test_cpp_outcomes(hub: NodeProcess, address: str, native: Native) -> None:
    native("peer.c", "burst", hub.port, address, 4, "unsettled").done()
    native("peer.cpp", "outcomes", hub.port, address).done()
    peer = native("peer.c", "drain", hub.port, address, 10)
    assert came(peer, 2) == [(3, 0, False), (4, 0, False)]  # modify() in C++ sets neither flag
    peer.done()


def test_cpp_at_most_once(hub: NodeProcess, address: str, native: Native) -> None:
    assert native("peer.cpp", "once", hub.port, address).done()["settled"]
    assert native("peer.c", "drain", hub.port, address, 10).done()["came"] == 0


def test_cpp_many_threads(hub: NodeProcess, address: str, native: Native) -> None:
    peer = native("cpp/multithreaded_client_flow_control.cpp", f"amqp://127.0.0.1:{hub.port}", address, 250, 4)
    said = peer.ended(30)
    assert said[-1] == "1000 messages sent and received"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_cpp_reconnects_and_goes_on(nodes: Nodes, tmp_path: Path, native: Native, end: str) -> None:
    node = nodes.start(tmp_path / "hub.holdfast", name="hub")
    url = f"127.0.0.1:{node.port}"
    peer = native("cpp/reconnect_client.cpp", url, "resumed", 300, url)
    while "sequence" not in peer.line("a first message"):
        pass
    nodes.stop(node) if end == "stop" else nodes.kill(node)
    nodes.restart(node)
    said = peer.ended(30)
    assert sum("listening" in line for line in said) == 2
    received = [json.loads(line.replace("=", ":"))["sequence"] for line in said if line.startswith("{")]
    # The example takes the very last one a second time for a new one, if it comes again.
    assert len(received) == 300
    assert sorted(set(received)) in (list(range(1, 301)), list(range(1, 300)))
