"""The admin port: what it tells, and what hostile clients get (node/admin)."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.client import ConnectionFailed, connect
from holdfast.errors import ConfigError, HoldfastError
from holdfast.management.status import measured
from holdfast.names import HostPort
from holdfast.node.admin import pages as pages_module
from holdfast.node.admin import requests as requests_module
from holdfast.node.admin.commits import BOUNDS_S, CommitTimes
from holdfast.node.admin.metrics import rendered
from holdfast.node.admin.pages import Pages
from holdfast.node.admin.port import AdminPort
from holdfast.node.admin.requests import CONNECTIONS_MAX, REQUEST_BYTES_MAX, AdminServer, Answered
from holdfast.node.config import load_settings
from holdfast.settings.hosts import VhostConfig
from holdfast.settings.queues import QueueConfig
from holdfast.settings.remotes import RemoteConfig
from support.rig import Node, Rig

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "operations.md"
LOOPBACK = HostPort("127.0.0.1", 0)


def fields_of(node: Node) -> dict[str, Any]:
    from holdfast.engine import events

    node.handle(events.StatusAsked())
    return node.measured.pop()


def busy() -> tuple[Rig, Node]:
    """A node with messages here and for a neighbour that is away."""
    rig = Rig()
    jfk, hub = rig.pair(
        jfk={"queues": (QueueConfig(name='a"b\\', messages_max=9),), "vhosts": (VhostConfig(name="acme"),)}
    )
    rig.run(3)
    hub.crash()
    client = rig.client(jfk)
    links = [client.sender(address) for address in ('a"b\\', "work@hub")]
    rig.run(1)
    for link in links:
        for number in range(3):
            client.send(link, str(number))
    rig.run(20)
    return rig, jfk


def samples(page: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    """By name and labels; a page that no parser reads fails."""
    families = list(text_string_to_metric_families(page.decode()))
    return {(each.name, tuple(each.labels.values())): each.value for family in families for each in family.samples}


def test_what_the_core_measures_is_told_in_the_form_of_prometheus() -> None:
    _, node = busy()
    commits = CommitTimes()
    for seconds in (0.0, BOUNDS_S[0], 0.003, 99.0):
        commits.note(seconds)
    found = samples(rendered(fields_of(node), commits))
    assert found["holdfast_queue_messages", ('a"b\\', "")] == 3
    assert found["holdfast_queue_in_total", ('a"b\\', "")] == 3
    assert found["holdfast_queue_messages_max", ('a"b\\', "")] == 9
    assert found["holdfast_custody_messages", ("hub",)] == 3
    assert found["holdfast_custody_oldest_seconds", ("hub",)] >= 19
    assert found["holdfast_session_up", ("hub",)] == 0 and found["holdfast_session_lost_total", ("hub",)] == 1
    assert found["holdfast_disk_ok", ()] == 1 and found["holdfast_connections", ()] == 1
    assert found["holdfast_commit_seconds_count", ()] == 4
    assert found["holdfast_commit_seconds_bucket", ("0.0005",)] == 2
    assert found["holdfast_commit_seconds_bucket", ("+Inf",)] == 4
    assert ("holdfast_turn_seconds_count", ()) in found


def test_a_remote_that_is_away_is_told() -> None:
    node = Rig().node("hub", remotes=(RemoteConfig(name="mq", remote="127.0.0.1:1"),))
    found = samples(rendered(fields_of(node), CommitTimes()))
    assert found["holdfast_remote_up", ("mq",)] == 0 == found["holdfast_remote_messages", ("mq",)]
    assert found["holdfast_remote_messages_out_total", ("mq",)] == 0


def test_each_name_is_in_the_document_and_each_of_the_document_is_told() -> None:
    _, node = busy()
    page = rendered({**fields_of(node), "descriptors": {"left": 5}}, CommitTimes()).decode()
    assert "# HELP holdfast_custody_consumers Neighbours to which they may go now\n" in page
    assert "# HELP holdfast_queue_consumers Consumers of the queue\n" in page
    told = {name for name, _ in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M)}
    table = set(re.findall(r"^\| `(holdfast_\w+)` \|", DOCUMENT.read_text(encoding="utf-8"), re.M))
    assert told == table


def test_queues_of_all_hosts_are_told_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "QUEUES_MAX", 250)
    queues = tuple(QueueConfig(name=f"q{number:03}") for number in range(240))
    more = tuple(QueueConfig(name=f"q{number:03}", vhost="acme") for number in range(20))
    node = Rig().node("hub", queues=(*queues, *more), vhosts=(VhostConfig(name="acme"),))
    told = fields_of(node)
    assert [row["name"] for row in told["queues"]][:241] == [*(queue.name for queue in queues), "q000"]
    assert (told["queues_total"], told["queues_left_out"], len(told["queues"])) == (260, 10, 250)
    found = samples(rendered(told, CommitTimes()))
    assert found["holdfast_queue_messages", ("q009", "acme")] == 0
    assert ("holdfast_queue_messages", ("q010", "acme")) not in found


# ------------------------------------------------------------------------------------------------------ pages


def pages(fields: dict[str, Any], *, why_not: str = "") -> tuple[Pages, list[int]]:
    asked: list[int] = []

    async def ask() -> dict[str, Any]:
        asked.append(1)
        return fields

    return Pages(ask, lambda: why_not, CommitTimes()), asked


@pytest.mark.parametrize(
    ("disk", "why_not", "wanted"),
    [
        ({"state": "ok", "reason": None}, "", (200, "ready\n")),
        ({"state": "full", "reason": "no space"}, "", (503, "the store takes nothing: no space\n")),
        ({"state": "stalled", "reason": None}, "", (503, "the store takes nothing: stalled\n")),
        ({"state": "ok", "reason": None}, "it starts", (503, "it starts\n")),
    ],
)
async def test_ready_is_a_node_that_takes_messages(disk: dict[str, Any], why_not: str, wanted: tuple[int, str]) -> None:
    page, _ = pages({"disk": disk, "drain": None}, why_not=why_not)
    answer = await page.readyz()
    assert (answer.status, answer.body.decode()) == wanted
    assert (await page.healthz()).status == 200


async def test_a_node_that_is_drained_is_not_ready() -> None:
    page, _ = pages({"disk": {"state": "ok"}, "drain": {"since": "2026-11-30T01:00:00.000Z"}}, why_not="")
    answer = await page.readyz()
    assert (answer.status, answer.body) == (503, b"the node is drained since 2026-11-30T01:00:00.000Z\n")


async def test_the_core_is_asked_once_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    _, node = busy()
    page, asked = pages(fields_of(node))
    found = await asyncio.gather(*(page.metrics() for _ in range(50)), *(page.readyz() for _ in range(50)))
    assert len(asked) == 1 and found[0].body is found[49].body
    monkeypatch.setattr(pages_module, "KEPT_S", -1.0)
    await page.metrics()
    assert len(asked) == 2


async def test_who_asks_while_an_answer_is_awaited_gets_the_same() -> None:
    asks: list[int] = []
    port = AdminPort(lambda: asks.append(1), lambda: "")
    first, second = (asyncio.create_task(port._fields()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    port.told({"a": 1})
    assert await second == {"a": 1} and len(asks) == 1


async def test_an_answer_may_come_at_once() -> None:
    port: AdminPort
    port = AdminPort(lambda: port.told({"a": 1}), lambda: "")
    assert await port._fields() == {"a": 1} == await port._fields()


# ------------------------------------------------------------------------------------------------ the server


async def _ok() -> Answered:
    return Answered(200, b"x" * 100)


async def _defect() -> Answered:
    raise ValueError("planted")


async def _never() -> Answered:
    await asyncio.Event().wait()
    raise AssertionError


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[AdminServer, int]]:
    server = AdminServer({"/ok": _ok, "/defect": _defect, "/never": _never})
    where = await server.listen(LOOPBACK)
    try:
        yield server, int(where.rpartition(":")[2])
    finally:
        server.close()


async def ask(port: int, data: bytes, *, limit_s: float = 10.0) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(limit_s):
            writer.write(data)
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /ok?a=b HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"HEAD /ok HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"POST /ok HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"GET /none HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"GET /defect HTTP/1.1\r\n\r\n", b"HTTP/1.1 503 Service Unavailable"),
        (b"AMQP\0\1\0\0\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"AMQP\0\1\0\0", b"HTTP/1.1 400 Bad Request"),
        (b"\x16\x03\1\0", b"HTTP/1.1 400 Bad Request"),
        (b"GET  /ok HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"\xff\xfe /ok HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"GET /ok HTTP/1.1\r\n" + b"X: y\r\n" * REQUEST_BYTES_MAX, b"HTTP/1.1 431"),
    ],
)
async def test_each_request_has_its_answer(data: bytes, wanted: bytes) -> None:
    async with serving() as (_, port):
        answer = await ask(port, data)
        assert answer.startswith(wanted) or (b"X: y" in data and not answer)  # a reset may overtake the answer
        head, _, body = answer.partition(b"\r\n\r\n")
        assert not answer or (b"Connection: close" in head and bool(body) == (not data.startswith(b"HEAD")))
        assert (await ask(port, b"GET /ok HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_client_of_another_protocol_hears_at_once_that_this_is_http() -> None:
    async with serving() as (_, port):
        with pytest.raises(ConnectionFailed, match="cannot connect: this is an HTTP server"):
            await connect(f"amqp://127.0.0.1:{port}", retry_s=0)


async def test_slow_clients_are_ended_and_so_is_a_page_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_module, "REQUEST_S", 0.1)
    monkeypatch.setattr(requests_module, "ANSWER_S", 0.3)
    async with serving() as (server, port):
        assert (await ask(port, b"GET /ok HTTP/1.1\r\n")).startswith(b"HTTP/1.1 408")
        assert (await ask(port, b"GET /never HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 503")
        assert not server._open


async def test_a_client_that_reads_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_module, "ANSWER_S", 0.3)

    async def large() -> Answered:
        return Answered(200, bytes(50_000_000))

    server = AdminServer({"/large": large})
    port = int((await server.listen(LOOPBACK)).rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=16)
    writer.write(b"GET /large HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(10):
        while not server._open:  # noqa: ASYNC110  # until it is served
            await asyncio.sleep(0.01)
        while server._open:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    writer.close()
    server.close()


async def test_of_many_connections_those_beyond_the_bound_are_dropped_and_others_served_later() -> None:
    async with serving() as (server, port):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        async with asyncio.timeout(10):
            while len(server._open) < CONNECTIONS_MAX:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await ask(port, b"GET /ok HTTP/1.1\r\n\r\n") == b""
        for _, writer in held:
            writer.close()
        async with asyncio.timeout(10):
            while server._open:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await ask(port, b"GET /ok HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = HostPort("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(HoldfastError) as caught:
            await AdminServer({}).listen(where)
    assert str(caught.value) == f"admin listen {where}: the port is in use already; choose another, or 0 for any"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[admin]\n", "admin has no listen; expected HOST:PORT"),
        ("[admin]\nlisten = 'x'\n", "admin listen"),
        ("[admin]\nlisten = '127.0.0.1:9'\nport = 5\n", "unknown key 'port'"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "hub.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    assert told in str(caught.value) and "\n" not in str(caught.value)
