"""`holdfast send --file` and `holdfast receive --to`: a file is a message, of any size, and memory holds a part of it.

Rules of this file: a file that is received is whole under its name, and on the disk, before its message is accepted;
its name begins with the message's sequence, so that a message which comes again overwrites what it was. What a peer
says of a name is used where it is a plain one, and never leads out of the directory.
"""

import argparse
import asyncio
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from holdfast.client.connection import Connection
from holdfast.client.errors import DeliveryBroken, unreadable
from holdfast.client.outcomes import Accepted, Outcome, Rejected
from holdfast.client.receive.parts_delivery import DeliveryInParts
from holdfast.client.receive.parts_receiver import PartsReceiver
from holdfast.client.send.sender import Sender
from holdfast.client.verbs.receiving import Receiving
from holdfast.client.verbs.render import fields
from holdfast.client.verbs.running import (
    Progress,
    complain,
    connect_as,
    in_thread,
    place_of,
    run,
    telling_stalls,
)
from holdfast.client.verbs.send import AGAIN_S, header_of, reason_of
from holdfast.columns import size
from holdfast.durable import sync_directories
from holdfast.errors import ConfigError, HoldfastError, RemoteProtocolError
from holdfast.lines import json_line, one_line, say
from holdfast.regular_files import check_regular

FILE_NAME: Final = "file-name"
"""The application property that holds a file's name."""

FILE_TYPE: Final = "application/octet-stream"

_PLAIN: Final = re.compile(r"[\w][\w.,+=@ -]{0,127}", re.ASCII)


def send_files(args: argparse.Namespace) -> int:
    """`holdfast send --file PATH …`: 0 if every file was accepted."""
    for path in args.files:
        try:
            os.path.basename(path).encode()
        except UnicodeEncodeError:
            text = f"invalid file name {path!r}; expected one in UTF-8, as it goes along with the file"
            raise ConfigError(text) from None
        try:
            check_regular(Path(path))
        except OSError as error:
            raise unreadable(path, error) from None
    return run(_SendFiles(args).run)


def receive_files(args: argparse.Namespace) -> int:
    """`holdfast receive --to DIRECTORY`: 1 if `--count` was not reached or a message could not be read."""
    directory = Path(args.to)
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a directory; give one that exists")
    return run(_ReceiveFiles(args, directory).run)


