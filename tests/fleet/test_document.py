"""The procedure of docs/fleet.md, run as it stands there, by a shell."""

import asyncio
import os
import re
import signal
import sys
import tomllib
from pathlib import Path

from support.documents import ROOT
from support.eventually import eventually_async
from support.postgresql import free_port

DOCUMENT = ROOT / "docs" / "fleet.md"
LIMIT_S = 60.0


def blocks(language: str) -> list[str]:
    part = DOCUMENT.read_text(encoding="utf-8").partition("## Two sites in five minutes")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", part, re.DOTALL)


async def test_two_sites_in_five_minutes(tmp_path: Path) -> None:
    """Ports are those that are free here; all else is the document's."""
    ports = {given: str(free_port()) for given in ("5670", "5671", "5672")}
    (topology,) = blocks("toml")
    script = "\n".join(["set -e", *blocks("sh"), "wait"])
    for given, free in ports.items():
        topology, script = (text.replace(f":{given}", f":{free}") for text in (topology, script))
    (tmp_path / "topology.toml").write_text(topology)
    assert [node["name"] for node in tomllib.loads(topology)["node"]] == ["hub", "ewr"]
    # Nobody else's port: that of a node without an address is not in the document.
    script = script.replace("holdfast fleet push", f"echo '[node]\nlisten = [\"127.0.0.1:{ports['5672']}\"]' > "
                            "fleet/sites/ewr.toml\nholdfast fleet push", 1)  # fmt: skip
    script = f'holdfast() {{ "{sys.executable}" -m holdfast "$@"; }}\n' + script.replace(
        "exec holdfast", f'exec "{sys.executable}" -m holdfast'
    )
    shell = await asyncio.create_subprocess_exec(
        "bash", "-c", script, cwd=tmp_path, start_new_session=True, stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert shell.stderr is not None
    said: list[str] = []

    async def read() -> None:
        assert shell.stderr is not None
        async for line in shell.stderr:
            said.append(line.decode())

    reading = asyncio.create_task(read())
    try:
        for text in ("hub INFO neighbour ewr: OpenConfirm -> Established", "ewr INFO neighbour hub: OpenConfirm"):

            async def look(wanted: str = text) -> bool:
                return any(wanted in line for line in said)

            await eventually_async(look, what="".join(said), limit_s=LIMIT_S)
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        await shell.wait()
        await reading
    assert not [line for line in said if "Traceback" in line or "ERROR" in line]
