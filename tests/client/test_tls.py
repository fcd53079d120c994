"""The client and the commands over TLS, to a node in a process of its own; and two nodes over TLS."""

import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.client import AuthenticationFailed, ConnectionFailed, connect
from holdfast.client.network import transport
from holdfast.client.network.wire import describe
from holdfast.errors import ConfigError
from support.certificates import Identity, authority, needs_openssl, of_client, of_node
from support.eventually import eventually_async, eventually_true
from support.process import NodeProcess, run_holdfast

pytestmark = needs_openssl


def config(path: Path, name: str, *, listen: str, more: str = "") -> Path:
    """A node's file with TLS."""
    node = of_node()
    file = path / f"{name}.toml"
    path.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f'[node]\nname = "{name}"\ndata = "{path}/{name}.holdfast"\nlisten = {listen}\ncreate_queues = true\n'
        f'[tls]\ncertificate_file = "{node.certificate}"\nkey_file = "{node.key}"\nca_file = "{node.authority}"\n'
        f'client_certificates = "optional"\n{more}'
    )
    return file


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[NodeProcess]:
    file = config(tmp_path, "hub", listen='["127.0.0.1:0", "amqps://127.0.0.1:0"]')
    async with await NodeProcess.start(config=file, listen=None) as node:
        yield node


def url(node: NodeProcess) -> str:
    return f"amqps://{node.ready['amqps']}"


async def test_messages_over_tls(node: NodeProcess) -> None:
    ann = of_client("ann")
    async with await connect(
        url(node), ca_file=ann.authority, certificate_file=ann.certificate, key_file=ann.key, retry_s=5
    ) as connection:
        sender = await connection.sender("q")
        large = bytes(range(256)) * 20_000
        for body in (b"hello", large):
            await sender.send(body)
        receiver = await connection.receiver("q")
        for body in (b"hello", large):
            delivery = await anext(receiver)
            assert delivery.message.body_bytes() == body
            await delivery.accept()


