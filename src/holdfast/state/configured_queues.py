"""Applies changes of `[[queue]]` while the node runs (docs/operations.md).

Rules of this file: a refusal comes before any change. The file wins if its entry for a queue has changed, as at a
start; a queue that was removed from the file stays.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from holdfast.broker.entries.host_names import shown
from holdfast.broker.queue import Queue
from holdfast.peers.link_tables import LinkTables
from holdfast.settings.queues import QueueConfig
from holdfast.state.catalog import Catalog, TooManyQueues, check_topic, names_topic
from holdfast.state.queue_records import LIVE_KEYS, told_fields


class ConfiguredQueues:
    """Creates and changes the queues of the node's file: `create`, then `take_up` or `take_back`."""

    def __init__(self, catalog: Catalog, links: LinkTables, *, delete: Callable[[Queue], None]) -> None:
        """`delete`: deletes a queue that no link uses."""
        self._catalog = catalog
        self._links = links
        self._delete = delete

    def create(self, wanted: Iterable[QueueConfig]) -> list[Queue]:
        """Creates missing queues and returns them. Raises ConfigError, with nothing changed, if one cannot be
        created."""
        catalog = self._catalog
        new = [config for config in wanted if config.key not in catalog.queues]
        most = catalog.config.limits.queues_max
        if new and catalog.queues_counted + len(new) > most:
            found = f"there are {catalog.queues_counted}, {len(new)} would be added, and the limit is {most}"
            raise TooManyQueues(f"queue {new[0].name!r} cannot be created; {found}")
        for config in new:
            host = catalog.hosts.get(config.vhost)
            mine = sum(other.vhost == config.vhost for other in new)
            if host is not None and host.queues_max is not None and catalog.made[host.name] + mine > host.queues_max:
                text = f"virtual host {host.name!r} may have {host.queues_max} queues (queues_max)"
                raise TooManyQueues(f"queue {config.name!r} cannot be created; {text}")
            if names_topic(config.name):
                check_topic(config)
        return [catalog.create(config) for config in new]

    def take_back(self, created: Iterable[Queue]) -> None:
        """Deletes what `create` has just created."""
        for queue in created:
            self._delete(queue)

    def take_up(self, wanted: Iterable[QueueConfig]) -> tuple[tuple[QueueConfig, ...], list[str]]:
        """Applies the file's settings to these queues, which exist. Returns the settings of each from now on, and the
        keys that wait for a restart."""
        catalog = self._catalog
        before, told, restart = catalog.told, [], []
        catalog.told = {}
        for config in wanted:
            queue = catalog.queues[config.key]
            holds = config
            if config != before.get(config.key):
                holds, waits = _now(config, queue.config)
                restart += [f"queue {shown(config.vhost, config.name)} {key}" for key in waits]
            told.append(holds)
            catalog.told[config.key] = holds
            if holds != before.get(config.key) and holds != queue.config:
                catalog.change(queue, holds)
                for link in self._links.producers_of(queue):  # waiting messages may enter, or are refused
                    link.refill()
        return tuple(told), restart


def _now(wanted: QueueConfig, found: Any) -> tuple[QueueConfig, list[str]]:
    """The settings of `wanted` that a queue with the settings `found` can get now, and the keys that wait for a
    restart."""
    fixed = {key: value for key, value in told_fields(found).items() if key not in LIVE_KEYS}
    return replace(wanted, **fixed), [key for key, value in fixed.items() if getattr(wanted, key) != value]
