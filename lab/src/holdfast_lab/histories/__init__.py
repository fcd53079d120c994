"""Named histories: sequences of events that custody must survive, played on the simulator (docs/CUSTODY.md,
"Histories").

Rules of this package: a history is a choreography in virtual time, whose timings, sizes and cuts the seed draws; it
must end well for every seed, and must be able to fail: it checks that the situation it is about occurred.
"""

from typing import Final

from holdfast_lab.histories import clients, disks, federation, hop, identities, operators, routing, transit
from holdfast_lab.histories.stage import DidNotHappen, History, Stage

HISTORIES: Final[dict[str, History]] = {
    history.name: history
    for group in (hop, transit, operators, disks, identities, clients, routing, federation)
    for history in group.HISTORIES
}
"""By name, in the order of docs/CUSTODY.md's groups."""

__all__ = ["HISTORIES", "DidNotHappen", "History", "Stage"]
