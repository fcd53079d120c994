"""Computes the figures of the bus paper: pure functions. esb-dynamic-routing §4.1, §4.4.

Rules of this file: no clocks, no files, no processes; times are seconds on one clock.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from _figures import quantile, spread


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its number among those of its class and its pair of nodes, when it was handed over, when it came
    (None: it did not).
    """

    kind: str
    source: str
    target: str
    number: int
    sent_at: float
    came_at: float | None


def first_synchronisation_s(started_at: float, synchronised_at: Mapping[str, float]) -> float:
    """Equation (1), T = max(T_i) - T_0: T_0 the super node's start, T_i when node i had the whole table."""
    return max(synchronised_at.values()) - started_at


def loss_share(sent: int, counts: Iterable[int]) -> float:
    """Equation (3): of `sent` messages of node i, what no node k received; `counts` are those of each k."""
    assert sent > 0
    return (sent - sum(counts)) / sent


def packet_loss(shares: Sequence[float]) -> float:
    """Equation (2): the mean over the nodes that sent."""
    return sum(shares) / len(shares)


def within(at: float, windows: Sequence[tuple[float, float]]) -> bool:
    return any(first <= at < last for first, last in windows)


def loss_by_node(messages: Iterable[Message], windows: Sequence[tuple[float, float]] | None) -> dict[str, float]:
    """p_i of each node that sent within `windows` by the time stamp of its messages (None: at any time)."""
    sent: dict[str, int] = {}
    came: dict[str, int] = {}
    for message in messages:
        if windows is None or within(message.sent_at, windows):
            sent[message.source] = sent.get(message.source, 0) + 1
            came[message.source] = came.get(message.source, 0) + (message.came_at is not None)
    return {source: loss_share(count, [came[source]]) for source, count in sent.items()}


def in_time(messages: Iterable[Message], allowed_s: float) -> list[Message]:
    """The same messages, as a bus would have them that drops what it cannot deliver within `allowed_s`."""
    return [
        message
        if message.came_at is not None and message.came_at - message.sent_at <= allowed_s
        else replace(message, came_at=None)
        for message in messages
    ]


def delays_s(messages: Iterable[Message]) -> list[float]:
    """What those that came took, in their order."""
    return [one.came_at - one.sent_at for one in messages if one.came_at is not None]


def outside(moments: Iterable[float], settle_s: float, first: float, last: float) -> list[tuple[float, float]]:
    """What of [first, last) is not within `settle_s` behind one of `moments`: where §4.4 wants the loss counted."""
    windows, begin = [], first
    for moment in sorted(moments):
        if begin < moment:
            windows.append((begin, min(moment, last)))
        begin = max(begin, moment + settle_s)
    return [*windows, (begin, last)] if begin < last else windows


def disorder(messages: Sequence[Message]) -> int:
    """Messages that came before one of the same class and nodes with a lower number. `messages`: in the order of
    their numbers.
    """
    latest: dict[tuple[str, str, str], float] = {}
    count = 0
    for one in messages:
        if one.came_at is not None:
            stream = one.kind, one.source, one.target
            count += one.came_at < latest.get(stream, 0.0)
            latest[stream] = max(one.came_at, latest.get(stream, 0.0))
    return count


def carrying(nodes: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Links that carry messages as one node sees it (`routing.nodes` of its status), from and to.

    Drawn green where this holds, black where not (§5.2, tool 3).
    """
    links: dict[str, dict[str, float | None]] = {}
    for node in nodes:
        gone = node["state"] in ("left", "lost")
        links[node["name"]] = {} if gone else {link["to"]: link["cost"] for link in node["links"]}
    return {
        (start, end)
        for start, ends in links.items()
        for end, cost in ends.items()
        # Of a one-way link its end says nothing: the way back is missing there, not down.
        if cost is not None and end in links and links[end].get(start, 0.0) is not None
    }


def distribution(values: Sequence[float], digits: int = 3) -> dict[str, Any]:
    """Their `spread`, quartiles and p95; n alone where there is none."""
    if not values:
        return {"n": 0}
    marks = {"q1": 0.25, "q3": 0.75, "p95": 0.95}
    return {**spread(values, digits), **{name: round(quantile(values, share), digits) for name, share in marks.items()}}
