"""Runs a scenario of `rhea_peer.js` in a process of its own."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

from interop.peer_process import PeerProcess

HERE: Final = Path(__file__).parent


def why_no_rhea() -> str | None:
    """The reason to skip, None where rhea can be run."""
    if shutil.which("node") is None:
        return "no node (Node.js) here, which rhea needs"
    if not (HERE / "node_modules" / "rhea").is_dir():
        return "rhea is not installed: make peers"
    return None


class Rhea(PeerProcess):
    """One running scenario."""

    def __init__(self, scenario: str, port: int, **options: Any) -> None:
        super().__init__(["node", str(HERE / "rhea_peer.js"), scenario, json.dumps({"port": port, **options})])
