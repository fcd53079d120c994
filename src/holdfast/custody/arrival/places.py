"""The room that a waiting message or group needs in its queues and on the disk.

Rules of this file: room is reserved for one group at a time, so that two groups do not wait for each other's room; each
step checks it again.
"""

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.broker.entries import packed
from holdfast.broker.entries.host_names import HostedName, hosted
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.broker.stored.groups import Waiting
from holdfast.custody.arrival.full_queues import FullQueues
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room


class Needed(NamedTuple):
    """The room needed in a virtual host: by queue, messages and bytes; bytes on disk; and how many messages are to be
    delayed."""

    host: str
    places: tuple[tuple[HostedName, int, int], ...]
    stored_bytes: int
    delayed: int = 0
    is_onward: bool = False
    """Whether the queue is a transmission queue by which a message is passed on."""
    waits_for: tuple[Queue, bytes] | None = None
    """The topic and the message, if it is not known yet to which nodes that passes it on."""

    @property
    def is_group(self) -> bool:
        return len(self.places) > 1 or self.places[0][1] > 1


class Places:
    """`awaiting`: the queues in which room is reserved for a group that does not fit yet."""

    def __init__(self, catalog: Catalog, room: Room, full: FullQueues) -> None:
        self._catalog = catalog
        self._room = room
        self._full = full
        self.awaiting: tuple[Queue, ...] = ()

    def has_place(self, needed: Needed) -> bool:
        """Whether there is room for all of it now; notes a queue without room."""
        if needed.waits_for is not None:
            return not self._learns(*needed.waits_for)
        for queue, count, size in self._without_room(needed):
            self._full.no_room(queue.key, size // count, None)
            return False
        if needed.delayed > self._catalog.delayed_room(needed.host):
            return False
        return self._room.has(needed.stored_bytes, forwarding=True)

    def onward(self, topic: Queue | None, value: bytes, count: int = 1) -> Needed | None:
        """The room that a message lacks in a transmission queue by which that topic passes it on, or that it waits to
        know these queues; None if nothing is lacking. `count`: the number of messages at once."""
        if topic is None or topic.kind is not QueueKind.TOPIC or topic.work.onward is None:
            return None
        if self._learns(topic, value):
            return Needed(topic.host, ((topic.key, 1, packed.size_of(value)),), len(value), waits_for=(topic, value))
        full = topic.work.onward.no_room(topic, value, count)
        if full is None:
            return None
        queue, size = full
        if not queue.can_hold(count, count * size):
            count = 1  # they never have room together: they go past the bound when it has some
        return Needed(topic.host, ((queue.key, count, count * size),), len(value), is_onward=True)

    def _learns(self, topic: Queue, value: bytes) -> bool:
        onward = topic.work.onward
        return onward is not None and self._catalog.has(topic) and onward.learns(topic, value)

    def of_group(self, host: str, members: list[Waiting], values: list[bytes], stored_bytes: int) -> Needed:
        """The room that a whole group needs, or that one of its messages needs to be passed on."""
        places: dict[HostedName, tuple[int, int]] = {}
        for item in members:
            key = hosted(host, item.queue)
            count, size = places.get(key, (0, 0))
            places[key] = count + 1, size + item.size
        queues = [self._catalog.find(host, item.queue) for item in members]
        for queue, value in zip(queues, values, strict=True):
            onward = self.onward(queue, value, len(values))
            if onward is not None:
                return onward
        delayed = sum(map(self._catalog.is_delayed, queues, values))
        return Needed(host, tuple((key, *place) for key, place in places.items()), stored_bytes, delayed)

    def _without_room(self, needed: Needed) -> Iterator[tuple[Queue, int, int]]:
        for key, count, size in needed.places:
            queue = self._catalog.queues.get(key)
            if queue is None or queue.config.when_full != "block":
                continue
            if needed.is_onward and queue.work.onward is not None and queue.work.onward.is_stuck(queue):
                continue
            if not (queue.fits(size) if count == 1 else queue.fits_all(count, size)):
                yield queue, count, size

    def never_fits(self, needed: Needed) -> str | None:
        """Why a group can never be moved at once, even into empty queues; None if it can."""
        for queue, count, size in self._without_room(needed):
            if count > 1 and not queue.can_hold(count, size):
                return f"queue {queue.name!r} never has room for {count} messages of {size} bytes together"
        most = self._catalog.config.limits.delayed_max
        if needed.delayed > most:
            return f"{needed.delayed} messages of it are to be delayed; delayed_max is {most}"
        if self._room.is_known and not self._room.has(needed.stored_bytes, forwarding=True):
            return f"the store has no room for {needed.stored_bytes} bytes at once"
        return None

    def keep_room(self, needed: Needed) -> None:
        """Reserves room in the queues of a blocked group, if no other group has a reservation. Otherwise single
        messages would take each free place, and the group would never fit."""
        if self.awaiting or not needed.is_group:
            return
        found = list(self._without_room(needed))
        self.awaiting = tuple(queue for queue, _, _ in found)
        for queue, count, size in found:
            queue.awaited, queue.awaited_bytes = count, size

    def keep_none(self) -> None:
        for queue in self.awaiting:
            queue.awaited = queue.awaited_bytes = 0
        self.awaiting = ()
