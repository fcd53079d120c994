"""Canaries in what listeners of topics get, and in links between queues that lead into topics.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.broker.entries import entry
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _large_not_kept(original: Function) -> Function:
    """A large message that nobody durable wants may be deleted before listeners are told of it."""

    def tell_when_stored(self: Any, topic: Any, value: bytes, size: int) -> None:
        original(self, topic, value, size)
        if value[1] & entry.BLOB:
            self._blobs.unpin(self._kept.pop(self._turns.gathered.decided[-1]))

    return tell_when_stored


def _told_at_once(original: Function) -> Function:
    """Listeners are told of a message that is stored for nobody before its turn is stored."""

    def deliver(self: Any, value: bytes, size: int, *, is_kept: bool = True) -> int:
        return int(original(self, value, size, is_kept=False))

    return deliver


def _asks_at_once(original: Function) -> Function:
    """A link into a topic does not wait for the queue of another node: it tries again in each turn."""

    def _waits_beyond(self: Any, link: Any) -> bool:
        link.beyond = None
        return False

    return _waits_beyond


def _left_though_never_there(original: Function) -> Function:
    """A large message that came and left in a turn that was undone leaves with the next one too."""

    def undo(self: Any, undone: Any) -> None:
        left = [place for turn in undone.turns[::-1] for place in turn.left] + self._work.left
        original(self, undone)
        self._work.left = left

    return undo


LISTENER_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="large-not-kept-for-listeners",
        sentence="A large message for listeners alone is deleted before they are told of it.",
        target="endpoints.listening:Listening.tell_when_stored",
        signature="(self, topic: holdfast.broker.queue.Queue, value: bytes, size: int) -> None",
        broken=_large_not_kept,
        expected="cannot be handed over: KeyError",
    ),
    Canary(
        name="told-before-stored",
        sentence="Listeners are told of a message whose commit is refused, and again when it comes again.",
        target="broker.topic:Topic.deliver",
        signature="(self, value: bytes, size: int, *, is_kept: bool = True) -> int",
        broken=_told_at_once,
        expected="was told",
    ),
    Canary(
        name="link-never-waits-beyond",
        sentence="A link into a topic asks again in each turn while another node's queue is full.",
        target="queue_links.handing:Handing._waits_beyond",
        signature="(self, link: holdfast.queue_links.link.QueueLink) -> bool",
        broken=_asks_at_once,
        expected="takes one turn after the other",
    ),
    Canary(
        name="left-though-never-there",
        sentence="What a refused turn had put into memory and dropped leaves with the next turn too.",
        target="state.queue_changes:QueueChanges.undo",
        signature="(self, undone: holdfast.state.turns.Undone) -> None",
        broken=_left_though_never_there,
        expected="what leaves with the turn left before",
    ),
)
