"""`holdfast messages` and `dead-letters`: single messages of a queue, over the node's `$management`.

Rules of this file: a message is changed as it was found a moment before, or not at all. If one message is refused for
its own sake, the command goes on with the next. If the queue, target, disk or rights are the cause, it ends.
"""

import argparse
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.conditions import MESSAGE_SIZE_EXCEEDED
from holdfast.client.connection import Connection
from holdfast.client.errors import LinkError, ManagementError, RequestInDoubt
from holdfast.client.receive.receiver import Receiver
from holdfast.client.verbs.render import body_bytes, body_fields, plain
from holdfast.client.verbs.running import complain, connect_as, place_of, refused, run
from holdfast.columns import table
from holdfast.entity_types import ENTRY, QUEUE
from holdfast.errors import ConfigError, HoldfastError
from holdfast.lines import json_line, say
from holdfast.names import DEAD_LETTERS

COLUMNS: Final = ("sequence", "state", "delivery_count", "enqueued", "bytes", "message_id")
DEAD_COLUMNS: Final = ("sequence", "enqueued", "bytes", "message_id", "from", "reason")
BROWSE_CREDIT: Final = 500
CHANGED_AT_ONCE: Final = 250
"""Messages that are looked for before those that were found are changed."""
DONE: Final = {"delete": "deleted", "move": "moved", "copy": "copied", "requeue": "requeued"}


def entries(args: argparse.Namespace) -> int:
    """`holdfast messages ACTION`, `holdfast dead-letters ACTION`."""
    return run(partial(_asked, args))


async def _asked(args: argparse.Namespace) -> int:
    async with await connect_as(args, place_of(args)) as connection:
        try:
            if args.action == "list":
                await _list(connection, args)
            elif args.action == "show":
                await _show(connection, args)
            else:
                return await _change(connection, args)
        except ManagementError as error:
            return refused(args, error)
    return 0


async def _list(connection: Connection, args: argparse.Namespace) -> None:
    found = await (_rows(connection, args) if args.selector is None else _matching_rows(connection, args))
    if args.json:
        say(json_line(plain(found)))
    elif found:
        columns = DEAD_COLUMNS if args.queue == DEAD_LETTERS else COLUMNS
        say(*table(columns, [[plain(row.get(key)) for key in columns] for row in found]))
    else:
        is_all = args.selector is None
        say(f"no messages in {args.queue}" if is_all else f"no message in {args.queue} matches", file=sys.stderr)


