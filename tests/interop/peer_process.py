"""A client of somebody else's in a process of its own, which says what it sees: a JSON object a line, key `event`.

Rules of this file: every wait has a limit, and what the process printed is part of the failure when it passes.
"""

import json
import queue
import subprocess
import threading
from collections.abc import Sequence
from typing import Any, Final

STARTED: Final[list["PeerProcess"]] = []
"""Those that the test at hand has started."""


class PeerProcess:
    """One running scenario. `say` sends it a line; `hear` waits for the next event of a name."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._printed: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        STARTED.append(self)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def line(self, awaited: str, limit_s: float = 20.0) -> str:
        """The next line it prints; `awaited` says in the failure what for."""
        try:
            line = self._lines.get(timeout=limit_s)
        except queue.Empty:
            raise AssertionError(f"no {awaited} within {limit_s:g} s; the peer said:\n{self._said}") from None
        assert line is not None, f"the peer ended before {awaited}; it said:\n{self._said}"
        self._printed.append(line)
        return line

    def hear(self, event: str, limit_s: float = 20.0) -> dict[str, Any]:
        """The next event of that name; others before it are an error, as is anything that is no event."""
        line = self.line(repr(event), limit_s)
        try:
            found = json.loads(line)
        except ValueError:
            self._rest()
            raise AssertionError(f"waiting for {event!r}, the peer printed:\n{self._said}") from None
        assert isinstance(found, dict) and found.get("event") == event, f"waiting for {event!r}:\n{self._said}"
        return found

    @property
    def _said(self) -> str:
        return "".join(self._printed)

    def _rest(self) -> None:
        self._process.kill()
        self._reader.join(5)
        self._printed += [line for line in iter(self._lines.get_nowait, None) if line]

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def done(self, limit_s: float = 20.0) -> dict[str, Any]:
        """The scenario's result; the process has ended well."""
        result = self.hear("done", limit_s)
        assert self._process.wait(10) == 0
        return result

    def ended(self, limit_s: float = 20.0) -> list[str]:
        """All lines of a program that says no events, once it has ended well."""
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._rest()
            raise AssertionError(f"still running after {limit_s:g} s; it said:\n{self._said}") from None
        self._reader.join(5)
        self._printed += [line for line in iter(self._lines.get_nowait, None) if line]
        assert code == 0, f"exit code {code}; it said:\n{self._said}"
        return [line.rstrip("\n") for line in self._printed]

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        self._reader.join(10)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
