"""Which neighbour each set is taken from, by entries, routing and the sets that are held; and sets that leave.

Rules of this file: a set goes when no entry leads to its origin, whatever is down; one to which none leads that is up
stays for `keep_s`. Source: docs/adr/0079.
"""

from collections.abc import Collection, Iterable

from holdfast.federation.keeping import Sets
from holdfast.federation.messages import FOLLOWED_MAX
from holdfast.federation.modes import DYNAMIC
from holdfast.federation.parents import Routes, Ways, reached, ways
from holdfast.federation.sets import Key
from holdfast.federation.settings import Bounds, Entry


class Following:
    """The parents of the node `name`. `parents`: by set; `lost_at`: since when there is no path to an origin."""

    def __init__(self, name: str, bounds: Bounds, sets: Sets) -> None:
        self._name = name
        self._bounds = bounds
        self._sets = sets
        self.routes = Routes()
        self.entries: tuple[Entry, ...] = ()
        self.parents: dict[Key, str] = {}
        self.lost_at: dict[Key, float] = {}
        self._beyond: dict[str, int] = {}
        """By topic: origins of which no set is taken, as there are too many."""
        self.left_out = 0
        """Sets that are not taken, as there are too many."""

    def edges(self, topic: str) -> frozenset[str]:
        """The neighbours to which this node forwards a topic."""
        return frozenset(entry.neighbour for entry in self.entries if entry.topic == topic and entry.mode == DYNAMIC)

    def _all_edges(self, topic: str) -> dict[str, frozenset[str]]:
        """The neighbours to which each node forwards the topic, as far as this node knows."""
        return {**self._sets.edges(topic), self._name: self.edges(topic)}

    def find(self, now: float, *, all_topics: bool) -> None:
        """Computes the parents again, for topics whose sets changed or for all."""
        sets = self._sets
        topics = dict.fromkeys([*sets.topics(), *(entry.topic for entry in self.entries)])
        if all_topics:
            topics.update(dict.fromkeys(key.topic for key in self.parents))
        else:
            topics = dict.fromkeys(topic for topic in topics if topic in sets.touched)
        sets.touched = set()
        had: dict[str, list[Key]] = {}
        for key in self.parents:
            had.setdefault(key.topic, []).append(key)
        made: Ways = {}
        for topic in topics:
            self.find_of(topic, had.get(topic, ()), made, now)

    def find_of(self, topic: str, had: Iterable[Key], made: Ways, now: float) -> None:
        """`had`: sets of the topic that have a parent; `made`: what was worked out for others."""
        found, configured = ways(self._name, self._all_edges(topic), self.routes, made)
        for key in had:
            if key.origin not in found:
                del self.parents[key]
        keys = [Key(origin, topic) for origin in found]
        new = [key for key in keys if key not in self.parents]
        room = max(0, self._bounds.origins_max - (len(keys) - len(new)))
        for key in keys:
            if key in self.parents:
                self.parents[key] = found[key.origin]
        for key in new[:room]:
            self.parents[key] = found[key.origin]
        self._beyond.pop(topic, None)
        if len(new) > room:
            self._beyond[topic] = len(new) - room
        for origin in list(self._sets.origins(topic)):
            key = Key(origin, topic)
            if origin == self._name or origin in found:
                self.lost_at.pop(key, None)
            elif origin not in configured:
                self.lost_at.pop(key, None)
                self._sets.drop(key)
            else:
                self.lost_at.setdefault(key, now)

    def has_all(self, topic: str) -> bool:
        """Whether this node has a set of every node that entries lead to."""
        held = self._sets.origins(topic)
        return all(origin in held for origin in reached(self._name, self._all_edges(topic)))

    def wanted(self, neighbours: Collection[str]) -> dict[str, dict[Key, None]]:
        """Neighbour → the sets to take from it."""
        found: dict[str, dict[Key, None]] = {name: {} for name in neighbours}
        self.left_out = sum(self._beyond.values())
        for key, parent in self.parents.items():
            wanted = found.get(parent)
            if wanted is not None and len(wanted) < FOLLOWED_MAX:
                wanted[key] = None
            elif wanted is not None:
                self.left_out += 1
        return found

    def leave(self, now: float) -> None:
        """Removes the sets that have been unreachable for too long."""
        for key in [key for key, at in self.lost_at.items() if now - at > self._bounds.keep_s]:
            del self.lost_at[key]
            self._sets.drop(key)
