"""The differences between two configurations of a node, and which of them can be applied while the node runs
(docs/operations.md).

Rules of this file: pure. What is said of a change names the table and the key as the node's file has them, and nothing
of a password.
"""

from collections.abc import Callable, Container, Iterable, Set
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from holdfast.broker.entries.host_names import HostedName, shown
from holdfast.settings.limits import Limits
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import LinkConfig, QueueConfig

TOLD_MAX: Final = 200
"""Changes that are listed; further ones are counted."""

_Name = Callable[[Any], str]


def _of_host(item: Any) -> str:
    return shown(item.vhost, item.name)


def _of_node(item: Any) -> str:
    return repr(item.name)


def _of_edge(item: Any) -> str:
    return f"{item.from_!r} to {item.to!r}"


def _of_route(item: tuple[str, str]) -> str:
    return repr(item[0])


def _of_topic(item: Any) -> str:
    return repr(f"{item.topic}@{item.neighbour}")


def _of_subscription(item: Any) -> str:
    return str(item.shown)


_Items = Callable[[NodeConfig], Iterable[Any]]

QUEUE: Final = "queue"
"""What becomes of queues depends on which there are: a request may have created or deleted one since. Changes of those
that exist are reported by `ConfiguredQueues`, which compares with the queue itself."""

LISTS: Final[tuple[tuple[str, _Items, _Name], ...]] = (
    ("user", lambda config: config.users, _of_host),
    ("group", lambda config: config.access.groups, _of_host),
    ("access", lambda config: config.access.rules, _of_host),
    (QUEUE, lambda config: config.queues, _of_host),
    ("subscription", lambda config: config.subscriptions, _of_subscription),
    ("link", lambda config: config.links, _of_host),
    ("neighbour", lambda config: config.neighbours, _of_node),
    ("topology node", lambda config: config.topology.nodes if config.topology else (), _of_node),
    ("topology link", lambda config: config.topology.links if config.topology else (), _of_edge),
    ("remote", lambda config: config.remotes, _of_node),
    ("route", lambda config: config.forwarding, _of_route),
    ("federation", lambda config: config.federation, _of_topic),
)
"""Changes of lists that are applied: the table, its entries, and what each is called."""

LIVE: Final = frozenset(
    ("users", "access", "queues", "subscriptions", "links", "neighbours", "remotes", "forwarding", "federation")
)
"""The fields of NodeConfig that are applied."""

OF_TOPOLOGY: Final = frozenset(("topology", "roles"))
"""Fields that are applied where there is a topology before and after; else they wait, and the neighbours with them."""

CORE_AT_START: Final[dict[str, str]] = {
    "name": "node name",
    "roles": "node roles",
    "neighbours": "[[neighbour]]",
    "forwarding": "[[route]]",
    "triggers": "[[trigger]]",
    "vhosts": "[[vhost]]",
    "hostnames": "node hostnames",
    "has_users_file": "node users_file",
    "plain_without_tls": "node plain_without_tls",
    "create_queues": "node create_queues",
    "unknown_destination": "node unknown_destination",
    "own_addresses": "node listen",
    "telemetry": "telemetry file",
    "telemetry_messages": "telemetry messages",
    "telemetry_interval_s": "telemetry interval_s",
    "audit": "audit file",
    "dead_letters": "[dead_letters]",
    "topology": "[topology]",
    "routing": "[routing]",
    "pacing": "[pacing]",
}
"""The other fields, by the keys that they come from; of `limits` each is a key."""


@dataclass(frozen=True, slots=True)
class Changes:
    """`config`: what holds from now on. `changed`: what is applied, except changes of existing queues; `restart`: what
    holds from the next start on."""

    config: NodeConfig
    changed: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


