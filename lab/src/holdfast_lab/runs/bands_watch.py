"""Queues with room by priority, watched at each turn: nothing low is taken beyond its part, nothing is refused that has
room, no queue holds more than its bounds (docs/adr/0077-room-by-priority.md).

Rules of this file: looks at what is stored and at what clients were refused, and works out itself since when no higher
priority has come; never at the bands that decide. What it cannot know it takes in the node's favour.
"""

from typing import TYPE_CHECKING, Any, Final

from holdfast.amqp.connection import Delivery
from holdfast.amqp.message.message import split
from holdfast.amqp.wire.extensions import LINKS, PUBLICATION
from holdfast.broker.entries import annotate, entry, packed
from holdfast.broker.queue import Queue
from holdfast.endpoints.passing_on import STUCK_S
from holdfast_lab.base.client_history import Violation
from holdfast_lab.sim.node import SimNode
from holdfast_lab.sim.sim_bed import SimBed

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

DEFAULT: Final = 4
WAITS_S: Final = 0.5
"""A message that has had room for so long, and still waits, has been forgotten."""
HEADER_BYTES_MAX: Final = 1_000_000


def _band(priority: int) -> int:
    return (priority >= DEFAULT) + (priority > DEFAULT)


class _Seen:
    """One queue in one life of its node, as it was after the turn before."""

    def __init__(self, queue: Queue, now: float, numbered: int) -> None:
        self.began_at = self.left_at = now
        self.left = queue.out_total
        self.higher_at: dict[bool, float] = {False: now, True: now}
        """When a priority of at least the default came last, and one above it; a start counts as both."""
        self.unknown_at = now
        """When something came last whose priority nobody can tell here: it is on disk alone."""
        self.waits: dict[tuple[object, int], float] = {}
        """By link and delivery: since when a message that waits has had room, or from when on it will have."""
        self.look(queue, now, numbered)

    def look(self, queue: Queue, now: float, numbered: int) -> None:
        """`numbered`: of a transmission queue, the number that the node gives next; every client's message gets one."""
        if queue.out_total != self.left:
            self.left, self.left_at = queue.out_total, now
        self.messages, self.bytes = queue.messages, queue.bytes_held
        self.next = queue.next_sequence
        self.numbered = numbered

    def came(self, priority: int, now: float) -> None:
        if priority >= DEFAULT:
            self.higher_at[False] = now
        if priority > DEFAULT:
            self.higher_at[True] = now

    def part(self, queue: Queue, priority: int, now: float, *, known: bool = True) -> float:
        """Of the bounds, what that priority may fill. `known`: whether only known priorities count as higher ones."""
        config = queue.config
        if priority > DEFAULT or now >= self.opens_at(queue, priority, known=known):
            return 1.0
        return config.room_normal if priority == DEFAULT else config.room_low

    def opens_at(self, queue: Queue, priority: int, *, known: bool = True) -> float:
        """From when on all of the queue is open to that priority."""
        last = self.higher_at[priority == DEFAULT]
        return (last if known else max(last, self.unknown_at)) + queue.config.room_quiet_s

    def room_at(self, queue: Queue, priority: int, now: float) -> float | None:
        """From when on there is room for one more of that priority, if nothing else happens; None: not before then."""
        most = queue.config.messages_max
        if most is None or queue.messages + queue.reserved >= most:
            return None
        if queue.messages + queue.reserved < max(1, int(most * self.part(queue, priority, now, known=False))):
            return now
        return self.opens_at(queue, priority, known=False)


