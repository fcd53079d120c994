"""The file of the audit log, as a node's process writes it (node/process/telemetry.py)."""

import json
import stat
from pathlib import Path

import pytest

from holdfast.client import connect
from holdfast.client.errors import ConnectionFailed
from support.process import NodeProcess


async def test_a_node_writes_lines_of_json_that_only_its_owner_may_read(tmp_path: Path) -> None:
    file, config = tmp_path / "audit.ndjson", tmp_path / "hub.toml"
    (tmp_path / "password").write_text("secret\n")
    config.write_text(
        f'[node]\nname = "hub"\ndata = "{tmp_path}/hub.holdfast"\nlisten = ["127.0.0.1:0"]\n'
        f'[audit]\nfile = "{file}"\n[[user]]\nname = "ann"\npassword_file = "{tmp_path}/password"\n'
    )
    async with await NodeProcess.start(None, config=config, listen=None) as node:
        with pytest.raises(ConnectionFailed):
            await connect(f"amqp://ann:wrong@127.0.0.1:{node.port}", retry_s=0)
        async with await connect(f"amqp://ann:secret@127.0.0.1:{node.port}", retry_s=0) as connection:
            await connection.manage("CREATE", "holdfast:queue", "work")
        await node.stop()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["kind"], row["outcome"], row["user"]) for row in rows] == [
        ("login", "refused", "ann"), ("login", "ok", "ann"), ("change", "ok", "ann"),
    ]  # fmt: skip
    assert all(row["v"] == 1 and row["node"] == "hub" and row["from"].startswith("127.0.0.1:") for row in rows)
    assert rows[2]["change"] == "queue 'work' created" and "secret" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
