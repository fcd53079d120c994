"""Link-state routing between the provider's routers: news of links is flooded, and each router computes its own paths.

Rules of this file: one router's part. It acts only on what it has received; what a neighbour is told takes the link's
delay and `flood_s`. A link that fails is noticed after `detect_s`, and one that is back is used after `up_hold_s`.
Paths are computed `spf_delay_s` after news came, and no sooner than `spf_hold_s` after the last time. As OSPF does it
(RFC 2328 §12, §13, §16), without areas and without its packets.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast_lab.mpls.clock import Clock
from holdfast_lab.mpls.links import Link
from holdfast_lab.mpls.paths import two_way


@dataclass(frozen=True, slots=True)
class Timers:
    """Seconds. The two of the computation are what routers came with when the paper was written."""

    detect_s: float = 0.05
    flood_s: float = 0.01
    spf_delay_s: float = 5.0
    spf_hold_s: float = 10.0
    up_hold_s: float = 10.0
    bgp_s: float = 1.0


@dataclass(frozen=True, slots=True)
class News:
    """What a router says of its links; of one origin the highest version counts."""

    origin: str
    version: int
    costs: Mapping[str, float]


ROUTERS_MAX: Final = 200


class LinkState:
    """`changed` is called when paths are to be computed; `told`: how a neighbour's LinkState is reached."""

    def __init__(
        self, clock: Clock, name: str, timers: Timers, costs: Mapping[str, float], changed: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._changed = changed
        self._costs = dict(costs)
        """As configured, by neighbour."""
        self._computed_at = -1e9
        self._planned = False
        self.name = name
        self.alive = True
        self.links: dict[str, Link] = {}
        self.peers: dict[str, LinkState] = {}
        self.down: set[str] = set()
        """Neighbours whose link is noticed to be down, or not used yet."""
        self.known: dict[str, News] = {}
        self.received = 0

    def graph(self) -> dict[str, dict[str, float]]:
        return two_way({origin: news.costs for origin, news in self.known.items()})

    def own(self) -> News:
        """What it says of itself now, as a new version."""
        before = self.known.get(self.name)
        costs = {other: cost for other, cost in self._costs.items() if other not in self.down}
        self.known[self.name] = news = News(self.name, before.version + 1 if before else 1, costs)
        return news

    # ------------------------------------------------------------------------------------------------ links

    def lost(self, neighbour: str) -> None:
        """The link to it is noticed to be down."""
        if not self.alive or neighbour in self.down or self.links[neighbour].up:
            return
        self.down.add(neighbour)
        self._flood(self.own())
        self._plan()

    def regained(self, neighbour: str) -> None:
        """The link to it has been up for long enough. Both ends send each other all that they know."""
        link = self.links[neighbour]
        if not self.alive or neighbour not in self.down or not link.up:
            return
        self.down.discard(neighbour)
        self._flood(self.own())
        for news in self.known.values():
            self._tell(neighbour, news)
        self._plan()

    # ------------------------------------------------------------------------------------------------ news

    def _flood(self, news: News, besides: str = "") -> None:
        for neighbour in self.links:
            if neighbour != besides and neighbour not in self.down:
                self._tell(neighbour, news)

    def _tell(self, neighbour: str, news: News) -> None:
        link = self.links[neighbour]
        if link.up:
            when = self._clock.now + link.delay_s + self._timers.flood_s
            self._clock.at(when, self.peers[neighbour]._receive, (news, link, link.epoch))

    def _receive(self, told: tuple[News, Link, int]) -> None:
        news, link, epoch = told
        if not self.alive or link.epoch != epoch:
            return
        self.received += 1
        before = self.known.get(news.origin)
        if before is not None and news.version <= before.version:
            if news.origin == self.name or news.version < before.version:
                self._tell(link.source, before)
            return
        if news.origin == self.name:  # said in an earlier life
            self.known[self.name] = news
            self._flood(self.own())
            return
        self.known[news.origin] = news
        self._flood(news, besides=link.source)
        self._plan()

    # ------------------------------------------------------------------------------------------------ computing

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            timers = self._timers
            when = max(self._clock.now + timers.spf_delay_s, self._computed_at + timers.spf_hold_s)
            self._clock.at(when, self._compute)

    def _compute(self, _: None) -> None:
        self._planned = False
        self._computed_at = self._clock.now
        if self.alive:
            self._changed()
