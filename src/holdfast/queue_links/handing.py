"""What a link took goes to its target, in the turn's batch: each entry is appended there and leaves its source with the
same commit, or neither happens (docs/adr/0065).

Rules of this file: what a target has no room for goes back to its place, and all behind it, so that the order stays;
what it refuses for good becomes a dead letter with the link's name and the reason.
"""

from dataclasses import dataclass, field
from typing import Final

from holdfast.amqp.wire.extensions import LINKS
from holdfast.broker.entries import annotate, entry
from holdfast.broker.message_records import record_message
from holdfast.broker.queue import Queue
from holdfast.broker.topic import Topic
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.names.identity import Identities
from holdfast.engine.clock import Clock
from holdfast.engine.effects import Effect
from holdfast.engine.outbox import Outbox
from holdfast.links.disk import Disk
from holdfast.peers.limits.memory import Memory
from holdfast.peers.link_tables import LinkTables
from holdfast.queue_links.link import TAKEN_COUNT, Moving, QueueLink
from holdfast.settings import NodeConfig
from holdfast.state import tied
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room
from holdfast.state.turns import Turns

ENTRY_OVERHEAD: Final = 1_024
"""Bytes that an entry may have beyond its value: its identity, address, and the links that it passed."""

ASKED_MAX: Final = 4_096
"""Subscriptions of a topic that one turn asks about messages of one link, all messages together."""

LINKS_BYTES: Final = annotate.LINK_ID_BYTES * annotate.LINKS_MAX + 64
"""What a message's annotations may have beyond their own bound, for the links that it passed."""


@dataclass(frozen=True, slots=True, eq=False)
class Handed(Effect):
    """What a link took is in the turn: it is told whether that is stored."""

    name: str
    link: QueueLink = field(repr=False)
    moving: Moving = field(repr=False)


@dataclass(frozen=True, slots=True)
class HandingParts:
    """What handing over uses of the node."""

    config: NodeConfig
    clock: Clock
    catalog: Catalog
    turns: Turns
    room: Room
    disk: Disk
    outbox: Outbox
    links: LinkTables
    memory: Memory
    identities: Identities
    dead_lettering: DeadLettering
    forwarding: Forwarding