class _SendFiles:
    """One `holdfast send --file`."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._sent = 0
        self._rejected = 0
        self._is_given_back = False
        """The file that is being sent: the node released it, and has not taken it since."""
        self._progress = Progress()
        self._run_id = uuid.uuid4().hex[:12]
        self._ids: tuple[str, str] | None = None
        """The message-ids of the first and the last file that was sent."""
        self._started = time.monotonic()

    async def run(self) -> int:
        place = place_of(self._args)
        sender: Sender | None = None
        code = 0
        self._started = time.monotonic()
        try:
            async with await connect_as(self._args, place) as connection:
                sender = await connection.sender(self._args.address, producer=self._args.producer, wait=False)
                async with telling_stalls(self._args, sender, self._progress, lambda: self._is_given_back):
                    await sender.ready()
                    for index, path in enumerate(self._args.files, 1):
                        await self._send(sender, index, Path(path))
        except HoldfastError as error:
            complain(self._args, error)
            code = 2 if isinstance(error, ConfigError) else 1
        finally:
            accepted = 0 if sender is None else sender.accepted
            self._summary(accepted)
        return code or (1 if accepted < self._sent else 0)

    async def _send(self, sender: Sender, index: int, path: Path) -> None:
        message_id = f"{self._run_id}-{index}"
        message = self._message(path, message_id)
        self._sent += 1
        self._ids = (message_id if self._ids is None else self._ids[0], message_id)
        since = time.monotonic()
        number = index if self._args.resume else None
        self._is_given_back = False
        while True:
            async with self._progress.shown(_bytes_sent(sender, path, f"{index} of {len(self._args.files)} files")):
                outcome: Outcome = await sender.send_parts(path, message=message, number=number, check=False)
            if isinstance(outcome, Accepted):
                return
            if isinstance(outcome, Rejected) or time.monotonic() - since >= self._args.retry:
                break
            if number is None and self._args.producer is not None:
                number = sender.next_number - 1  # its own, again
            self._is_given_back = True
            await asyncio.sleep(AGAIN_S)
        self._rejected += 1
        say(f"holdfast send: rejected: {path}: {reason_of(outcome)}", file=sys.stderr)

    def _message(self, path: Path, message_id: str) -> Message:
        args = self._args
        return Message(
            header=header_of(args),
            properties=Properties(
                message_id=message_id,
                subject=args.subject,
                content_type=FILE_TYPE,
                creation_time=int(time.time() * 1000),
            ),
            application_properties={FILE_NAME: path.name, **dict(args.property)},
        )

    def _summary(self, accepted: int) -> None:
        told: dict[str, Any] = {
            "sent": self._sent,
            "accepted": accepted,
            "rejected": self._rejected,
            "seconds": round(time.monotonic() - self._started, 3),
        }
        if self._ids is not None:
            told["ids"] = list(self._ids)
        say(json_line(told), file=sys.stderr)


def _bytes_sent(sender: Sender, path: Path, which: str) -> Callable[[], str]:
    """The line of progress of a file that is about to be sent."""
    before, whole = sender.progress[2], _bytes_of(path)

    def line() -> str:
        acknowledged = sender.progress[2]
        sent = acknowledged - before if acknowledged >= before else acknowledged  # the connection is another one
        return f"{which}: {one_line(path.name)}, {size(sent)} of {whole} sent"

    return line


class _ReceiveFiles(Receiving[PartsReceiver]):
    """Each into a file of its own."""

    credit = 20

    def __init__(self, args: argparse.Namespace, directory: Path) -> None:
        super().__init__(args)
        self._directory = directory
        self._progress = Progress()
        self._part: Path | None = None
        """The file that is being written."""

    def _open(self, connection: Connection) -> Callable[..., Coroutine[Any, Any, PartsReceiver]]:
        return connection.parts_receiver

    async def _take_all(self, receiver: PartsReceiver) -> None:
        async with self._progress.shown(self._state):
            await self._save_all(receiver)

    def _state(self) -> str:
        part = "" if self._part is None else f"; {one_line(self._part.name)}, {_bytes_of(self._part)}"
        return f"{self._line(self._received)}{part}"

    async def _save_all(self, receiver: PartsReceiver) -> None:
        while batch := await receiver.batch(timeout_s=self._args.idle_timeout):
            delivery = batch[0]
            assert isinstance(delivery, DeliveryInParts)
            try:
                await self._save(delivery)
            except DeliveryBroken:
                continue  # it comes anew
            except RemoteProtocolError as error:
                self._pass_over(delivery, error)
                continue
            self._received += 1

    async def _save(self, delivery: DeliveryInParts) -> None:
        message = delivery.message
        path = self._directory / _name(delivery.sequence, message, self._directory)
        self._part = part = path.with_name(f".{path.name}.part")
        try:
            length = await delivery.save(part)
            await in_thread(_put, part, path)
        except OSError as error:
            delivery.release()
            why = f"{path} cannot be written ({error.strerror})"
            raise HoldfastError(f"{why}: the message stays in its queue; give another directory with --to") from None
        finally:
            self._part = None
            part.unlink(missing_ok=True)
        line = json_line({**fields(delivery, message), "file": str(path), "bytes": length})
        self._progress.clear()
        say(line if self._args.json else str(path), flush=True)
        delivery.accept()


def _name(sequence: int, message: Message, directory: Path) -> str:
    """`SEQUENCE-NAME`, or `SEQUENCE` where the message has no plain name; without a sequence the next free number."""
    said: Any = (message.application_properties or {}).get(FILE_NAME)
    tail = f"-{said}" if isinstance(said, str) and _PLAIN.fullmatch(said) else ""
    if sequence:
        return f"{sequence}{tail}"
    number = 1
    while (directory / f"{number}{tail}").exists():
        number += 1
    return f"{number}{tail}"


def _bytes_of(file: Path) -> str:
    try:
        return size(file.stat().st_size)
    except OSError:  # not begun, or gone
        return size(0)


def _put(part: Path, path: Path) -> None:
    """Gives the file its name, for good."""
    os.replace(part, path)
    sync_directories(path.resolve().parent, 1)
