"""When the attach of a receiver is answered: at once, or, if it created a durable subscription, once that is on disk.

Rules of this file: a subscription whose attach was answered survives a crash of the node (docs/GUARANTEES.md). One that
is on disk already is answered without a commit, so that its reader can empty a full disk.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.amqp.connection import Sender
from holdfast.broker.cursors.cursor import Cursor
from holdfast.engine.effects import LinkEffect
from holdfast.peers.peer import Peer
from holdfast.state.turns import Turns

Told = dict[Any, Any] | None
"""Properties of the answer to an attach."""

Answering = Callable[[Callable[[Told], None]], None]
"""Answers an attach, now or later."""


def at_once(answer: Callable[[Told], None]) -> None:
    """Answers the attach at once."""
    answer(None)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerSubscriber(LinkEffect):
    """Answers the attach of a durable subscription. `told`: the properties of the answer."""

    answer: Callable[[Told], None] = field(repr=False)
    told: Told = field(repr=False)


class StoredAnswers:
    """Holds answers back until the subscription is on disk."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        turns.effects.on(AnswerSubscriber, lambda effect: effect.answer(effect.told))

    def of(self, peer: Peer, link: Sender, cursor: Cursor, answering: Answering = at_once) -> Answering:
        """As `answering`, but not before the record of `cursor`, a durable subscription, is on disk."""
        if cursor.is_stored or not cursor.queue.config.durable:
            return answering

        def later(answer: Callable[[Told], None]) -> None:
            answering(lambda told: self._once_stored(peer, link, cursor, answer, told))

        return later

    def _once_stored(
        self, peer: Peer, link: Sender, cursor: Cursor, answer: Callable[[Told], None], told: Told
    ) -> None:
        if cursor.is_stored:
            answer(told)
            return
        effect = AnswerSubscriber(self._turns.event, peer.number, link.name, answer, told)
        self._turns.gathered.then.append(effect)
