"""What holds of a root's table and of an origin's part, after every event (docs/adr/0020).

Rules of this file: reads, never changes; BrokenInvariant says what contradicts what.
"""

from itertools import pairwise

from holdfast.engine.invariants import must
from holdfast.pacing.messages import BYTES_MAX
from holdfast.pacing.origin import SENT_MAX, Origin
from holdfast.pacing.table import ROWS_MAX, Table

ROUNDING = 1e-9


def table(table: Table, now: float) -> None:
    """`now`: when something last happened to it."""
    must(len(table.rows) <= ROWS_MAX, "pacing: too many rows", len(table.rows))
    must(table.untold <= table.rows.keys(), "pacing: who has no row is to be told", table.untold - table.rows.keys())
    for name, row in table.rows.items():
        must(name == row.origin, f"pacing: the row of {name} is another's", row.origin)
        must(0 <= row.used <= row.capacity <= BYTES_MAX, f"pacing: {name} uses what it has not", row.used, row.capacity)
        must(row.told_version <= table.version, f"pacing: {name} was told what was not said", row.told_version)
        must(row.heard_at <= now and row.told_at <= now, f"pacing: {name} was heard of after now", row.heard_at)
    most = table.budget * (1 + ROUNDING)
    must(table.computed <= most, "pacing: rates above their budget", table.computed, table.budget)
    lends = table.pacing.policy.lend > 0
    must(lends or table.budget <= table.pacing.rate, "pacing: a budget above the rate", table.budget, table.pacing.rate)
    if not table.untold:  # what was told is what was computed, rounded down, but for the least, 1
        told = sum(table.rows[name].told_rate for name in table.paced if name in table.rows)
        must(told <= most + len(table.paced), "pacing: rates that were told above their budget", told, table.budget)


def origin(origin: Origin) -> None:
    sent = origin.sent
    must(len(sent) <= SENT_MAX, f"pacing: reports to {origin.root} are kept without end", len(sent))
    must(not sent or sent[-1][0] == origin.version, f"pacing: a report to {origin.root} was forgotten", origin.version)
    must(
        all(earlier[0] + 1 == later[0] and earlier[1] <= later[1] for earlier, later in pairwise(sent)),
        f"pacing: reports to {origin.root} are out of order",
    )
    pace = origin.pace
    must(pace is None or pace.of == origin.process, f"pacing: {origin.root} answered another process")
