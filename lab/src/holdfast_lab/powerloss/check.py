"""Opens stores that a power loss may have left, one after the other, and reports what they hold; and the parent's side
of that process.

    python -m holdfast_lab.powerloss.check

Rules of this file: a path a line on standard input, an answer a line on standard output. It judges nothing and
knows no state: it reads, goes on working with the store as a node would, opens it again and reads again. In a
process of its own, since a damaged file may end it (SIGBUS, an assertion of LMDB).
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from holdfast.engine.port import Batch
from holdfast.errors import HoldfastError
from holdfast.storage.lmdb import LmdbStore
from holdfast_lab.powerloss.workload import BLOBS, PIECES_MAX, State, open_store, read_state

PROBE: Final = tuple((1, 10**8 + place, bytes([place]) * size) for place, size in enumerate((10, 3_000, 90_000, 2)))
"""What is appended to a store that came back, after all else was retired."""


def after_probe(state: State) -> State:
    """What a store that held `state` holds once it was tried."""
    return State({(queue, sequence): value for queue, sequence, value in PROBE}, dict(state.tables), state.uuid)


def examine(path: Path) -> dict[str, Any]:
    """`found`, `uuid`, `step`: what the store held at first; `probed`: at last, or `refused`: the error's line."""
    answer: dict[str, Any] = {}
    try:
        store = open_store(path)
        try:
            state = read_state(store)
            answer.update(found=state.digest(), uuid=state.uuid, step=state.step)
            _probe(store, state)
        finally:
            store.close()
        store = open_store(path)
        try:
            state = read_state(store)
            answer.update(probed=state.digest(), uuid_probed=state.uuid)
        finally:
            store.close()
    except HoldfastError as error:
        answer["refused"] = str(error)
    except Exception as error:
        answer["failed"] = f"{type(error).__name__}: {error}"
    return answer


def _probe(store: LmdbStore, state: State) -> None:
    """Retire all that is there: it lies on pages of every age. Then take anew what a full store could not."""
    size = store.path.joinpath("data.mdb").stat().st_size
    if (room := store.room_bytes()) > size:
        raise AssertionError(f"says that {room} bytes fit a file of {size}")
    store.commit(Batch(retires=list(state.entries), drops=[(blob, 0, PIECES_MAX) for blob in BLOBS]))
    store.commit(Batch(appends=list(PROBE)))


class Examiner:
    """The process above, started when asked and again when a store has ended it. Close it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def examine(self, path: Path) -> dict[str, Any]:
        """See the function `examine`; `died`: by what, where the store was the process's end."""
        if self._process is None:
            command = [sys.executable, "-m", "holdfast_lab.powerloss.check"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{path}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if line:
            return dict(json.loads(line))
        code = process.wait(timeout=60)
        self.close()
        return {"died": signal.Signals(-code).name if code < 0 else f"exit code {code}"}

    def close(self) -> None:
        """Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def main() -> int:
    for line in sys.stdin:
        print(json.dumps(examine(Path(line.rstrip("\n")))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
