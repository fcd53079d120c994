"""This node as a destination: each origin's messages once, in order, into their queues (CUSTODY, "End to end").

Rules of this file: the decision about a copy is stored in the same batch as the append that follows from it; a copy
that must wait is in `$waiting` until its turn; a message that its queue refuses becomes a dead letter with the reason.
"""

from itertools import islice
from typing import Final
from uuid import UUID

from holdfast.broker.dropping import make_room
from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.host_names import HostedName, hosted, said_in
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.message_records import record_message
from holdfast.broker.queue import Queue
from holdfast.broker.stored.custody_records import origin_key, pack_origin
from holdfast.broker.stored.groups import Group, Waiting
from holdfast.broker.stored.origins import Origin, Verdict
from holdfast.custody.arrival.duplicates import Duplicates
from holdfast.custody.arrival.faults import FaultOf, no_message
from holdfast.custody.arrival.full_queues import WAITERS_MAX, FullQueues
from holdfast.custody.arrival.group_bounds import NO_ROOM, GroupBounds
from holdfast.custody.arrival.path_check import PathCheck
from holdfast.custody.arrival.places import Needed, Places
from holdfast.custody.arrival.share import Share
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.transfers import carried
from holdfast.custody.transfers.carried import Arrival
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.peers.link_tables import LinkTables
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import WAITING, Catalog
from holdfast.state.losses import Losses
from holdfast.state.room import Room
from holdfast.state.turns import Turn, Turns, Undone

TICK_S: Final = 1.0
"""How often the time waited for a missing number is counted, and stored."""

NEXT_BYTES: Final = 1024 * 1024
"""Bytes of the store's reserve that the next expected number of an origin may use beyond those of forwarding."""

LOAD_COUNT: Final = 1_000
LOAD_BYTES: Final = 8 * 1024 * 1024
"""Bytes of waiting messages that are read at once when the node starts."""

RELEASE_COUNT: Final = 500
RELEASE_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one turn moves from `$waiting` to the queues at most, and one message or group more (ADR 0013)."""

ENTRY_BYTES: Final = 256
"""Bytes that an entry in custody has besides its message, about."""

LOOKS_MAX: Final = 5_000
"""Waiting numbers that one turn looks at."""

ORIGINS_A_TURN: Final = 1_000
"""Origins whose waiting time one turn counts, and origins blocked by a full queue that one turn tries again."""

TICK_RANGES: Final = 32_768
"""Ranges of numbers in the records of those origins, and one origin's more, because each is copied and written."""

GRACE_S: Final = 60.0
"""After a node name came back with a new store, how long the old one's gaps stay open."""


