"""How a simulated node reads its connections: the runtime's own `engine/reads.py` over bytes that arrive in virtual
time.

Rules of this file: what comes while nothing is read lies in a buffer, as in a kernel's. No time passes within a turn,
so a turn is as long as it has bytes.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.engine import reads
from holdfast.engine.events import BytesReceived, Event
from holdfast.engine.reads import Pause, Reading, Reads
from holdfast_lab.base.client_history import Violation

BYTES_A_TURN: Final = 10**9
"""After so many bytes a turn has lasted for as long as it may."""


@dataclass(frozen=True, slots=True)
class Readable:
    """Something came on that connection, or may be read again."""

    connection: int


class SimReading(Reading):
    """The reading side of one connection."""

    __slots__ = ("_readable", "stopped_by_core", "unread")

    def __init__(self, connection: int, readable: Callable[[Readable], None]) -> None:
        super().__init__()
        self.connection = connection
        self.stopped_by_core = False
        """As the core's own commands have it, whatever `pauses` says."""
        self.unread: deque[bytes] = deque()
        self._readable = readable

    def stop_reading(self) -> None:
        """`SimReads.read` asks."""

    def start_reading(self) -> None:
        for _ in self.unread:
            self._readable(Readable(self.connection))


class SimReads:
    """Of one life of a node. `feed` passes an event to the core, `readable` is called with what the next turn may
    read."""

    def __init__(self, feed: Callable[[Event], None], readable: Callable[[Readable], None]) -> None:
        self._feed = feed
        self._readable = readable
        self._readings: dict[int, SimReading] = {}
        self._taken_bytes = 0
        self._reads = Reads(self._hand_over, self._passed_s)
        self.told_bytes = 0
        """How many postponed bytes the core knows of."""

    @property
    def put_off_bytes(self) -> int:
        return self._reads.put_off_bytes

    def tell(self) -> int:
        """The postponed bytes, as the core is told them with the end of a turn."""
        self.told_bytes = self._reads.put_off_bytes
        return self.told_bytes

    def _hand_over(self, event: Event) -> None:
        if isinstance(event, BytesReceived):
            self._taken_bytes += len(event.data)
        self._feed(event)

    def _passed_s(self) -> float:
        return reads.TURN_S * self._taken_bytes / BYTES_A_TURN

    def begin_turn(self) -> None:
        self._taken_bytes = 0
        self._reads.begin_turn()
        self._reads.take_later()

    def end_turn(self) -> bool:
        """Whether another turn has something to take, or to tell: if the node closed a connection, what was postponed
        of it is gone. The runtime has that turn when the socket is closed."""
        self._reads.end_turn()
        return self._reads.waiting or self._reads.put_off_bytes != self.told_bytes

    # ------------------------------------------------------------------------------------------------ connections

    def opened(self, connection: int) -> None:
        self._readings[connection] = SimReading(connection, self._readable)

    def came(self, connection: int, data: bytes) -> None:
        self._readings[connection].unread.append(data)
        self._readable(Readable(connection))

    def read(self, connection: int) -> None:
        """One read of it, if there is anything, and nothing is in the way. Raises Violation where something was."""
        reading = self._readings.get(connection)
        if reading is None or reading.pauses or not reading.unread:
            return
        if reading.stopped_by_core:
            raise Violation(f"connection {connection} is read, though its node's core has enough of it")
        self._reads.received(reading, reading.unread.popleft())

    def stop(self, connection: int) -> None:
        """The core stops reading from it."""
        reading = self._readings.get(connection)
        if reading is not None:
            reading.stopped_by_core = True
            reading.pause(Pause.CORE)

    def go_on(self, connection: int) -> None:
        """The core reads from it again."""
        reading = self._readings.get(connection)
        if reading is not None:
            reading.stopped_by_core = False
            reading.resume(Pause.CORE)

    def lost(self, connection: int) -> None:
        """It is gone: what came before is handed over before the node is told."""
        reading = self._readings.pop(connection, None)
        if reading is not None:
            self._reads.lost(reading)
            for data in reading.unread:
                self._feed(BytesReceived(connection=connection, data=data))

    def closed(self, connection: int) -> None:
        """The node itself closed it: nothing more is read."""
        reading = self._readings.pop(connection, None)
        if reading is not None:
            self._reads.forget(reading)
