"""Virtual hosts from the command line and the library, at a real node (docs/virtual-hosts.md)."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.client import ConnectionFailed, connect
from support.process import NodeProcess, run_holdfast

FILE = """
[node]
name = "t"
listen = ["127.0.0.1:0"]
create_queues = true

[[vhost]]
name = "acme"

[[vhost]]
name = "globex"

[[user]]
name = "ann"
password_file = "DIR/ann"

[[user]]
name = "ann"
vhost = "acme"
password_file = "DIR/acme"
"""


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[NodeProcess]:
    for name in ("ann", "acme"):
        (tmp_path / name).write_text(f"{name}\n")
    config = tmp_path / "node.toml"
    config.write_text(FILE.replace("DIR", str(tmp_path)))
    async with await NodeProcess.start(tmp_path / "data", config=config) as node:
        yield node


def url(node: NodeProcess, password: str, vhost: str = "") -> str:
    return node.url.replace("amqp://", f"amqp://ann:{password}@") + vhost


async def test_the_commands_are_in_the_host_that_an_option_or_the_urls_path_names(
    hosts: NodeProcess, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    by_path, by_option = ["--url", url(hosts, "acme", "/acme")], ["--url", url(hosts, "acme"), "--vhost", "acme"]
    default = ["--url", url(hosts, "ann")]
    assert (await run_holdfast("send", "flights", str(lines), *by_path)).code == 0
    for where, messages in ((by_option, [2]), (by_path, [2]), (default, [])):
        told = json.loads((await run_holdfast("status", "--json", *where)).stdout)
        assert [queue["messages"] for queue in told["queues"]] == messages
    assert [row["name"] for row in told["vhosts"]] == ["acme", "globex"]
    found = await run_holdfast("receive", "flights", "--count", "2", *by_option)
    assert found.stdout == "one\ntwo\n" and found.code == 0
    listed = await run_holdfast("queue", "list", "--json", *by_option)
    assert [queue["name"] for queue in json.loads(listed.stdout)] == ["flights"]


@pytest.mark.parametrize(
    ("vhost", "text"),
    [
        ("/nosuch", "no virtual host 'nosuch' at 't' for this user; log in as one of its users"),
        ("/globex", "no virtual host 'globex' at 't' for this user; log in as one of its users"),
    ],
)
async def test_a_host_that_is_not_there_or_not_the_users_ends_a_command_at_once(
    hosts: NodeProcess, vhost: str, text: str
) -> None:
    found = await run_holdfast("receive", "flights", "--idle-timeout", "50", "--url", url(hosts, "ann", vhost))
    assert found.code == 1 and text in found.stderr and "Traceback" not in found.stderr
    with pytest.raises(ConnectionFailed, match="virtual host"):
        connection = await connect(url(hosts, "ann", vhost), retry_s=50)
        await connection.receiver("flights")


async def test_two_hosts_in_one_command_are_refused(hosts: NodeProcess) -> None:
    found = await run_holdfast("status", "--url", url(hosts, "acme", "/acme"), "--vhost", "globex")
    assert found.code == 2 and "name two virtual hosts; give one" in found.stderr


async def test_a_command_says_for_what_it_waits_where_a_bound_refuses_its_link(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(
        '[node]\nname = "t"\nlisten = ["127.0.0.1:0"]\ncreate_queues = true\n'
        '[[vhost]]\nname = "acme"\nqueues_max = 1\n[[queue]]\nname = "one"\nvhost = "acme"\n'
    )
    async with await NodeProcess.start(tmp_path / "data", config=config) as node:
        place = ["--url", f"{node.url}/acme"]
        ended = await run_holdfast("send", "two", "--count", "1", "--retry", "1", *place)
        first, *_, last, _ = ended.stderr.splitlines()
        assert ended.code == 1
        assert "queue 'two' cannot be created" in first and first.endswith("; trying again for 1 s")
        assert last.startswith("holdfast send: sender to 'two': the node ended the link: queue 'two' cannot be created")
        linked = await run_holdfast("link", "create", "l", "--from", "one", "--to", "two", *place)
        assert linked.code == 1 and "queue 'two' cannot be created; virtual host 'acme' has 1 queues" in linked.stderr
        same = await run_holdfast("link", "create", "l", "--from", "one", "--to", "one", *place)
        assert same.code == 1 and same.stderr.rstrip().endswith("expected another queue or topic of the same host")
