"""All remotes of a node.

Rules of this file: a change of a remote's settings begins its connection anew; its queues stay, also when it is
removed.
"""

from collections.abc import Iterable

from holdfast.broker.queue import Queue
from holdfast.endpoints.addresses.remote_queues import RemoteQueues, split
from holdfast.endpoints.remotes.remote import Remote, RemoteParts
from holdfast.settings.remotes import RemoteConfig


class Remotes:
    """`by_name`: each remote."""

    def __init__(self, parts: RemoteParts, queues: RemoteQueues) -> None:
        self._parts = parts
        self.queues = queues
        self.by_name: dict[str, Remote] = {}
        queues.made = self._made
        queues.released = self._released
        for config in queues.configs.values():
            self._add(config)

    def _add(self, config: RemoteConfig) -> None:
        remote = self.by_name[config.name] = Remote(self._parts, config)
        for queue in self.queues.of(config.name):
            remote.add(queue, split(queue)[0])

    def configure(self, wanted: Iterable[RemoteConfig]) -> None:
        """Applies the new list."""
        configs = {config.name: config for config in wanted}
        for name, remote in list(self.by_name.items()):
            if configs.get(name) != remote.config:
                remote.leave("its [[remote]] has changed, or was removed")
                del self.by_name[name]
        self.queues.configure(configs.values())
        self.queues.bound()
        for name, config in configs.items():
            if name not in self.by_name:
                self._add(config)

    def _made(self, queue: Queue) -> None:
        address, name = split(queue)
        remote = self.by_name.get(name)
        if remote is not None:
            remote.add(queue, address)

    def _released(self, queue: Queue) -> None:
        remote = self.by_name.get(split(queue)[1])
        if remote is not None:
            remote.release(queue)

    def is_up(self, name: str) -> bool:
        """Whether that is a remote with which there is a session."""
        remote = self.by_name.get(name)
        return remote is not None and remote.is_up

    def network_changed(self) -> None:
        """A carrier, an address or a route came or went."""
        for remote in self.by_name.values():
            remote.network_changed()

    def stop(self) -> None:
        """The node stops."""
        for remote in self.by_name.values():
            remote.stop()

    def recover(self) -> None:
        """After a contained failure."""
        for remote in self.by_name.values():
            remote.recover()

    def next_deadline(self) -> float | None:
        found = [remote.next_deadline() for remote in self.by_name.values()]
        return min((at for at in found if at is not None), default=None)

    def tick(self, now: float) -> None:
        for remote in list(self.by_name.values()):
            remote.tick(now)
