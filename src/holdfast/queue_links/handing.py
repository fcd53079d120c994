"""Hands the entries that a link took to its target, in the turn's batch: each entry is appended there and leaves its
source with the same commit, or neither happens (docs/adr/0065).

Rules of this file: an entry for which the target has no room returns to its place, with all behind it, so that the
order stays; an entry that can never be passed on becomes a dead letter with the link's name and the reason. Changes of
its steps' windows are in the same batch (docs/adr/0068).
"""

from dataclasses import dataclass, field
from typing import Final

from holdfast.amqp.wire.extensions import LINKS
from holdfast.broker.entries import annotate, entry, packed
from holdfast.broker.message_records import record_message
from holdfast.broker.queue import Queue
from holdfast.broker.stored import records
from holdfast.broker.topic import Topic
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.names.identity import Identities
from holdfast.endpoints.addresses.remote_queues import RemoteQueues
from holdfast.endpoints.drains import has_something
from holdfast.endpoints.spreading import NOWHERE, Spreading
from holdfast.engine.clock import Clock
from holdfast.engine.effects import Effect
from holdfast.engine.outbox import Outbox
from holdfast.engine.port import EntryReader
from holdfast.links.disk import Disk
from holdfast.peers.limits.memory import Memory
from holdfast.peers.link_tables import LinkTables
from holdfast.queue_links.link import TAKEN_COUNT, Moving, QueueLink
from holdfast.queue_links.remote_room import RemoteRoom
from holdfast.settings.node import NodeConfig
from holdfast.state import tied
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room
from holdfast.state.turns import Turns
from holdfast.steps import pipeline
from holdfast.steps.message import StepMessage
from holdfast.steps.pipeline import Passed
from holdfast.steps.windows import Gathered

ENTRY_OVERHEAD: Final = 1_024
"""The maximum overhead of an entry beyond its value: its identity, address, and the links that it passed."""

ASKED_MAX: Final = 4_096
"""The maximum number of checks of a message against a topic's subscription, for one link in one turn."""

LINKS_BYTES: Final = annotate.LINK_ID_BYTES * annotate.LINKS_MAX + 64
"""Bytes that a message's annotations may have beyond their bound, for the links that it passed."""

CLOSED_COUNT: Final = 256
"""The maximum number of expired windows that one turn ends for one link."""


@dataclass(frozen=True, slots=True, eq=False)
class Handed(Effect):
    """Entries of a link are in the turn: it is told whether the turn was stored."""

    name: str
    link: QueueLink = field(repr=False)
    moving: Moving = field(repr=False)


@dataclass(frozen=True, slots=True)
class HandingParts:
    """What Handing uses of the node."""

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
    remote_queues: RemoteQueues
    spreading: Spreading


