"""Hostile peers over TLS against a node's process: in the handshake, before a login, and after it.

What must hold is what holds without TLS: each stream gets its answer, a healthy client is served throughout, the node's
memory stays flat, and its log has no defect.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from random import Random

import pytest

from amqp.joined import performatives
from fuzz.streams import STREAMS, Stream
from fuzz.test_scan import CONFIG, GROWTH_BYTES_MAX, LIMIT_S, StartNode, anonymous_bytes, ended, healthy_client, say_all
from holdfast.amqp.login.exchanges import Credentials
from holdfast.amqp.login.mechanisms import MECHANISMS
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from holdfast.amqp.wire.performatives import SaslInit, SaslOutcome, SaslResponse
from holdfast.amqp.wire.types import Symbol
from holdfast.node.network.encryption import Encryption
from support import today
from support.certificates import needs_openssl, of_client, of_node
from support.process import NodeProcess
from support.raw import HELLO

pytestmark = [pytest.mark.fuzz, needs_openssl]

USER = "ann"
SECRET = "correct horse"
ENTERED = b"\x00\x53\x44\xc0\x03\x01\x50\x00"
"""The outcome of a login that succeeds."""

BROKEN = 200
HALF = 600
LOGINS = 100
AT_ONCE = 25


def tls(*, users: str = "") -> str:
    node = of_node()
    return (
        f'{CONFIG}\n[tls]\ncertificate_file = "{node.certificate}"\nkey_file = "{node.key}"\n'
        f'ca_file = "{node.authority}"\nclient_certificates = "optional"\n{users}'
    ).replace("[node]\n", '[node]\nlisten = ["127.0.0.1:0", "amqps://127.0.0.1:0"]\n')


@cache
def trusting(certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=of_node().authority)
    if certificate is not None:
        client = of_client(certificate)
        context.load_cert_chain(client.certificate, client.key)
    return context


def secured_at(node: NodeProcess) -> int:
    return int(node.ready["amqps"].rpartition(":")[2])


async def over_tls(node: NodeProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", secured_at(node), ssl=trusting(), server_hostname="localhost")


@pytest.fixture
async def watched(start_node: StartNode, tmp_path: Path) -> AsyncIterator[NodeProcess]:
    """A node with a healthy client beside it, which speaks no TLS; its memory is judged in the end."""
    config = tmp_path / "hub.toml"
    config.write_text(tls())
    node = await start_node("hub", config=config, data=tmp_path / "hub.holdfast")
    async with healthy_client(node):
        assert not await say_all(node, [Stream("warm up", (HELLO,), "lives")], connecting=over_tls)
        before = anonymous_bytes(node.pid)
        yield node
        grown = anonymous_bytes(node.pid) - before
    print(f"anonymous memory grew by {grown / 1e6:.1f} MB")
    assert grown < GROWTH_BYTES_MAX
    unharmed(node)


def unharmed(node: NodeProcess) -> None:
    assert node.returncode is None
    assert "defect" not in node.stderr and "Traceback" not in node.stderr and " ERROR " not in node.stderr


async def test_each_stream_gets_its_answer_over_tls(watched: NodeProcess) -> None:
    """A quarter of them each day; without TLS all are said."""
    assert not await say_all(watched, today.some(STREAMS, len(STREAMS) // 4), connecting=over_tls)


async def logged_in(node: NodeProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection with TLS whose user is known; what follows the login is still to be said."""
    reader, writer = await over_tls(node)
    said = SaslInit(Symbol("PLAIN"), f"\0{USER}\0{SECRET}".encode(), "localhost")
    writer.write(SASL_HEADER + frame(0, encode(said), SASL_FRAME))
    heard = b""
    while not heard.endswith(ENTERED):
        data = await reader.read(65_536)
        assert data, "the login failed"
        heard += data
    return reader, writer


@pytest.mark.parametrize("may", ["administer", "browse"])
async def test_each_stream_gets_its_answer_after_a_login(start_node: StartNode, tmp_path: Path, may: str) -> None:
    """Of who may do everything; who may do little is refused more, and does no more harm."""
    password = tmp_path / "password"
    password.write_text(SECRET)
    users = f'[[user]]\nname = "{USER}"\npassword_file = "{password}"\n'
    rule = f'[[access]]\nname = "r"\nusers = ["{USER}"]\naddresses = ["*"]\nallow = ["{may}"]\n'
    config = tmp_path / "hub.toml"
    config.write_text(tls(users=users + rule))
    node = await start_node("hub", config=config, data=tmp_path / "hub.holdfast")
    streams = [stream for stream in STREAMS if stream.said[0].startswith(AMQP_HEADER)]
    assert len(streams) > 100
    wrong = await say_all(node, streams, connecting=logged_in)
    unharmed(node)
    if may == "administer":
        assert not wrong
    assert not await say_all(node, [Stream("in the end", (HELLO,), "lives")], connecting=logged_in)


def hello(random: Random) -> bytes:
    """A client's first flight, whole."""
    client = Encryption(trusting(random.choice((None, "ann"))), server=False, server_name="localhost")
    client.start()
    return client.take_output()


