"""What the node's file says of queues, taken up while the node runs (docs/operations.md).

Rules of this file: what is refused is refused before anything changes. The file wins where its entry for a queue has
changed, as at a start; a queue that it does not name any more stays.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from holdfast.broker.entries.host_names import shown
from holdfast.peers.link_tables import LinkTables
from holdfast.settings.queues import QueueConfig
from holdfast.state.catalog import Catalog, TooManyQueues, check_topic, names_topic
from holdfast.state.queue_records import LIVE_KEYS, told_fields


class ConfiguredQueues:
    """Creates and changes the queues of the node's file."""

    def __init__(self, catalog: Catalog, links: LinkTables) -> None:
        self._catalog = catalog
        self._links = links

    def check(self, wanted: Iterable[QueueConfig]) -> None:
        """Raises ConfigError if a new one of them cannot be created."""
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

    def take_up(self, wanted: Iterable[QueueConfig]) -> tuple[tuple[QueueConfig, ...], list[str]]:
        """Makes these the queues of the file. Returns what holds of each from now on, and what waits for a start."""
        catalog = self._catalog
        before, told, restart = catalog.told, [], []
        catalog.told = {}
        for config in wanted:
            queue = catalog.queues.get(config.key)
            holds = config
            if queue is not None and config != before.get(config.key):
                holds, waits = _now(config, queue.config)
                restart += [f"queue {shown(config.vhost, config.name)} {key}" for key in waits]
            told.append(holds)
            catalog.told[config.key] = holds
            if queue is None:
                catalog.create(config)
            elif holds != before.get(config.key) and holds != queue.config:
                catalog.change(queue, holds)
                for link in self._links.producers_of(queue):  # waiting messages may enter, or are refused
                    link.refill()
        return tuple(told), restart


def _now(wanted: QueueConfig, found: Any) -> tuple[QueueConfig, list[str]]:
    """What of `wanted` a queue with the settings `found` can have now, and the keys that wait for a start."""
    fixed = {key: value for key, value in told_fields(found).items() if key not in LIVE_KEYS}
    return replace(wanted, **fixed), [key for key, value in fixed.items() if getattr(wanted, key) != value]
