"""Whether the link to a neighbour is alive: when to probe, how long to wait for the echo, when to give up
(esb-dynamic-routing §4.3, "resend 3 times"; ADR 0015).

Rules of this file: pure; times are seconds on `now`'s scale, and every call passes `heard_at`. Any byte that arrives
shows life, so only an idle link is probed, usually by one side. A miss counts only if this node could have received the
echo: not while it did not run, and not while bytes that it wrote before the probe are still being sent.
"""

from enum import Enum
from typing import Final

MISSES_MAX: Final = 3
"""Probes in a row without an answer that bring a link down (§4.3)."""
HURRY: Final = 2
"""The least time-out is divided by this after a missed probe. A neighbour that was merely late for the first probe
still has the whole time-out, because an echo of any probe shows life."""
FIRST_TIME_OUT_S: Final = 1.0
"""Before the first round trip is measured (RFC 6298 §2.1)."""
SMOOTHING: Final = 1 / 8
VARIANCE_SMOOTHING: Final = 1 / 4
VARIANCES: Final = 4
"""RFC 6298 §2: the weights of a new round trip, and how many variances the time-out is above the mean."""
SHORT_TIME_OUT_S: Final = 0.02
"""The least time-out after the system said that its network changed."""
GRACE_S: Final = 0.002
"""Seconds between a time-out and the miss: the sockets are read once more, because they may hold the echo."""
OUTSTANDING_MAX: Final = 16
"""Probes whose moment of sending is remembered."""
FALSE_ALARM_S: Final = 1.0
"""If the same process of a neighbour is back within this time after its link was declared down, that was a false
alarm."""


class ProbeAction(Enum):
    """What `Liveness.tick` asks for."""

    NOTHING = "nothing"
    PROBE = "probe"
    MEASURE = "measure"
    """Ask the driver how much output was acknowledged; call `measured` before the next tick."""
    DOWN = "down"


