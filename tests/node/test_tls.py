"""TLS at the ports of the driver: a scripted core hears plain bytes, and of the rest what it must."""

import asyncio
import ssl
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.engine.events import (
    BytesReceived,
    CertificateRead,
    CloseConnection,
    Command,
    Connect,
    ConnectFailed,
    ConnectionLost,
    ConnectionOpened,
    Event,
    MeasureOutput,
    OutputMeasured,
    Secured,
    SecuringFailed,
    SendBytes,
)
from holdfast.names import HostPort
from holdfast.node.config import NodeSettings
from holdfast.node.network.encryption import Encryption
from holdfast.node.tls import TlsFiles
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from node.fakes import LIMIT_S, FakeCore, Running, echo, read, settings
from support.certificates import needs_openssl, of_client, of_node

pytestmark = needs_openssl


def encrypted(tmp_path: Path, *, neighbours: tuple[NeighbourConfig, ...] = (), **tls: Any) -> NodeSettings:
    node = of_node()
    files = TlsFiles(certificate=node.certificate, key=node.key, authorities=node.authority, **tls)
    given = settings(tmp_path, neighbours=neighbours)
    return replace(given, listen=(), listen_tls=(HostPort("127.0.0.1", 0),), tls=files)


def trusting(*, certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=of_node().authority)
    if certificate is not None:
        client = of_client(certificate)
        context.load_cert_chain(client.certificate, client.key)
    return context


