"""Corruptions of most deliveries, and of delayed delivery (support/corruption.py).

Rules of this file: one function, or one line, each.
"""

from typing import Any

from support.corruption import breaks
from support.standing import delaying, limiting


@breaks("custody: {}: on its way to the dead letters, and in other hands", limiting)
def _(s: Any) -> None:
    s.cursor.exhausted[2] = None


@breaks("custody: {}: nothing moves what is delivered no more", limiting)
def _(s: Any) -> None:
    s.limits.moving.by_cursor.clear()


@breaks("custody: {}: on its way to the dead letters twice", limiting)
def _(s: Any) -> None:
    s.cursor.exhausted[1] = None


@breaks("custody: {}: nobody looks at what is delivered no more", limiting)
def _(s: Any) -> None:
    s.limits.moving.by_cursor.clear()
    s.cursor.exhausted[1] = None


@breaks("custody: {}: failed deliveries are not stored", limiting)
def _(s: Any) -> None:
    s.cursor.counts = dict(s.cursor.counts)


@breaks("custody: {}: ends of earlier lives out of order", limiting)
def _(s: Any) -> None:
    s.cursor.lives = (1, 2)


@breaks("custody: {}: waits for a failed delivery that nothing stores", limiting)
def _(s: Any) -> None:
    s.cursor.counts.unstored.add(3)


@breaks("custody: {}: stored as shown, and not to be shown", limiting)
def _(s: Any) -> None:
    s.cursor.counts.marked_stored.add(3)


@breaks("custody: {}: nothing stores failed deliveries", limiting)
def _(s: Any) -> None:
    s.core.work.dirty_counters.clear()
    s.cursor.counts.changed.add(3)


@breaks("custody: {}: nothing stores what is to be shown", limiting)
def _(s: Any) -> None:
    s.cursor.counts.marked.add(3)


@breaks("custody: delayed messages that nobody will deliver", delaying)
def _(s: Any) -> None:
    s.core.delays.by_host[""].steady.clear()
    s.core.memory.delays.hold(0)
