"""A neighbour as the next hop of messages: its custody senders and their links, which outlive sessions.

Rules of this file: the session calls `session_up` and `session_lost`; this file uses of the session only what `joined`,
or the call, was given.
"""

from collections.abc import Callable, Iterable, Set
from typing import Any, Final, Protocol
from uuid import UUID

from holdfast.amqp.wire.types import Ulong
from holdfast.custody.hop.links import HopLinks
from holdfast.custody.hop.paced_sender import PacedSender
from holdfast.custody.hop.sender import CustodySender, HopParts
from holdfast.custody.hop.state import HopState
from holdfast.names import DESTINATION_BYTES_MAX
from holdfast.peers.neighbours.session_port import CONTROL_RESERVE
from holdfast.peers.peer import Peer
from holdfast.schema import is_whole_within

RECEIPTS_MAX: Final = 1_000
"""Marks in one control message."""

Mark = tuple[str, UUID, int]
"""(destination, origin, mark): all of that origin's messages up to that number are stored at the destination."""


class Send(Protocol):
    def __call__(self, fields: dict[str, Any], *, reserve: int = CONTROL_RESERVE) -> bool:
        """As `Session.send`."""


class NextHop(HopState):
    """The senders towards one neighbour, by destination."""

    def __init__(self, parts: HopParts, name: str, hosts: Iterable[str] = ()) -> None:
        super().__init__(name, hosts)
        self._parts = parts
        self.senders: dict[str, CustodySender] = {}
        self.links = HopLinks(parts.config.limits, parts.clock, parts.log, self)
        self.told: dict[tuple[str, UUID], int] = {}
        """(destination, origin) -> the last mark sent in this session."""
        self.brings: dict[tuple[UUID, str], None] = {}
        """(origin, destination) pairs whose last message came from it."""
        self.tell_version: Callable[[], None] = lambda: None
        """Sends the version of our changed forwarding table, so that the neighbour tries again what we sent back."""

    def joined(
        self, *, stir: Callable[[], None], tell_version: Callable[[], None], features: Callable[[], Set[str]]
    ) -> None:
        """Sets the functions of its session."""
        self.stir = stir
        self.features = features
        self.tell_version = tell_version

    # ------------------------------------------------------------------------------------------------ the session

    def session_up(self, peer: Peer) -> None:
        """The session is Established, on that connection."""
        self.peer = peer

    def session_lost(self) -> None:
        """Its connection has ended or was given up, before or after it was Established."""
        self.peer = None
        self.links.end()
        for sender in self.senders.values():
            sender.lost()
            sender.retry_at = None

    def links_lost(self) -> None:
        """As `session_lost`, if that may have been done in part; senders that wait to try again still do."""
        self.peer = None
        for sender in self.senders.values():
            sender.lost()

    def recover(self, *, stopping: bool) -> None:
        """After a contained failure: completes steps that it may have interrupted."""
        for sender in self.senders.values():
            sender.cursor.recover()  # first: a sender that only one of its tables knows is then in neither
            if sender not in sender.cursor.consumers and not stopping:
                sender.cursor.attach(sender)  # its end was cut short (custody/departed.py), and is tried again
            sender.recover()

    def sender_to(self, destination: str) -> None:
        """Returns the sender that pumps the transmission queue for `destination` to this neighbour; created if
        needed."""
        sender = self.senders.get(destination)
        if sender is None:
            queue = self._parts.catalog.transmission(destination)
            pacer = self._parts.pacers.get(destination)
            if pacer is None:
                sender = CustodySender(self._parts, self, self.links, destination, queue)
            else:
                sender = PacedSender(self._parts, self, self.links, destination, queue, pacer)
            self.senders[destination] = sender
        sender.go(self.peer)

    def close(self, destination: str) -> None:
        """The queue for that destination is deleted: nothing more is sent, and what is in doubt is dropped."""
        sender = self.senders.get(destination)
        if sender is None:
            return
        sender.stop()
        sender.in_doubt.clear()
        if sender.link is not None and sender.peer is not None and not sender.link.detached:
            sender.link.detach(closed=True)
            sender.peer.touch()
        sender.queue.shared.detach(sender, failed=False)
        self.links.ready.pop(sender, None)
        if sender.link is None:
            self.links.gone(sender, None)
        del self.senders[destination]
        self.timed.pop(sender, None)
        self.unanswered.pop(sender, None)

    def backlog_bytes(self) -> int:
        """Bytes queued for destinations whose next hop it is."""
        return sum(sender.queue.bytes_held for sender in self.senders.values() if sender.active)

    # ------------------------------------------------------------------------------------------------ marks

    def tell_marks(self, send: Send) -> None:
        """Sends the neighbour marks of messages that it brought and that were not yet sent in this session, at most
        RECEIPTS_MAX."""
        rows = self._marks_to_tell(at_first=False)
        if rows:
            self._tell(send, {"kind": "marks"}, rows, reserve=CONTROL_RESERVE)

    def tell_hello(self, send: Send, hello: dict[str, Any]) -> bool:
        """Sends `hello`, with at most RECEIPTS_MAX marks; further marks of the neighbour's own store precede it. A
        restored store must get all of them before it sends messages, which it may do after the hello. False if the
        credit does not suffice: call again once there is credit, and it continues.
        """
        while True:
            rows = self._marks_to_tell(at_first=True)
            of_its_own = self._parts.catalog.ledger.neighbour_stores.get(self.name)
            if len(rows) < RECEIPTS_MAX or rows[-1][1] != of_its_own:
                return self._tell(send, hello, rows, reserve=0)
            if not self._tell(send, {"kind": "marks"}, rows, reserve=0):
                return False

    def _marks_to_tell(self, *, at_first: bool) -> list[Mark]:
        return self._parts.forwarding.receipts.marks_for(self, RECEIPTS_MAX, at_first=at_first)

    def _tell(self, send: Send, fields: dict[str, Any], rows: list[Mark], *, reserve: int) -> bool:
        marks = [[destination, origin, Ulong(mark)] for destination, origin, mark in rows]
        if not send(fields | {"marks": marks}, reserve=reserve):
            return False
        self.told.update({(destination, origin): mark for destination, origin, mark in rows})
        return True

    def hear_marks(self, marks: object) -> None:
        """Handles rows of a control message as they were received; malformed marks are ignored."""
        for row in marks[:RECEIPTS_MAX] if isinstance(marks, list) else []:
            if not isinstance(row, list) or len(row) != 3:
                continue
            destination, origin, mark = row
            if (
                isinstance(destination, str)
                and len(destination.encode("utf-8", "replace")) <= DESTINATION_BYTES_MAX
                and isinstance(origin, UUID)
                and is_whole_within(mark, 1, 2**63)
            ):
                self._parts.forwarding.receipts.hear_mark(self, str(destination), origin, int(mark))

    # ------------------------------------------------------------------------------------------------ time

    def tick(self, now: float) -> None:
        for sender in list(self.timed):
            sender.tick(now)
            if not sender.timed:
                del self.timed[sender]
        if self.peer is not None:
            self.links.tick(now)

    def next_deadlines(self) -> list[float | None]:
        """When `tick` is wanted while the session is Established: the deadlines of the senders and of the links."""
        return [*(sender.next_deadline() for sender in self.timed), self.links.due_at]

    def unanswered_at(self) -> float | None:
        """Since when no transfer was answered; None if none waits for an answer."""
        return min(self.unanswered.values(), default=None)
