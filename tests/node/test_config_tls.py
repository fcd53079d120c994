"""What a node's file says of TLS, and each mistake in it, which is one line."""

from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.names import HostPort
from holdfast.node.config import NodeSettings, load_settings
from holdfast.node.tls import TlsFiles
from holdfast.node.topology import neighbours_of
from holdfast.routing.topology import topology_of

WHOLE = """
[node]
name = "hub"
listen = ["127.0.0.1:5672", "amqps://0.0.0.0:5671", "amqps://[::1]:0"]
plain_without_tls = true

[tls]
certificate_file = "hub.pem"
key_file = "hub.key"
ca_file = "ca.pem"
client_certificates = "required"
version_min = "1.3"

[[user]]
name = "ann"
certificate = "ann.example"

[[neighbour]]
name = "jfk"
remote = "amqps://10.0.0.2:5671"
server_name = "jfk.example"

[[neighbour]]
name = "ewr"
remote = "amqp://10.0.0.3:5672"
"""


def loaded(directory: Path, text: str) -> NodeSettings:
    file = directory / "node.toml"
    file.write_text(text)
    return load_settings(file)


def test_every_key_arrives(tmp_path: Path) -> None:
    found = loaded(tmp_path, WHOLE)
    assert found.listen == (HostPort("127.0.0.1", 5672),)
    assert found.listen_tls == (HostPort("0.0.0.0", 5671), HostPort("::1", 0))
    assert found.tls == TlsFiles(
        certificate=Path("hub.pem"), key=Path("hub.key"), authorities=Path("ca.pem"), client_certificates="required",
        version_min="1.3",
    )  # fmt: skip
    (user,) = found.core.users
    assert (user.password, user.certificate) == (None, "ann.example") and found.core.plain_without_tls
    jfk, ewr = found.core.neighbours
    assert (jfk.remote, jfk.tls, jfk.server_name) == ("10.0.0.2:5671", True, "jfk.example")
    assert (ewr.remote, ewr.tls, ewr.server_name) == ("10.0.0.3:5672", False, None)
    assert not loaded(tmp_path, "").core.plain_without_tls


def test_a_port_with_tls_is_an_address_of_the_node(tmp_path: Path) -> None:
    assert {"127.0.0.1", "127.0.0.1:5672", "localhost:5671"} <= set(loaded(tmp_path, WHOLE).core.own_addresses)


def test_a_topology_may_say_that_tls_is_spoken_at_an_address() -> None:
    topology = topology_of(
        {
            "node": [{"name": "a"}, {"name": "b", "address": "amqps://10.0.0.1:5671"}],
            "link": [{"from": "a", "to": "b", "kind": "tls"}],
        }
    )
    (dialling,) = neighbours_of(topology, "t.toml", "a", ())
    (dialled,) = neighbours_of(topology, "t.toml", "b", ())
    assert (dialling.remote, dialling.tls) == ("10.0.0.1:5671", True)
    assert (dialled.remote, dialled.tls) == (None, False)


MISTAKES = [
    ("[node]\nlisten = ['amqps://127.0.0.1:5671']\n", "node listen has amqps://127.0.0.1:5671 without [tls] certi"),
    ("[node]\nlisten = ['amqps://127.0.0.1']\n", "invalid value '127.0.0.1' for node listen; expected HOST:PORT"),
    ("[node]\nlisten = ['127.0.0.1:5671', 'amqps://127.0.0.1:5671']\n", "node listen has amqps"),
    ("[tls]\ncertificate = 'a'\n", "unknown key 'certificate' in tls; expected"),
    ("[tls]\nkey_file = 'a'\n", "tls has key_file without certificate_file; give both"),
    ("[tls]\nversion_min = '1.1'\n", "invalid value '1.1' for tls version_min; expected one of 1.2, 1.3"),
    ("[tls]\nclient_certificates = 'yes'\n", "invalid value 'yes' for tls client_certificates; expected one of none"),
    ("[tls]\nclient_certificates = 'optional'\n", "tls client_certificates is 'optional' without ca_file; name the"),
    ("[[neighbour]]\nname = 'n'\nremote = 'h:1'\nserver_name = 'x'\n", "neighbour 'n' has server_name without TLS"),
    (
        "[[neighbour]]\nname = 'n'\nremote = 'amqps://h:1'\nserver_name = 'a b'\n",
        "invalid value 'a b' for neighbour 'n' server_name",
    ),
    ("[[user]]\nname = 'u'\ncertificate = ''\n", "invalid value '' for user 'u' certificate; expected text"),
]


@pytest.mark.parametrize(("text", "complaint"), MISTAKES, ids=[complaint[:40] for _, complaint in MISTAKES])
def test_each_mistake_is_one_line(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text)
    said = str(raised.value)
    assert said.startswith(f"{tmp_path / 'node.toml'}: {complaint}") and "\n" not in said
