"""Canaries in what listeners of topics get.

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
)
