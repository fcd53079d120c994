"""A transport like TCP: messages as a stream of segments, a window, and recovery of what is lost.

Rules of this file: one end of one connection, which is open from the start. Congestion control and retransmission are
NewReno's (RFC 5681, RFC 6582, RFC 6298): slow start, additive increase, three repeated acknowledgements, a timer that
doubles. A segment never spans two messages. Every segment acknowledges; what has nothing to carry it is sent at every
second segment, at once where order is broken, and after ACK_DELAY_S else.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast_lab.mpls.clock import NEVER, Clock

MSS: Final = 1_460
HEADER_BYTES: Final = 40
INITIAL_WINDOW: Final = 4 * MSS
WINDOW_MAX: Final = 256 * 1024
"""Of the receiver; what is sent and not acknowledged is less."""

RTO_FIRST_S: Final = 1.0
RTO_LEAST_S: Final = 0.2
RTO_MOST_S: Final = 60.0
ACK_DELAY_S: Final = 0.04
REPEATED: Final = 3
"""Repeated acknowledgements that mean a loss."""


@dataclass(slots=True)
class Segment:
    """Bytes of the stream from `start` to `end`. `message`: what ends with it, if something does. `resent`: its
    acknowledgement says nothing of the round trip."""

    start: int
    end: int
    message: Any = None
    sent_at: float = 0.0
    resent: bool = False


class Connection:
    """`send` takes a packet's payload and its size; `deliver` gets each message once, in the order of writing."""

    __slots__ = (
        "_ack_at",
        "_ack_due",
        "_acked",
        "_clock",
        "_deliver",
        "_expected",
        "_flight",
        "_later",
        "_recover",
        "_recovering",
        "_repeated",
        "_rto_s",
        "_send",
        "_sent",
        "_srtt_s",
        "_threshold",
        "_timer_at",
        "_timer_planned",
        "_unacked_segments",
        "_unsent",
        "_var_s",
        "_window",
        "_written",
        "resent",
        "timeouts",
    )  # fmt: skip

    def __init__(self, clock: Clock, send: Callable[[Any, int], None], deliver: Callable[[Any], None]) -> None:
        self._clock = clock
        self._send = send
        self._deliver = deliver
        # What it sends.
        self._unsent: deque[Segment] = deque()
        self._flight: deque[Segment] = deque()
        self._written = 0
        self._sent = 0
        self._acked = 0
        self._window = float(INITIAL_WINDOW)
        self._threshold = float(WINDOW_MAX)
        self._repeated = 0
        self._recovering = False
        self._recover = 0
        self._srtt_s = 0.0
        self._var_s = 0.0
        self._rto_s = RTO_FIRST_S
        self._timer_at = NEVER
        self._timer_planned = NEVER
        # What it receives.
        self._expected = 0
        self._later: dict[int, Segment] = {}
        self._unacked_segments = 0
        self._ack_due = False
        self._ack_at = NEVER
        self.resent = 0
        self.timeouts = 0

    @property
    def waiting_bytes(self) -> int:
        """Written and not acknowledged."""
        return self._written - self._acked

    def write(self, message: Any, size: int) -> None:
        start = self._written
        self._written = end = start + size
        unsent = self._unsent
        while end - start > MSS:
            unsent.append(Segment(start, start + MSS))
            start += MSS
        unsent.append(Segment(start, end, message))
        self._fill_window()

    # ------------------------------------------------------------------------------------------------ sending

    def _fill_window(self) -> None:
        unsent, limit = self._unsent, self._acked + min(self._window, WINDOW_MAX)
        while unsent and (unsent[0].end <= limit or not self._flight):
            segment = unsent.popleft()
            self._flight.append(segment)
            self._sent = max(self._sent, segment.end)
            self.resent += segment.resent
            self._transmit(segment)

    def _transmit(self, segment: Segment) -> None:
        now = self._clock.now
        segment.sent_at = now
        self._ack_due = False
        self._unacked_segments = 0
        self._send((segment, self._expected), segment.end - segment.start + HEADER_BYTES)
        if self._timer_at == NEVER:
            self._set_timer(now + self._rto_s)

    def _retransmit(self, segment: Segment) -> None:
        segment.resent = True
        self.resent += 1
        self._transmit(segment)

    def _set_timer(self, when: float) -> None:
        """A call that comes too early plans the next: most timers are set again before they end."""
        self._timer_at = when
        if when < self._timer_planned:
            self._timer_planned = when
            self._clock.at(when, self._timer)

    def _timer(self, _: None) -> None:
        now = self._clock.now
        if now < self._timer_planned:
            return
        self._timer_planned = NEVER
        if self._timer_at > now:
            if self._timer_at < NEVER:
                self._set_timer(self._timer_at)
            return
        self._timer_at = NEVER
        if self._flight:
            self._time_out()

    def _time_out(self) -> None:
        self.timeouts += 1
        self._threshold = max((self._sent - self._acked) / 2, 2 * MSS)
        self._window = float(MSS)
        self._rto_s = min(2 * self._rto_s, RTO_MOST_S)
        self._repeated = 0
        self._recovering = False
        for segment in self._flight:
            segment.resent = True
        again = self._flight
        self._flight = deque()
        self._unsent.extendleft(reversed(again))
        first = self._unsent.popleft()
        self._flight.append(first)
        self._retransmit(first)

    def _acknowledged(self, upto: int) -> None:
        now, flight = self._clock.now, self._flight
        if upto <= self._acked:
            if upto == self._acked and flight:
                self._repeat()
            return
        sample = NEVER
        while flight and flight[0].end <= upto:
            segment = flight.popleft()
            if not segment.resent:
                sample = now - segment.sent_at
        while self._unsent and self._unsent[0].end <= upto:  # sent before the timer ended, and arrived
            self._unsent.popleft()
        newly, self._acked = upto - self._acked, upto
        if sample < NEVER:
            self._measure(sample)
        self._repeated = 0
        if self._recovering and upto < self._recover:
            self._window = max(self._window - newly + MSS, float(MSS))
            if flight:
                self._retransmit(flight[0])
        elif self._recovering:
            self._recovering = False
            self._window = self._threshold
        elif self._window < self._threshold:
            self._window += min(newly, MSS)
        else:
            self._window += MSS * MSS / self._window
        self._window = min(self._window, WINDOW_MAX)
        self._timer_at = NEVER
        if flight:
            self._set_timer(now + self._rto_s)
        self._fill_window()

    def _repeat(self) -> None:
        self._repeated += 1
        if self._recovering:
            self._window += MSS
            self._fill_window()
        elif self._repeated == REPEATED:
            self._threshold = max((self._sent - self._acked) / 2, 2 * MSS)
            self._window = self._threshold + REPEATED * MSS
            self._recovering, self._recover = True, self._sent
            self._retransmit(self._flight[0])

    def _measure(self, sample_s: float) -> None:
        if self._srtt_s:
            self._var_s += (abs(sample_s - self._srtt_s) - self._var_s) / 4
            self._srtt_s += (sample_s - self._srtt_s) / 8
        else:
            self._srtt_s, self._var_s = sample_s, sample_s / 2
        self._rto_s = min(max(self._srtt_s + 4 * self._var_s, RTO_LEAST_S), RTO_MOST_S)

    # ------------------------------------------------------------------------------------------------ receiving

    def receive(self, payload: tuple[Segment | None, int]) -> None:
        """As the other end sent it."""
        segment, acknowledged = payload
        if segment is None:
            self._acknowledged(acknowledged)
            return
        if acknowledged > self._acked:
            self._acknowledged(acknowledged)
        if segment.start == self._expected:
            self._take(segment)
        else:
            if segment.start > self._expected:
                self._later[segment.start] = segment
            self._acknowledge()

    def _take(self, segment: Segment) -> None:
        had_gap = bool(self._later)
        self._ack_due = True
        self._unacked_segments += 1
        taken: Segment | None = segment
        while taken is not None:
            self._expected = taken.end
            if taken.message is not None:
                self._deliver(taken.message)
            taken = self._later.pop(self._expected, None)
        if not self._ack_due:
            return  # what the message brought about carried it
        if had_gap or self._unacked_segments >= 2:
            self._acknowledge()
        elif self._ack_at == NEVER:
            self._ack_at = self._clock.now + ACK_DELAY_S
            self._clock.at(self._ack_at, self._late_ack)

    def _late_ack(self, _: None) -> None:
        self._ack_at = NEVER
        if self._ack_due:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self._ack_due = False
        self._unacked_segments = 0
        self._send((None, self._expected), HEADER_BYTES)