async def _rows(connection: Connection, args: argparse.Namespace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = args.after or 0
    while len(found) < args.count:
        told = {"after": after, "count": args.count - len(found)}
        answer = await _queried(connection, args.queue, told)
        found += answer["entries"]
        after = int(answer["after"])
        if not answer["more"]:
            break
    return found


async def _matching_rows(connection: Connection, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of the matching messages that are in the queue now, without those that leave it meanwhile."""
    found: list[dict[str, Any]] = []
    async with aclosing(_matching(connection, args)) as sequences:
        async for sequence in sequences:
            answer = await _queried(connection, args.queue, {"after": sequence - 1, "count": 1})
            found += [row for row in answer["entries"] if row["sequence"] == sequence]
    return found


async def _queried(connection: Connection, queue: str, told: dict[str, Any]) -> dict[str, Any]:
    """The answer to QUERY. A node makes the queue of its dead letters for the first of them; before, there are none."""
    try:
        return await connection.manage("QUERY", ENTRY, queue, told)
    except ManagementError as error:
        if error.code != 404 or queue != DEAD_LETTERS:
            raise
        return {"entries": [], "more": False, "after": 0}


async def browsed(connection: Connection, args: argparse.Namespace) -> Receiver | None:
    """A reader of what is in the queue now and matches `args.selector`, behind `args.after`, at most `args.count`; None
    if there is nothing."""
    end = await _end(connection, args.queue)
    return await _browsed(connection, args, (args.after or 0) + 1, end, args.count)


async def _end(connection: Connection, queue: str) -> int:
    """The sequence behind what is in the queue now."""
    try:
        row = await connection.manage("READ", QUEUE, queue)
    except ManagementError as error:
        if error.code == 404 and queue == DEAD_LETTERS:  # made for the first of them
            return 0
        raise
    return int(row["next_sequence"])


async def _browsed(
    connection: Connection, args: argparse.Namespace, start: int, end: int, count_max: int | None
) -> Receiver | None:
    if start >= end:
        return None
    return await connection.receiver(
        args.queue,
        credit=BROWSE_CREDIT,
        count_max=count_max,
        start_sequence=start,
        end_sequence=end,
        selector=args.selector,
    )


async def _sequences(connection: Connection, args: argparse.Namespace) -> AsyncGenerator[int, None]:
    """The sequences of the arguments, and those of messages that match the selector, as they are found."""
    for sequence in args.sequences:
        yield sequence
    if args.selector is not None:
        async with aclosing(_matching(connection, args)) as sequences:
            async for sequence in sequences:
                yield sequence


async def _matching(connection: Connection, args: argparse.Namespace) -> AsyncGenerator[int, None]:
    """The sequence numbers of what `browsed` reads, and of messages that are too large for it."""
    start, end, left = (args.after or 0) + 1, await _end(connection, args.queue), args.count
    while left != 0 and (receiver := await _browsed(connection, args, start, end, left)) is not None:
        is_over = True
        try:
            while batch := await receiver.batch(count_max=CHANGED_AT_ONCE):
                start, left = int(batch[-1].sequence) + 1, None if left is None else left - len(batch)
                for delivery in batch:
                    yield int(delivery.sequence)
        except LinkError as error:
            if error.condition != MESSAGE_SIZE_EXCEEDED:
                raise
            is_over = False
        finally:
            await receiver.close()
        if is_over:
            return
        for sequence in await _of_any_size(connection, args, start, end):
            start, left = sequence + 1, None if left is None else left - 1
            yield sequence


async def _of_any_size(connection: Connection, args: argparse.Namespace, start: int, end: int) -> list[int]:
    """The sequence number of the first that matches there, if there is one."""
    large = await connection.parts_receiver(
        args.queue, credit=1, count_max=1, start_sequence=start, end_sequence=end, selector=args.selector
    )
    try:
        return [int(delivery.sequence) for delivery in await large.batch(count_max=1)]
    finally:
        await large.close()  # nothing of its body is read


async def _named(connection: Connection, queue: str, sequence: int) -> dict[str, Any]:
    """What names that message in a request, as it is now. ManagementError where there is none."""
    answer = await _queried(connection, queue, {"after": sequence - 1, "count": 1})
    rows = [row for row in answer["entries"] if row["sequence"] == sequence]
    if not rows:
        text = f"no message {sequence} in queue {queue!r}"
        raise ManagementError(f"{ENTRY} {queue!r}", 404, text, {"sequence": sequence})
    return {
        "queue_uuid": answer["queue_uuid"],
        "sequence": sequence,
        "delivery_count": int(rows[0]["delivery_count"]),
    }


async def _show(connection: Connection, args: argparse.Namespace) -> None:
    told = await _named(connection, args.queue, args.sequence)
    answer = await connection.manage("READ", ENTRY, args.queue, told)
    encoded, whole = bytes(answer.pop("message")), bool(answer["whole"])
    message = Message.decode(encoded) if whole else None
    shown = {key: plain(value) for key, value in answer.items()}
    if message is not None:
        properties = message.application_properties or {}
        annotations = message.message_annotations or {}
        shown |= {"properties": plain(properties), "annotations": plain(annotations)}
    if args.json:
        say(json_line(shown | ({} if message is None else body_fields(message))))
        return
    for key, value in shown.items():
        if value not in (None, {}):
            say(f"{key}: {value if isinstance(value, (str, int, float)) else json_line(value)}")
    large = f"(a large message: `holdfast receive {args.queue} --to DIRECTORY` writes it into a file)"
    say("", body_bytes(message).decode("utf-8", "replace") if message is not None else large)


async def _change(connection: Connection, args: argparse.Namespace) -> int:
    """Exit code 1 where one of them could not be changed. It ends at a refusal that others would get as well."""
    if bool(args.sequences) is (args.selector is not None):
        raise ConfigError("give SEQUENCE, one or several, or --selector")
    if args.sequences and (args.after is not None or args.count is not None):
        raise ConfigError("--after and --count choose among what --selector selects; leave them out")
    code = 0
    more = {"to": args.to} if args.action in ("move", "copy") else {}
    done = []
    try:
        async with aclosing(_sequences(connection, args)) as sequences:  # else its reader would end with the connection
            async for sequence in sequences:
                try:
                    told = await _named(connection, args.queue, sequence)
                    answer = await connection.manage(args.action.upper(), ENTRY, args.queue, told | more)
                except ManagementError as error:
                    code = 1
                    if _is_of(sequence, error):
                        refused(args, error)
                        continue
                    complain(args, HoldfastError(f"{args.queue} {sequence}: {error.description or error}"))
                    if args.action == "requeue" and error.code in (404, 409):  # each goes to a queue of its own
                        continue
                    break
                except RequestInDoubt as error:
                    complain(args, RequestInDoubt(f"{args.queue} {sequence}: {error}"))
                    code = 1
                    continue
                done.append(
                    {"sequence": sequence} | {key: plain(value) for key, value in answer.items() if key == "to"}
                )
                if not args.json:
                    to = f" to {plain(answer['to'])}" if "to" in answer else ""
                    say(f"{args.queue} {sequence} {DONE[args.action]}{to}")
    finally:  # what was done is told also where the connection fails before the last one
        if args.json:
            say(json_line(done))
    if args.selector is not None and not (done or code or args.json):
        say(f"no message in {args.queue} matches", file=sys.stderr)
    return code


def _is_of(sequence: int, error: ManagementError) -> bool:
    """Whether that message alone is refused. Otherwise it is the queue, the target, the disk or the user's rights. A
    node of an earlier version says it in the text alone."""
    return error.body.get("sequence") == sequence or f"message {sequence} " in error.description
