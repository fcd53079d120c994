"""What the queues of a node share in a turn of the loop: its batch, and its budget.

Rules of this file: data, and the budget's sums alone.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from holdfast.accounts import Account
from holdfast.broker.entries.wheel import Timed, Wheel
from holdfast.engine.port import Batch

RETIRES_MAX: Final = 8_000
"""With so many in the turn's batch a commit comes before more is dropped: no batch is as deep as a queue."""

QueueT = TypeVar("QueueT", bound=Timed)


class Onward(Protocol[QueueT]):
    """Messages in custody that come to a topic and are passed on (endpoints/passing_on.py)."""

    def no_room(self, topic: QueueT, value: bytes, count: int) -> QueueT | None:
        """The transmission queue without room for such a message, one of `count` that come at once; None: there is
        room."""

    def is_stuck(self, queue: QueueT) -> bool:
        """Whether one more goes into that full transmission queue, because nothing has left it for long."""


class Work(Generic[QueueT]):
    """The gathered turn, as queues see it: the batch, and the queues that have something to do before the turn ends."""

    __slots__ = (
        "arrives", "awaiting", "batch", "dirty_counters", "dirty_queues", "exhausted", "halted", "hold", "left",
        "moved", "offered_bytes", "offered_bytes_max", "offered_count", "offered_count_max", "onward", "overfull",
        "rebound", "referred", "retires_in_flight", "rewritten", "turns", "urgent", "wheel",
    )  # fmt: skip

    def __init__(self) -> None:
        self.batch = Batch()
        self.dirty_queues: dict[QueueT, None] = {}
        """They have something to offer, or to take off the disk."""
        self.dirty_counters: dict[QueueT, None] = {}
        """Their counters, or the records of their cursors, are to be stored with the batch."""
        self.exhausted: dict[Any, None] = {}
        """Cursors that have entries for the dead letters, because their deliveries have failed too often."""
        self.hold: Callable[[QueueT, bytes], int | None] | None = None
        """Takes a message that is not to be delivered yet, and gives its sequence; None where it is to be
        (custody/delays.py)."""
        self.arrives: Callable[[QueueT, bytes], bool] | None = None
        """Looks at a message in custody that comes to a topic; False where it came before on another way
        (endpoints/passing_on.py)."""
        self.onward: Onward[QueueT] | None = None
        """Knows the room for such messages where they are passed on (endpoints/passing_on.py)."""
        self.halted: dict[Account, dict[QueueT, None]] = {}
        """They offer nothing new before that account, which others share, has room again
        (broker/cursors/halting.py)."""
        self.retires_in_flight: list[tuple[int, int]] = []
        """(queue id, sequence) of the commit under way."""
        self.moved: list[tuple[int, int]] = []
        """The same of what this turn moves elsewhere; its retirement joins the batch when it is handed over."""
        self.referred: list[tuple[QueueT, int, int]] = []
        """(queue, sequence, blob) of what this turn appends whose message is a blob."""
        self.rewritten: dict[tuple[int, int], bytes] = {}
        """By (queue id, sequence): values that were put anew at their old places, and are not on disk yet."""
        self.left: list[tuple[int, int]] = []
        """(queue id, sequence) of blobs' entries that this turn takes from queues in memory, which no batch names."""
        self.overfull: dict[Any, str] = {}
        """Cursors beyond a bound at which they end, or have dead letters: messages or bytes (broker/backlogs.py)."""
        self.awaiting: dict[QueueT, None] = {}
        """Topics with subscriptions that end some time after their last link (endpoints/subscription_ends.py)."""
        self.rebound: dict[QueueT, None] = {}
        """Topics whose subscriptions are others than before (endpoints/topic_bindings.py)."""
        self.offered_bytes = self.offered_count = 0
        """What was handed out or looked at in vain since the turn's last beginning, and how many entries; what a
        resumed link does counts as several (endpoints/resumption/consumer.py)."""
        self.offered_bytes_max = self.offered_count_max = 0
        """The turn's budget of each, given when it offers anything."""
        self.turns = 0
        """Turns of the loop so far."""
        self.urgent = False
        """Somebody waits for this turn's commit though it appends nothing."""
        self.wheel: Wheel[QueueT] = Wheel()

    @property
    def is_used_up(self) -> bool:
        """Whether the turn's budget is used up: the other queues wait for the next turn."""
        return self.offered_bytes >= self.offered_bytes_max or self.offered_count >= self.offered_count_max
