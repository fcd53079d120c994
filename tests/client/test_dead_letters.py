"""Dead letters by the command line, as docs/management.md says: how they are read, and sent again by hand."""

import json
import re
import shlex
from pathlib import Path

from holdfast.client import connect
from support.process import NodeProcess, run_holdfast

ROOT = Path(__file__).parents[2]


async def run(node: NodeProcess, *words: str) -> str:
    ended = await run_holdfast(*words, "--url", node.url)
    assert ended.code == 0, ended.stderr
    return ended.stdout


def documented(verb: str) -> list[str]:
    """The words of the first such command in docs/management.md, *Dead letters*."""
    text = (ROOT / "docs" / "management.md").read_text(encoding="utf-8").partition("## Dead letters")[2]
    found = re.search(rf"^holdfast ({verb}.*?)(?: +#.*)?$", text, re.MULTILINE)
    assert found is not None, f"no {verb} in docs/management.md"
    return shlex.split(found[1])


async def test_they_are_read_and_sent_again_by_hand(node: NodeProcess, tmp_path: Path) -> None:
    async with await connect(node.url) as connection:
        for body in (b"one", b"two\nlines"):
            sender = await connection.sender("flights")
            await sender.send(body)
        receiver = await connection.receiver("flights", count_max=2)
        async for delivery in receiver:
            delivery.reject("app:no", "not mine")
        await receiver.close()

    status = await run(node, "status")
    (line,) = [line for line in status.splitlines() if line.startswith("dead letters: 2, ")]
    told = re.search("`holdfast (.*)`", line)
    assert told is not None
    assert shlex.split(told[1]) == documented("dead-letters list")
    assert "rejected: app:no not mine" in await run(node, *shlex.split(told[1]))
    look = documented("receive.*--browse --json")
    letters = [json.loads(line) for line in (await run(node, *look)).splitlines()]
    assert [letter["body"] for letter in letters] == ["one", "two\nlines"]
    for letter in letters:
        assert letter["annotations"]["x-opt-dead-letter-from"] == "flights"
        assert letter["annotations"]["x-opt-dead-letter-reason"] == "rejected: app:no not mine"

    again = tmp_path / "again"
    again.mkdir()
    keep = [str(again) if word == "again" else word for word in documented("receive.*--to again")]
    files = (await run(node, *keep)).split()
    assert len(files) == 2
    for path in files:
        await run(node, "send", "flights", "--file", path)
    take = documented("receive.*--count 2")
    assert len((await run(node, *take)).splitlines()) == 3
    found = await run(node, "receive", "flights", "--browse", "--json", "--count", "2")
    assert [json.loads(line)["body"] for line in found.splitlines()] == ["one", "two\nlines"]
    queues = {queue["name"]: queue["messages"] for queue in json.loads(await run(node, "queue", "list", "--json"))}
    assert queues == {"flights": 2, "$dead-letters": 0}