def spoilt(random: Random) -> bytes:
    """What begins like TLS, or not at all."""
    data = bytearray(random.choice((hello(random), hello(random) * 2, random.randbytes(random.randint(1, 20_000)))))
    for _ in range(random.choice((0, 1, 3, 30))):
        data[random.randrange(len(data))] = random.randrange(256)
    if random.random() < 0.3:
        data[:5] = b"\x16\x03\x01" + random.randrange(2**16).to_bytes(2, "big")
    return bytes(data) + random.choice((b"", b"AMQP\x00\x01\x00\x00", random.randbytes(3_000)))


async def test_handshakes_that_are_none_end_themselves_alone(watched: NodeProcess, day: int) -> None:
    """Those that say nothing wrong hang, and go by the node's time limit."""
    random = Random(day)

    async def one(data: bytes) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", secured_at(watched))
        writer.write(data)
        return await ended(reader, writer)

    for _ in range(0, BROKEN, AT_ONCE):
        over = await asyncio.gather(*(one(spoilt(random)) for _ in range(AT_ONCE)))
        assert all(over), "the node ends each within its time limit"


async def test_handshakes_that_are_left_half_are_bounded(watched: NodeProcess, day: int) -> None:
    """More than `handshakes_max` at once: the oldest give way, and whoever comes whole comes in."""
    random = Random(day)
    hanging = []
    for _ in range(HALF):
        reader, writer = await asyncio.open_connection("127.0.0.1", secured_at(watched))
        data = hello(random)
        writer.write(data[: random.randint(0, len(data))])
        hanging.append((reader, writer))
    assert not await say_all(watched, [Stream("one that is whole", (HELLO,), "lives")], connecting=over_tls)
    assert all(await asyncio.gather(*(ended(reader, writer) for reader, writer in hanging)))


async def test_connections_that_end_within_tls_anywhere(watched: NodeProcess, day: int) -> None:
    """Cut at any byte of what an honest client says, and after it."""
    random = Random(day)

    async def one(seed: str) -> None:
        rng = Random(seed)
        reader, writer = await asyncio.open_connection("127.0.0.1", secured_at(watched))
        client = Encryption(trusting(), server=False, server_name="localhost")
        client.start()
        client.send([HELLO, rng.randbytes(rng.randint(1, 200_000))])
        try:
            async with asyncio.timeout(LIMIT_S):
                for _ in range(rng.randint(1, 6)):
                    data = client.take_output()
                    writer.write(data[: rng.randint(0, len(data))] if rng.random() < 0.3 else data)
                    try:
                        async with asyncio.timeout(0.02):
                            client.receive(await reader.read(65_536))
                    except TimeoutError:
                        pass
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    for _ in range(0, BROKEN, AT_ONCE):
        await asyncio.gather(*(one(f"{day}/{random.random()}") for _ in range(AT_ONCE)))


async def test_logins_that_are_none(start_node: StartNode, tmp_path: Path, day: int) -> None:
    """Drawn responses for each mechanism, at a node with users: nobody comes in, and nothing is a defect."""
    (tmp_path / "ann.password").write_text("secret")
    users = f'[[user]]\nname = "ann"\npassword_file = "{tmp_path}/ann.password"\n[[user]]\nname = "bob"\n'
    config = tmp_path / "hub.toml"
    config.write_text(tls(users=users + 'certificate = "bob.example"\n'))
    node = await start_node("hub", config=config, data=tmp_path / "hub.holdfast")

    def response(random: Random, mechanism: str) -> bytes:
        user = random.choice(("ann", "bob", "eve", "a=2Cb", "\xfc", ""))
        given = Credentials(user, random.choice(("", "guess", "x" * 3_000)), random.choice(("", "once", "a,b")))
        data = bytearray(MECHANISMS[mechanism].client(given).first())
        for _ in range(random.choice((0, 1, 4))):
            if data:
                data[random.randrange(len(data))] = random.randrange(256)
        return random.choice((bytes(data), bytes(data) * 2, random.randbytes(random.randint(0, 400)), b"ann", b""))

    async def one(seed: str) -> list[int]:
        random = Random(seed)
        mechanism = random.choice(list(MECHANISMS))
        certificate = random.choice((None, "ann", "eve"))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", secured_at(node), ssl=trusting(certificate), server_hostname="localhost"
        )
        init = SaslInit(Symbol(mechanism), random.choice((None, response(random, mechanism))), None)
        more = [SaslResponse(response(random, mechanism)) for _ in range(random.randint(0, 3))]
        heard = b""
        try:
            writer.write(SASL_HEADER + b"".join(frame(0, encode(item), SASL_FRAME) for item in (init, *more)))
            async with asyncio.timeout(LIMIT_S):
                while data := await reader.read(65_536):
                    heard += data
        except (ConnectionError, TimeoutError):
            pass
        finally:
            writer.transport.abort()
        return [item.code for _, item, _ in performatives(heard) if isinstance(item, SaslOutcome)]

    for number in range(0, LOGINS, AT_ONCE):
        codes = await asyncio.gather(*(one(f"{day}/{number + one_more}") for one_more in range(AT_ONCE)))
        assert not any(0 in each for each in codes), "somebody came in"
    unharmed(node)
    assert "secret" not in node.stderr
