"""Runs a scenario of `rhea_peer.js` in a process of its own and listens to what it says, a JSON object a line.

Rules of this file: every wait has a limit, and what the process printed is part of the failure when it passes.
"""

import json
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
RHEA: Final[list["Rhea"]] = []
"""Those that the test at hand has started."""


def why_no_rhea() -> str | None:
    """The reason to skip, None where rhea can be run."""
    if shutil.which("node") is None:
        return "no node (Node.js) here, which rhea needs"
    if not (HERE / "node_modules" / "rhea").is_dir():
        return "rhea is not installed: make peers"
    return None


class Rhea:
    """One running scenario. `say` sends it a line; `hear` waits for the next event of a name."""

    def __init__(self, scenario: str, port: int, **options: Any) -> None:
        self._process = subprocess.Popen(
            ["node", str(HERE / "rhea_peer.js"), scenario, json.dumps({"port": port, **options})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._printed: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        RHEA.append(self)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def hear(self, event: str, limit_s: float = 20.0) -> dict[str, Any]:
        """The next event of that name; others before it are an error, as is anything that is no event."""
        try:
            line = self._lines.get(timeout=limit_s)
        except queue.Empty:
            raise AssertionError(f"no {event!r} within {limit_s:g} s; rhea said:\n{''.join(self._printed)}") from None
        said = "".join(self._printed)
        assert line is not None, f"rhea ended before {event!r}; it said:\n{said}"
        self._printed.append(line)
        try:
            found = json.loads(line)
        except ValueError:
            rest = self._rest()
            raise AssertionError(f"waiting for {event!r}, rhea printed:\n{said}{line}{rest}") from None
        assert isinstance(found, dict) and found.get("event") == event, f"waiting for {event!r}:\n{said}{line}"
        return found

    def _rest(self) -> str:
        self._process.kill()
        self._reader.join(5)
        return "".join(line for line in iter(self._lines.get_nowait, None) if line)

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def done(self, limit_s: float = 20.0) -> dict[str, Any]:
        """The scenario's result; the process has ended well."""
        result = self.hear("done", limit_s)
        assert self._process.wait(10) == 0
        return result

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        self._reader.join(10)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
