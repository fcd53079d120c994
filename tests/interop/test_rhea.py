"""rhea, the JavaScript client, against a node: what a scenario of `rhea_peer.js` saw is asserted here."""

from pathlib import Path
from typing import Any

import pytest

from interop.nodes import Nodes
from interop.recorder import CLOSE, FLOW, Recorder
from interop.rhea_peer import Rhea
from support.process import NodeProcess

pytestmark = pytest.mark.interop

SIZES = (0, 1, 255, 256, 65_535, 65_536, 65_537, 1024 * 1024, 10 * 1024 * 1024)


def configured(nodes: Nodes, folder: Path, text: str) -> NodeProcess:
    config = folder / "node.toml"
    config.write_text(f'[node]\nname = "hub"\ndata = "{folder}/hub.holdfast"\nlisten = ["127.0.0.1:0"]\n{text}')
    return nodes.start(None, config=config, listen=None)


def test_messages_come_byte_for_byte(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("bodies", hub.port, address=address, sizes=SIZES).done(40)
    assert result["wrong"] == []
    assert result["messages"] > 45


def test_message_format_is_kept(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("message_format", hub.port, address=address).done()
    assert (result["format"], result["same"]) == (0x12345600, True)


@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
@pytest.mark.parametrize("window", [1, 10, 1_000])
def test_burst_through_a_credit_window(
    hub: NodeProcess, address: str, rhea: type[Rhea], settled: bool, window: int
) -> None:
    result = rhea("burst", hub.port, address=address, count=1_500, window=window, settled=settled).done(30)
    assert (result["in_order"], result["rest"]) == (True, 0)


def test_outcomes(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("outcomes", hub.port, address=address).done()
    assert result["seen"] == [
        ["released", "released", 0, 0, False],
        ["failed", "failed", 0, 1, False],
        ["not-here", "annotated", 0, 0, True],
    ]
    assert result["rest"] == 0
    assert result["annotated"] == "because"
    assert result["other"] == ["not-here", 1]
    assert result["reasons"] == [f"rejected: example:poison no {address}"]


def test_credit_and_drain(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("credit", hub.port, address=address).done()
    assert result["seen"] == [0, 0, 0, 0, 0]
    assert result["rest"] == list(range(14, 30))
    assert (result["credit"], result["later"]) == (0, "later")


def test_browse(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("browse", hub.port, address=address).done()
    assert (result["nothing"], result["echoed"]) == (0, "copy")
    assert result["twice"] == [[0, 1, 2], [0, 1, 2]]
    assert result["taken"] == [0, 1, 2]


def test_settle_modes(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("modes", hub.port, address=address).done()
    for sending, receiving, *echoed, answered in result["seen"]:
        assert echoed == [sending, receiving, sending, receiving]
        assert answered == (True if receiving == 1 and sending != 1 else None)
    assert len(result["seen"]) == 6
    assert result["left"] == 0


def test_lost_consumer_gives_back_in_order(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    rhea("send", hub.port, address=address, bodies=list(range(10))).done()
    with Recorder(hub.port) as line:
        holder = rhea("hold", line.port, address=address, count=6)
        assert holder.hear("holds")["bodies"] == list(range(6))
        line.cut()
        holder.done()
    found = rhea("receive", hub.port, address=address, count=10).done()["messages"]
    assert [message["body"] for message in found] == list(range(10))


def test_node_sends_empty_frames(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    with Recorder(hub.port) as line:
        peer = rhea("idle", line.port, address=address, idle_ms=500)
        peer.hear("open")
        assert line.wait(lambda: line.count(from_client=False, code=None) >= 6, 10.0)
        peer.say("go on")
        peer.done()


def test_rhea_keeps_the_node_s_idle_time_out(nodes: Nodes, tmp_path: Path, rhea: type[Rhea]) -> None:
    node = configured(nodes, tmp_path, "create_queues = true\n[limits]\nidle_time_out_s = 1.0\n")
    with Recorder(node.port) as line:
        peer = rhea("idle", line.port, address="x", idle_ms=0)
        assert 0 < peer.hear("open")["node_idle_ms"] <= 500
        assert line.wait(lambda: line.count(from_client=True, code=None) >= 5, 10.0)
        assert line.count(from_client=False, code=CLOSE) == 0
        peer.say("go on")
        peer.done()


@pytest.mark.parametrize("size", [512, 1_024, 65_536, 1_048_576])
def test_frame_sizes_both_ways(hub: NodeProcess, address: str, rhea: type[Rhea], size: int) -> None:
    with Recorder(hub.port) as line:
        result = rhea("frames", line.port, address=address, frame_bytes=size).done()
        assert result["same"] == [True] * 5
        assert max(line.sizes(from_client=False)) <= min(size, 65_536)
        assert max(line.sizes(from_client=True)) <= min(size, 65_536)


@pytest.mark.parametrize(
    "options",
    [{}, {"username": "anonymous"}, {"username": "any", "password": "any"}],
    ids=["no-sasl", "anonymous", "plain"],
)
def test_without_users_anyone_is_let_in(hub: NodeProcess, rhea: type[Rhea], options: dict[str, Any]) -> None:
    assert rhea("login", hub.port, connect=options).done()["open"]


def test_login(guarded: NodeProcess, rhea: type[Rhea]) -> None:
    assert rhea("login", guarded.port, connect={"username": "alice", "password": "pass word"}).done()["open"]
    for options in ({"username": "alice", "password": "no"}, {"username": "anonymous"}, {}):
        assert not rhea("login", guarded.port, connect=options).done()["open"], options


def test_refused_links_are_told_why(strict: NodeProcess, rhea: type[Rhea]) -> None:
    result = rhea("refused", strict.port).done()
    for condition, description, has_terminus in result["told"]:
        assert condition == "amqp:not-found"
        assert "unknown" in description
        assert not has_terminus
    assert result["body"] == "x"


def test_a_message_that_has_no_place_is_refused(strict: NodeProcess, rhea: type[Rhea]) -> None:
    result = rhea("refusals", strict.port).done()
    first, second, third = result["seen"]
    assert first == ["accepted", None, None]
    assert second[:2] == ["rejected", "amqp:resource-limit-exceeded"]
    assert "queue 'one-alone' is full" in second[2]
    assert (result["first"], third) == ("first", "accepted")
    assert (result["bound"], result["too_large"]) == (100_000, "amqp:link:message-size-exceeded")


def test_expiry(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("expiry", hub.port, address=address).done()
    assert (result["body"], result["priority"]) == ("stays", 9)
    assert 0 < result["ttl"] <= 600_000


def test_an_echo_is_answered_once(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    fields = pytest.importorskip("interop.proton_peer", reason="its frames are read by Proton's decoder").fields
    with Recorder(hub.port) as line:
        peer = rhea("echo", line.port, address=address)
        peer.hear("asking")
        handle = peer.done()["handle"]
        told = [fields(frame) for frame in line.frames if frame.code == FLOW and not frame.from_client]
        flows = [flow + [None] * (11 - len(flow)) for flow in told]
        assert [flow[6] for flow in flows if flow[4] == handle] == [5]  # link-credit
        assert sum(flow[4] is None for flow in flows) == 1
        assert not any(flow[9] for flow in flows)  # echo


def test_names_and_addresses_of_any_form(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    addresses = [f"{address}-日本語/✈", f"{address} with space", f"{address}%2F?a=b&c#d", "r" * 200]
    result = rhea("names", hub.port, name="é" * 2_000, addresses=addresses).done()
    assert result["kept"] == [["accepted", *[name] * 4] for name in addresses]


def test_many_sessions(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("sessions", hub.port, address=address).done()
    assert result["bodies"] == list(range(50))
    assert result["again"] == 0


def test_names_of_links(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("links", hub.port, address=address).done()
    assert (result["twin"], result["again"]) == ("twin", [0, 1, 2, 3, 4])
    assert (result["closed"], result["second"]) == (False, "second")


def test_durable_subscription(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    assert rhea("subscription", hub.port, address=address).done()["found"] == ["two", "three"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_reconnects_and_resumes(nodes: Nodes, tmp_path: Path, rhea: type[Rhea], end: str) -> None:
    node = nodes.start(tmp_path / "hub.holdfast", name="hub")
    peer = rhea("reconnect", node.port, address="resumed", count=800)
    peer.hear("under way")
    nodes.stop(node) if end == "stop" else nodes.kill(node)
    nodes.restart(node)
    peer.say("go on")
    result = peer.done()
    assert result["opens"] >= 2
    assert result["told"] == (["amqp:connection:forced"] if end == "stop" else [])
    assert (result["confirmed"], result["received"]) == (800, 800)
    assert result["unmarked"] == []


def test_selectors(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("selectors", hub.port, address=address).done()
    assert (result["browsed"], result["taken"], result["rest"]) == (["early"], ["late", "later"], ["early"])
    assert result["condition"] == "amqp:invalid-field"
    assert "delay >" in result["description"] or "end" in result["description"]
    assert len(result["echoed"]) == 1


def test_topics_and_their_subscriptions(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("topics", hub.port, address=address).done()
    assert result["by_pattern"] == ["late.jfk", "early.jfk"]
    assert result["by_selector"] == ["late.jfk", "late.ewr"]
    assert result["stored"] == ["late.jfk", "late.ewr", "late"]
    assert sorted(result["shared"]) == ["early.jfk", "late", "late.ewr", "late.jfk"]


def test_a_delay_is_waited_for(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("delayed", hub.port, address=address, delay_ms=400).done()
    assert result["bodies"] == ["at once", "due"]
    assert result["waited_ms"] >= 400


def test_an_answer_comes_to_an_address_of_the_node(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    result = rhea("dynamic_reply", hub.port, address=address).done()
    assert (result["body"], result["correlation_id"], result["gone"]) == ("answer", "c-1", "amqp:not-found")