class Liveness:
    """The probes of one neighbour; `begin` for each of its connections. Counters count since the node's start."""

    __slots__ = (
        "_ahead", "_asked_at", "_begun", "_confirming", "_due_at", "_moved", "_sent_at", "_short", "_told",
        "_variance_s", "false_alarms", "hold_time_s", "keepalive_s", "missed", "misses", "number", "probe_s",
        "probed_at", "sent", "smoothed_s", "stalls",
    )  # fmt: skip

    def __init__(self, *, probe_s: float, keepalive_s: float) -> None:
        self.probe_s = probe_s
        self.keepalive_s = keepalive_s
        self.hold_time_s = FIRST_TIME_OUT_S
        self.number = 0
        """The last probe's."""
        self.sent = 0
        self.missed = 0
        self.stalls = 0
        """Misses that did not count, because this node did not run or its output was still being sent."""
        self.false_alarms = 0
        self._told = 0, 0
        self._forget()

    def _forget(self) -> None:
        self._life()
        self.smoothed_s: float | None = None
        self._variance_s = 0.0
        self._begun = False
        self._due_at = 0.0
        self._ahead: tuple[int, int] | None = None
        """For the outstanding probe: the output acknowledged when last measured, and the bytes written before the
        probe."""
        self._sent_at: dict[int, float] = {}
        self.probed_at = 0.0

    def _life(self) -> None:
        self._asked_at: float | None = None
        """When the outstanding probe was sent."""
        self.misses = 0
        self._confirming = self._short = self._moved = False

    # ------------------------------------------------------------------------------------------------ time

    def reset(self, hold_time_s: float) -> None:
        """A new connection: forgets the measurements of the last one. No probes until `begin`."""
        self._forget()
        self.hold_time_s = hold_time_s

    def begin(self, now: float) -> None:
        """The control link is up: the first probe is due, and measures."""
        self._begun = True
        self.probed_at = now - self.keepalive_s

    @property
    def time_out_s(self) -> float:
        """How long an echo may take: RFC 6298 over the measured round trips, at most the hold time; at least `probe_s`,
        or a share of it after a miss."""
        least = self.probe_s / HURRY if self.misses else self.probe_s
        if self.smoothed_s is None:
            measured = FIRST_TIME_OUT_S
        else:
            measured = self.smoothed_s + VARIANCES * self._variance_s
            if self._short:
                least = SHORT_TIME_OUT_S
        return min(max(least, measured), self.hold_time_s)

    def tick(self, now: float, heard_at: float, unanswered_at: float | None) -> ProbeAction:
        """Returns what is due. `unanswered_at`: since when a transfer has waited for its answer; None if none does."""
        if not self._begun:
            return ProbeAction.NOTHING
        if self._asked_at is not None and heard_at > self._asked_at:
            self._life()
        if self._asked_at is None:
            return self._ask(now) if now >= self._ask_at(heard_at, unanswered_at) else ProbeAction.NOTHING
        if now < self._due_at:
            return ProbeAction.NOTHING
        if now - self._due_at > self.time_out_s:  # the loop did not run: the echo may have come and gone unread
            self.stalls += 1
            return self._ask(now)
        if not self._confirming:
            self._confirming = True
            self._due_at = now + GRACE_S
            return ProbeAction.MEASURE
        if self._moved:
            self._moved = self._confirming = False
            self._due_at = now + self.time_out_s
            self.stalls += 1
            return ProbeAction.NOTHING
        self.missed += 1
        self.misses += 1
        if self.misses >= MISSES_MAX:
            self._begun = False
            return ProbeAction.DOWN
        return self._ask(now)

    def _ask_at(self, heard_at: float, unanswered_at: float | None) -> float:
        """When a probe is due: for idleness, for a transfer without an answer, or for the next measurement."""
        at = min(max(heard_at, self.probed_at) + self.probe_s, self.probed_at + self.keepalive_s)
        if unanswered_at is not None:
            at = min(at, max(unanswered_at, self.probed_at) + self.time_out_s)
        return at

    def _ask(self, now: float) -> ProbeAction:
        """Registers a probe whose echo is awaited."""
        self._asked_at = now
        self._due_at = now + self.time_out_s
        self._confirming = self._moved = False
        self._ahead = None
        return self._probe(now)

    def _probe(self, now: float) -> ProbeAction:
        self.number += 1
        self.sent += 1
        self.probed_at = self._sent_at[self.number] = now
        while len(self._sent_at) > OUTSTANDING_MAX:
            del self._sent_at[next(iter(self._sent_at))]
        return ProbeAction.PROBE

    def next_deadline(self, heard_at: float, unanswered_at: float | None) -> float | None:
        """When `tick` is wanted."""
        if not self._begun:
            return None
        if self._asked_at is not None and heard_at <= self._asked_at:
            return self._due_at
        return self._ask_at(heard_at, unanswered_at)

    # ------------------------------------------------------------------------------------------------ news

    def echo(self, number: int, now: float) -> None:
        """Handles the echo of probe `number`; an unknown number is ignored."""
        sent = self._sent_at.pop(number, None)
        if sent is None:
            return
        measured = now - sent
        if self.smoothed_s is None:
            self.smoothed_s, self._variance_s = measured, measured / 2
        else:
            off = abs(self.smoothed_s - measured)
            self._variance_s += VARIANCE_SMOOTHING * (off - self._variance_s)
            self.smoothed_s += SMOOTHING * (measured - self.smoothed_s)
        self._life()

    def measured(self, acknowledged_bytes: int, written_bytes: int) -> None:
        """Takes the acknowledged output as the driver measured it, when a probe was sent and when it was due. If it
        advances and has not reached the probe, the probe waits in our own output, so no miss counts. Acknowledged
        output alone does not show life: a relay in between may have taken it.
        """
        if not self._confirming:
            self._ahead = acknowledged_bytes, written_bytes
        elif self._ahead is not None:
            before, ahead = self._ahead
            self._moved = before < acknowledged_bytes < ahead
            self._ahead = acknowledged_bytes, ahead

    def network_changed(self, now: float, heard_at: float) -> ProbeAction:
        """An address or a route changed: sends a probe with a short time-out. This never postpones an outstanding
        probe, because such changes may come many times a second, and a dead link must still be found.
        """
        if not self._begun:
            return ProbeAction.NOTHING
        if self._asked_at is not None and heard_at > self._asked_at:
            self._life()
        self._short = True
        if self._asked_at is None:
            return self._ask(now)
        self._due_at = min(self._due_at, now + self.time_out_s)
        return self._probe(now)

    def back(self) -> None:
        """The link that was declared down had not been down."""
        self.false_alarms += 1

    def take_loss_share(self) -> float:
        """Of the probes since the last call, how many were missed; 0 to 1."""
        sent, missed = self.sent - self._told[0], self.missed - self._told[1]
        self._told = self.sent, self.missed
        return min(1.0, missed / sent) if sent else 0.0
