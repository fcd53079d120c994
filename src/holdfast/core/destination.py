"""This node as a destination: each origin's messages once, in order, into their queues (CUSTODY, "End to end").

Rules of this file: what is decided about a copy is stored with the append that follows from it; a copy that must
wait lies in `$waiting` until its turn; what its own queue refuses goes to the dead letters with the reason.
"""

from typing import TYPE_CHECKING, Final
from uuid import UUID

from holdfast.broker import entry
from holdfast.broker.custody import Origin, Verdict, Waiting
from holdfast.broker.queue import Queue
from holdfast.core import carried
from holdfast.core.catalog import WAITING
from holdfast.core.endings import dead_letter
from holdfast.core.verification import Verification

if TYPE_CHECKING:
    from holdfast.core.carried import Arrival
    from holdfast.core.node import NodeCore

TICK_S: Final = 1.0
"""How often the time waited for a missing number is counted, and stored."""

NEXT_BYTES: Final = 1024 * 1024
"""What of the store's reserve the next expected number of an origin may use beyond that of forwarding."""

GRACE_S: Final = 60.0
"""After a node name came back with a new store, how long the old one's gaps stay open."""


class Destination:
    """All origins that send here."""

    def __init__(self, core: "NodeCore") -> None:
        self.core = core
        self.catalog = core.catalog
        self.stored_marks: dict[UUID, int] = {origin.origin: origin.mark for origin in self.catalog.origins.values()}
        self.touched: dict[Origin, None] = {}
        self.blocked: dict[Origin, None] = {}
        """Origins whose next message finds its queue full."""
        self.next_tick: float | None = None
        self.paths = Verification(core)
        self.closing: dict[UUID, float] = {}
        """Old stores of names that came back with a new one, and when their gaps close."""
        self._load_waiting()  # before the gaps are asked for: what waits shows them
        for uuid in self.catalog.replaced:  # the grace begins anew, lest a restart keep gaps for ever
            self.closing[uuid] = core.now + GRACE_S

    def _load_waiting(self) -> None:
        held = self.catalog.queues.get(WAITING)
        if held is None or not held.messages:
            return
        first = 0
        while found := held.read(first, count_max=1_000, bytes_max=8 * 1024 * 1024):
            for sequence, value in found:
                item = entry.unpack(value)
                if item.identity is not None:
                    self._wait(self._origin(item.identity.origin), item.identity.number, sequence, item.to)
            first = found[-1][0] + 1
        if any(origin.waiting for origin in self.catalog.origins.values()):
            self.next_tick = self.core.now + TICK_S

    def _origin(self, uuid: UUID) -> Origin:
        origin = self.catalog.origins.get(uuid)
        if origin is None:
            origin = self.catalog.origins[uuid] = Origin(uuid)
        return origin

    def _wait(self, origin: Origin, number: int, held_at: int, name: str) -> None:
        queue = self.catalog.queues.get(name)
        order = queue.config.order if queue is not None else "bounded"
        order_wait_s = queue.config.order_wait_s if queue is not None else 30.0
        origin.waiting[number] = Waiting(held_at, name, order, order_wait_s)

    # ------------------------------------------------------------------------------------------------ arrivals

    def take(self, arrival: "Arrival", *, message_format: int) -> bool | None:
        """True: decided and taken into the turn. False: no place for it. None: its queue is full, wait for room."""
        core = self.core
        uuid, number = arrival.identity
        if uuid not in self.catalog.origins and len(self.catalog.origins) >= core.config.limits.origins_max:
            core.log("ERROR", f"origin {uuid}: {core.config.limits.origins_max} origins are known, no more are taken")
            return False
        origin = self._origin(uuid)
        if arrival.receipt > origin.mark:
            self._adopt(origin, arrival.receipt)
        if arrival.tombstone:
            if not origin.may_end(number, core.config.limits.ranges_max):
                return False
            core.turn.keep_origin(origin)
            origin.end(number)
            self._changed(origin)
            self.release(origin)
            return True
        queue = self.catalog.local_or_none(arrival.to)
        keeps = queue is not None and queue.config.durable
        order = queue.config.order if queue is not None and keeps else "none"
        wait_s = queue.config.order_wait_s if queue is not None else 0.0
        verdict = origin.decide(number, order, order_wait_s=wait_s, ranges_max=core.config.limits.ranges_max)
        if verdict is Verdict.DUPLICATE:
            origin.duplicates += 1
            core.duplicates_suppressed += 1
            return True
        if verdict is Verdict.FULL:
            return False
        value, size = self._pack(arrival, message_format, late=verdict is Verdict.LATE)
        reserve = NEXT_BYTES if number == origin.next_missing else 0
        if not core.has_room(len(value), forwarding=True, reserve=reserve):
            return False if core.room_is_known else None
        if verdict is Verdict.WAIT:
            core.turn.keep_origin(origin)
            self.paths.arrived(arrival.trace)
            held = self.catalog.own(WAITING)
            self._wait(origin, number, held.append(value, size), arrival.to)
            self._changed(origin)
            if self.next_tick is None:
                self.next_tick = core.now + TICK_S
            return True
        if queue is not None and keeps and not queue.fits(size) and queue.config.when_full == "block":
            return None
        core.turn.keep_origin(origin)
        self.paths.arrived(arrival.trace)
        goes_on = order == "bounded" and verdict is Verdict.DELIVER and origin.missing_below(number)
        self._deliver(origin, number, queue, value, size, arrival.to)
        if goes_on:
            origin.went_on(number)
        elif verdict is Verdict.LATE:
            origin.late += 1
        self.release(origin)
        return True

    def _adopt(self, origin: Origin, receipt: int) -> None:
        """The origin has our word for more than we know: our disk is new, or was rolled back."""
        self.core.turn.keep_origin(origin)
        known = origin.mark > 0
        missing = origin.end(origin.mark + 1, receipt)
        if known:
            self.core.lost(origin.origin, missing, "this node's store is older than its own word")
        else:  # nothing below is waited for; a copy of it that another disk still holds comes as a late one
            self.core.log(
                "INFO", f"origin {origin.origin}: begins at {receipt}, as this node said before its disk was new"
            )
        self._changed(origin)

    def _pack(self, arrival: "Arrival", message_format: int, *, late: bool) -> tuple[bytes, int]:
        clock = self.core.clock
        value = carried.entry_of(
            arrival,
            enqueued_ms=clock.wall_ms,
            steady_ms=clock.steady_ms,
            message_format=message_format,
            trace=arrival.trace,
            late=late,
        )
        return value, arrival.size

    def _deliver(self, origin: Origin, number: int, queue: Queue | None, value: bytes, size: int, to: str) -> None:
        """Appends to the queue, or to the dead letters where the queue will not have it."""
        if queue is None:
            dead_letter(self.core, value, f"no queue {to!r} at {self.core.config.name!r}", to)
        elif not queue.config.durable:  # custody ends on a disk
            dead_letter(self.core, value, f"queue {to!r} is in memory and takes nothing from other nodes", to)
        elif not queue.fits(size):
            dead_letter(self.core, value, f"queue {to!r} is full", to)
        else:
            sequence = queue.append(value, size)
            if self.core.config.telemetry_messages:
                self.core.record_message("received", queue, sequence, value)
        origin.finish(number)
        self._changed(origin)

    def _changed(self, origin: Origin) -> None:
        self.touched[origin] = None
        self.catalog.put_origin(origin)

    # ------------------------------------------------------------------------------------------------ waiting

    def release(self, origin: Origin) -> None:
        """Moves what waits no longer from `$waiting` to its queue, in order."""
        while (number := origin.releasable()) is not None:
            waiting = origin.waiting[number]
            held = self.catalog.own(WAITING)
            value = held.value(waiting.held_at)
            if value is None:  # taken in this very turn: its bytes are in the batch, the next turn moves it
                self.blocked[origin] = None
                return
            size = entry.size_of(value)
            queue = self.catalog.local_or_none(waiting.queue)
            full = queue is not None and not queue.fits(size) and queue.config.when_full == "block"
            if full or not self.core.has_room(len(value), forwarding=True):
                self.blocked[origin] = None
                return
            self.core.turn.keep_origin(origin)
            gone_on = origin.missing_below(number)
            del origin.waiting[number]
            self.core.move_out(held, waiting.held_at, value)
            self._deliver(origin, number, queue, value, size, waiting.queue)
            if gone_on:
                origin.went_on(number)
        self.blocked.pop(origin, None)

    def retry_blocked(self) -> None:
        for origin in list(self.blocked):
            self.release(origin)

    def tick(self, now: float) -> None:
        """Counts the time waited into the stored gap, so that restarts do not begin it anew."""
        for uuid, at in list(self.closing.items()):
            if now >= at:
                origin = self.catalog.origins.get(uuid)
                if origin is None or not origin.gaps():  # asked again until it is done: a full disk undoes it
                    del self.closing[uuid]
                    self.catalog.drop_replaced(uuid)
                    continue
                self.closing[uuid] = now + TICK_S
                self.skip(origin, "its store was replaced")
        if self.next_tick is None or now < self.next_tick:
            return
        waited_s = now - self.next_tick + TICK_S
        waits = False
        for origin in self.catalog.origins.values():
            if origin.waiting:
                self.core.turn.keep_origin(origin)
                origin.waited_s += waited_s
                self._changed(origin)
                self.release(origin)
                waits = waits or bool(origin.waiting)
        self.next_tick = now + TICK_S if waits else None

    def skip(self, origin: Origin, reason: str) -> list[tuple[int, int]]:
        """Closes an origin's gaps; returns the ranges that count as lost."""
        self.core.turn.keep_origin(origin)
        lost = origin.skip()
        if lost:
            self.core.lost(origin.origin, lost, reason)
            self._changed(origin)
            self.release(origin)
        return lost

    # ------------------------------------------------------------------------------------------------ receipts

    def snapshot_marks(self) -> dict[UUID, int]:
        """The marks that the turn about to be committed will have stored."""
        marks = {origin.origin: origin.mark for origin in self.touched}
        self.touched.clear()
        return marks

    def next_deadline(self) -> float | None:
        if not self.closing:
            return self.next_tick
        first = min(self.closing.values())
        return first if self.next_tick is None else min(first, self.next_tick)
