"""Corruptions of pacing (support/corruption.py).

Rules of this file: one function, or one line, each.
"""

from copy import copy
from typing import Any

from holdfast.custody.hop.paced_sender import WAITING_MAX
from holdfast.pacing.messages import BYTES_MAX, Pace
from holdfast.pacing.origin import SENT_MAX
from holdfast.pacing.pacer import Pacer
from holdfast.pacing.rows import Row
from holdfast.peering import rate_control
from support.corruption import breaks
from support.standing import pacing

# ------------------------------------------------------------------------------------------------------- the hop


@breaks("custody.hop: {}: too many wait for their rate", pacing)
def _(s: Any) -> None:
    s.sender.waiting = dict.fromkeys(range(10**6, 10**6 + WAITING_MAX + 1))


@breaks("custody.hop: {}: what waits for its rate is not looked at again", pacing)
def _(s: Any) -> None:
    del s.sender.hop.timed[s.sender]


@breaks("custody.hop: {}: what waits for its rate is elsewhere, too", pacing)
def _(s: Any) -> None:
    s.sender.oversized.sequences[next(iter(s.sender.waiting))] = None


# -------------------------------------------------------------------------------------------------- what is said


@breaks("peering: pacing: too many messages wait for credit", pacing)
def _(s: Any) -> None:
    s.rates.waiting["hub"] = dict.fromkeys(range(rate_control.WAITING_MAX + 1))


@breaks("peering: pacing: a neighbour without messages waits for credit", pacing)
def _(s: Any) -> None:
    s.rates.waiting["hub"] = {}


@breaks("peering: pacing: the reports to {} are for another", pacing)
def _(s: Any) -> None:
    s.pacer.origin.root = "c"


@breaks("peering: neighbour {}: its sender to {} keeps to no rate", pacing)
def _(s: Any) -> None:
    s.sender.pacer = Pacer(s.pacer.origin, s.core.clock.now)


# ------------------------------------------------------------------------------------------------ as a client


@breaks("pacing: pacing: reports to {} are kept without end", pacing)
def _(s: Any) -> None:
    s.pacer.origin._sent = [(number, 0.0) for number in range(SENT_MAX + 1)]


@breaks("pacing: pacing: a report to {} was forgotten", pacing)
def _(s: Any) -> None:
    s.pacer.origin._sent.pop()


@breaks("pacing: pacing: reports to {} are out of order", pacing)
def _(s: Any) -> None:
    sent = s.pacer.origin._sent
    sent.appendleft((sent[0][0] + 5, 0.0))


@breaks("pacing: pacing: {} answered another process", pacing)
def _(s: Any) -> None:
    origin = s.pacer.origin
    origin._pace = Pace("hub", "mid", "", 1, 1, origin.process + 1, 1, 1, 1, 1_000)


# --------------------------------------------------------------------------------------------------- as a root


@breaks("pacing: pacing: too many rows", pacing)
def _(s: Any) -> None:
    s.table.rows = {str(number): Row(str(number), 1.0, 0.0) for number in range(10_001)}


@breaks("peering: pacing: too many rows of all virtual hosts together", pacing)
def _(s: Any) -> None:
    other = copy(s.table)
    other.rows = {str(number): Row(str(number), 1.0, 0.0) for number in range(10_000)}
    s.rates.root.groups.tables["acme"] = other


@breaks("pacing: pacing: who has no row is to be told", pacing)
def _(s: Any) -> None:
    s.table._untold["nobody"] = None


@breaks("pacing: pacing: the row of {} is another's", pacing)
def _(s: Any) -> None:
    s.row.origin = "nobody"


@breaks("pacing: pacing: {} uses what it has not", pacing)
def _(s: Any) -> None:
    s.row.capacity = BYTES_MAX + 1


@breaks("pacing: pacing: {} was told what was not said", pacing)
def _(s: Any) -> None:
    s.row.told_version = s.table.version + 1


@breaks("pacing: pacing: {} was heard of after now", pacing)
def _(s: Any) -> None:
    s.row.heard_at = s.core.clock.now + 1


@breaks("pacing: pacing: rates above their budget", pacing)
def _(s: Any) -> None:
    s.table.computed = 2 * s.table.budget + 1


@breaks("pacing: pacing: a budget above the rate", pacing)
def _(s: Any) -> None:
    s.table.budget = s.table.pacing.rate + 1


@breaks("pacing: pacing: rates that were told above their budget", pacing)
def _(s: Any) -> None:
    s.table.rows[s.table.paced[0]].told_rate = int(s.table.budget) + 2 + len(s.table.paced)
