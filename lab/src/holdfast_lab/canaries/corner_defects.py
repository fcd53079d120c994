"""Canaries in what was drawn last: links that move large messages or fill a queue in memory, listeners at their bound,
links resumed in rounds, spools that send again, configurations that change, turns without an end.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.broker.entries import entry
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]

LOST: Final = 5
"""Of so many messages one is lost."""


def _as_if_small(original: Function) -> Function:
    """What a link makes of a large message is none."""

    def new(self: Any, link: Any, value: bytes) -> Any:
        found = original(self, link, value)
        if isinstance(found, str) or not found[1] & entry.BLOB:
            return found
        return found[:1] + bytes([found[1] & ~entry.BLOB]) + found[2:]

    return new


def _lost_on_the_way(original: Function) -> Function:
    """Of what links move into queues in memory, one of five does not come there."""
    moved = 0

    def follow(self: Any, link: Any, moving: Any) -> None:
        nonlocal moved
        moved += len(moving.posts)
        if moving.posts and moved % LOST < len(moving.posts):
            self._drop_post(moving)
        original(self, link, moving)

    return follow


def _drops_the_newest(original: Function) -> Function:
    """A listener that has as many messages as it may is given no more, and keeps the oldest."""

    def put_latest(queue: Any, value: bytes, size: int, messages_max: int, bytes_max: int) -> int:
        return int(original(queue, value, size, messages_max, bytes_max)) if queue.messages < messages_max else 1

    return put_latest


def _one_round_is_enough(original: Function) -> Function:
    """What the first of several maps does not have is kept for nobody."""

    def take_over(self: Any, steps: Any) -> None:
        original(self, steps)
        self.waiting.clear()

    return take_over


def _kept_beyond_the_link(original: Function) -> Function:
    """What is to be sent again stays so when the link is gone."""

    def clear(self: Any) -> None:
        kept = list(self.messages)
        original(self)
        self.messages += kept

    return clear


def _first_change_alone(original: Function) -> Function:
    """Rules that change a second time stay as the first change made them."""
    changes = 0

    def change(self: Any, config: Any) -> Any:
        nonlocal changes
        before, changes = self._lists, changes + 1
        found = original(self, config)
        if changes > 1:
            self._lists = before
        return found

    return change


def _with_tombstones(original: Function) -> Function:
    """Whoever ends the mail for a node that left gives up its numbers too."""

    def begin(self: Any, queue: Any, told: Any, *, with_tombstones: bool, to: Any = None) -> None:
        original(self, queue, told, with_tombstones=True, to=to)

    return begin


def _never_satisfied(original: Function) -> Function:
    """A queue that has consumers is looked at again and again."""

    def pump(self: Any, limit: int) -> int:
        given = int(original(self, limit))
        self.queue.touch()
        return given

    return pump


CORNER_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="large-as-if-small",
        sentence="A link passes on what refers to a large message as if it were the message.",
        target="queue_links.handing:Handing._new",
        signature="(self, link: holdfast.queue_links.link.QueueLink, value: bytes) -> bytes | str",
        broken=_as_if_small,
        expected="its last copy is gone from pressed",
    ),
    Canary(
        name="lost-into-memory",
        sentence="Of five messages that a link moves into a queue in memory one is lost.",
        target="queue_links.handing:Handing._follow",
        signature="(self, link: holdfast.queue_links.link.QueueLink, moving: holdfast.queue_links.link.Moving) -> None",
        broken=_lost_on_the_way,
        expected="not done",
    ),
    Canary(
        name="newest-dropped",
        sentence="A listener at its bound loses the newest messages instead of the oldest.",
        target="broker.dropping:put_latest",
        signature=(
            "(queue: holdfast.broker.queue.Queue, value: bytes, size: int, messages_max: int, bytes_max: int) -> int"
        ),
        broken=_drops_the_newest,
        expected="which were among the latest",
    ),
    Canary(
        name="one-round-is-enough",
        sentence="Deliveries that an incomplete unsettled map did not have are forgotten when the link is resumed.",
        target="endpoints.resumption.consumer:ResumableConsumer.take_over",
        signature="(self, steps: list[holdfast.amqp.links.resuming.Step]) -> None",
        broken=_one_round_is_enough,
        expected="'in-rounds'",
    ),
    Canary(
        name="sent-again-twice",
        sentence="A spool's messages that wait to be sent again stay there when their link breaks.",
        target="client.send.retry_queue:RetryQueue.clear",
        signature="(self) -> None",
        broken=_kept_beyond_the_link,
        expected="not done",
    ),
    Canary(
        name="first-change-alone",
        sentence="Access rules that are reloaded a second time are not in force.",
        target="access.current:CurrentAccess.change",
        signature="(self, config: holdfast.access.rules.AccessConfig) -> 'Differs'",
        broken=_first_change_alone,
        expected=" at fenced-",
    ),
    Canary(
        name="numbers-given-up",
        sentence="The numbers of messages for a node that left are given up unasked: there a queue waits for them.",
        target="custody.departed:Departures.begin",
        signature="(self, queue: holdfast.broker.queue.Queue, told: collections.abc.Callable[[int, int], None], *, "
        "with_tombstones: bool, to: str | None = None) -> None",
        broken=_with_tombstones,
        expected="not done",
    ),
    Canary(
        name="busy-for-nothing",
        sentence="A node looks for something to hand out, turn after turn, as long as a queue has a consumer.",
        target="broker.cursors.cursor:Cursor.pump",
        signature="(self, limit: int) -> int",
        broken=_never_satisfied,
        expected="takes one turn after the other",
    ),
)
