"""Deletes, moves and copies single entries for an operator, at any place of a queue, while no consumer holds them.

Rules of this file: a copy and the retirement of its original are one batch; if the turn is undone, the entry is where
it was. Until the batch is on disk, the leaving entry is hidden. An impossible change raises Unchangeable.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.broker.entries import annotate, entry, packed
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.names.identity import Identities
from holdfast.endpoints.addresses.resolver import ResolvedAddress
from holdfast.engine.clock import Clock
from holdfast.engine.effects import Effect
from holdfast.links.disk import Disk
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room
from holdfast.state.turns import Turns

TARGETS: Final = (QueueKind.ORDINARY, QueueKind.REMOTE, QueueKind.TRANSMISSION)
"""The kinds of queues into which entries are moved by hand."""

OVERHEAD: Final = 512
"""Bytes that a copy may have beyond its original: an identity, an address."""


class Unchangeable(Exception):
    """The entry stays where it is, with the reason; `no_disk`: the disk does not work or has no room.
    `concerns_entry`: only this entry is refused; the text then has no subject, and the caller puts `message N of queue
    Q` before it."""

    def __init__(self, text: str, *, no_disk: bool = False, concerns_entry: bool = False) -> None:
        super().__init__(text)
        self.no_disk = no_disk
        self.concerns_entry = concerns_entry


@dataclass(frozen=True, slots=True, eq=False)
class UnhideDeleted(Effect):
    """A deleted entry has left the disk, and need no longer be hidden."""

    queue_id: int
    sequence: int


@dataclass(frozen=True, slots=True, eq=False)
class UnhideMoved(Effect):
    """A moved entry has left the disk, or is back in its place."""

    queue_id: int
    sequence: int


def leaving_by_hand(turns: Turns) -> Iterator[tuple[int, int]]:
    """(queue id, sequence) of what is hidden until its change is on disk, or undone."""
    for turn in (turns.gathered, turns.in_flight):
        for effect in (*turn.then, *turn.decided) if turn is not None else ():
            if isinstance(effect, UnhideDeleted | UnhideMoved):
                yield effect.queue_id, effect.sequence


class EntryChanges:
    """The changes of one entry that no consumer holds."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        turns: Turns,
        room: Room,
        disk: Disk,
        identities: Identities,
        dead_lettering: DeadLettering,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._turns = turns
        self._room = room
        self._disk = disk
        self._identities = identities
        self._dead_lettering = dead_lettering
        turns.effects.on(UnhideDeleted, self._unhide)
        turns.effects.on_decided(UnhideMoved, lambda effect, stored: self._unhide(effect))

    def delete(self, queue: Queue, sequence: int, value: bytes) -> None:
        """The entry leaves with this turn's batch, or, if that is refused, with a later one."""
        self._check_source(queue)
        self._hide(queue, sequence)
        self._turns.gathered.then.append(UnhideDeleted(self._turns.event, queue.queue_id, sequence))
        queue.retire_all([sequence], packed.size_of(value))

    def move(self, queue: Queue, sequence: int, value: bytes, found: ResolvedAddress) -> int:
        """Moves the entry to another queue; returns its sequence there. Reverted if the turn is undone."""
        self._check_source(queue)
        if found.queue is queue:
            raise Unchangeable(f"it is in queue {queue.name!r} already")
        is_delayed = queue.kind is QueueKind.DELAYED  # then it leaves the place that it takes
        is_dead = queue.kind is QueueKind.DEAD_LETTERS
        shown = entry.with_earlier(value, queue.shared.failures(sequence))
        copied = self._copy(shown, found, is_dead=is_dead, is_delayed=is_delayed, keeps_mark=found.destination is None)
        self._hide(queue, sequence)
        self._turns.gathered.decided.append(UnhideMoved(self._turns.event, queue.queue_id, sequence))
        self._dead_lettering.move_out(queue, sequence, value)
        return copied

    def copy(self, value: bytes, found: ResolvedAddress) -> int:
        """Puts a copy into that queue; returns its sequence there. Not of a large message."""
        assert not value[1] & entry.BLOB, "a large message is on disk once"
        return self._copy(value, found, is_dead=False)

    def _check_source(self, queue: Queue) -> None:
        if queue.kind not in (QueueKind.ORDINARY, QueueKind.REMOTE, QueueKind.DEAD_LETTERS, QueueKind.DELAYED):
            raise Unchangeable(f"queue {queue.name!r} belongs to the node, and other nodes wait for its messages")
        if queue.named or queue.shared.tracked:
            raise Unchangeable(f"queue {queue.name!r} has subscriptions, which are to see its messages")
        if not queue.config.durable:
            raise Unchangeable(f"queue {queue.name!r} is in memory")
        if queue.stopped:
            raise Unchangeable(f"queue {queue.name!r} is being purged")

    def _copy(
        self, value: bytes, found: ResolvedAddress, *, is_dead: bool, is_delayed: bool = False, keeps_mark: bool = False
    ) -> int:
        queue = found.queue
        if found.unknown is not None or queue.kind not in TARGETS:
            raise Unchangeable(f"messages cannot be put into queue {queue.name!r} by hand")
        if not queue.config.durable:
            raise Unchangeable(f"queue {queue.name!r} is in memory")
        item = annotate.without_relayed(entry.unpack(value))
        if not queue.fits(item.size):
            bytes_max = queue.config.bytes_max
            if bytes_max is not None and item.size > bytes_max and queue.fits(1):
                text = f"has {item.size} bytes; queue {queue.name!r} takes more than {bytes_max} only while it is empty"
                raise Unchangeable(text, concerns_entry=True)
            raise Unchangeable(f"queue {queue.name!r} is full")
        if self._disk.takes_nothing or not self._room.has(len(value) + OVERHEAD):
            raise Unchangeable("the node's disk has no room", no_disk=True)
        if not is_delayed and self._catalog.is_delayed(queue, value):
            full = self._catalog.delayed_full(queue.host)
            if full:
                raise Unchangeable(full)
        identity = None if found.destination is None else self._identities.next(found.destination)
        copied = entry.pack(
            flags=item.flags & (entry.DURABLE | entry.BLOB),
            enqueued_ms=self._clock.wall_ms,
            bare=item.bare,
            priority=item.priority,
            expires_ms=0 if is_dead else item.expires_ms,
            message_format=item.message_format,
            annotation_count=item.annotation_count,
            annotations=item.annotations,
            identity=identity,
            to=found.to,
            expires_at_ms=0 if is_dead else item.expires_at_ms,
            earlier=item.earlier if keeps_mark else None,
        )
        return queue.append(copied, item.size)

    def _hide(self, queue: Queue, sequence: int) -> None:
        for cursor in queue.cursors:
            cursor.drop([sequence])
        queue.hidden.add(sequence)

    def _unhide(self, effect: UnhideDeleted | UnhideMoved) -> None:
        queue = self._catalog.by_id.get(effect.queue_id)
        if queue is not None:
            queue.hidden.discard(effect.sequence)