class Destination:
    """All origins that send messages to this node."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        catalog: Catalog,
        turns: Turns,
        room: Room,
        outbox: Outbox,
        log: Log,
        links: LinkTables,
        losses: Losses,
        dead_lettering: DeadLettering,
        duplicates: Duplicates,
    ) -> None:
        self._config = config
        self._clock = clock
        self._turns = turns
        self._room = room
        self._outbox = outbox
        self._log = log
        self._losses = losses
        self._dead_lettering = dead_lettering
        self._duplicates = duplicates
        self.catalog = catalog
        self._ledger = catalog.ledger
        self.stored_marks = self._ledger.marks()
        self.waiters: dict[Origin, None] = {}
        """Origins with waiting messages."""
        self.releasing: dict[Origin, list[int]] = {}
        """Origins with messages that may be released: `step` moves a share in each turn. The value: numbers that may
        pass a gap, the next one last; empty: not gathered yet."""
        self.blocked: dict[Origin, Needed | None] = {}
        """Origins whose next message finds its queue full, and the room that it needs; None: to be examined again."""
        self.groups = GroupBounds(config.limits, log)
        self.full = FullQueues(clock, catalog, links)
        self.places = Places(catalog, room, self.full)
        self.ticking: list[Origin] = []
        """Origins whose waiting time is still to be counted in this round."""
        self.ticked_s = 0.0
        """The length of the round in seconds."""
        self.ticked_at = clock.now
        self.next_tick: float | None = None
        self.paths = PathCheck(config.name)
        self.fault_of: FaultOf = no_message
        self.closing: dict[UUID, float] = {}
        """Old stores of nodes that came back with a new store, and when their gaps close."""
        self._load_waiting()  # before the gaps are asked for: what waits shows them
        self.closing_former: float | None = None
        """When the gaps close of messages that wait since this node had another name: no node will fill them."""
        self._keep_former()
        for uuid in self._ledger.replaced:  # the grace begins anew, lest a restart keep gaps for ever
            self.closing[uuid] = clock.now + GRACE_S

    def _load_waiting(self) -> None:
        for held in [queue for queue in self.catalog.queues.values() if queue.kind is QueueKind.WAITING]:
            self._load_from(held)
        for origin in self.waiters:
            self.release(origin)

    def _load_from(self, held: Queue) -> None:
        first = 0
        while found := held.read(first, count_max=LOAD_COUNT, bytes_max=LOAD_BYTES):
            for sequence, value in found:
                item = entry.unpack(value)
                if item.identity is not None:
                    origin = self._ledger.origin_at(held.host, item.identity.origin, sequence)
                    group = self.groups.range_of(item.identity, item.group)
                    waited_s = max(0, self._clock.wall_ms - item.enqueued_ms) / 1000
                    waiting = Waiting(
                        sequence, item.to, "", 0.0, group, self._clock.now - waited_s, item.size, len(value)
                    )
                    self._wait(origin, item.identity.number, waiting, origin.waited_before_s)
            first = found[-1][0] + 1

    def _keep_former(self) -> None:
        """Keeps, of the records for an earlier name of this node, those by which messages still wait."""
        former = self._ledger.former_origins
        turns, now = self._turns, self._clock.now
        if turns.in_flight is not None or turns.gathered.moves:  # what a full disk refuses will wait again
            self.closing_former = now + TICK_S
            return
        for key in [key for key, origin in former.items() if not origin.waiting]:
            del former[key]
        if former:
            self.closing_former = now + (GRACE_S if self.closing_former is None else TICK_S)
        else:
            self.closing_former = None
            self._ledger.forget_waited()

    def _wait(self, origin: Origin, number: int, waiting: Waiting, waited_s: float) -> None:
        """Has the message wait by the present `order` of its queue."""
        queue = self.catalog.find(origin.host, waiting.queue)
        waiting.order = queue.config.order if queue is not None else "bounded"
        waiting.order_wait_s = queue.config.order_wait_s if queue is not None else 30.0
        origin.wait(number, waiting, waited_s)
        if origin in self.releasing:
            self.releasing[origin] = []  # it may be among those that go past a gap
        self._begin_ticks(origin)

    def _begin_ticks(self, origin: Origin) -> None:
        self.waiters[origin] = None
        if self.next_tick is None:
            self.ticked_at = self._clock.now
            self.next_tick = self._clock.now + TICK_S

    # ------------------------------------------------------------------------------------------------ arrivals

    def take(self, host: str, arrival: Arrival, *, message_format: int, via: str) -> bool | None:
        """True: decided and added to the turn. False: there is no place for it. None: its queue is full, wait for room.

        `host`: the virtual host that it is for. `via`: the neighbour that brought it.
        """
        uuid, number = arrival.identity
        origin = self._ledger.by_host[host].get(uuid) or self._new(host, uuid)
        if origin is None:
            return False
        if arrival.receipt > origin.mark:
            self._adopt(origin, arrival.receipt)
        if arrival.tombstone:
            if not origin.may_end(number, self._config.limits.ranges_max):
                return False
            self._turns.gathered.keep_origin(origin)
            origin.end(number)
            self._changed(origin)
            self.release(origin)
            return True
        fault = self.fault_of(host, arrival, via)
        queue = self.catalog.local_or_none(host, arrival.to) if fault is None else None
        keeps = queue is not None and queue.config.durable
        order = queue.config.order if queue is not None and keeps else "none"
        wait_s = queue.config.order_wait_s if queue is not None else 0.0
        group = None
        if arrival.group is not None:
            size = len(arrival.bare) + len(arrival.notes.items) + ENTRY_BYTES
            group = self.groups.admit(origin, number, arrival.group, size) if keeps else None
            if group is None:
                arrival.group = None
                origin.groups.due = bool(origin.groups.by_first)  # the others may need this one alone
        verdict = origin.decide(
            number, order, order_wait_s=wait_s, ranges_max=self._config.limits.ranges_max, group=group
        )
        if verdict is Verdict.DUPLICATE:
            origin.duplicates += 1
            self._duplicates.suppressed += 1
            return True
        if verdict is Verdict.FULL:
            return False
        size, waits = arrival.size, verdict is Verdict.WAIT
        begins = not waits or (group is not None and group[0] not in origin.groups.by_first)
        if begins and queue is not None and keeps and not queue.fits(size) and queue.config.when_full == "block":
            self.full.no_room(queue.key, size, via)  # before it is copied: it is asked about in each turn
            return None
        overtaken = group is not None and order == "bounded" and number < origin.passed
        value = self._pack(arrival, message_format, late=verdict is Verdict.LATE or overtaken)
        if not waits and self.catalog.is_delayed(queue, value) and self.catalog.delayed_full(host):
            return False
        if not waits and keeps and (onward := self.places.onward(queue, value)) is not None:
            if onward.waits_for is None:
                self.full.no_room(onward.places[0][0], onward.places[0][2], via)
            return None
        reserve = NEXT_BYTES if number == origin.next_missing else 0
        if not self._room.has(len(value), forwarding=True, reserve=reserve):
            return False if self._room.is_known else None
        if waits:
            self._turns.gathered.keep_origin(origin)
            self._turns.gathered.waiting_changes(origin, number)
            self.paths.arrived(arrival.trace)
            held = self.catalog.own(host, WAITING)
            ahead_s = 0.0 if self.next_tick is None else self._clock.now - self.ticked_at
            held_at = held.append(value, size)
            waiting = Waiting(held_at, arrival.to, "", 0.0, group, self._clock.now, size, len(value))
            self._wait(origin, number, waiting, -ahead_s)
            self._changed(origin)
            self.release(origin)
            return True
        self._turns.gathered.keep_origin(origin)
        self.paths.arrived(arrival.trace)
        goes_on = order == "bounded" and verdict is Verdict.DELIVER and origin.missing_below(number)
        self._deliver(origin, number, queue, value, size, arrival.to, fault)
        if goes_on:
            origin.went_on(number)
        elif verdict is Verdict.LATE:
            origin.late += 1
        self.release(origin)
        return True

    def _new(self, host: str, uuid: UUID) -> Origin | None:
        """Creates the record of an unknown origin; None if there is no place for one more."""
        if len(self._ledger.by_host[host]) >= self._config.limits.origins_max:
            text = f"origin {uuid}: {self._config.limits.origins_max} origins are known, the most that may be"
            self._log.write("ERROR", f"{text}: its messages go back; raise origins_max")
            return None
        return self._ledger.origin(host, uuid)

    def _adopt(self, origin: Origin, receipt: int) -> None:
        """Adopts the origin's receipt, which is ahead of our record: our disk is new, or was rolled back."""
        self._turns.gathered.keep_origin(origin)
        known = origin.mark > 0
        missing = origin.end(origin.mark + 1, receipt)
        # Nothing of it is waited for; a copy that another disk still holds comes as a late one.
        reason = "this node's store is older than the marks that it has sent"
        if not known:
            reason = "they were stored on this node's former disk; messages that no consumer had taken are lost"
        self._losses.add(origin.origin, missing, said_in(origin.host, reason))
        self._changed(origin)

    def _pack(self, arrival: Arrival, message_format: int, *, late: bool) -> bytes:
        clock = self._clock
        return carried.entry_of(
            arrival,
            enqueued_ms=clock.wall_ms,
            steady_ms=clock.steady_ms,
            message_format=message_format,
            trace=arrival.trace,
            late=late,
        )

    def _deliver(
        self, origin: Origin, number: int, queue: Queue | None, value: bytes, size: int, to: str,
        fault: str | None = None,
    ) -> None:  # fmt: skip
        """Appends the message to its queue, or to the dead letters if the queue does not accept it or it has that
        fault."""
        if fault is not None:
            self._dead_lettering.dead_letter(origin.host, value, fault, to)
        elif queue is None:
            self._dead_lettering.dead_letter(origin.host, value, f"no queue {to!r} at {self._config.name!r}", to)
        elif not queue.config.durable:  # custody ends on a disk
            self._dead_lettering.dead_letter(
                origin.host, value, f"queue {to!r} is in memory and takes nothing from other nodes", to
            )
        elif not queue.fits(size) and not (queue.config.when_full == "drop-oldest" and make_room(queue, size)):
            self._dead_lettering.dead_letter(origin.host, value, f"queue {to!r} is full", to)
        else:
            full = self.full.by_key.get(queue.key)
            if full is not None and size >= full.size:  # there was room: when it is full again, it is since then
                del self.full.by_key[queue.key]
            sequence = queue.append(value, size)
            if self._config.telemetry_messages:
                record_message(self._outbox, "received", queue, sequence, value)
        origin.finish(number)
        self._changed(origin)

    def _changed(self, origin: Origin) -> None:
        """Adds its record to the turn's batch, once however often it changes."""
        self._turns.gathered.touched[origin] = None

    # ------------------------------------------------------------------------------------------------ turns

    def before_commit(self, turn: Turn) -> None:
        names = self._ledger.names
        for origin in turn.touched:
            self._ledger.put_origin(origin)
            if origin.suffix == names.own(origin.host):
                turn.reached[origin.origin, origin.host] = origin.mark

    def committed(self, turn: Turn) -> None:
        self.stored_marks.update(turn.reached)

    def undo(self, undone: Undone) -> None:
        """Messages that a refused turn had released wait again; messages that it had accepted do not."""
        batch = self._turns.gathered.batch
        for turn in undone.turns:
            for origin, (before, waiting) in turn.origins.items():
                origin.restore(before, waiting)
                self._restored(origin)
                batch.puts[origin_key(origin.origin, origin.suffix)] = pack_origin(before)

    def _restored(self, origin: Origin) -> None:
        self.blocked.pop(origin, None)  # what was found of it may never have been
        self.places.keep_none()
        self.releasing.pop(origin, None)
        if origin.waiting:
            self._begin_ticks(origin)
            self.release(origin)

    # ------------------------------------------------------------------------------------------------ waiting

    @property
    def busy(self) -> bool:
        """Whether the next turn has something to do here."""
        return bool(self.releasing or self.ticking)

    def release(self, origin: Origin) -> None:
        """Releases messages that need not wait: from this turn on they move from `$waiting` to their queues, in
        order."""
        if origin in self.blocked:
            self.blocked[origin] = None  # another may be the next by now
        elif origin.may_release:
            self.releasing.setdefault(origin, [])

    def step(self) -> None:
        """Moves this turn's share of the messages that were released."""
        self.places.keep_none()
        for origin in list(islice(self.blocked, ORIGINS_A_TURN)):
            needed = self.blocked.pop(origin)
            if needed is not None and not self.places.has_place(needed):
                self.blocked[origin] = needed  # behind the others
                self.places.keep_room(needed)
            else:
                self.release(origin)
        share = Share(RELEASE_COUNT - len(self._turns.gathered.moves), RELEASE_BYTES, LOOKS_MAX)
        for origin in list(self.releasing):
            if share.is_used:
                break
            past_gap = self.releasing.pop(origin)
            if self._release_some(origin, past_gap, share):
                self.releasing[origin] = past_gap  # behind the others

    def _release_some(self, origin: Origin, past_gap: list[int], share: Share) -> bool:
        """Returns whether there may be more."""
        while not share.is_used:
            if origin.groups.due or origin.groups.apart:
                if not self._release_groups(origin, share):
                    return False
                continue
            share.looks -= 1
            number = origin.in_order()
            in_order = None if number is None else origin.waiting[number].group
            if in_order is not None:
                group = origin.groups.by_first[in_order[0]]
                if origin.may_show(group):
                    if not self._show(origin, group, share):
                        return False
                    continue
                number = None
            if number is None:
                if not past_gap:
                    if origin.clocks.longest_s < origin.shortest_wait_s:
                        return False
                    past_gap += sorted(
                        [key for key, item in origin.waiting.items() if item.order == "bounded" and item.group is None]
                    )[::-1]
                    share.looks -= len(past_gap) // 10
                number = past_gap.pop() if past_gap else None
                if number is None or origin.waited_s(number) < origin.shortest_wait_s:
                    return False  # later ones waited no longer
                item = origin.waiting.get(number)
                if item is None or item.group is not None or not origin.waited_enough(number):
                    if not past_gap:
                        return False
                    continue
            if not self._move(origin, number, share):
                return False
        return True

    def _move(self, origin: Origin, number: int, share: Share) -> bool:
        """Moves one message. False, and the origin is blocked, if there is no room for it or it is not on disk yet.
        Bytes read count either way: a blocked one is not read again before there is room for it."""
        waiting = origin.waiting[number]
        held = self.catalog.own(origin.host, WAITING)
        value = held.value(waiting.held_at)
        if value is None:  # taken in this very turn: its bytes are in the batch, the next turn moves it
            self.blocked[origin] = None
            return False
        share.bytes -= len(value)
        queue = self.catalog.local_or_none(origin.host, waiting.queue)
        size = packed.size_of(value)
        place = hosted(origin.host, waiting.queue) if queue is None else queue.key
        needed = Needed(origin.host, ((place, 1, size),), len(value), self.catalog.is_delayed(queue, value))
        needed = self.places.onward(queue, value) or needed
        if not self.places.has_place(needed):
            self.blocked[origin] = needed
            return False
        gone_on = waiting.order == "bounded" and origin.missing_below(number)
        self._turns.gathered.keep_origin(origin)
        self._move_out(origin, number, value)
        if value[1] & entry.GROUP:  # it was given up
            value = entry.shown(value, late=waiting.order == "bounded" and number < origin.passed)
        self._deliver(origin, number, queue, value, size, waiting.queue)
        if gone_on:
            origin.went_on(number)
        share.count -= 1
        return True

    def _move_out(self, origin: Origin, number: int, value: bytes) -> None:
        """Removes the message from those that wait; the origin is kept already."""
        self._turns.gathered.waiting_changes(origin, number)
        waiting = origin.leave(number)
        self._dead_lettering.move_out(self.catalog.own(origin.host, WAITING), waiting.held_at, value)

    def _release_groups(self, origin: Origin, share: Share) -> bool:
        """Releases messages of groups that were given up, and complete groups; False if the origin is blocked. At least
        one of them, also where the look at all groups takes the rest of the share: it would take it again."""
        groups = origin.groups
        for number in list(groups.apart):
            share.looks -= 1
            if not self._move(origin, number, share):
                return False
            if share.is_used:
                return True
        groups.due = False
        share.looks -= 1 + len(groups.by_first) // 10
        for group in list(groups.by_first.values()):
            if not origin.may_show(group):
                continue
            goes_on = self._show(origin, group, share)
            if not goes_on or share.is_used:
                groups.due = True
                return goes_on
        return True

    def _show(self, origin: Origin, group: Group, share: Share) -> bool:
        """Moves all of a group at once, or gives it up; False if the origin is blocked, as in `_move`."""
        held = self.catalog.own(origin.host, WAITING)
        numbers = sorted(group.members)
        values = [held.value(origin.waiting[number].held_at) for number in numbers]
        share.bytes -= group.stored_bytes
        found = [value for value in values if value is not None]
        if len(found) < len(values):  # taken in this very turn
            self.blocked[origin] = None
            return False
        needed = self.places.of_group(
            origin.host, [origin.waiting[number] for number in numbers], found, group.stored_bytes
        )
        never = self.places.never_fits(needed)
        if never is not None:
            self.groups.give_up(origin, group, NO_ROOM, never)
            return True
        if not self.places.has_place(needed):
            self.blocked[origin] = needed
            self.places.keep_room(needed)
            return False
        self._turns.gathered.keep_origin(origin)
        past_gap = origin.missing_below(numbers[0])
        share.count -= len(numbers)
        for number, value in zip(numbers, found, strict=True):
            item = origin.waiting[number]
            bounded = item.order == "bounded"
            late = bounded and number < origin.passed
            origin.late += late
            self._move_out(origin, number, value)
            shown = entry.shown(value, late=late)
            queue = self.catalog.local_or_none(origin.host, item.queue)
            self._deliver(origin, number, queue, shown, item.size, item.queue)
            if past_gap and bounded:
                origin.went_on(number)
        return True

    def expire(self, held: Queue, sequence: int, value: bytes) -> bool:
        """Finishes a message in that `$waiting` that has expired, and its number; False if its origin's record has no
        place for one more range now."""
        uuid, number = packed.identity_of(value)
        origin = self._ledger.origin_at(held.host, uuid, sequence)
        waiting = origin.waiting.get(number)
        if waiting is None or waiting.held_at != sequence or not origin.has_row_for(number):
            return False
        self._turns.gathered.keep_origin(origin)
        self._turns.gathered.waiting_changes(origin, number)
        origin.leave(number)
        self._dead_lettering.move_out(held, sequence, value)
        origin.finish(number)
        self._changed(origin)
        self.release(origin)
        return True

    def blocked_by(self, key: HostedName) -> int:
        """Origins with messages in `$waiting` that wait for room in that queue, at most WAITERS_MAX."""
        blocked = islice(self.blocked.values(), WAITERS_MAX)
        return sum(needed is not None and key in [place[0] for place in needed.places] for needed in blocked)

    # ------------------------------------------------------------------------------------------------ time

    def tick(self, now: float) -> None:
        """Counts the time waited into the stored clocks, so that restarts do not begin it anew."""
        for uuid, at in list(self.closing.items()):
            if now >= at:
                found = [origins[uuid] for origins in self._ledger.by_host.values() if uuid in origins]
                gaping = [origin for origin in found if origin.gaps(1)]
                if not gaping:  # asked again until it is done: a full disk undoes it
                    del self.closing[uuid]
                    self._ledger.drop_replaced(uuid)
                    continue
                self.closing[uuid] = now + TICK_S
                for origin in gaping:
                    self.skip(origin, "its store was replaced")
        if self.closing_former is not None and now >= self.closing_former:
            for origin in list(self._ledger.former_origins.values()):
                self.skip(
                    origin, f"they were for {self._ledger.names.name_of(origin.suffix)!r}, a former name of this node"
                )
            self._keep_former()
        if not self.ticking:
            if self.next_tick is None or now < self.next_tick:
                return
            self.ticking = list(self.waiters)
            self.ticked_s, self.ticked_at = now - self.ticked_at, now
            self.next_tick = now + TICK_S
        ranges = 0
        for _ in range(min(ORIGINS_A_TURN, len(self.ticking))):
            if ranges >= TICK_RANGES:
                break
            origin = self.ticking.pop()
            if not origin.waiting:
                self.waiters.pop(origin, None)
                continue
            self._turns.gathered.keep_origin(origin)
            ranges += len(origin.finished) + len(origin.ended) + len(origin.clocks)
            origin.clocks.pass_time(self.ticked_s)
            self._changed(origin)
            self.groups.end_overdue(origin, now)
            origin.groups.due = bool(origin.groups.by_first)
            self.release(origin)
        if not self.ticking and not self.waiters:
            self.next_tick = None

    def replaced(self, store: UUID) -> None:
        """The node of that store came back with another store: the old one's gaps close after a grace time."""
        self.closing[store] = self._clock.now + GRACE_S

    def lives(self, store: UUID) -> None:
        """That store is in use by its neighbour: its gaps stay open."""
        self.closing.pop(store, None)

    def skip(self, origin: Origin, reason: str) -> list[tuple[int, int]]:
        """Closes an origin's gaps; returns the ranges that count as lost."""
        self._turns.gathered.keep_origin(origin)
        lost = origin.skip()
        if lost:
            self._losses.add(origin.origin, lost, said_in(origin.host, reason))
            self._changed(origin)
            self.release(origin)
        return lost

    def next_deadline(self) -> float | None:
        at = self._clock.now if self.ticking else self.next_tick
        moments = [*self.closing.values(), *(item for item in (at, self.closing_former) if item is not None)]
        return min(moments, default=None)
