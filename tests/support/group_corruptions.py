"""Corruptions of what waits to be shown together (support/corruption.py).

Rules of this file: one function, or one line, each.
"""

from typing import Any

from support.corruption import breaks, one_more
from support.standing import grouped


@breaks("custody: {}: a group has none, or others", grouped)
def _(s: Any) -> None:
    s.group.last = 1


one_more("custody: {}: bytes of a group", grouped, lambda s: s.group, "stored_bytes")


@breaks("custody: {}: what waits for its group", grouped)
def _(s: Any) -> None:
    s.origin.waiting[2].group = None


@breaks("custody: {}: what waits for nothing", grouped)
def _(s: Any) -> None:
    s.origin.groups.apart[2] = None


@breaks("custody: queues that keep room for a group", grouped)
def _(s: Any) -> None:
    s.core.catalog.queues["work"].awaited = 1
