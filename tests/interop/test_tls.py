"""Other people's clients over TLS: rhea and Qpid Proton, with a password and with a certificate."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from interop.nodes import Nodes
from interop.rhea_peer import HERE, why_no_rhea
from support.certificates import needs_openssl, of_client, of_node
from support.process import NodeProcess

pytestmark = [pytest.mark.interop, needs_openssl]
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def hub(shared_nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> NodeProcess:
    """A node with TLS alone: ann has a password, bob a certificate."""
    directory = tmp_path_factory.mktemp("tls")
    node = of_node()
    (directory / "ann.password").write_text("secret")
    file = directory / "hub.toml"
    file.write_text(
        f'[node]\nname = "hub"\ndata = "{directory}/hub.holdfast"\nlisten = ["amqps://127.0.0.1:0"]\n'
        f'create_queues = true\n[tls]\ncertificate_file = "{node.certificate}"\nkey_file = "{node.key}"\n'
        f'ca_file = "{node.authority}"\nclient_certificates = "optional"\n'
        f'[[user]]\nname = "ann"\npassword_file = "{directory}/ann.password"\n'
        '[[user]]\nname = "bob"\ncertificate = "bob.example"\n'
    )
    return shared_nodes.start(None, config=file, listen=None)


def port(node: NodeProcess) -> int:
    return int(node.ready["amqps"].rpartition(":")[2])


def rhea(node: NodeProcess, **options: Any) -> dict[str, Any]:
    reason = why_no_rhea()
    if reason is not None:
        pytest.skip(reason)
    given = json.dumps({"port": port(node), **options})
    done = subprocess.run(
        ["node", str(HERE / "rhea_tls.js"), given], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.stdout, done.stderr
    said = json.loads(done.stdout.splitlines()[0])
    assert isinstance(said, dict)
    return said


def test_rhea_with_a_password(hub: NodeProcess) -> None:
    login = {"username": "ann", "password": "secret"}
    assert rhea(hub, ca=str(of_node().authority), login=login) == {"event": "message", "size": 100_000}
    wrong = {"username": "ann", "password": "guess"}
    assert rhea(hub, ca=str(of_node().authority), login=wrong)["event"] != "message"


def test_rhea_with_a_certificate(hub: NodeProcess) -> None:
    bob, ann = of_client("bob.example"), of_client("ann")
    authority = str(bob.authority)
    given = {"ca": authority, "cert": str(bob.certificate), "key": str(bob.key)}
    assert rhea(hub, **given) == {"event": "message", "size": 100_000}
    other = {"ca": authority, "cert": str(ann.certificate), "key": str(ann.key)}
    assert rhea(hub, **other)["event"] != "message", "ann has no certificate"


def test_rhea_does_not_trust_an_authority_that_it_does_not_know(hub: NodeProcess, tmp_path: Path) -> None:
    assert rhea(hub)["event"] != "message"
    assert hub.returncode is None


@pytest.mark.parametrize("certified", [False, True])
def test_proton(hub: NodeProcess, certified: bool) -> None:
    proton = pytest.importorskip("proton")
    utils = pytest.importorskip("proton.utils")
    if not proton.SSL.present():
        pytest.skip("this Proton was built without TLS")
    domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(of_node().authority))
    domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER_NAME)
    login: dict[str, Any] = {"user": "ann", "password": "secret"}
    if certified:
        bob = of_client("bob.example")
        domain.set_credentials(str(bob.certificate), str(bob.key), None)
        login = {"allowed_mechs": "EXTERNAL"}
    connection = utils.BlockingConnection(
        f"amqps://127.0.0.1:{port(hub)}", ssl_domain=domain, timeout=LIMIT_S, virtual_host="localhost", **login
    )
    try:
        queue = f"proton-{certified}"
        connection.create_sender(queue).send(proton.Message(body="x" * 100_000))
        receiver = connection.create_receiver(queue)
        assert len(receiver.receive(timeout=LIMIT_S).body) == 100_000
        receiver.accept()
    finally:
        connection.close()