async def test_the_commands_speak_tls(node: NodeProcess, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    ca = ("--ca-file", str(of_node().authority), "--url", url(node))
    sent = await run_holdfast("send", "q", str(lines), "--format", "lines", *ca)
    assert sent.code == 0, sent.stderr
    received = await run_holdfast("receive", "q", "--count", "2", *ca)
    assert (received.code, received.stdout) == (0, "one\ntwo\n"), received.stderr


async def test_whom_the_client_does_not_trust_is_told_in_one_line(node: NodeProcess, tmp_path: Path) -> None:
    other = authority(tmp_path / "other", "another authority").certificate
    for options, complaint in (
        (("--ca-file", str(other)), "name the authority that signed it (ca_file, --ca-file)"),
        (("--ca-file", str(of_node().authority), "--server-name", "elsewhere"), "for 'elsewhere'; use a name"),
        ((), "name the authority that signed it (ca_file, --ca-file)"),
    ):
        complaint = f"the node's certificate is not trusted: .*{re.escape(complaint)}"
        found = await run_holdfast("status", "--retry", "5", "--url", url(node), *options)
        assert found.code == 1 and re.search(complaint, found.stderr), found.stderr
        assert len(found.stderr.splitlines()) == 1 and "_ssl.c" not in found.stderr


async def test_the_server_name_may_be_said(node: NodeProcess) -> None:
    ca = ("--ca-file", str(of_node().authority), "--url", url(node).replace("127.0.0.1", "127.0.0.2"))
    found = await run_holdfast("status", "--retry", "0", *ca)
    assert found.code == 1  # nobody listens there, or the name does not fit
    async with await connect(url(node), ca_file=of_node().authority, server_name="localhost", retry_s=5):
        pass


async def test_a_client_without_tls_at_a_port_with_it(node: NodeProcess) -> None:
    found = await run_holdfast("status", "--retry", "0", "--url", url(node).replace("amqps", "amqp"))
    assert found.code == 1 and "begins with amqps://" in found.stderr, found.stderr
    await eventually_true(lambda: "the peer does not speak TLS" in node.stderr, what="a line in the log")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"certificate_file": "/none"}, r"^certificate_file /none cannot be read \(No such file"),
        ({"key_file": "/none"}, r"^key_file /none is given without certificate_file"),
        ({"server_name": "a b"}, r"^invalid value 'a b' for server_name"),
    ],
)
async def test_files_of_the_client_that_cannot_be_used(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        await connect("amqps://127.0.0.1:1", **given)  # type: ignore[arg-type]
    key = next(iter(given))
    with pytest.raises(ConfigError, match=rf"^{key} .* is for amqps://"):
        await connect("amqp://127.0.0.1:1", **given)  # type: ignore[arg-type]


async def test_a_key_that_is_another_ones_is_refused() -> None:
    ann, bob = of_client("ann"), of_client("bob")
    with pytest.raises(ConfigError, match=r"cannot be used \(TLS: key values mismatch\)"):
        await connect("amqps://127.0.0.1:1", certificate_file=ann.certificate, key_file=bob.key)


async def test_a_certificate_without_its_key_is_told_what_is_missing(tmp_path: Path) -> None:
    ann = of_client("ann")
    for certificate, key, missing in (
        (ann.certificate, None, f"there is no key in {ann.certificate}"),
        (ann.key, None, f"there is no certificate in {ann.key}"),
        (ann.certificate, ann.certificate, f"there is no key in {ann.certificate}"),
    ):
        with pytest.raises(
            ConfigError, match=rf"cannot be used \({re.escape(missing)}\); give a certificate and its key"
        ):
            await connect("amqps://127.0.0.1:1", certificate_file=certificate, key_file=key)


@pytest.mark.parametrize(("code", "said"), [(10, "certificate has expired"), (9, "certificate is not yet valid")])
def test_a_certificate_of_another_time_is_told_with_what_to_do(code: int, said: str) -> None:
    error = ssl.SSLCertVerificationError(1, "text")
    error.verify_code, error.verify_message = code, said
    advice = "put a valid one into the node's certificate_file, or set the clock of this machine"
    assert describe(error) == f"the node's certificate is not trusted: {said}; {advice}"


async def test_a_node_warns_of_its_own_certificate_that_has_expired_until_there_is_another(tmp_path: Path) -> None:
    hub = authority(tmp_path / "authority")
    certificate, key = tmp_path / "node.pem", tmp_path / "node.key"
    signed = [hub.sign("hub", alternatives="IP:127.0.0.1", days=days, stem=f"of{days}") for days in (-1, 30)]
    file = tmp_path / "hub.toml"
    file.write_text(
        f'[node]\nname = "hub"\ndata = "{tmp_path}/hub.holdfast"\nlisten = ["amqps://127.0.0.1:0", "127.0.0.1:0"]\n'
        f'[tls]\ncertificate_file = "{certificate}"\nkey_file = "{key}"\n'
    )

    def put(identity: Identity) -> None:
        key.write_bytes(identity.key.read_bytes())
        certificate.write_bytes(identity.certificate.read_bytes())

    put(signed[0])
    async with await NodeProcess.start(config=file, listen=None) as node:

        async def is_told() -> bool:
            return "this node's certificate has expired" in (await run_holdfast("status", "--url", node.url)).stdout

        async def is_over() -> bool:
            return not await is_told()

        assert await is_told(), "at once"
        await eventually_true(
            lambda: "WARNING tls certificate_file: this node's" in node.stderr, what="a line in the log"
        )
        put(signed[1])
        await eventually_async(is_over)


async def test_certificates_change_without_a_restart(tmp_path: Path) -> None:
    """The node's file gets one of an authority that the client trusts: its next connection is served by it."""
    stranger = authority(tmp_path / "stranger", "a stranger").sign("hub", alternatives="IP:127.0.0.1")
    certificate, key = tmp_path / "node.pem", tmp_path / "node.key"
    certificate.write_bytes(stranger.certificate.read_bytes())
    key.write_bytes(stranger.key.read_bytes())
    file = tmp_path / "hub.toml"
    file.write_text(
        f'[node]\nname = "hub"\ndata = "{tmp_path}/hub.holdfast"\nlisten = ["amqps://127.0.0.1:0"]\n'
        f'[tls]\ncertificate_file = "{certificate}"\nkey_file = "{key}"\n'
    )
    async with await NodeProcess.start(config=file, listen=None) as node:
        with pytest.raises(ConnectionFailed, match="not trusted"):
            await connect(url(node), ca_file=of_node().authority, retry_s=5)
        for path, good in ((certificate, of_node().certificate), (key, of_node().key)):
            path.write_bytes(good.read_bytes())
        await eventually_true(
            lambda: "the certificates have changed" in node.stderr, what="a line in the log", limit_s=20
        )
        async with await connect(url(node), ca_file=of_node().authority, retry_s=5):
            pass
        assert await node.stop() == 0


async def test_two_nodes_over_tls(tmp_path: Path) -> None:
    """The one that dials shows a certificate, and the other's must have its name; messages pass."""
    hub_file = config(
        tmp_path / "hub", "hub", listen='["amqps://127.0.0.1:0", "127.0.0.1:0"]', more='[[neighbour]]\nname = "jfk"\n'
    )
    async with await NodeProcess.start(config=hub_file, listen=None) as hub:
        neighbour = f'[[neighbour]]\nname = "hub"\nremote = "{url(hub)}"\nserver_name = "localhost"\n'
        file = config(tmp_path / "jfk", "jfk", listen='["127.0.0.1:0"]', more=neighbour)
        async with await NodeProcess.start(config=file, listen=None) as jfk:
            async with await connect(f"amqp://{jfk.ready['amqp']}", retry_s=10) as connection:
                sender = await connection.sender("q@hub")
                await sender.send(b"over TLS")
            async with await connect(f"amqp://{hub.ready['amqp']}", retry_s=10) as connection:
                receiver = await connection.receiver("q")
                delivery = await anext(receiver)
                assert delivery.message.body_bytes() == b"over TLS"
                await delivery.accept()


# ------------------------------------------------------------------------------------------------------- logins


async def login_node(tmp_path: Path) -> NodeProcess:
    """Ann has a password, bob a certificate."""
    (tmp_path / "ann.password").write_text("pässword\n")
    users = f'[[user]]\nname = "ann"\npassword_file = "{tmp_path}/ann.password"\n'
    users += '[[user]]\nname = "bob"\ncertificate = "bob.example"\n'
    file = config(tmp_path, "hub", listen='["127.0.0.1:0", "amqps://127.0.0.1:0"]', more=users)
    return await NodeProcess.start(config=file, listen=None)


async def test_a_password_is_proven_and_not_sent_where_others_could_hear_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from another machine: the client does not take the node's address for this machine's."""
    monkeypatch.setattr(transport, "is_loopback", lambda host: False)
    async with await login_node(tmp_path) as node:
        there = node.ready["amqp"]
        async with await connect(f"amqp://ann:p%C3%A4ssword@{there}", retry_s=5) as connection:
            wire = connection._wire
            assert wire is not None and wire.engine.settings.wanted == ("SCRAM-SHA-512", "SCRAM-SHA-256")
            await (await connection.sender("q")).send(b"hello")
        for wrong in ("ann:wrong", "eve:x"):
            with pytest.raises(AuthenticationFailed, match="wrong user or password"):
                await connect(f"amqp://{wrong}@{there}", retry_s=5)
        with pytest.raises(AuthenticationFailed, match="requires a user"):
            await connect(f"amqp://{there}", retry_s=5)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_mechanism_may_be_asked_for(tmp_path: Path, mechanism: str) -> None:
    async with await login_node(tmp_path) as node:
        options = ("--sasl", mechanism, "--password-file", str(tmp_path / "ann.password"))
        for place, more in ((url(node), ("--ca-file", str(of_node().authority))), (node.url, ())):
            found = await run_holdfast("status", *options, *more, "--url", place.replace("//", "//ann@"))
            assert found.code == 0, found.stderr


async def test_a_certificate_is_a_login(tmp_path: Path) -> None:
    bob, ann = of_client("bob.example"), of_client("ann")
    async with await login_node(tmp_path) as node:
        async with await connect(
            url(node), ca_file=bob.authority, certificate_file=bob.certificate, key_file=bob.key, retry_s=60
        ) as connection:
            await (await connection.sender("q")).send(b"hello")
        # The name in ann's certificate is a user's, but that user has no `certificate`.
        for mechanism in (None, "EXTERNAL"):
            with pytest.raises(AuthenticationFailed, match="not among what the peer offers") as failed:
                await connect(
                    url(node), ca_file=ann.authority, certificate_file=ann.certificate, key_file=ann.key,
                    mechanism=mechanism,
                )  # fmt: skip
            assert "this certificate is the login of no user at this node; use a URL with a user" in str(failed.value)
            assert "in the clear" not in str(failed.value)


@pytest.mark.parametrize(
    ("mechanism", "complaint"),
    [
        ("GSSAPI", "^invalid value 'GSSAPI' for mechanism; expected one of EXTERNAL, SCRAM-SHA-512"),
        ("EXTERNAL", "^mechanism EXTERNAL needs amqps:// and a certificate_file"),
        ("PLAIN", "^mechanism PLAIN needs a user and a password"),
    ],
)
async def test_a_mechanism_that_cannot_be_is_refused(mechanism: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        await connect("amqp://127.0.0.1:1", mechanism=mechanism)


async def test_a_neighbour_logs_in_by_its_certificate(tmp_path: Path) -> None:
    """No password between the two nodes: each knows the other by its certificate."""
    jfk_identity = of_client("jfk.example")
    (tmp_path / "reader.password").write_text("r")
    more = '[[user]]\nname = "jfk"\ncertificate = "jfk.example"\n[[neighbour]]\nname = "jfk"\n'
    more += f'[[user]]\nname = "reader"\npassword_file = "{tmp_path}/reader.password"\n'
    hub_file = config(tmp_path / "hub", "hub", listen='["amqps://127.0.0.1:0"]', more=more)
    async with await NodeProcess.start(config=hub_file, listen=None) as hub:
        file = tmp_path / "jfk.toml"
        file.write_text(
            f'[node]\nname = "jfk"\ndata = "{tmp_path}/jfk.holdfast"\nlisten = ["127.0.0.1:0"]\n'
            f'[tls]\ncertificate_file = "{jfk_identity.certificate}"\nkey_file = "{jfk_identity.key}"\n'
            f'ca_file = "{jfk_identity.authority}"\n[[neighbour]]\nname = "hub"\nremote = "{url(hub)}"\n'
        )
        async with await NodeProcess.start(config=file, listen=None) as jfk:
            async with await connect(f"amqp://{jfk.ready['amqp']}", retry_s=10) as connection:
                await (await connection.sender("q@hub")).send(b"by certificate")
            reader = url(hub).replace("//", "//reader:r@")
            async with await connect(reader, ca_file=of_node().authority, retry_s=10) as connection:
                delivery = await anext(await connection.receiver("q"))
                assert delivery.message.body_bytes() == b"by certificate"
                await delivery.accept()