class BandsWatch:
    """Of one node."""

    def __init__(self) -> None:
        self._core: NodeCore | None = None
        self._seen: dict[str, _Seen] = {}
        self._refused: dict[Any, int] = {}
        self._transactions: dict[bytes, None] = {}
        """Those that were open after the last turn."""
        self.taken = 0
        """Messages that were judged as they came."""
        self.refused = 0
        """The same of those that were refused."""
        self.after_quiet = 0
        """Of those that were taken, what found room only since no higher priority had come for long."""
        self.waited = 0
        """What had room, or was to have some, and waited after a turn."""
        self.passed_on = 0
        """Copies for other nodes that were judged as they came."""
        self.passed = 0
        """What was taken while lower messages waited at the queue."""
        self.came_back = 0
        """What this node had taken of its clients before, and another node brought back."""

    def turned(self, node: SimNode) -> None:
        core = node.core
        if core is None:
            return
        now = core.clock.now
        if core is not self._core:
            self._core, self._seen, self._refused, self._transactions = core, {}, {}, {}
        refused, reserved_more = self._refused_since(core), self._have_transactions_ended(core)
        for name, queue in core.catalog.queues.items():
            if queue.config.room_low >= 1:
                continue
            numbered = core.catalog.ledger.identities.get(queue.destination, 1)
            seen = self._seen.get(name)
            if seen is None:
                seen = self._seen[name] = _Seen(queue, now, numbered)
            came = max(0, queue.next_sequence - seen.next)
            self._look_taken(node.name, queue, seen, came, now)
            found = refused.get((queue.host, queue.name), [])
            for priority in found:
                seen.came(priority, now)
            for priority in () if reserved_more else found:
                self._look_refused(node.name, queue, seen, came, priority, now)
            seen.look(queue, now, numbered)
            if queue.config.when_full == "block":
                self._look_waiting(node, core, queue, seen, came, now)

    def _refused_since(self, core: "NodeCore") -> dict[tuple[str, str], list[int]]:
        """Priorities of what was refused in this turn, by queue."""
        found: dict[tuple[str, str], list[int]] = {}
        for key, (count, _) in core.admission.refused.items():
            more = count - self._refused.get(key, 0)
            if more:
                found.setdefault((key.host, key.queue), []).extend([key.priority] * more)
                self._refused[key] = count
        return found

    def _have_transactions_ended(self, core: "NodeCore") -> bool:
        """Whether one has failed, or is not open any more: nobody knows what it had reserved in this turn."""
        before, self._transactions = self._transactions, dict.fromkeys(core.transactions.open)
        failed = any(transaction.error is not None for transaction in core.transactions.open.values())
        return failed or any(txn_id not in core.transactions.open for txn_id in before)

    def _look_refused(self, node: str, queue: Queue, seen: _Seen, came: int, priority: int, now: float) -> None:
        """It may be refused only where its part may have been full at some time in the turn: what came in it may have
        come before, and have closed the rest of the queue to it."""
        self.refused += 1
        most = queue.config.messages_max
        # Of what left in the same turn nobody knows the priority.
        unknown = any(queue.value(queue.next_sequence - back) is None for back in range(1, came + 1))
        part = seen.part(queue, priority, seen.higher_at[priority == DEFAULT] if unknown else now, known=False)
        if most is not None and seen.messages + came + queue.reserved < max(1, int(most * part)):
            raise Violation(
                f"{queue.name} at {node}: priority {priority} was refused with {seen.messages + came} messages, of "
                f"{most} that the queue takes"
            )

    def _look_taken(self, node: str, queue: Queue, seen: _Seen, came: int, now: float) -> None:
        """What is left of the queue after the turn, and what came after a message, say what was there at least when it
        came."""
        config, ours = queue.config, self._core
        assert ours is not None
        store = ours.identities.store_uuid.bytes
        size_after = 0
        for back, sequence in enumerate(range(queue.next_sequence - 1, queue.next_sequence - 1 - came, -1)):
            value = queue.value(sequence)
            if value is None:
                break  # it left in the same turn
            there, size = queue.messages - back, queue.bytes_held - size_after
            size_after += packed.size_of(value)
            identity = entry.unpack(value).identity
            if value[1] & entry.TOMBSTONE or (identity is not None and identity.origin.bytes != store):
                continue  # another node brought it
            if identity is not None and identity.number < seen.numbered:
                self.came_back += 1
                continue  # so it did here: it has had its number since before this turn
            notes = annotate.notes_of(entry.unpack(value))
            if PUBLICATION in notes:
                self._look_passed_on(node, queue, seen, there, size, now)
            if {LINKS, PUBLICATION} & notes.keys():
                continue  # a link between queues brought it, or it is a copy for a relay: no client sent it there
            self.taken += 1
            part = seen.part(queue, value[2], now)
            kept = config.room_low if value[2] < DEFAULT else config.room_normal
            if value[2] <= DEFAULT and part == 1 and config.messages_max is not None:
                self.after_quiet += there > max(1, int(config.messages_max * kept))
            too_many = config.messages_max is not None and there > max(1, int(config.messages_max * part))
            too_large = config.bytes_max is not None and there > 1 and size > max(1, int(config.bytes_max * part))
            if too_many or too_large:
                text = f"{there} messages, {size} bytes"
                raise Violation(f"{queue.name} at {node}: priority {value[2]} fills it up to {text}")
        for sequence in range(queue.next_sequence - came, queue.next_sequence):
            value = queue.value(sequence)
            if value is None:
                seen.unknown_at = now
            else:
                seen.came(value[2], now)

    def _look_passed_on(self, node: str, queue: Queue, seen: _Seen, there: int, size: int, now: float) -> None:
        """A copy for another node: a queue that blocks takes none beyond its bound, but one at a time where nothing has
        left it for long."""
        config = queue.config
        if config.when_full != "block" or there == 1 or now - seen.left_at >= STUCK_S / 2:
            return
        self.passed_on += 1
        too_many = config.messages_max is not None and there > config.messages_max
        if too_many or (config.bytes_max is not None and size > config.bytes_max):
            raise Violation(f"{queue.name} at {node}: {there} messages, {size} bytes were passed on beyond its bound")

    def _look_waiting(self, node: SimNode, core: "NodeCore", queue: Queue, seen: _Seen, came: int, now: float) -> None:
        """What waits at a full queue is taken once there is room for it, whatever lower ones wait before it. What the
        disk or the node's end keeps waiting is not judged: after a commit that was refused, messages wait until what is
        left of it is stored."""
        waits: dict[tuple[object, int], float] = {}
        hindered = core.disk.takes_nothing or core.disk.refuses or core.stopping or node.store.stalled
        for link in () if hindered else core.links.producers.get(queue, {}):
            if link in core.links.waiting_for_space:
                continue
            parked: Any = link.parked
            bands: dict[int, None] = {}
            for item in parked if link.may_pass else [*parked][:1]:  # type: ignore[attr-defined]  # a client's
                if not isinstance(item, Delivery):
                    break
                header = split(bytes(item.payload), HEADER_BYTES_MAX).header
                priority = DEFAULT if header is None else header.priority
                band = _band(priority)
                if band in bands:
                    continue  # it waits for those before it
                bands[band] = None
                at = seen.room_at(queue, priority, now)
                if at is not None:
                    waits[link, item.delivery_id] = at
            values = [queue.value(queue.next_sequence - back) for back in range(1, came + 1)]
            self.passed += sum(value is not None and _band(value[2]) > min(bands, default=2) for value in values)
        for key, since in seen.waits.items():
            if now - since > WAITS_S and not hindered:
                raise Violation(
                    f"a message for {queue.name} at {node.name} waits, and has had room for {now - since:.1f} s"
                )
            if waits.get(key, now + 1) <= now:  # else what came since has closed the queue to it for longer
                waits[key] = min(waits[key], since)
        self.waited += len(waits.keys() - seen.waits.keys())
        seen.waits = waits

    def metrics(self) -> dict[str, int]:
        return {
            "taken_by_band": self.taken,
            "refused_by_band": self.refused,
            "taken_after_quiet": self.after_quiet,
            "waited_for_band": self.waited,
            "passed_by": self.passed,
            "passed_on": self.passed_on,
            "came_back": self.came_back,
        }


def watch_bands(bed: SimBed) -> dict[str, BandsWatch]:
    """Watches the nodes that have queues with room by priority, by name."""
    found: dict[str, BandsWatch] = {}
    for name, node in bed.sim_nodes.items():
        pacing = node.config.pacing
        if pacing.when_full or any(queue.room_low < 1 for queue in node.config.queues):
            found[name] = BandsWatch()
            node.on_turn.append(found[name].turned)
    return found