def compare(
    before: NodeConfig,
    after: NodeConfig,
    *,
    routed: Set[str] = frozenset(),
    queues: Container[HostedName] = frozenset(),
) -> Changes:
    """What becomes of `before` where the file says `after`. The result is not checked: the applied settings may not
    match those that stay. `routed`: the neighbours that routing uses; without a topology they and the routes beside
    them wait for a restart. `queues`: those that exist."""
    kept: dict[str, Any] = {}
    restart: list[str] = []
    live = _live(before, after, is_routed=bool(routed))
    for field in fields(NodeConfig):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old == new or field.name in live:
            continue
        kept[field.name] = old
        restart += limits_that_differ(old, new) if isinstance(new, Limits) else [CORE_AT_START[field.name]]
    kept["links"], waits = _links(before.links, after.links)
    restart += waits
    if "neighbours" not in kept:
        names = {item.name for item in after.neighbours}
        named = () if after.topology else before.neighbours
        stay = tuple(item for item in named if item.name in routed and item.name not in names)
        kept["neighbours"] = (*after.neighbours, *stay)
        restart += [f"neighbour {item.name!r} removed" for item in stay]
    config = replace(after, **kept)
    changed: list[str] = []
    for what, items, name in LISTS:
        old, new = items(before), items(config)
        changed += _queues(old, new, queues) if what == QUEUE else _differences(what, old, new, name)
    return Changes(config, bounded(changed), bounded(restart))


def _live(before: NodeConfig, after: NodeConfig, *, is_routed: bool) -> Set[str]:
    if before.topology and after.topology:
        return LIVE | OF_TOPOLOGY
    if before.topology or after.topology:
        return LIVE - {"neighbours", "forwarding"}
    return LIVE - {"forwarding"} if is_routed else LIVE


def _links(before: tuple[LinkConfig, ...], after: tuple[LinkConfig, ...]) -> tuple[tuple[LinkConfig, ...], list[str]]:
    """A link that is there stays as it is: it may have messages in hand."""
    old = {item.key: item for item in before}
    differ = [f"link {_of_host(item)} changed" for item in after if old.get(item.key, item) != item]
    return tuple(old.get(item.key, item) for item in after), differ


def limits_that_differ(before: Limits, after: Limits) -> list[str]:
    """Their keys."""
    names = [field.name for field in fields(Limits)]
    return [f"limits {name}" for name in names if getattr(before, name) != getattr(after, name)]


def bounded(texts: Iterable[str]) -> tuple[str, ...]:
    """The first TOLD_MAX of them, each once, and how many more there are."""
    told = tuple(dict.fromkeys(texts))
    left_out = len(told) - TOLD_MAX
    return told if left_out <= 0 else (*told[:TOLD_MAX], f"{left_out} more")


def _differences(what: str, before: Iterable[Any], after: Iterable[Any], name: _Name) -> Iterable[str]:
    old, new = ({name(item): item for item in items} for items in (before, after))
    for key, item in new.items():
        if key not in old:
            yield f"{what} {key} added"
        elif item != old[key]:
            yield f"{what} {key} changed"
    for key in old:
        if key not in new:
            yield f"{what} {key} removed"


def _queues(
    before: Iterable[QueueConfig], after: Iterable[QueueConfig], existing: Container[HostedName]
) -> Iterable[str]:
    """Queues that are added, and entries that are added or removed. `existing`: the queues that the node has."""
    old, new = ({item.key: item for item in items} for items in (before, after))
    for key, item in new.items():
        if key not in existing:
            yield f"{QUEUE} {_of_host(item)} added"
        elif key not in old:
            yield f"entry of {QUEUE} {_of_host(item)} added"
    for key, item in old.items():
        if key not in new:
            yield _stays(item) if key in existing else f"entry of {QUEUE} {_of_host(item)} removed"


def _stays(item: QueueConfig) -> str:
    host = f" --vhost {item.vhost}" if item.vhost else ""
    return f"entry of {QUEUE} {_of_host(item)} removed, the queue stays (holdfast queue delete {item.name}{host})"
