"""The queues for addresses at remotes: ADDRESS@REMOTE, made when something is first sent there (docs/remotes.md).

Rules of this file: each address has a queue of its own, so that one at which nothing is accepted delays no other. The
number of each remote's is bounded. Queues of a remote that was removed stay.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeGuard

from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.settings.queues import QueueConfig
from holdfast.settings.remotes import ADDRESSES_MAX, RemoteConfig
from holdfast.state.catalog import Catalog, TooManyQueues


def split(queue: Queue) -> tuple[str, str]:
    """The address and the remote of such a queue."""
    address, _, remote = queue.name.rpartition("@")
    return address, remote


class RemoteQueues:
    """`configs`: the remotes that this node has."""

    def __init__(self, catalog: Catalog, remotes: Iterable[RemoteConfig]) -> None:
        self._catalog = catalog
        self.configs: Mapping[str, RemoteConfig] = {}
        self._queues = [queue for queue in catalog.queues.values() if queue.kind is QueueKind.REMOTE]
        self.made: Callable[[Queue], None] = lambda queue: None
        """Called with each new queue."""
        self.released: Callable[[Queue], None] = lambda queue: None
        """Called before such a queue is deleted."""
        self.configure(remotes)

    def configure(self, remotes: Iterable[RemoteConfig]) -> None:
        """Sets the remotes."""
        self.configs = {config.name: config for config in remotes}

    def knows(self, name: str | None) -> TypeGuard[str]:
        """Whether that is the name of a remote."""
        return name in self.configs

    def of(self, remote: str) -> list[Queue]:
        """The queues of that remote."""
        return [queue for queue in self.all() if split(queue)[1] == remote]

    def all(self) -> list[Queue]:
        """Those of all remotes, also of those that were removed."""
        self._queues = [queue for queue in self._queues if self._catalog.has(queue)]
        return self._queues

    def bound(self) -> None:
        """Gives the queues the bounds of their remotes."""
        for queue in self.all():
            address, remote = split(queue)
            config = self.configs.get(remote)
            if config is not None and queue.config != config.queue(address):
                self._catalog.change(queue, config.queue(address))

    def queue(self, remote: str, address: str, host: str) -> Queue:
        """The queue of that address, for messages of a virtual host; created if there is none. Raises ConfigError,
        TooManyQueues."""
        if host != DEFAULT_HOST:
            text = f"{address}@{remote}: messages of virtual host {host!r} do not go to a [[remote]]"
            raise ConfigError(f"{text}; those of the default host do")
        found = self._found(remote, check_name(address))
        if isinstance(found, Queue):
            return found
        if len(self.of(remote)) >= ADDRESSES_MAX:
            text = f"there are {ADDRESSES_MAX} for {remote!r}, the most there may be; delete one that is not needed"
            raise TooManyQueues(f"queue {found.name!r} cannot be created; {text}")
        return self._keep(self._catalog.create(found))

    def of_topic(self, remote: str, topic: str) -> Queue:
        """The queue for a topic that is forwarded there. The entries of federation are bounded, so these queues are."""
        found = self._found(remote, topic)
        return found if isinstance(found, Queue) else self._keep(self._catalog.create_bounded(found))

    def _found(self, remote: str, address: str) -> Queue | QueueConfig:
        """The queue of that address, or the settings of one."""
        config = self.configs[remote].queue(address)
        return self._catalog.queues.get(config.key) or config

    def _keep(self, queue: Queue) -> Queue:
        self._queues.append(queue)
        self.made(queue)
        return queue
