"""`holdfast status`, `queue`, `subscription` and `topology forget`: requests to the node's `$management`.

Rules of this file: a table for a person, one line of JSON for a program; what comes in pages is asked for to its end.
"""

import argparse
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from holdfast.client.connection import Connection
from holdfast.client.errors import ManagementError
from holdfast.client.verbs.render import plain
from holdfast.client.verbs.running import connect_as, place_of, refused, run
from holdfast.client.verbs.status_lines import status_lines
from holdfast.columns import counted, table
from holdfast.entity_types import NODE, QUEUE, SUBSCRIPTION
from holdfast.errors import ConfigError
from holdfast.lines import json_line, say
from holdfast.names import DEAD_LETTERS

NONE: Final = "none"
"""As an option: no limit."""


def status(args: argparse.Namespace) -> int:
    """`holdfast status`."""
    return run(partial(asked, args, _status))


def queue(args: argparse.Namespace) -> int:
    """`holdfast queue ACTION`."""
    return run(partial(asked, args, _queue))


def subscription(args: argparse.Namespace) -> int:
    """`holdfast subscription ACTION`."""
    return run(partial(asked, args, _subscription))


def forget(args: argparse.Namespace) -> int:
    """`holdfast topology forget`."""
    return run(partial(asked, args, _forget))


async def _forget(connection: Connection, args: argparse.Namespace) -> None:
    mail = {"mail": "dead-letter"} if args.dead_letter else {"mail": "move", "to": args.move_to} if args.move_to else {}
    answer = plain(await connection.manage("FORGET", NODE, args.node, mail))
    if args.json:
        print_json(answer)
        return
    say(f"{args.node} forgotten{_mail_of(args, answer)}")


def _mail_of(args: argparse.Namespace, answer: dict[str, Any]) -> str:
    """What became of the mail for a node that is forgotten; an older node does not say."""
    told = ""
    if "dead_lettered" in answer:
        told += f": {counted(answer['dead_lettered'], 'message')} for it became dead letters"
    if "moved" in answer:
        told += f": {counted(answer['moved'], 'message')} for it moved to {args.move_to}"
    if answer.get("waiting"):
        are = "is" if answer["waiting"] == 1 else "are"
        told += f"; {counted(answer['waiting'], 'message')} for it {are} still here: see --dead-letter and --move-to"
    return told


async def asked(
    args: argparse.Namespace, ask: Callable[[Connection, argparse.Namespace], Coroutine[Any, Any, None]]
) -> int:
    """The exit code of a verb that asks the node something; a refusal is one line."""
    async with await connect_as(args, place_of(args)) as connection:
        try:
            await ask(connection, args)
        except ManagementError as error:
            return refused(args, error)
    return 0


def print_json(value: Any) -> None:
    """One line for a program."""
    say(json_line(plain(value)))


async def _status(connection: Connection, args: argparse.Namespace) -> None:
    answer = await connection.admin.status()
    if args.json:
        print_json(answer)
        return
    say(*status_lines(plain(answer)))


def _room(args: argparse.Namespace) -> dict[str, float | None]:
    return {"room_low": args.room_low, "room_normal": args.room_normal, "room_quiet_s": args.room_quiet}


