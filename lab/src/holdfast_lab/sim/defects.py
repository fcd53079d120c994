"""Planted defects: a node whose own functions raise now and then, as one with a bug that only some input meets.

Rules of this file: what is raised is contained, or the run fails (docs/adr/0019); never where a failure is to end the
node. Functions are named, and their calls counted within one event, so that a seed raises in the same places whatever
ran in its process before.
"""

import sys
from collections import Counter
from random import Random
from types import FrameType
from typing import Final

from holdfast.core.node import NodeCore
from holdfast.engine import events

SHARE: Final = 0.02
"""Of a node's events, those in which a function is to raise; most of them do not come to it."""

CALLS_MAX: Final = 3
"""It is the first call within the event, or one of the next."""

PLACES: Final = (
    "Intake.delivered", "ProducerLink.delivered_all", "ProducerLink.take", "ProducerLink.refill", "ProducerLink.gone",
    "Intake.take_parked", "Ingress.settle", "Ingress.stored", "ConsumerLink.take", "ConsumerLink.take_all",
    "ConsumerLink.wants", "ConsumerLink.outcomes", "ConsumerLink.gone", "ReaderLink.pump", "CustodyReceiver.take",
    "CustodyReceiver.refill", "CustodyReceiver.answer", "CustodyReceiver.gone", "CustodySender.take",
    "CustodySender.take_all", "CustodySender._send", "CustodySender.outcomes", "CustodySender.attached",
    "CustodySender.lost", "CustodySender.tick", "Destination.take", "Destination._deliver", "Destination.release",
    "Destination.tick", "Forwarding.take", "Receipts.note", "SentBack.tick", "Origin.decide", "Origin.finish",
    "EntryLog.append", "EntryLog.append_all", "EntryLog.retire_all", "Queue.fits", "Queue.fits_all", "EntryLog.value",
    "Cursor.pump", "hand_run", "Cursor._next", "Holdings.finish", "Holdings.requeue", "Cursor.detach",
    "QueueRows.put", "Ledger.put_hop", "BackgroundJobs.step", "Turn.arrived", "Turn.keep_origin",
    "Identities.next", "Neighbour.hear", "Neighbour.lost", "Neighbour.opened", "Neighbour.tick",
    "Neighbour.next_deadline", "ControlReceiver.delivered", "ControlSender.credited", "AttachTable.open",
    "Doors.welcome", "Doors.open", "RequestLink.serve_one", "ReplyLink.credited", "LargeSend.step", "Stream.add",
    "SessionEndpoint.on_flow", "SessionEndpoint.on_disposition", "SessionEndpoint.on_attach", "Sender.send",
    "Sender.send_run", "Receiver.settle", "Receiver.grant", "Connection.receive", "Connection.take_output",
    "Connection.tick", "Connection.next_deadline",
)  # fmt: skip
"""Functions of the core, the broker and the protocol by their qualified names; a name alone means any of it."""


class Defect(Exception):
    """What a planted defect raises."""


class Defects:
    """Of one node, while the fault lasts. `raised` by place."""

    def __init__(self, random: Random, share: float) -> None:
        self.raised: Counter[str] = Counter()
        self._random = random
        self._share = share
        self._place = ""
        self._calls_left = 0

    def handle(self, core: NodeCore, event: events.Event, now: float) -> list[events.Command]:
        """As `core.handle`, perhaps with a defect in the way."""
        if self._random.random() >= self._share:
            return core.handle(event, now)
        self._place = self._random.choice(PLACES)
        self._calls_left = self._random.randint(1, CALLS_MAX)
        sys.setprofile(self._called)
        try:
            return core.handle(event, now)
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, what: str, argument: object) -> None:
        if what == "call" and frame.f_code.co_qualname == self._place and not self._ending(frame):
            self._calls_left -= 1
            if not self._calls_left:
                self.raised[self._place] += 1
                raise Defect(f"planted in {self._place}")

    def _ending(self, frame: FrameType) -> bool:
        """Whether it is called where a failure ends the node: in what is shared when a commit is done or refused."""
        caller = frame.f_back
        while caller is not None and caller.f_code.co_qualname not in _SHARED:
            caller = caller.f_back
        return caller is not None


_SHARED: Final = frozenset({"refuse", "take_back_gathered", "Shutdown.begin"})
