"""Passes the bytes of connections to the core, and shares each turn among connections with much data.

Rules of this file: it knows no sockets, no loop and no clock, so that the simulator and the runtime share it; the bytes
of a connection stay in order, whatever waits.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Final

from holdfast.engine.events import BytesReceived, Event, ReadPutOff

TURN_S: Final = 0.02
"""After so long a turn takes no more of those that bring much; they go on in the next, one after another."""
LIGHT_BYTES: Final = 16 * 1024
"""A read of up to this many bytes is taken at once, however long the turn is."""
SLOW_BYTES_PER_S: Final = 10 * 1024 * 1024
"""Of a peer whose last read was taken more slowly, the next is taken in pieces of LIGHT_BYTES: a read may bring
256 kB, and of tiny messages that is a tenth of a second."""


class Pause(Enum):
    """Why a connection is not read; it is read again when no reason is left."""

    TURN = "the turn was long enough"
    CORE = "the core has enough of it"


class Reading(ABC):
    """The reading side of a connection. `connection` is 0 until its driver has taken it."""

    __slots__ = ("connection", "pauses", "slow")

    def __init__(self) -> None:
        self.connection = 0
        self.pauses: set[Pause] = set()
        self.slow = True
        """What it brings takes long, for its bytes; so until it has shown otherwise."""

    def pause(self, reason: Pause) -> None:
        """Read nothing until `resume` for the same reason."""
        if not self.pauses:
            self.stop_reading()
        self.pauses.add(reason)

    def resume(self, reason: Pause) -> None:
        """That reason has ended."""
        if reason in self.pauses:
            self.pauses.remove(reason)
            if not self.pauses:
                self.start_reading()

    @abstractmethod
    def stop_reading(self) -> None:
        """Called with the first reason: further bytes stay in the kernel's buffer."""

    @abstractmethod
    def start_reading(self) -> None:
        """Called when the last reason has ended."""


class Reads:
    """The reads of a node's connections. Postponed reads wait here, and their connections are not read meanwhile.
    `feed` hands an event to the core, `now` is monotonic, in seconds."""

    def __init__(self, feed: Callable[[Event], None], now: Callable[[], float]) -> None:
        self._feed = feed
        self._now = now
        self._turn_ends = inf
        self._later: deque[tuple[Reading, bytes]] = deque()
        self.put_off_bytes = 0

    @property
    def waiting(self) -> bool:
        """Whether any read was postponed."""
        return bool(self._later)

    def begin_turn(self) -> None:
        self._turn_ends = self._now() + TURN_S

    def end_turn(self) -> None:
        self._turn_ends = inf

    def received(self, reading: Reading, data: bytes) -> None:
        """Handles one read of a socket. The loop reads a busy socket thirty times before it looks at the others."""
        if len(data) > LIGHT_BYTES and self._now() >= self._turn_ends:
            reading.pause(Pause.TURN)
            self._put_off(reading, data)
        else:
            self._take(reading, data)

    def take_later(self) -> None:
        """Hands over one turn's share of the postponed reads; small ones go in between."""
        while self._later:
            reading, data = self._later.popleft()
            self.put_off_bytes -= len(data)
            reading.resume(Pause.TURN)
            self._take(reading, data)
            if self._now() >= self._turn_ends:
                break

    def lost(self, reading: Reading) -> None:
        """A connection has ended: bytes that came before its end are handled first."""
        for data in self.forget(reading):
            self._feed(BytesReceived(connection=reading.connection, data=data))

    def forget(self, reading: Reading) -> list[bytes]:
        """Drops that connection; returns its postponed reads, in order."""
        if Pause.TURN not in reading.pauses:
            return []
        mine = [item for item in self._later if item[0] is reading]
        for item in mine:
            self._later.remove(item)
            self.put_off_bytes -= len(item[1])
        return [data for _, data in mine]

    def _put_off(self, reading: Reading, data: bytes) -> None:
        """Informs the core at once, because it bounds the memory of postponed reads."""
        self._later.append((reading, data))
        self.put_off_bytes += len(data)
        self._feed(ReadPutOff(connection=reading.connection, size=len(data)))

    def _take(self, reading: Reading, data: bytes) -> None:
        """Hands the bytes to the core, or as many of them as one turn allows."""
        began = self._now()
        size = len(data)
        if reading.slow and size > LIGHT_BYTES:
            reading.pause(Pause.TURN)
            self._put_off(reading, data[LIGHT_BYTES:])
            size = LIGHT_BYTES
            data = data[:size]
        self._feed(BytesReceived(connection=reading.connection, data=data))
        if size >= LIGHT_BYTES:
            reading.slow = (self._now() - began) * SLOW_BYTES_PER_S > size
