"""Corruptions of links between queues (support/corruption.py).

Rules of this file: one function, or one line, each.
"""

from typing import Any

from support.corruption import breaks
from support.standing import linking


@breaks("queue_links: a link between queues stands under another name", linking)
def _(s: Any) -> None:
    s.links.by_name["other"] = s.links.by_name.pop("idle")


@breaks("queue_links: {}: its source is gone", linking)
def _(s: Any) -> None:
    s.idle.cursor = type(s.idle.cursor)(s.idle.cursor.queue, s.idle.cursor.queue)


@breaks("queue_links: {} is no consumer of its source", linking)
def _(s: Any) -> None:
    s.idle.cursor.release(s.idle)


@breaks("queue_links: {} reads another's cursor", linking)
def _(s: Any) -> None:
    s.links.by_name["idle"] = s.links.by_name["copies"]
    s.links.by_name["idle"].config = s.idle.config
    del s.links.by_name["copies"]


@breaks("queue_links: {} was deleted, and stays", linking)
def _(s: Any) -> None:
    s.idle.ended = True


@breaks("queue_links: {} takes too much in a turn", linking)
def _(s: Any) -> None:
    s.idle.taken = [(1, b"")] * 257


@breaks("queue_links: {} has taken what nobody hands over", linking)
def _(s: Any) -> None:
    s.idle.taken = [(1, b"")]


@breaks("queue_links: {} holds what is in no batch of its", linking)
def _(s: Any) -> None:
    s.copies.moving.left.pop()
    s.core.catalog.rows.tied[s.copies.cursor].popitem()


@breaks("queue_links: {} has too many windows in a step", linking)
def _(s: Any) -> None:
    s.idle.windows.rows[0] = dict.fromkeys(range(100_001))


@breaks("queue_links: links that are gone wait for room in queue {}", linking)
def _(s: Any) -> None:
    gone = type(s.idle).__new__(type(s.idle))
    gone.config = s.idle.config
    s.links.by_target[s.idle.target][gone] = None


@breaks("queue_links: {}: nobody looks whether its windows are over", linking)
def _(s: Any) -> None:
    s.links.windowed[s.idle] = False


@breaks("queue_links: windows of links that are gone are looked after", linking)
def _(s: Any) -> None:
    s.links.windowed[type("Link", (), {"name": "gone", "config": s.idle.config})()] = False


@breaks("queue_links: links that are gone wait for room in another node's queue", linking)
def _(s: Any) -> None:
    s.links.handing.remote_room.links[type("Link", (), {"name": "gone", "config": s.idle.config})()] = None


@breaks("queue_links: {} leads out of its virtual host", linking)
def _(s: Any) -> None:
    s.idle.target = type("Queue", (), {"host": "acme"})()


@breaks("queue_links: {} does not hear of room in its target", linking)
def _(s: Any) -> None:
    s.links.by_target.clear()


@breaks("queue_links: queue {} keeps messages for links that are gone", linking)
def _(s: Any) -> None:
    del s.links.by_name["copies"]
    s.core.catalog.rows.tied.clear()


@breaks("queue_links: cursor {} of queue {} is tied to nothing", linking)
def _(s: Any) -> None:
    s.core.catalog.rows.tied[s.idle.cursor] = {1: None}
