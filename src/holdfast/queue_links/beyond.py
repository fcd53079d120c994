"""Links between queues whose next message has to go to another node too, for which the queue there has no room yet.

Rules of this file: such a link tries again when that queue changes, and at the latest after BEYOND_S: its message may
not have to go there any more. What leaves the queue may be stored only with a later commit, so none is waited for.
"""

from typing import Final

from holdfast.broker.queue import Queue
from holdfast.engine.clock import Clock
from holdfast.queue_links.link import QueueLink
from holdfast.state.catalog import Catalog

BEYOND_S: Final = 1.0
"""After this time a message whose copies found no room is looked at again."""


class Beyond:
    """The links that may wait for room in the queue of another node or remote. A `Timed` part while there are any."""

    def __init__(self, clock: Clock, catalog: Catalog) -> None:
        self._clock = clock
        self._catalog = catalog
        self.links: dict[QueueLink, None] = {}

    def wait(self, link: QueueLink, queue: Queue, size: int) -> None:
        """The link waits for room for a copy of `size` bytes in `queue`."""
        link.beyond = queue, size, self._clock.now + BEYOND_S
        self.links[link] = None

    def waits(self, link: QueueLink) -> bool:
        """Whether the link still has to wait."""
        if link.beyond is None:
            return False
        queue, size, _ = link.beyond
        if queue.fits(size) or not self._catalog.has(queue):
            link.beyond = None
        return link.beyond is not None

    def room_may_be_back(self, queue: Queue) -> None:
        """That queue has changed."""
        for link in self.links:
            if link.beyond is not None and link.beyond[0] is queue and queue.fits(link.beyond[1]):
                link.cursor.queue.touch()

    def forget(self, link: QueueLink) -> None:
        """The link does not wait any more."""
        link.beyond = None
        self.links.pop(link, None)

    def next_deadline(self) -> float | None:
        """When the first of them looks at its next message again."""
        return min([link.beyond[-1] for link in self.links if link.beyond is not None], default=None)

    def tick(self, now: float) -> None:
        for link in [link for link in self.links if link.beyond is None or now >= link.beyond[-1]]:
            self.forget(link)
            link.cursor.queue.touch()
