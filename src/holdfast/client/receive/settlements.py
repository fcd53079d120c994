"""Outcomes of deliveries that are to be sent to the node: once for a turn of the loop, as ranges. AMQP 1.0 §2.6.12.

Rules of this file: it knows delivery ids and outcomes, no messages. Hot path: `add`.
"""

from typing import Any

from holdfast.amqp.links.receiver import Receiver as EngineReceiver
from holdfast.errors import LocalProtocolError


class Settlements:
    """Of one link; true while there are any."""

    def __init__(self) -> None:
        self._by_outcome: dict[int, tuple[Any, list[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_outcome)

    def add(self, delivery_id: int, outcome: Any) -> bool:
        """Adds one; True if it is the first since the last `write`, which is to be called before the turn ends."""
        by_outcome = self._by_outcome
        entry = by_outcome.get(id(outcome))
        if entry is not None:
            entry[1].append(delivery_id)
            return False
        is_first = not by_outcome
        by_outcome[id(outcome)] = (outcome, [delivery_id])
        return is_first

    def clear(self) -> None:
        """The link is gone: the ids mean nothing on the next one."""
        self._by_outcome.clear()

    def write(self, link: EngineReceiver) -> LocalProtocolError | None:
        """Settles them on `link`. Returns the error of an outcome that cannot be encoded; the others are sent."""
        settlements, self._by_outcome = self._by_outcome, {}
        unsent: LocalProtocolError | None = None
        for outcome, ids in settlements.values():
            try:
                for first, last in ranges(ids):
                    link.settle(first, last, outcome)
            except LocalProtocolError as error:
                unsent = error
        return unsent


def ranges(ids: list[int]) -> list[tuple[int, int]]:
    """Delivery ids as inclusive ranges, ascending; the wrap at 2**32 only splits one. Sorts `ids`."""
    ids.sort()
    found: list[tuple[int, int]] = []
    first = last = ids[0]
    for number in ids[1:]:
        if number == last + 1:
            last = number
        elif number != last:
            found.append((first, last))
            first = last = number
    found.append((first, last))
    return found
