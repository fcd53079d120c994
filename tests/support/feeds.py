"""A feed of a folder whose node is a dictionary, and which can be killed at each write.

Rules of this file: no process and no socket; a test says when the folder is looked at.
"""

import asyncio
import os
from pathlib import Path

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Header
from holdfast.client.feed.folder import Folder
from holdfast.client.feed.forms import Form
from holdfast.client.feed.intake import Complaints, Intake
from holdfast.client.feed.journal import Journal


class Killed(BaseException):
    """The process ends here."""


class Rig:
    """A feed whose node is a dictionary, and which can be killed at each write."""

    def __init__(self, root: Path, form: str = "lines", pattern: str = "*.log") -> None:
        self.root = root
        self.files = root / "files"
        self.files.mkdir()
        self.form = form
        self.pattern = pattern
        self.node: dict[int, bytes] = {}
        self.complaints = Complaints("feed")
        self.start()

    def start(self) -> None:
        self.journal = Journal(self.root / "j", "p", "q")
        if self.journal.is_new:
            self.journal.begin(1)
        self.intake = Intake(
            self.journal,
            Form(self.form, header=Header(durable=True)),
            "p",
            held_bytes_max=1 << 20,
            line_bytes_max=40,
            complaints=self.complaints,
        )
        self.folder = Folder(self.intake, self.files, self.pattern, 40)

    def killed(self) -> None:
        os.close(self.journal._lock)
        os.close(self.journal._descriptor)
        self.folder.close()
        self.start()

    async def read(self) -> None:
        """One look at the folder, all of it into the journal."""
        writing = asyncio.create_task(self.intake.run())
        try:
            while await self.folder.look():
                pass
            storing = asyncio.create_task(self.intake.stored())
            await asyncio.wait([writing, storing], return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
            await storing
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    def deliver(self) -> None:
        """What a node stores: each number once."""
        while some := self.journal.read():
            for kept in some:
                message = Message.decode(kept.message)
                assert self.node.setdefault(kept.number, message.body_bytes()) == message.body_bytes()
                assert message.properties is not None and message.properties.message_id == f"p-{kept.number}"

    @property
    def lines(self) -> list[bytes]:
        return [self.node[number] for number in sorted(self.node)]

    def close(self) -> None:
        self.folder.close()
        self.journal.close()
