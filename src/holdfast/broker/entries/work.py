"""What the queues of a node share in a turn of the loop: its batch, and its budget.

Rules of this file: only data, and the budget's sums.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from holdfast.accounts import Account
from holdfast.broker.entries.wheel import Timed, Wheel
from holdfast.engine.port import Batch

RETIRES_MAX: Final = 8_000
"""Maximum retirements in one turn's batch. At the maximum the batch is committed before more entries are dropped.
`Work.is_full` also counts moved entries; a caller that compares `batch.retires` itself does not. Each module imports
this name, so that the lab can lower it there."""

QueueT = TypeVar("QueueT", bound=Timed)


class Onward(Protocol[QueueT]):
    """The room for messages in custody that a topic passes on (endpoints/passing_on.py)."""

    def no_room(self, topic: QueueT, value: bytes, count: int) -> tuple[QueueT, int] | None:
        """The transmission queue without room for such a message, one of `count` at once, and the size of its copy
        there; None: there is room."""

    def learns(self, topic: QueueT, value: bytes) -> bool:
        """Whether such a message is passed on, and it is not known yet to which nodes."""

    def is_stuck(self, queue: QueueT) -> bool:
        """Whether that full transmission queue accepts one more, because nothing has left it for long."""


class Work(Generic[QueueT]):
    """The gathered turn, as queues see it: the batch, and the queues that have something to do before the turn ends."""

    __slots__ = (
        "arrives", "awaiting", "batch", "cut_short", "dirty_counters", "dirty_queues", "exhausted", "halted", "hold",
        "left", "moved", "offered_bytes", "offered_bytes_max", "offered_count", "offered_count_max", "onward",
        "overfull", "rebound", "referred", "retires_in_flight", "rewritten", "tells", "turns", "unreached", "urgent",
        "wheel",
    )  # fmt: skip

    def __init__(self) -> None:
        self.batch = Batch()
        self.dirty_queues: dict[QueueT, None] = {}
        """Queues with something to offer, or to delete from the disk."""
        self.dirty_counters: dict[QueueT, None] = {}
        """Queues whose counters, or cursors' records, are to be stored with the batch."""
        self.exhausted: dict[Any, None] = {}
        """Cursors that have entries for the dead letters, because their deliveries have failed too often."""
        self.hold: Callable[[QueueT, bytes], int | None] | None = None
        """Stores a delayed message and returns its sequence; None if it is not delayed (custody/delays.py)."""
        self.arrives: Callable[[QueueT, bytes], bool] | None = None
        """Checks a message in custody that arrives for a topic; False for a duplicate (endpoints/passing_on.py)."""
        self.tells: Callable[[QueueT, bytes, int], None] | None = None
        """Gives a topic's listeners a message once the turn is stored (endpoints/listening.py)."""
        self.onward: Onward[QueueT] | None = None
        """The room for such messages, if they are passed on (endpoints/passing_on.py)."""
        self.halted: dict[Account, dict[QueueT, None]] = {}
        """By account: queues that offer nothing new until the account, which others share, has room again
        (broker/cursors/halting.py)."""
        self.retires_in_flight: list[tuple[int, int]] = []
        """(queue id, sequence) of the commit under way."""
        self.moved: list[tuple[int, int]] = []
        """The same for entries that this turn moves elsewhere; their retirements join the batch when it is handed
        over."""
        self.referred: list[tuple[QueueT, int, int]] = []
        """(queue, sequence, blob) of entries that this turn appends and whose message is a blob."""
        self.rewritten: dict[tuple[int, int], bytes] = {}
        """By (queue id, sequence): rewritten values that are not on disk yet."""
        self.left: list[tuple[int, int]] = []
        """(queue id, sequence) of entries with blobs that this turn removes from queues in memory, which are in no
        batch."""
        self.overfull: dict[Any, str] = {}
        """Cursors beyond a bound at which they end or make dead letters: messages or bytes (broker/backlogs.py)."""
        self.awaiting: dict[QueueT, None] = {}
        """Topics with subscriptions that end some time after their last link (endpoints/subscription_ends.py)."""
        self.rebound: dict[QueueT, dict[Any, None]] = {}
        """Topics whose subscriptions have changed, or that were deleted, with the cursors and queues of those
        subscriptions (endpoints/topic_bindings.py)."""
        self.offered_bytes = self.offered_count = 0
        """Bytes and entries that were handed out or examined without result since the turn began; those of a resumed
        link count several times (endpoints/resumption/consumer.py)."""
        self.cut_short: set[Any] = set()
        """Cursors that this turn offered only some of what they have, because a pump has bounds; the next goes on."""
        self.unreached: set[Any] = set()
        """Cursors that this turn did not come to, although it offered their queue: its budget was used up before."""
        self.offered_bytes_max = self.offered_count_max = 0
        """The turn's budgets of both, set when the turn begins to offer."""
        self.turns = 0
        """Turns of the loop so far."""
        self.urgent = False
        """Whether a part waits for this turn's commit although it appends nothing (`request_commit`)."""
        self.wheel: Wheel[QueueT] = Wheel()

    def is_full(self, retires_max: int) -> bool:
        """Whether the batch has so many retirements, with those of moved entries, that a commit comes before more. A
        part that goes on after that commit also requests it."""
        return len(self.batch.retires) + len(self.moved) >= retires_max

    def request_commit(self) -> None:
        """This turn's commit does not wait for something to be appended: a part goes on after it, and would otherwise
        keep the node busy until then."""
        self.urgent = True

    def rebind(self, topic: QueueT, subscription: object) -> None:
        """That subscription of the topic came, changed or went."""
        self.rebound.setdefault(topic, {})[subscription] = None

    @property
    def is_used_up(self) -> bool:
        """Whether the turn's budget is used up: the other queues wait for the next turn."""
        return self.offered_bytes >= self.offered_bytes_max or self.offered_count >= self.offered_count_max
