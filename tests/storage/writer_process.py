"""Run by test_kills.py: commits batches until it is killed, and says of each that it is committed.

Arguments: the store's directory, entries a batch, and optionally POINT COUNT: where to kill itself.
Batch n holds entries n*k … n*k+k-1, each with n inside, the row `node/batch` = n, and retires batch n - WINDOW.
"""

import os
import signal
import sys
from pathlib import Path

from holdfast.engine.port import Batch
from holdfast.storage.lmdb import LmdbStore

WINDOW = 20


def main() -> None:
    path, size = Path(sys.argv[1]), int(sys.argv[2])
    point, left = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", 0)

    def passed(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    store = LmdbStore(path, on_point=passed, ahead_bytes=1 << 20)
    number = int(dict(store.table("node")).get(b"batch", b"0")) + 1
    while True:
        body = b"%d " % number + bytes(number % 7 * 400)
        big = bytes(100_000) if number % 10 == 0 else b""
        store.commit(
            Batch(
                appends=[(1, number * size + place, body + big * (place == 0)) for place in range(size)],
                retires=[(1, (number - WINDOW) * size + place) for place in range(size) if number > WINDOW],
                puts={("node", b"batch"): b"%d" % number},
            )
        )
        os.write(1, b"%d\n" % number)
        number += 1


if __name__ == "__main__":
    main()
