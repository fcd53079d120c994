"""`holdfast messages export`, `dead-letters export`: messages of a queue as lines of JSON, left where they are.

Rules of this file: what was in the queue at the start, in its order, each once. A file that is named is replaced when
all is written, and on disk before the end is told.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdfast.client.connection import Connection
from holdfast.client.errors import ManagementError, UndecodableMessage
from holdfast.client.verbs.entries import browsed
from holdfast.client.verbs.printing import Output
from holdfast.client.verbs.receiving import too_large_advice
from holdfast.client.verbs.render import as_json
from holdfast.client.verbs.running import Progress, complain, connect_as, in_thread, place_of, refused, run
from holdfast.durable import NotSynced, replacing
from holdfast.errors import HoldfastError
from holdfast.lines import json_line, say

Writes = Callable[[bytes], Any]

BATCH_MAX: Final = 250
UNREADABLE_SHOWN_MAX: Final = 100


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """As `replacing`, with what the user is told if the file cannot be written or synced."""
    try:
        with replacing(path) as file:
            yield file
    except NotSynced as error:
        text = f"{path} is replaced, and a power loss may undo that ({error.strerror or error}); look at the disk"
        raise HoldfastError(text) from None
    except OSError as error:
        text = f"{path} cannot be written ({error.strerror or error}); give another FILE, or - for standard output"
        raise HoldfastError(text) from None


def export(args: argparse.Namespace) -> int:
    """1 where a message could not be read, or the queue not at all."""
    return run(partial(_export, args))


async def _export(args: argparse.Namespace) -> int:
    started = time.monotonic()
    told = {"exported": 0, "unreadable": 0}
    code = 0
    try:
        async with await connect_as(args, place_of(args)) as connection:
            to_output = args.file in (None, "-")
            progress = Progress(prints=to_output)
            async with progress.shown(lambda: f"{told['exported']} exported"):
                if to_output:
                    await _write_all(connection, args, Output().write, told, progress)
                else:
                    with replaced(Path(args.file)) as file:
                        await _write_all(connection, args, file.write, told, progress)
                        await in_thread(_sync, file)  # it may take long, and a signal still ends it
    except ManagementError as error:
        return refused(args, error)
    except HoldfastError as error:
        complain(args, error, too_large_advice(args.queue, error))
        code = 1
    say(json_line({**told, "seconds": round(time.monotonic() - started, 3)}), file=sys.stderr)
    return code or (1 if told["unreadable"] else 0)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


async def _write_all(
    connection: Connection, args: argparse.Namespace, write: Writes, told: dict[str, int], progress: Progress
) -> None:
    receiver = await browsed(connection, args)
    if receiver is None:
        return
    try:
        while batch := await receiver.batch(count_max=BATCH_MAX):
            lines = []
            for delivery in batch:
                try:
                    lines.append(as_json(delivery).encode() + b"\n")
                except UndecodableMessage as error:
                    told["unreadable"] += 1
                    if told["unreadable"] <= UNREADABLE_SHOWN_MAX:
                        progress.clear()
                        where = f"{args.queue}: sequence {delivery.sequence}"
                        say(f"holdfast {args.verb} export: {where} cannot be read: {error}", file=sys.stderr)
            await in_thread(write, b"".join(lines))
            told["exported"] += len(lines)
    finally:
        await receiver.close()