async def secure(
    running: Running, *, certificate: str | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = trusting(certificate=certificate)
    return await asyncio.open_connection("127.0.0.1", running.port, ssl=context, server_hostname="localhost")


async def test_bytes_go_in_and_out_encrypted(tmp_path: Path) -> None:
    core = FakeCore(echo)
    async with Running(core, encrypted(tmp_path, client_certificates="optional")) as running:
        assert running.served == [f"amqps://127.0.0.1:{running.port}"]
        reader, writer = await secure(running, certificate="ann")
        writer.write(b"hello")
        assert await read(reader, 5) == b"hello"
        (told,) = core.of(CertificateRead)
        assert told.ends_ms is not None and told.ends_ms > time.time() * 1_000
        opened = await core.until(ConnectionOpened)
        assert opened.encrypted and len(opened.nonce) == 18 and opened.loopback
        (secured,) = core.of(Secured)
        assert (secured.connection, secured.certificate) == (opened.connection, "ann")
        kinds = [type(event) for event in core.events]
        assert kinds.index(ConnectionOpened) < kinds.index(Secured) < kinds.index(BytesReceived)
        large = bytes(range(256)) * 8_192
        writer.write(large)
        assert await read(reader, len(large)) == large
        writer.close()
        assert (await core.until(ConnectionLost)).connection == opened.connection
    assert len(core.of(ConnectionLost)) == 1


async def test_a_connection_counts_from_its_first_moment(tmp_path: Path) -> None:
    """Before a byte of TLS was said, the core knows of it: its bounds for strangers are those of every port."""
    core = FakeCore()
    async with Running(core, encrypted(tmp_path)) as running:
        _, writer = await running.connect()
        opened = await core.until(ConnectionOpened)
        assert opened.encrypted and not core.of(Secured)
        writer.write(b"\x16\x03\x01")
        _, other = await running.connect()
        await core.until(ConnectionOpened, 2)
        other.close()
        assert not core.of(BytesReceived)
        writer.close()
        await core.until(ConnectionLost, 2)


async def test_a_hostile_peer_ends_itself_alone(tmp_path: Path) -> None:
    core = FakeCore(echo)
    async with Running(core, encrypted(tmp_path)) as running:
        reader, writer = await secure(running)
        for number, said in enumerate((b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x01\x00\x00", bytes(5_000)), 1):
            their_reader, their_writer = await running.connect()
            their_writer.write(said)
            async with asyncio.timeout(LIMIT_S):
                answer = await their_reader.read()
            assert answer[:1] in (b"\x15", b""), "an alert, and the end"
            failed = await core.until(SecuringFailed, number)
            lost = await core.until(ConnectionLost, number)
            assert lost.connection == failed.connection and lost.reason == failed.reason
            their_writer.close()
        writer.write(b"still here")
        assert await read(reader, 10) == b"still here"
        assert len(core.of(BytesReceived)) == 1
        writer.close()


async def test_a_close_says_so_within_tls(tmp_path: Path) -> None:
    """What was written before comes whole, and the end is one of TLS: nobody could have cut it short."""

    def answer_and_close(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, BytesReceived):
            yield SendBytes(connection=event.connection, chunks=[b"x" * 1_000_000])
            yield CloseConnection(connection=event.connection)

    core = FakeCore(answer_and_close)
    async with Running(core, encrypted(tmp_path)) as running:
        reader, writer = await running.connect()  # uvloop's own TLS drops what it has not handed on at such an end
        client = Encryption(trusting(), server=False, server_name="localhost")
        client.start()
        client.send([b"go"])
        said = 0
        async with asyncio.timeout(LIMIT_S):
            writer.write(client.take_output())
            while data := await reader.read(65_536):
                said += len(client.receive(data))
                writer.write(client.take_output())
        assert said == 1_000_000 and client.ended and client.failure is None
        writer.close()
        await core.until(ConnectionLost)


async def test_what_the_kernel_counts_is_compared_with_what_it_was_given(tmp_path: Path) -> None:
    """Under TLS output is counted as the socket has it: more than what the core said, and never less acknowledged than
    was written of it."""

    def measure(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, BytesReceived) and event.data == b"send":
            yield SendBytes(connection=event.connection, chunks=[bytes(100)] * 100)
        elif isinstance(event, BytesReceived):
            yield MeasureOutput(connection=event.connection)

    core = FakeCore(measure)
    async with Running(core, encrypted(tmp_path)) as running:
        reader, writer = await secure(running)
        writer.write(b"send")
        await read(reader, 10_000)
        await asyncio.sleep(0)
        writer.write(b"measure")
        measured = await core.until(OutputMeasured)
        assert 10_000 < measured.acknowledged_bytes == measured.written_bytes < 20_000
        writer.close()


async def test_a_neighbour_is_dialled_with_tls_and_its_name_checked(tmp_path: Path) -> None:
    """Two runtimes: the one dials the other, by its right name and by a wrong one."""

    def speak(event: Event, now: float) -> Iterable[Command]:
        if isinstance(event, ConnectionOpened) and event.neighbour is not None:
            yield SendBytes(connection=event.connection, chunks=[b"hello from ", b"the dialling side"])

    there = FakeCore(echo)
    async with Running(there, encrypted(tmp_path / "a", client_certificates="required")) as hub:
        remote = f"127.0.0.1:{hub.port}"
        client = of_client("ewr")
        files = TlsFiles(certificate=client.certificate, key=client.key, authorities=client.authority)
        core = NodeConfig(
            name="ewr",
            neighbours=(
                NeighbourConfig(name="hub", remote=remote, tls=True),
                NeighbourConfig(name="wrong", remote=remote, tls=True, server_name="elsewhere.example"),
            ),
        )
        given = NodeSettings(core=core, listen=(HostPort("127.0.0.1", 0),), data=tmp_path / "ewr.holdfast", tls=files)
        here = FakeCore(speak)
        async with Running(here, given) as running:
            running.runtime._execute(Connect(neighbour="hub"))
            heard = await here.until(BytesReceived)
            assert heard.data == b"hello from the dialling side"
            (secured,) = there.of(Secured)
            assert secured.certificate == "ewr" and here.of(Secured)[0].certificate == "node"
            running.runtime._execute(Connect(neighbour="wrong"))
            lost = await here.until(ConnectionLost)
            assert "certificate is not trusted" in lost.reason and "elsewhere.example" in lost.reason
            assert len(there.of(BytesReceived)) == 1 and not here.of(ConnectFailed)
