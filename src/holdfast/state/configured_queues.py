"""Applies changes of `[[queue]]` while the node runs (docs/operations.md).

Rules of this file: a refusal comes before any change. The file wins if its entry for a queue has changed, as at a
start; a queue that was removed from the file stays.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.broker.entries.host_names import HostedName, shown
from holdfast.broker.queue import Queue
from holdfast.peers.link_tables import LinkTables
from holdfast.settings.queues import QueueConfig
from holdfast.state.catalog import Catalog, TooManyQueues, check_topic, names_topic
from holdfast.state.queue_records import LIVE_KEYS, told_fields


class QueuePlan(NamedTuple):
    """`queues`: the settings that queues get now; `changed`: what that changes of those that exist; `restart`: the keys
    that wait for a restart."""

    queues: tuple[QueueConfig, ...]
    changed: list[str]
    restart: list[str]


class ConfiguredQueues:
    """Creates and changes the queues of the node's file: within `creating`, then `plan` and `take_up`."""

    def __init__(self, catalog: Catalog, links: LinkTables, *, delete: Callable[[Queue], None]) -> None:
        """`delete`: deletes a queue that no link uses."""
        self._catalog = catalog
        self._links = links
        self._delete = delete

    @property
    def present(self) -> Container[HostedName]:
        """The queues that exist now."""
        return self._catalog.queues

    @contextmanager
    def creating(self, wanted: Iterable[QueueConfig]) -> Iterator[None]:
        """Creates missing queues. If one of them cannot be created, which is a ConfigError, or the block fails, deletes
        what this or the block has created."""
        before = set(self._catalog.queues)
        try:
            self._create(wanted)
            yield
        except BaseException:
            for queue in [queue for key, queue in self._catalog.queues.items() if key not in before]:
                self._delete(queue)
            raise

    def _create(self, wanted: Iterable[QueueConfig]) -> None:
        catalog = self._catalog
        new = [config for config in wanted if config.key not in catalog.queues]
        most = catalog.config.limits.queues_max
        if new and catalog.queues_counted + len(new) > most:
            found = f"there are {catalog.queues_counted}, {len(new)} would be added, and the limit is {most}"
            raise TooManyQueues(f"queue {new[0].name!r} cannot be created; {found} (queues_max)")
        for config in new:
            host = catalog.hosts.get(config.vhost)
            mine = sum(other.vhost == config.vhost for other in new)
            if host is not None and host.queues_max is not None and catalog.made[host.name] + mine > host.queues_max:
                text = f"virtual host {host.name!r} may have {host.queues_max} queues (queues_max)"
                raise TooManyQueues(f"queue {config.name!r} cannot be created; {text}")
            if names_topic(config.name):
                check_topic(config)
        for config in new:
            catalog.create(config)

    def plan(self, wanted: Iterable[QueueConfig]) -> QueuePlan:
        """What becomes of these queues, which exist."""
        catalog, queues, changed, restart = self._catalog, [], [], []
        for config in wanted:
            if config == catalog.told.get(config.key):
                queues.append(config)
                continue
            current, name = catalog.queues[config.key].config, f"queue {shown(config.vhost, config.name)}"
            applied, deferred_keys = _now(config, current)
            queues.append(applied)
            differ = [
                f"{key} {_value_text(applied, key)}"
                for key in LIVE_KEYS
                if getattr(applied, key) != getattr(current, key)
            ]
            if differ:
                changed.append(f"{name} changed: {', '.join(differ)}")
            restart += [f"{name} {key}" for key in deferred_keys]
        return QueuePlan(tuple(queues), changed, restart)

    def take_up(self, queues: Iterable[QueueConfig]) -> None:
        """Applies these settings, which the file has from now on."""
        catalog = self._catalog
        before, catalog.told = catalog.told, {config.key: config for config in queues}
        for config in catalog.told.values():
            queue = catalog.queues[config.key]
            if config != before.get(config.key) and config != queue.config:
                catalog.change(queue, config)
                for link in self._links.producers_of(queue):  # waiting messages may enter, or are refused
                    link.refill()


def _value_text(config: QueueConfig, key: str) -> str:
    value = getattr(config, key)
    return "none" if value is None else str(value)


def _now(wanted: QueueConfig, current: Any) -> tuple[QueueConfig, list[str]]:
    """The settings of `wanted` that a queue with the settings `current` can get now, and the keys that wait for a
    restart."""
    fixed = {key: value for key, value in told_fields(current).items() if key not in LIVE_KEYS}
    return replace(wanted, **fixed), [key for key, value in fixed.items() if getattr(wanted, key) != value]