class Handing:
    """Hands over the entries that links took."""

    def __init__(self, parts: HandingParts, store: EntryReader) -> None:
        self._parts = parts
        self._store = store
        self.remote_room = RemoteRoom(parts.clock, parts.catalog)

    def room_for(self, link: QueueLink) -> int:
        """How many entries the link's target accepts now."""
        parts, target = self._parts, link.target
        if target is None or not parts.catalog.has(target):
            return 0
        if link.node is not None and not parts.forwarding.knows(link.node):
            return 0
        if link.dead_needs and not parts.dead_lettering.has_room_for_dead_letter(link.dead_needs):
            parts.links.wait_for_room(link)
            return 0
        if target.config.durable and (parts.disk.takes_nothing or not self._fits_disk(link.disk_needs)):
            parts.links.wait_for_room(link)
            return 0
        most = TAKEN_COUNT
        if isinstance(target, Topic):
            self.remote_room.end_if_back(link)
            if parts.spreading.learns(target) or self.remote_room.is_awaited_by(link):
                parts.links.wait_for_room(link)
                return 0
            most = max(1, min(most, ASKED_MAX // max(1, target.asked_most)))
        room = target.room(most) if not link.needs or target.fits(link.needs) else 0
        link.starved = not room
        if not room and target.memory is not None:
            parts.memory.wait(link)
        return room

    def forget(self, link: QueueLink) -> None:
        """The link does not wait for room in its target any more."""
        self._parts.memory.waiting.pop(link, None)
        self._parts.links.waiting_for_space.pop(link, None)
        self._parts.links.refills.pop(link, None)
        self.remote_room.forget(link)

    def _fits_disk(self, size: int) -> bool:
        return not size or self._parts.room.has(size + ENTRY_OVERHEAD)

    # ------------------------------------------------------------------------------------------------ into the turn

    def hand_over(self, link: QueueLink) -> None:
        """Puts the entries of the link into the turn, or back to their places; ends windows that are over."""
        parts, cursor, turn = self._parts, link.cursor, self._parts.turns.gathered
        taken = link.taken
        moving = Moving([sequence for sequence, _ in taken])
        if link.windows.steps:
            moving.gathered = Gathered(link.windows)
        effect = Handed(parts.turns.event, link.name, link, moving)
        link.moving, link.taken, link.taken_bytes = moving, [], 0
        turn.decided.append(effect)
        turn.changes += 1
        cursor.queue.work.request_commit()
        link.needs = link.disk_needs = link.dead_needs = 0
        target = link.target
        for sequence, value in taken:
            if target is None or not self._hand_one(link, target, moving, value):
                break
            moving.left.append(sequence)
        if cursor.queue.config.durable and moving.left:
            tied.retire(parts.catalog, turn, cursor, link, moving.left)
        back = moving.sequences[len(moving.left) :]
        if back:
            cursor.requeue(back, failed=False)
        elif target is not None and moving.gathered is not None:
            self._end_windows(link, target, moving, moving.gathered, packed.enqueued_ms_of(taken[-1][1]))
        self._put_rows(link, moving)

    def _hand_one(self, link: QueueLink, target: Queue, moving: Moving, value: bytes) -> bool:
        """Passes one entry through the steps and into the target; False if there is no room for the result."""
        if moving.gathered is None:
            return self._hand(link, target, moving, value)
        message = StepMessage(value, packed.enqueued_ms_of(value), self._store)
        passed = pipeline.run(link.windows.steps, message, moving.gathered)
        return self._hand_passed(link, target, moving, moving.gathered, passed, value)

    def _hand_passed(
        self, link: QueueLink, target: Queue, moving: Moving, gathered: Gathered, passed: Passed, value: bytes
    ) -> bool:
        """Handles the result of `value`, or, if that is b"", of a window that is over. False if there is no room for
        it; then nothing was changed."""
        message = passed.message
        if passed.failure:
            dead = value if message is None or message.is_input else message.value
            if not self._dead_letter(link, moving, dead, passed.failure):
                return False
        elif message is None:
            moving.dropped += bool(value)
        elif not self._hand(link, target, moving, message.value):
            return False
        elif not message.is_input and value:
            moving.dropped += 1
        gathered.add(passed.changes)
        return True

    # ------------------------------------------------------------------------------------------------ windows

    def end_windows(self, link: QueueLink) -> bool:
        """Ends windows of an idle link that are over, if the source certainly has no messages for them. False if that
        must wait, for room or for messages in the source."""
        parts, target = self._parts, link.target
        known_ms = self._known_ms(link)
        if known_ms is None or target is None or not self.room_for(link):
            return False
        gathered = Gathered(link.windows)
        moving = Moving([], gathered=gathered)
        link.needs = link.disk_needs = link.dead_needs = 0
        self._end_windows(link, target, moving, gathered, known_ms)
        if not gathered.changes:
            return False
        turn = parts.turns.gathered
        effect = Handed(parts.turns.event, link.name, link, moving)
        link.moving = moving
        turn.decided.append(effect)
        turn.changes += 1
        link.cursor.queue.work.request_commit()
        self._put_rows(link, moving)
        return True

    def _known_ms(self, link: QueueLink) -> int | None:
        """A wall time from before which the source has no messages that the link has not seen; None if it may have
        some."""
        cursor, now_ms = link.cursor, self._parts.clock.wall_ms
        queue = cursor.queue
        if has_something(cursor, link, watermarks=True):
            return None
        unshown, link.unshown = link.unshown, None
        if queue.visible >= queue.next_sequence:
            return now_ms
        if unshown is not None and queue.visible >= unshown[0]:
            link.unshown = queue.next_sequence, now_ms
            return unshown[1]
        link.unshown = unshown or (queue.next_sequence, now_ms)
        return None

    def _end_windows(self, link: QueueLink, target: Queue, moving: Moving, gathered: Gathered, known_ms: int) -> None:
        """Ends windows that are over, as many as there is room for, those of the first step first, because their
        results may belong to windows of later steps."""
        windows, left, now_ms = link.windows, min(CLOSED_COUNT, link.count_max), self._parts.clock.wall_ms
        for number in windows.rows:
            for key, row in windows.over(number, known_ms, now_ms, gathered):
                if not left:
                    return
                passed = pipeline.close(windows.steps, number, key, row, gathered)
                if not self._hand_passed(link, target, moving, gathered, passed, b""):
                    return
                left -= 1

    def _put_rows(self, link: QueueLink, moving: Moving) -> None:
        if moving.gathered is None:
            return
        batch = self._parts.turns.gathered.batch
        for (number, key), row in moving.gathered.changes.items():
            place = "windows", records.WINDOW.pack(link.link_id, link.windows.ids[number]) + key
            if row is None:
                batch.deletes.append(place)
            else:
                batch.puts[place] = row

    # ------------------------------------------------------------------------------------------------ one message

    def _hand(self, link: QueueLink, target: Queue, moving: Moving, value: bytes) -> bool:
        """Puts one entry into the target, or makes a dead letter of it; False if there is no room for it now."""
        parts = self._parts
        found = self._new(link, value)
        if isinstance(found, str):
            return self._dead_letter(link, moving, value, found)
        size = packed.size_of(found)
        full = parts.catalog.delayed_full(target.host) if parts.catalog.is_delayed(target, found) else ""
        if full:
            return self._dead_letter(link, moving, value, full)
        if not target.fits(size):
            link.needs = size
            self.room_for(link)  # it waits for this size
            return False
        if not target.config.durable:
            moving.posts.append((found, size))
            moving.passed += 1
            moving.reserved_in = target
            target.reserved += 1
            target.reserved_bytes += size
            return True
        branches = parts.spreading.branches(target, found) if isinstance(target, Topic) else NOWHERE
        needed = len(found) + (len(found) + ENTRY_OVERHEAD) * len(branches)
        if not self._fits_disk(needed):
            link.disk_needs = needed
            parts.links.wait_for_room(link)
            return False
        if isinstance(target, Topic):  # listeners get it once it is stored
            sizes = parts.spreading.sizes(branches, found)
            if (branch := parts.spreading.full(sizes)) is not None:
                link.needs = size
                self.remote_room.wait(link, branch.queue, sizes[branch])
                parts.links.wait_for_room(link)
                return False
            parts.spreading.spread(target, branches, found)
            sequence = target.append_now(found, size)
        else:
            if link.node is not None:
                identity = parts.identities.next(link.node)
                found = entry.repack(entry.unpack(found)._replace(identity=identity, to=link.to))
            sequence = target.append(found, size)
        if parts.config.telemetry_messages:
            record_message(parts.outbox, "stored", target, sequence, found)
        moving.passed += 1
        return True

    def _dead_letter(self, link: QueueLink, moving: Moving, value: bytes, why: str) -> bool:
        """False if there is no room for a dead letter."""
        parts = self._parts
        if not parts.dead_lettering.has_room_for_dead_letter(len(value)):
            link.dead_needs = len(value)
            parts.links.wait_for_room(link)
            return False
        parts.dead_lettering.dead_letter(link.config.vhost, value, f"link {link.name!r}: {why}", link.source)
        moving.dead += 1
        return True

    def _new(self, link: QueueLink, value: bytes) -> bytes | str:
        """The message as a new one that has passed the link, or why there cannot be one."""
        passed = annotate.links_passed(value)
        if len(passed) >= annotate.LINK_ID_BYTES * annotate.LINKS_MAX:
            return f"it has passed {annotate.LINKS_MAX} links, the most that a message may"
        item = entry.unpack(value)
        fresh = entry.repack(
            annotate.without_relayed(item)._replace(
                flags=item.flags & (entry.DURABLE | entry.BLOB),
                enqueued_ms=self._parts.clock.wall_ms,
                identity=None,
                trace=b"",
                to="",
                earlier=None if link.cursor.is_links or link.node is not None else item.earlier,
            )
        )
        bytes_max = self._parts.config.limits.annotation_bytes_max + LINKS_BYTES
        marked = annotate.merge(fresh, annotate.to_add({LINKS: passed + link.link_id}), bytes_max)
        return "it has too many annotations to carry the link's" if marked is fresh else marked

    # ------------------------------------------------------------------------------------------------ decided

    def decided(self, effect: Handed, *, stored: bool) -> bool:
        """The turn was stored or undone; returns whether the link still held anything."""
        link, moving, cursor = effect.link, effect.moving, effect.link.cursor
        if link.moving is not moving:
            return False  # tried again after a failure
        tied.untie(self._parts.catalog, cursor, moving.left)
        held = cursor.acquired
        own = moving.left if stored else moving.sequences  # if it failed half way, it holds more than leaves
        mine = [sequence for sequence in own if sequence in held and held[sequence].consumer is link]
        if stored:
            self._follow(link, moving)
            cursor.finish(mine)
            link.moved_total += moving.passed
            link.dead_total += moving.dead
            link.dropped_total += moving.dropped
            if moving.gathered is not None:
                link.windows.apply(moving.gathered.changes)
        else:
            while moving.posts:
                self._drop_post(moving)
            cursor.requeue(mine, failed=False)
            self._parts.links.wait_for_room(link)
        link.moving = None
        cursor.queue.touch()
        return True

    def _follow(self, link: QueueLink, moving: Moving) -> None:
        """Does what needs no disk."""
        target = link.target
        while moving.posts:
            value, size = moving.posts[0]
            if target is not None and self._parts.catalog.has(target):
                target.append(value, size)
            self._drop_post(moving)

    @staticmethod
    def _drop_post(moving: Moving) -> None:
        """The first post was delivered or dropped: its reserved room is free again."""
        _, size = moving.posts.popleft()
        queue = moving.reserved_in
        if queue is not None:
            queue.reserved -= 1
            queue.reserved_bytes -= size
            queue.touch()
