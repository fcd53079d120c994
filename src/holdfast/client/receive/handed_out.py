"""Which messages of a queue a program has had from its receiver, so that none is handed out twice after a break.

Rules of this file: a message is recognised by its sequence and the time at which it was enqueued: a queue never uses a
sequence twice, and a queue that was deleted and created again has other times (docs/adr/0006-client.md, rule 5). One
without a sequence is not recognised. Hot path: `hold`, then `accept`.
"""

from collections import deque
from typing import Final

from holdfast.client.receive.delivery import Delivery

ACCEPTED_MAX: Final = 65_536
"""Accepted messages that are remembered, in case the node did not receive the outcome: far more than are under way."""


class HandedOut:
    """Of one receiver: the deliveries that the program holds unsettled, and the messages that it has accepted."""

    def __init__(self) -> None:
        self._held: dict[int, Delivery] = {}
        self._accepted: dict[int, int] = {}
        """Enqueued times by sequence."""
        self._accepted_order: deque[int] = deque()

    def hold(self, delivery: Delivery) -> None:
        """The program gets a delivery that it has to settle."""
        self._held[delivery.sequence] = delivery

    def drop(self, delivery: Delivery) -> None:
        """The program no longer holds that delivery."""
        if self._held.get(delivery.sequence) is delivery:
            del self._held[delivery.sequence]

    def accept(self, delivery: Delivery) -> None:
        """The program has accepted that delivery."""
        sequence = delivery.sequence
        if self._held.get(sequence) is delivery:
            del self._held[sequence]
        if sequence not in self._accepted:
            self._accepted_order.append(sequence)
            if len(self._accepted_order) > ACCEPTED_MAX:
                del self._accepted[self._accepted_order.popleft()]
        self._accepted[sequence] = delivery.enqueued_ms

    def held(self, sequence: int, enqueued_ms: int) -> Delivery | None:
        """The delivery of that message that the program holds."""
        delivery = self._held.get(sequence)
        return delivery if delivery is not None and delivery.enqueued_ms == enqueued_ms else None

    def is_accepted(self, sequence: int, enqueued_ms: int) -> bool:
        """The program has accepted that message."""
        return self._accepted.get(sequence) == enqueued_ms

    def has(self, sequence: int, enqueued_ms: int) -> bool:
        """The program holds or has accepted that message."""
        return self.held(sequence, enqueued_ms) is not None or self.is_accepted(sequence, enqueued_ms)
