"""Links between queues whose next message has to go to another node too, for which the queue there has no room yet.

Rules of this file: such a link tries again when that queue changes, and at the latest after AGAIN_S: its message may
not have to go there any more. What leaves the queue may be stored only with a later commit, so none is waited for.
"""

from typing import Final, NamedTuple

from holdfast.broker.queue import Queue
from holdfast.engine.clock import Clock
from holdfast.queue_links.link import QueueLink
from holdfast.state.catalog import Catalog

AGAIN_S: Final = 1.0
"""After this time a message whose copies found no room is looked at again."""


class Awaited(NamedTuple):
    """Room for a copy of `size` bytes in `queue`, which is waited for until `until`."""

    queue: Queue
    size: int
    until: float


class RemoteRoom:
    """The links that wait for room in the queue of another node or remote. A `Timed` part while there are any."""

    def __init__(self, clock: Clock, catalog: Catalog) -> None:
        self._clock = clock
        self._catalog = catalog
        self.links: dict[QueueLink, Awaited | None] = {}
        """What each waits for; None if its wait has ended, until the next `tick`."""

    def wait(self, link: QueueLink, queue: Queue, size: int) -> None:
        """The link waits for room for a copy of `size` bytes in `queue`."""
        self.links[link] = Awaited(queue, size, self._clock.now + AGAIN_S)

    def end_if_back(self, link: QueueLink) -> None:
        """Ends the wait of the link if there is room now, or the queue is gone."""
        awaited = self.links.get(link)
        if awaited is not None and (awaited.queue.fits(awaited.size) or not self._catalog.has(awaited.queue)):
            self.links[link] = None

    def is_awaited_by(self, link: QueueLink) -> bool:
        return self.links.get(link) is not None

    def is_awaited(self, queue: Queue) -> bool:
        """Whether a link waits for room in that queue."""
        return any(awaited is not None and awaited.queue is queue for awaited in self.links.values())

    def room_may_be_back(self, queue: Queue) -> None:
        """That queue has changed."""
        for link, awaited in self.links.items():
            if awaited is not None and awaited.queue is queue and queue.fits(awaited.size):
                link.cursor.queue.touch()

    def forget(self, link: QueueLink) -> None:
        """The link does not wait any more."""
        self.links.pop(link, None)

    def next_deadline(self) -> float | None:
        """When the first of them looks at its next message again."""
        return min([awaited.until for awaited in self.links.values() if awaited is not None], default=None)

    def tick(self, now: float) -> None:
        for link in [link for link, awaited in self.links.items() if awaited is None or now >= awaited.until]:
            self.forget(link)
            link.cursor.queue.touch()
