"""`holdfast link` against a node (docs/links.md)."""

import asyncio
import json
import os
from pathlib import Path

from support.process import NodeProcess, run_holdfast


async def run(node: NodeProcess, line: str, code: int = 0) -> str:
    ended = await run_holdfast(*line.split(), "--url", node.url)
    assert ended.code == code, ended.stderr
    return ended.stdout if code == 0 else ended.stderr


async def test_links_are_created_listed_and_deleted(node: NodeProcess) -> None:
    assert json.loads(await run(node, "link list --json")) == []
    assert await run(node, "link create audit --from raw --to archive --copy") == "audit created\n"
    again = await run(node, "link create audit --from raw --to archive --copy")
    assert again == "audit is there already, with these settings\n"
    assert "with other settings; delete it first" in await run(node, "link create audit --from raw --to b", code=1)
    assert "expected another queue" in await run(node, "link create same --from raw --to raw", code=1)
    await run(node, "send raw --count 3")
    assert len((await run(node, "receive archive --count 3")).splitlines()) >= 3
    (row,) = json.loads(await run(node, "link list --json"))
    assert (row["from"], row["to"], row["mode"], row["moved_total"]) == ("raw", "archive", "copy", 3)
    listed = (await run(node, "link list")).splitlines()
    assert listed[0].split()[:4] == ["name", "mode", "from", "to"] and listed[1].split()[:4] == [
        "audit", "copy", "raw", "archive",
    ]  # fmt: skip
    assert "is named by links: audit" in await run(node, "queue delete raw", code=1)
    assert json.loads(await run(node, "link delete audit --json")) == {"deleted": "audit"}
    assert "no link 'audit'" in await run(node, "link delete audit", code=1)
    await run(node, "queue delete raw")


async def test_a_copy_begins_where_it_is_told_and_is_stopped_and_started(node: NodeProcess) -> None:
    await run(node, "send raw --count 3")
    wrong = await run(node, "link create late --from raw --to late --copy --start last", code=2)
    assert "expected first, next or a sequence" in wrong
    assert "only a link that copies" in await run(node, "link create late --from raw --to late --start 3", code=1)
    assert await run(node, "link create late --from raw --to late --copy --start 3") == "late created\n"
    assert await run(node, "link stop late") == "late stopped\n"
    await run(node, "send raw --count 1")
    assert await run(node, "link start late") == "late started\n"
    lines = (await run(node, "receive late --count 2 --json")).splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == [1, 2]
    (row,) = json.loads(await run(node, "link list --json"))
    assert (row["start"], row["state"]) == (3, "running")


async def test_steps_come_from_a_file(node: NodeProcess, tmp_path: Path) -> None:
    table, steps = tmp_path / "tags.csv", tmp_path / "steps.toml"
    table.write_text("tag,place\na,gate 1\n")
    steps.write_text(
        f"""
        steps = [
            {{ drop_repeats = {{ key = "tag", within_s = 600 }} }},
            {{ lookup = {{ key = "tag", value = "place", file = "{table}" }} }},
        ]
        """
    )
    create = "link create clean --from raw --to clean --steps-file"
    assert await run(node, f"{create} {steps}") == "clean created\n"
    for _ in range(2):
        await run(node, "send raw --count 2 --property tag=a")
    (line,) = (await run(node, "receive clean --count 1 --json")).splitlines()[:1]
    assert json.loads(line)["properties"] == {"tag": "a", "place": "gate 1"}
    (row,) = json.loads(await run(node, "link list --json"))
    assert (row["steps"], row["moved_total"], row["dropped_total"]) == (["drop_repeats", "lookup"], 1, 3)
    for text, why in (
        ("steps = [", "is not TOML"),
        ("step = []", "unknown key 'step' in --steps-file"),
        ("steps = [{ sort = {} }]", "unknown key 'sort' in --steps-file"),
    ):
        steps.write_text(text)
        told = await run(node, f"{create} {steps}", code=2)
        assert why in told and "Traceback" not in told, told
    assert "cannot be read" in await run(node, f"{create} {tmp_path}/none.toml", code=2)


async def test_steps_may_come_from_a_pipe_and_a_table_may_not(node: NodeProcess, tmp_path: Path) -> None:
    """As `--steps-file <(COMMAND)`."""
    os.mkfifo(tmp_path / "pipe")
    create = f"link create clean --from raw --to clean --steps-file {tmp_path}/pipe"
    for text, code, said in (
        ("steps = [{ drop_repeats = { key = 'tag', within_s = 600 } }]", 0, "clean created\n"),
        (f"steps = [{{ lookup = {{ key = 'tag', value = 'a', file = '{tmp_path}/pipe' }} }}]", 2, "(no regular file)"),
    ):
        told, _ = await asyncio.gather(run(node, create, code), asyncio.to_thread((tmp_path / "pipe").write_text, text))
        assert said in told
