"""Topics of a node's own that nobody needs any more: what a neighbour named, and does not forward here now.

Rules of this file: pure. A topic with subscriptions or entries stays, and so does one that a neighbour forwards here
while its session is up. So there are no more than there are of those, whatever neighbours name one after another.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.federation.neighbour import Neighbour
from holdfast.federation.own import Own
from holdfast.federation.settings import Entry

LOOKED_MIN: Final = 1_024
"""With so many topics of its own a node looks for idle ones also before the next refresh; then with twice as many as
are left."""


def idle(
    own: Mapping[str, Own], entries: Iterable[Entry], neighbours: Iterable[Neighbour], awaited: Iterable[str]
) -> list[str]:
    """The topics that may be removed. `awaited`: topics with waiting binds, and those that neighbours are asked for."""
    needed = {entry.topic for entry in entries}
    needed.update(topic for neighbour in neighbours for topic in neighbour.modes)
    needed.update(awaited)
    return [topic for topic, one in own.items() if not (one.rows or one.edges or topic in needed)]
