"""`[[remote]]` of a node's file (docs/remotes.md)."""

from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.node.config import load_settings
from holdfast.settings.remotes import Fetch, RemoteConfig


def load(tmp_path: Path, text: str) -> tuple[RemoteConfig, ...]:
    (tmp_path / "password").write_text("secret\n")
    file = tmp_path / "hub.toml"
    file.write_text('[node]\nname = "hub"\n' + text.replace("PASSWORD", str(tmp_path / "password")))
    return load_settings(file).core.remotes


def test_every_key_arrives(tmp_path: Path) -> None:
    found = load(tmp_path, """
[[remote]]
name = "mq"
remote = "amqps://10.0.0.7:5671"
local = "[::1]"
server_name = "mq.example"
hostname = "vhost:flights"
user = "ewr"
password_file = "PASSWORD"
addresses = { flights = "/queue/flights" }
fetch = [{ from = "orders", to = "topic/orders" }]
bytes_max = 1_000
messages_max = 7
when_full = "refuse"
deliveries_max = 3
""")  # fmt: skip
    assert found == (
        RemoteConfig(
            name="mq", remote="10.0.0.7:5671", tls=True, local="[::1]:0", server_name="mq.example",
            hostname="vhost:flights", user="ewr", password="secret", addresses=(("flights", "/queue/flights"),),
            fetch=(Fetch("orders", "topic/orders"),), bytes_max=1_000, messages_max=7, when_full="refuse",
            deliveries_max=3,
        ),
    )  # fmt: skip
    assert "secret" not in repr(found)


def test_a_name_and_a_place_suffice(tmp_path: Path) -> None:
    (found,) = load(tmp_path, '[[remote]]\nname = "mq"\nremote = "10.0.0.7:5672"\n')
    assert found == RemoteConfig(name="mq", remote="10.0.0.7:5672")


@pytest.mark.parametrize(("text", "expected"), [
    ("name = 'mq'\n", "remote 'mq' has no remote; expected HOST:PORT or amqps://HOST:PORT"),
    ("name = 'mq'\nremote = 'h'\n", "invalid value 'h' for remote 'mq' remote; expected HOST:PORT"),
    ("name = 'mq'\nremote = 'h:1'\nuser = 'u'\n", "remote 'mq' has no password_file; give user and password_file"),
    ("name = 'mq'\nremote = 'h:1'\npassword_file = 'PASSWORD'\n", "remote 'mq' has no user; give user and"),
    ("name = 'mq'\nremote = 'h:1'\nfetch = [{from = 'a'}]\n", "expected a list of tables as { from ="),
    ("name = 'mq'\nremote = 'h:1'\nfetch = [{from = 'a'}]\n", "invalid value [{ from = 'a' }] for remote 'mq' fetch"),
    ("name = 'mq'\nremote = 'h:1'\nfetch = [{from = 'a'}]\n", "; the first has no to"),
    ("name = 'mq'\nremote = 'h:1'\nfetch = [{from = 'a', to = 'b'}, {to = 'b'}]\n", "; number 2 has no from"),
    ("name = 'mq'\nremote = 'h:1'\nfetch = [{from = 'a', to = 'b', x = 1}]\n", "; the first has 'x'"),
    ("name = 'mq'\nremote = 'h:1'\nfetch = [{from = 'a', to = 1}]\n", "expected a list of tables as { from ="),
    ("name = 'mq'\nremote = 'h:1'\naddresses = {a = 1}\n", "expected a table of addresses, as { flights ="),
    ("name = 'mq'\nremote = 'h:1'\nhosts = []\n", "unknown key 'hosts'"),
    ("name = 'hub'\nremote = 'h:1'\n", "remote 'hub' has the name of the node itself; give it another one"),
])  # fmt: skip
def test_each_mistake_is_one_clear_line(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, f"[[remote]]\n{text}")
    assert expected in str(error.value) and "\n" not in str(error.value)
