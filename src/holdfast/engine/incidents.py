"""Incidents that `status` shows for a while: two nodes with one name, an unlisted node that tried to be a neighbour, a
large message without room.

Rules of this file: the part that notices an incident notes it here; the text, and for how long it is shown, is decided
in management/status/warnings.py. Each kind is bounded: by the neighbours, by the destinations, or by a number.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.engine.clock import Clock

CONTESTED_S: Final = 600.0
"""How long after two stores used one name, or a node tried to be a neighbour, it is spoken of."""

STRANGERS_MAX: Final = 20
"""Nodes that tried to be neighbours and are none; a further one takes the place of the one that tried longest ago."""

NO_ROOM_S: Final = 120.0
"""How long a large message that found no room is spoken of: while it waits, its neighbour tries it more often."""

LARGE_S: Final = 120.0
"""How long large messages that were refused because as many as may be were under way are spoken of."""


class Incidents:
    """Such incidents, each with when it was last noticed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._contested: dict[str, float] = {}
        self._shared: dict[str, tuple[str, float]] = {}
        self._strangers: dict[str, tuple[str, float]] = {}
        """By name: what is said of them, and when they last tried."""
        self._no_room: dict[tuple[str, str], tuple[int, float]] = {}
        """By neighbour and destination: bytes of the message, and when."""
        self.large_refused_total = 0
        self._large_refused_at: float | None = None

    # ------------------------------------------------------------------------------------------------ noticed

    def name_contested(self, neighbour: str) -> None:
        """A store connected again under that neighbour's name after another store had: two nodes have the name."""
        self._contested[neighbour] = self._clock.now

    def store_shared(self, neighbour: str, text: str) -> None:
        """That neighbour connected with the store of another one, and was refused; `text`: why."""
        self._shared[neighbour] = text, self._clock.now

    def came_as_neighbour(self, name: str, text: str) -> None:
        """A node with that name, which may be any text, was refused as a neighbour."""
        self._strangers.pop(name, None)
        if len(self._strangers) >= STRANGERS_MAX:
            del self._strangers[next(iter(self._strangers))]
        self._strangers[name] = text, self._clock.now

    def found_no_room(self, neighbour: str, destination: str, size: int) -> None:
        """A large message of that neighbour was not accepted for lack of room."""
        self._no_room[neighbour, destination] = size, self._clock.now

    def large_refused(self) -> None:
        """A large message was refused because the maximum number is arriving."""
        self.large_refused_total += 1
        self._large_refused_at = self._clock.now

    # ------------------------------------------------------------------------------------------------ still spoken of

    def contested_at(self, neighbour: str) -> float | None:
        """When two nodes used that neighbour's name last; None if not recently."""
        at = self._contested.get(neighbour)
        return at if at is not None and self._clock.now < at + CONTESTED_S else None

    def why_shared(self, neighbour: str) -> str | None:
        """Why that neighbour was refused recently because of its store; None if it was not."""
        text, at = self._shared.get(neighbour, ("", 0.0))
        return text if text and self._clock.now < at + CONTESTED_S else None

    def strangers(self) -> Iterator[tuple[str, str]]:
        """(name, text) of nodes that recently tried to be neighbours, in order."""
        for name, (text, at) in self._strangers.items():
            if self._clock.now < at + CONTESTED_S:
                yield name, text

    def without_room(self) -> Iterator[tuple[str, str, int]]:
        """(neighbour, destination, bytes) of large messages that recently had no room; older ones are forgotten."""
        for (name, destination), (size, at) in list(self._no_room.items()):
            if self._clock.now < at + NO_ROOM_S:
                yield name, destination, size
            else:
                del self._no_room[name, destination]

    @property
    def large_was_refused(self) -> bool:
        """Whether a large message was refused recently because the maximum number was arriving."""
        return self._large_refused_at is not None and self._clock.now < self._large_refused_at + LARGE_S