class Handing:
    """Hands over what links took."""

    def __init__(self, parts: HandingParts) -> None:
        self._parts = parts

    def room_for(self, link: QueueLink) -> int:
        """How many entries the link's target takes now."""
        parts, target = self._parts, link.target
        if target is None or not parts.catalog.has(target):
            return 0
        if link.node is not None and not parts.forwarding.knows(link.node):
            return 0
        if link.dead_needs and not parts.dead_lettering.has_room_for_dead_letter(link.dead_needs):
            parts.links.wait_for_room(link)
            return 0
        if target.config.durable and (parts.disk.takes_nothing or not self._fits_disk(link.needs)):
            parts.links.wait_for_room(link)
            return 0
        most = TAKEN_COUNT
        if isinstance(target, Topic):
            most = max(1, min(most, ASKED_MAX // max(1, target.asked_for_each)))
        room = target.room(most) if not link.needs or target.fits(link.needs) else 0
        link.starved = not room
        if not room and target.memory is not None:
            parts.memory.wait(link)
        return room

    def forget(self, link: QueueLink) -> None:
        """It waits for room in its target no more."""
        self._parts.memory.waiting.pop(link, None)
        self._parts.links.waiting_for_space.pop(link, None)
        self._parts.links.refills.pop(link, None)

    def _fits_disk(self, size: int) -> bool:
        return not size or self._parts.room.has(size + ENTRY_OVERHEAD)

    # ------------------------------------------------------------------------------------------------ into the turn

    def hand_over(self, link: QueueLink) -> None:
        """All that the link took goes into the turn, or back to its place."""
        parts, cursor, turn = self._parts, link.cursor, self._parts.turns.gathered
        taken = link.taken
        moving = Moving([sequence for sequence, _ in taken])
        link.moving, link.taken, link.taken_bytes = moving, [], 0
        turn.decided.append(Handed(parts.turns.event, link.name, link, moving))
        turn.changes += 1
        cursor.queue.work.urgent = True
        link.needs = link.dead_needs = 0
        target = link.target
        for sequence, value in taken:
            if target is None or not self._hand(link, target, moving, value):
                break
            moving.left.append(sequence)
        if cursor.queue.config.durable and moving.left:
            tied.retire(parts.catalog, turn, cursor, link, moving.left)
        back = moving.sequences[len(moving.left) :]
        if back:
            cursor.requeue(back, failed=False)

    def _hand(self, link: QueueLink, target: Queue, moving: Moving, value: bytes) -> bool:
        """One entry into the target, or the dead letters; False where there is no room for it now."""
        parts = self._parts
        found = self._new(link, value)
        if isinstance(found, str):
            if not parts.dead_lettering.has_room_for_dead_letter(len(value)):
                link.dead_needs = len(value)
                parts.links.wait_for_room(link)
                return False
            parts.dead_lettering.dead_letter(value, f"link {link.name!r}: {found}", link.source)
            moving.dead += 1
            return True
        size = entry.size_of(found)
        if not target.fits(size):
            link.needs = size
            self.room_for(link)  # it waits for that much
            return False
        if not target.config.durable:
            moving.posts.append((found, size))
            return True
        if not self._fits_disk(len(found)):
            link.needs = len(found)
            parts.links.wait_for_room(link)
            return False
        if isinstance(target, Topic):
            sequence = target.store(found, size)
            moving.posts.append((found, size))
        else:
            if link.node is not None:
                identity = parts.identities.next(link.node)
                found = entry.repack(entry.unpack(found)._replace(identity=identity, to=link.to))
            sequence = target.append(found, size)
        if parts.config.telemetry_messages:
            record_message(parts.outbox, "stored", target, sequence, found)
        return True

    def _new(self, link: QueueLink, value: bytes) -> bytes | str:
        """The message as a new one, that has passed the link; or why there can be none."""
        passed = annotate.links_passed(value)
        if len(passed) >= annotate.LINK_ID_BYTES * annotate.LINKS_MAX:
            return f"it has passed {annotate.LINKS_MAX} links, the most that a message may"
        item = entry.unpack(value)
        fresh = entry.repack(
            item._replace(
                flags=item.flags & (entry.DURABLE | entry.BLOB),
                enqueued_ms=self._parts.clock.wall_ms,
                identity=None,
                trace=b"",
                to="",
            )
        )
        bytes_max = self._parts.config.limits.annotation_bytes_max + LINKS_BYTES
        marked = annotate.merge(fresh, annotate.to_add({LINKS: passed + link.link_id}), bytes_max)
        return "it has too many annotations to carry the link's" if marked is fresh else marked

    # ------------------------------------------------------------------------------------------------ decided

    def decided(self, effect: Handed, *, stored: bool) -> bool:
        """The turn is stored, or never was; whether anything was in the link's hands still."""
        link, moving, cursor = effect.link, effect.moving, effect.link.cursor
        if link.moving is not moving:
            return False  # tried again after a failure
        tied.untie(self._parts.catalog, cursor, moving.left)
        held = cursor.acquired
        mine = [sequence for sequence in moving.left if sequence in held and held[sequence].consumer is link]
        if stored:
            self._follow(link, moving)
            cursor.finish(mine)
            link.moved_total += len(moving.left) - moving.dead
            link.dead_total += moving.dead
        else:
            cursor.requeue(mine, failed=False)
            self._parts.links.wait_for_room(link)
        link.moving = None
        cursor.queue.touch()
        return True

    def _follow(self, link: QueueLink, moving: Moving) -> None:
        """What needs no disk follows."""
        target = link.target
        while moving.posts:
            value, size = moving.posts[0]
            if target is not None and self._parts.catalog.has(target):
                if isinstance(target, Topic):
                    target.tell(value, size)
                else:
                    target.append(value, size)
            moving.posts.popleft()
