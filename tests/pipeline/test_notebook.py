"""The notebook in examples/, cell by cell, on a real node."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from holdfast.client import connect
from support.process import NodeProcess

pytestmark = pytest.mark.spark

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "spark.ipynb"


def cells() -> list[str]:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert found["nbformat"] == 4
    code = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code), "it is kept without results"
    return ["".join(cell["source"]) for cell in code]


@pytest.mark.usefixtures("our_session")
async def test_the_notebook_runs_and_twice_nothing_comes_twice(
    tmp_path: Path,
    start_node: Callable[..., Awaitable[NodeProcess]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    node = await start_node("hub")
    names: dict[str, Any] = {}
    code = cells()
    for cell in (*code, *code[4:]):  # in this thread, as a notebook's: elsewhere Spark does not find our sink
        exec(cell.replace("amqp://127.0.0.1:5672", node.url), names)
    shown = capsys.readouterr().out
    assert "behind: {'hub/flights': 0}" in shown.splitlines()
    async with await connect(node.url) as connection:
        receiver = await connection.receiver("delays", start_sequence=1, end_sequence=4)
        found = [delivery.message async for delivery in receiver]
        assert (await connection.admin.queue("delays"))["messages"] == 3
    assert [(message.properties and message.properties.subject, message.body_bytes()) for message in found] == [
        ("B6", b"31.0"), ("DL", b"7.0"), ("UA", b"2.0"),
    ]  # fmt: skip