async def _queue(connection: Connection, args: argparse.Namespace) -> None:
    if args.action == "list":
        queues = await connection.admin.queues()
        if args.json:
            print_json(queues)
            return
        columns = ("name", "messages", "bytes", "oldest_s", "next_sequence")
        if queues:
            say(*table(columns, [[plain(queue.get(key)) for key in columns] for queue in queues]))
        else:
            say("no queues", file=sys.stderr)
        return
    arguments: dict[str, Any] = {}
    if args.action == "create":
        given = {
            "bytes_max": args.bytes_max,
            "messages_max": args.messages_max,
            "when_full": args.when_full,
            "order": args.order,
            "order_wait_s": args.order_wait,
            "durable": False if args.memory else None,
            "priorities": True if args.priorities else None,
            "deliveries_max": args.deliveries_max,
            **_room(args),
        }
        arguments = {key: value for key, value in given.items() if value is not None}
    elif args.action == "update":
        given = {
            "bytes_max": args.bytes_max,
            "messages_max": args.messages_max,
            "when_full": args.when_full,
            "deliveries_max": args.deliveries_max,
            **_room(args),
        }
        arguments = {key: None if value == NONE else value for key, value in given.items() if value is not None}
        if not arguments:
            raise ConfigError(
                "nothing to change; expected --bytes-max, --messages-max, --when-full, --deliveries-max, --room-low, "
                "--room-normal or --room-quiet"
            )
    elif args.action == "skip" and args.origin is not None:
        arguments = {"origin": args.origin}
    elif args.action == "delete" and args.tombstones:
        arguments = {"tombstones": True}
    try:
        answer = await connection.manage(args.action.upper(), QUEUE, args.name, arguments)
    except ManagementError as error:
        if error.code != 404 or (args.action, args.name) != ("purge", DEAD_LETTERS):
            raise
        answer = {"purged": 0, "held": 0}  # the node makes it for the first dead letter
    if args.json:
        print_json(answer)
    elif args.action == "create":
        is_new = answer.get("created", True)  # an older node does not say
        there = f"{args.name} is there already" + (", with these settings" if arguments else "")
        say(f"{args.name} created" if is_new else there)
    elif args.action == "update":
        settings = ", ".join(f"{key} {NONE if value is None else value}" for key, value in arguments.items())
        say(f"{args.name} {'changed' if answer.get('changed') else 'is so already'}: {settings}")
    elif args.action == "skip":
        lost = answer.get("lost") or []
        for gap in lost:
            say(f"lost {gap['first']} to {gap['last']} of {plain(gap['origin'])}")
        if not lost:
            say(f"{args.name}: nothing is missing")
    elif "dead_lettered" in answer:
        left = plain(answer["tombstones"])
        kept = f", {counted(left, 'tombstone')} kept in case the node comes back (--tombstones gives them up)"
        dead = counted(plain(answer["dead_lettered"]), "message")
        say(f"{args.name}: {dead} dead-lettered{kept if left else ''}")
    else:
        deleted = " deleted," if args.action == "delete" else ":"
        say(f"{args.name}{deleted} {counted(answer.get('purged', 0), 'message')} dropped{_held(args.name, answer)}")


def _held(name: str, answer: dict[str, Any]) -> str:
    """What a purge kept; an older node does not say."""
    if not answer.get("held"):
        return ""
    holder = "sent to the next node, which has not answered" if name.startswith("@") else "held by consumers"
    return f", {plain(answer['held'])} kept: {holder}"


def _bounds(args: argparse.Namespace) -> dict[str, Any]:
    given = {
        "messages_max": args.messages_max,
        "bytes_max": args.bytes_max,
        "when_full": args.when_full,
        "idle_s": args.idle,
    }
    bounds = {key: None if value == NONE else value for key, value in given.items() if value is not None}
    if not bounds:
        raise ConfigError("nothing to change; expected --messages-max, --bytes-max, --when-full or --idle")
    return bounds


async def _subscription(connection: Connection, args: argparse.Namespace) -> None:
    found = await connection.admin.subscriptions(args.queue)
    if args.action == "list":
        if args.json:
            print_json(found)
        elif found:
            columns = list(dict.fromkeys(("queue", "name", *(key for row in found for key in row))))
            say(*table(columns, [[plain(row.get(key)) for key in columns] for row in found]))
        else:
            say("no subscriptions", file=sys.stderr)
        return
    queues = [row["queue"] for row in found if row.get("name") == args.name]
    if not queues:
        request = f"{args.action.upper()} holdfast:subscription {args.name!r}"
        raise ManagementError(request, 404, f"no subscription {args.name!r}")
    if len(queues) > 1:
        raise ConfigError(f"subscription {args.name!r} is on {', '.join(queues)}; name one with --queue")
    arguments = {"queue": queues[0], **(_bounds(args) if args.action == "update" else {})}
    answer = await connection.manage(args.action.upper(), SUBSCRIPTION, args.name, arguments)
    if args.json:
        print_json(answer or {"deleted": args.name})
    elif args.action == "update":
        bounds = ", ".join(
            f"{key} {plain(answer.get(key)) or 'none'}" for key in ("messages_max", "bytes_max", "when_full", "idle_s")
        )
        say(f"{args.name} on {queues[0]} {'changed' if answer['changed'] else 'is so already'}: {bounds}")
    else:
        say(f"{args.name} on {queues[0]} deleted")
