"""The nodes that take a set through this node, and what each of them has stored.

Rules of this file: computed when asked for, and never kept. Source: docs/adr/0079.
"""

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from holdfast.federation.neighbour import Neighbour
from holdfast.federation.rows import VOID, Stamp
from holdfast.federation.serving import Follower
from holdfast.federation.sets import Held, Key


def standing(name: str, key: Key, held: Held | None, neighbours: Iterable[Neighbour]) -> tuple[dict[str, Stamp], bool]:
    """The nodes behind `name`, with what each has stored; whether all followers are complete. `held`: what is on
    disk."""
    names: dict[str, Stamp] = {}
    whole = held is not None and held.stamp != VOID
    for neighbour in neighbours:
        follower = neighbour.serving.followers.get(key)
        if follower is None:
            continue
        whole = whole and held is not None and follower.whole and follower.has.stamp >= held.stamp
        for each, stamp in (*follower.names.items(), (neighbour.name, follower.has.stamp)):
            names[each] = max(stamp, names.get(each, VOID))
    names.pop(name, None)
    names.pop(key.origin, None)
    return names, whole


class Reached(NamedTuple):
    """How far one version of an own set has come. `done`: nodes that have stored it or a later one; `waiting`: the
    nodes that binds in it wait for."""

    done: tuple[str, ...]
    waiting: frozenset[str]


class Standing:
    """Of an own set, at one moment: how far each of its versions has come. Many binds ask for few versions.

    `names`: who is behind this node; `regulars`: nodes that confirmed before, and are waited for where they are in
    `reachable`."""

    def __init__(
        self,
        key: Key,
        names: Mapping[str, Stamp],
        neighbours: Iterable[Neighbour],
        regulars: Iterable[str],
        reachable: Set[str],
    ) -> None:
        self._names = names
        self._followers = [
            (neighbour.name, follower)
            for neighbour in neighbours
            if (follower := neighbour.serving.followers.get(key)) is not None
        ]
        self._regulars = [name for name in regulars if name in reachable]
        self._reached: dict[Stamp, Reached] = {}

    def of(self, since: Stamp) -> Reached:
        found = self._reached.get(since)
        if found is None:
            found = self._reached[since] = self._of(since)
        return found

    def _of(self, since: Stamp) -> Reached:
        done = {name for name, stamp in self._names.items() if _has(stamp, since)}
        waiting = {name for name in self._regulars if name not in done}
        for name, follower in self._followers:
            waiting.update(_awaited(name, follower, since))
        return Reached(tuple(sorted(done)), frozenset(waiting))


def _has(stamp: Stamp, since: Stamp) -> bool:
    return stamp.life == since.life and stamp >= since


def _awaited(name: str, follower: Follower, since: Stamp) -> Iterable[str]:
    """Who has not stored that version: the follower, or nodes behind it. A set that goes on changing is never `whole`,
    but each of the nodes that the follower lists has its stamp. One that does not list all may still wait for some."""
    if not _has(follower.has.stamp, since):
        return (name,)
    if follower.whole:
        return ()
    behind = [each for each, stamp in follower.names.items() if not _has(stamp, since)]
    return behind if behind or follower.lists_all else (name,)
