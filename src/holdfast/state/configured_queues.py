"""Applies changes of `[[queue]]` while the node runs (docs/operations.md).

Rules of this file: a refusal comes before any change. The file wins if its entry for a queue has changed, as at a
start; a queue that was removed from the file stays.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.broker.entries.host_names import shown
from holdfast.broker.queue import Queue
from holdfast.peers.link_tables import LinkTables
from holdfast.settings.queues import QueueConfig
from holdfast.state.catalog import Catalog, TooManyQueues, check_topic, names_topic
from holdfast.state.queue_records import LIVE_KEYS, told_fields


class Settled(NamedTuple):
    """`queues`: the settings that queues get now; `changed`: what that changes of those that exist; `restart`: the keys
    that wait for a restart."""

    queues: tuple[QueueConfig, ...]
    changed: list[str]
    restart: list[str]


class ConfiguredQueues:
    """Creates and changes the queues of the node's file: within `creating`, then `settled` and `take_up`."""

    def __init__(self, catalog: Catalog, links: LinkTables, *, delete: Callable[[Queue], None]) -> None:
        """`delete`: deletes a queue that no link uses."""
        self._catalog = catalog
        self._links = links
        self._delete = delete

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
            raise TooManyQueues(f"queue {new[0].name!r} cannot be created; {found}")
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

    def settled(self, wanted: Iterable[QueueConfig]) -> Settled:
        """What becomes of these queues, which exist."""
        catalog, settled, changed, restart = self._catalog, [], [], []
        for config in wanted:
            if config == catalog.told.get(config.key):
                settled.append(config)
                continue
            found, what = catalog.queues[config.key].config, f"queue {shown(config.vhost, config.name)}"
            holds, waits = _now(config, found)
            settled.append(holds)
            differ = [f"{key} {_told(holds, key)}" for key in LIVE_KEYS if getattr(holds, key) != getattr(found, key)]
            if differ:
                changed.append(f"{what} changed: {', '.join(differ)}")
            restart += [f"{what} {key}" for key in waits]
        return Settled(tuple(settled), changed, restart)

    def take_up(self, settled: Iterable[QueueConfig]) -> None:
        """Applies these settings, which the file has from now on."""
        catalog = self._catalog
        before, catalog.told = catalog.told, {config.key: config for config in settled}
        for config in catalog.told.values():
            queue = catalog.queues[config.key]
            if config != before.get(config.key) and config != queue.config:
                catalog.change(queue, config)
                for link in self._links.producers_of(queue):  # waiting messages may enter, or are refused
                    link.refill()


def _told(config: QueueConfig, key: str) -> str:
    value = getattr(config, key)
    return "none" if value is None else str(value)


def _now(wanted: QueueConfig, found: Any) -> tuple[QueueConfig, list[str]]:
    """The settings of `wanted` that a queue with the settings `found` can get now, and the keys that wait for a
    restart."""
    fixed = {key: value for key, value in told_fields(found).items() if key not in LIVE_KEYS}
    return replace(wanted, **fixed), [key for key, value in fixed.items() if getattr(wanted, key) != value]
