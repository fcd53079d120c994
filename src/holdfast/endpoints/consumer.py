"""Clients' consumers: links that share a cursor, and durable subscriptions (amqp-illustrations, "Consumption from
Message Queues").

Rules of this file: an outcome is settled once its effect is on disk; entries of a lost link return to their places.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.conditions import RESOURCE_LIMIT_EXCEEDED, STOLEN, UNKNOWN_TRANSACTION
from holdfast.amqp.wire.performatives import Accepted, Modified, Received, Rejected, Released, TransactionalState
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import UNLIMITED, Acquired, EntrySelector
from holdfast.broker.entries import annotate, entry, packed
from holdfast.broker.message_records import record_message
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.returns import Returns
from holdfast.endpoints.addresses.dynamic_nodes import DynamicNodes
from holdfast.endpoints.drains import has_something, offers, only_excluded
from holdfast.endpoints.settlements import Settlements
from holdfast.endpoints.too_large import TooLarge
from holdfast.endpoints.transactions.transactional_work import TransactionalWork
from holdfast.endpoints.transactions.work import Take
from holdfast.engine.outbox import Outbox
from holdfast.links.disk import Disk
from holdfast.links.large_sends import LargeSend
from holdfast.links.outgoing import Offered, OutgoingParts, refuse_transaction, size_of
from holdfast.peers.peer import Peer
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Turns
from holdfast.units import MIB

RUN_BYTES_MAX: Final = 2 * MIB
"""The longest entry of a run: any that is not streamed, unless `stream_bytes` was set higher."""

WAIT_TURNS: Final = 32
"""Turns in a row without a message for which a drain waits while another consumer gets the next entry."""

COUNTED_CONDITIONS: Final = (STOLEN, UNKNOWN_TRANSACTION)
"""If the node detaches a link with one of these conditions, its unsettled messages count as failed deliveries. With any
other condition they do not."""


@dataclass(frozen=True, slots=True)
class ConsumerParts(OutgoingParts):
    """What consumers use besides `OutgoingParts`. `resting`: what is paused after a failure, queues among them."""

    catalog: Catalog
    turns: Turns
    disk: Disk
    outbox: Outbox
    dead_lettering: DeadLettering
    settlements: Settlements
    returns: Returns
    dynamic_nodes: DynamicNodes
    transactional_work: TransactionalWork
    too_large: TooLarge
    resting: Container[object]


class ConsumerLink(Offered):
    """A consumer on `cursor`: the queue's shared one, or a durable subscription's own."""

    parts: ConsumerParts

    def __init__(
        self,
        parts: ConsumerParts,
        peer: Peer,
        link: Sender,
        cursor: Cursor,
        *,
        presettled: bool,
        selector: EntrySelector | None = None,
    ) -> None:
        """With a `selector` it only competes for matching messages."""
        super().__init__(parts, peer, link, parts.catalog.queue_of(cursor))
        self.cursor = cursor
        self.presettled = presettled
        self.excluded: set[int] = set()
        self.held = 0
        self.held_bytes = 0
        """Bytes of its unsettled entries, as the queue counts them."""
        self.settling = 0
        """Entries that it rejected or annotated and that are not processed yet (settlements.py); they count as held."""
        self.provisional: dict[int, Take] = {}
        """By sequence: deliveries that a transaction takes, and that their peer has not settled."""
        self.use = peer.use
        self.batch: list[int] = []
        """Presettled entries handed out in this turn: finished when it ends."""
        self.large: LargeSend | None = None
        self.stopped = False
        """Whether it stopped because it met a message that is too large for it while it held others. Reset by
        `TooLarge.forget`."""
        self.end_counts_as_failure = True
        """Whether its end counts as a failed delivery of what it holds."""
        self.turns_waited = self.last_waited = 0
        """In how many turns its drain waited for another consumer, and the last of them (Work.turns)."""
        self.bytes_max = UNLIMITED if link.message_bytes_max is None else link.message_bytes_max
        self.selects = selector is not None
        cursor.attach(self, selector)

    @property
    def run_bytes_max(self) -> int:
        return 0 if self.parts.config.telemetry_messages else RUN_BYTES_MAX

    def wants(self) -> int:
        if self._is_used_up:
            if self.link.sendable:
                self.defer()
            return 0
        return self.will_want()

    @property
    def deferred(self) -> bool:
        return self in self.peer.deferred and self.will_want() > 0

    def will_want(self) -> int:
        if self.large is not None or not self.peer.writable or not self.link.sendable:
            return 0  # also after a large one that was settled before its end, until its end was sent
        settlements = self.parts.settlements
        if self._waits_for_its_user() or (settlements.waiting and settlements.is_crowded(self)):
            return 0
        if self.stopped and self.parts.too_large.stops(self):
            return 0
        credit = self.link.credit
        left = self.parts.config.limits.unsettled_max - self.held - self.settling
        return credit if credit < left else left

    def delivery_bytes(self, sequence: int, value: bytes) -> int:
        return size_of(self.delivery_of(sequence, value, self.cursor.failures(sequence)), value)

    def delivery_of(self, sequence: int, value: bytes, delivery_count: int | None) -> tuple[Any, ...]:
        """The parts of a delivery, the last of which is the bare message."""
        return annotate.for_consumer(value, sequence, delivery_count, self.parts.clock.steady_ms)

    @property
    def links_ended_max(self) -> int:
        """How many links end because of a message that no consumer accepts, before it becomes a dead letter."""
        return self.parts.config.limits.too_large_links_max

    def _waits_for_its_user(self) -> bool:
        """Whether its user holds as many unsettled messages as allowed, or too many rejected ones wait, or the user's
        other consumers have waited longer. Then it is blocked: it is offered messages again once there is room, after
        those of the round (peers/use.py)."""
        use = self.use
        if use is None or self.presettled:
            return False
        is_blocking = use.crowded or use.blocked_consumers or use.offered_now
        if use.unsettled_bytes < use.unsettled_bytes_max and not is_blocking:
            return False  # the usual case, as `block_if_full` decides it
        return use.block_if_full(self)

    @property
    def _has_no_room(self) -> bool:
        """Whether its user's bound is met. While only others of the round are offered messages, it is offered some
        soon."""
        return self.use is not None and not self.presettled and self.use.is_full

    def count_held(self, size: int) -> None:
        if not self.presettled:
            self.held_bytes += size
            if self.use is not None:
                self.use.given(size)

    def _settled(self, size: int) -> None:
        """Counts bytes that were settled or requeued; entries that it does not hold are ignored."""
        size = self.held_bytes if not self.held else min(size, self.held_bytes)
        self.held_bytes -= size
        if self.stopped:
            self.parts.too_large.settled_some(self)
        if self.use is not None:
            self.use.settled(size)

    def _size_of(self, sequences: list[int]) -> int:
        acquired = self.cursor.acquired
        return sum([acquired[sequence].size for sequence in sequences if sequence in acquired])

    def take(self, sequence: int, value: bytes, delivery_count: int | None) -> None:
        own = self.parts
        parts = self.delivery_of(sequence, value, delivery_count)
        if self.bytes_max < UNLIMITED and (size := size_of(parts, value)) > self.bytes_max:
            self._settled(packed.size_of(value))
            own.too_large.met(self, sequence, value, size)
            return
        message_format = int.from_bytes(value[20:24], "big")
        if value[1] & entry.BLOB:
            self.large = LargeSend(
                own.large_sends, self.peer, self.link, value, parts,
                context=sequence, settled=self.presettled, message_format=message_format, ended=self._large_ended,
            )  # fmt: skip
        else:
            self.link.send(parts, context=sequence, settled=self.presettled, message_format=message_format)
        if not self.presettled:
            self.held += 1
        elif self.large is None:
            self.batch.append(sequence)
            own.links.presettled[self] = None
        self.handed(len(value))
        if own.config.telemetry_messages:
            record_message(own.outbox, "sent", self.queue, sequence, value)

    def take_all(self, sequences: Sequence[int], values: Sequence[bytes]) -> int:
        link, own = self.link, self.parts
        if own.config.telemetry_messages:
            return 0
        heads, bodies = annotate.plain_for_consumer(sequences, values)
        taken = link.send_run(heads, bodies, sequences, settled=self.presettled)
        if not taken:
            return 0
        if self.presettled:
            self.batch += sequences[:taken]
            own.links.presettled[self] = None
        else:
            self.held += taken
        self.handed(sum(map(len, values[:taken])))
        return taken

    def end_large(self) -> None:
        """The link has ended: sending of a large message stops."""
        if self.large is not None:
            self.large.close()
            self.large = None

    def _large_ended(self) -> None:
        large, self.large = self.large, None
        if large is not None and self.presettled:
            self.batch.append(large.context)
            self.parts.links.presettled[self] = None
        self.cursor.queue.touch()

    def finish_presettled(self) -> None:
        done, self.batch = self.batch, []
        self.cursor.finish(done)

    def drain_if_idle(self) -> bool:
        link = self.link
        if link.detached or not link.drain:
            self.turns_waited = 0
            return True
        if self.large is not None:
            return False
        if link.credit and self._may_be_given() and not only_excluded(self.cursor, self):
            return False
        self.turns_waited = 0
        link.drained()
        self.peer.touch()
        return True

    def _may_be_given(self) -> bool:
        """Whether there is something to hand out, and the node and this link are able to. A link at its bound gets
        nothing before it settles messages, and may be waiting for this answer before it does.
        """
        own, cursor = self.parts, self.cursor
        if own.too_large.stops(self) or not offers(self.queue, own.resting):
            return False
        if not self.selects and self._waits_behind_another():
            return False
        if self.held + self.settling >= own.config.limits.unsettled_max or self._has_no_room:
            return False
        watermarks = not (own.disk.stalled or own.disk.rests)
        return not own.settlements.is_crowded(self) and has_something(cursor, self, watermarks=watermarks)

    def _waits_behind_another(self) -> bool:
        """Whether the next entry is for another consumer, which may take long."""
        if self.cursor.aside_full and not self.deferred:
            return True
        return self.cursor.place_kept and not self._waits_for_another()

    def _waits_for_another(self) -> bool:
        """Counts the turn, once; whether its drain still waits in it for the consumer that gets the next entry."""
        if self.last_waited != self.parts.work.turns:
            self.last_waited = self.parts.work.turns
            self.turns_waited += 1
        return self.turns_waited <= WAIT_TURNS

    def handed(self, size: int) -> None:
        super().handed(size)
        self.turns_waited = 0
        if self.use is not None and self.use.offered_now:
            self.use.served(self)
        if self.stopped:
            self.parts.too_large.forget(self)

    def answered(self) -> None:
        super().answered()
        self.parts.too_large.answered(self)

    def detach_with(self, reason: str, condition: str) -> None:
        self.end_counts_as_failure = condition in COUNTED_CONDITIONS
        super().detach_with(reason, condition)

    def outcomes(self, contexts: list[Any], state: object, settled: bool, first: int, last: int) -> None:
        cursor = self.cursor
        if self.provisional:
            contexts = self.parts.transactional_work.changed(self, contexts, state, settled=settled)
            if not contexts:
                return
        if isinstance(state, TransactionalState):
            self._in_transaction(contexts, state, settled=settled)
            return
        if state is None or isinstance(state, Received):
            if not settled:
                return
            state = self.link.default_outcome
        elif not settled and not isinstance(state, (Accepted, Rejected, Released, Modified)):
            return  # not an outcome: the delivery stays open (amqp/session/session.py)
        self.held -= len(contexts)
        if self.large is not None and self.large.context in contexts:
            self.large.stop()  # it has got it already
        if isinstance(state, Accepted):
            cursor.finish(contexts)
            self._settled(cursor.finished_bytes)
            cursor.queue.touch()
            if not settled:
                self.parts.turns.gathered.answers.append((self.link, first, last, state))
            return
        self._settled(self._size_of(contexts))
        answer = None if settled else (self.link, first, last, state)
        if isinstance(state, Rejected):
            self.parts.settlements.reject(self, contexts, state, answer)
        elif isinstance(state, Modified):
            if state.undeliverable_here:
                cursor.exclusions.exclude(self, [sequence for sequence in contexts if sequence in cursor.acquired])
            notes = annotate.notes_added(state.message_annotations)
            if notes.added:
                self.parts.settlements.annotate(self, contexts, state, notes, answer)
                answer = None
            else:
                cursor.requeue(contexts, failed=bool(state.delivery_failed))
        else:
            cursor.requeue(contexts, failed=False)
        cursor.queue.touch()
        if answer is not None and not isinstance(state, Rejected):
            self.parts.turns.gathered.answers.append(answer)
        self.check_excluded()

    # ------------------------------------------------------------------------------------------------ transactions

    def _in_transaction(self, contexts: list[Any], state: TransactionalState, *, settled: bool) -> None:
        if not self.parts.transactional_work.take(self, contexts, state, settled=settled):
            refuse_transaction(self, state)
            return
        if settled and self.large is not None and self.large.context in contexts:
            self.large.stop()
        self.cursor.queue.touch()
        self.check_excluded()

    def give(self, sequence: int, size: int) -> None:
        """A transaction returns a delivery, which the link holds again."""
        self.cursor.acquired[sequence] = Acquired(self, size)
        self.held += 1
        self.count_held(size)

    def take_away(self, sequence: int, size: int) -> None:
        """Removes the delivery from those that the link holds."""
        self.held -= 1
        self._settled(size)

    def exclude(self, sequence: int) -> None:
        """The entry is undeliverable on this link."""
        if self in self.cursor.consumers:
            self.cursor.exclusions.exclude(self, [sequence])

    def all_settled(self) -> None:
        """All entries that it rejected or annotated were processed in settlements.py; the effects are on disk with the
        next commit."""

    def check_excluded(self) -> None:
        """Ends the link if too many entries are undeliverable on it."""
        most = self.parts.config.limits.excluded_max
        if len(self.excluded) > most and self.cursor.exclusions.count(self) > most:
            text = f"too many messages of the queue are undeliverable on this link; the limit is {most} (excluded_max)"
            self.detach_with(text, RESOURCE_LIMIT_EXCEEDED)

    def gone(self, unsettled: list[Any]) -> None:
        if self.provisional:
            self.parts.transactional_work.link_gone(self)
        held = self.held
        known = self._known(unsettled)
        self.let_go()
        self.end_large()
        self.finish_presettled()
        self.cursor.release(self)
        self.parts.returns.requeue(self, self.cursor, known, failed=self.end_counts_as_failure, held=held)
        self.parts.dynamic_nodes.left(self, self.queue)

    def _known(self, unsettled: list[Any]) -> list[Any]:
        """The entries of its deliveries without an outcome: of those that its end returned, of those that its link
        still has, and of the large one that is being sent. Some may be in it twice."""
        return [*unsettled, *self.link.unsettled.values(), *([] if self.large is None else [self.large.context])]

    def in_hands(self, unsettled: list[Any], *others: int, held: int = 0) -> list[int]:
        """The entries that it holds, `held` and `self.held` in number: of `_known` and of `others`. If these are fewer,
        as after a failure, it searches all acquired entries in one turn; `Returns` does that in shares."""
        acquired = self.cursor.acquired
        known = {*self._known(unsettled), *others}
        mine = [sequence for sequence in known if sequence in acquired and acquired[sequence].consumer is self]
        if len(mine) < self.held + held:
            mine = [sequence for sequence, item in acquired.items() if item.consumer is self]
        return mine

    def let_go(self) -> None:
        """The link releases everything that it holds."""
        self.held = 0
        self._settled(self.held_bytes)
        self.parts.too_large.forget(self)
        if self.use is not None:
            self.use.leave(self)
