"""Which links may be resumed: what is kept of links that ended, for whom, and how long (AMQP 1.0 §2.6.5, §2.6.13,
§3.5).

Rules of this file: a link is identified by its user and container, its name and its direction. Only what was asked for
is kept: a consumer's deliveries stay locked if its source says so (expiry-policy `never`, or a timeout), and a
producer's tags are remembered if its target says so and it tells how it counts them (TAG_OFFSET). An attach without an
unsettled map deletes what was kept at once, because such a client cannot resume. ADR 0012.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from heapq import heapify, heappop, heappush
from typing import Any, Final

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.links.resuming import ResumeAction, compare
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.composites import UINT_MAX
from holdfast.amqp.wire.extensions import TAG_OFFSET
from holdfast.amqp.wire.performatives import Source, Target
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import EntrySelector
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored.custody_records import pack_link, unpack_link
from holdfast.broker.stored.tags import TagRing
from holdfast.custody.returns import Returns
from holdfast.endpoints.consumer import ConsumerParts
from holdfast.endpoints.producer import ProducerParts
from holdfast.endpoints.resumption.consumer import AnswerConsumer, Outgoing, ResumableConsumer, answer_consumer
from holdfast.endpoints.resumption.producer import (
    REJECTED_BYTES,
    REJECTED_MAX,
    AnswerProducer,
    Incoming,
    ResumableProducer,
    answer_producer,
)
from holdfast.endpoints.resumption.suspended import RECORD_BYTES, Suspendable
from holdfast.endpoints.settlements import Settlements
from holdfast.endpoints.stored_answers import Answering, Told, at_once
from holdfast.engine.clock import Clock
from holdfast.peers.connections import Connections
from holdfast.peers.limits.memory import Memory
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Peer
from holdfast.settings.limits import Limits
from holdfast.state.turns import Turn, Turns

KEY_BYTES_MAX: Final = 380
"""A link's key: what a key of the store's small tables holds (engine/port.py), with its kind; longer ones hashed."""

ROW_KIND: Final = b"l"
"""The kind of a durable producer link's row in the table `custody`."""

UNSETTLED_STATE: Final = 2
"""terminus-durability (§3.5.5)."""


class Resumption:
    """The links of a node that may be resumed. Times are the core's `now`, in seconds."""

    def __init__(
        self,
        limits: Limits,
        clock: Clock,
        turns: Turns,
        work: Work[Queue],
        connections: Connections,
        links: LinkTables,
        memory: Memory,
        settlements: Settlements,
        returns: Returns,
        producer_parts: ProducerParts,
        consumer_parts: ConsumerParts,
        rows: Mapping[bytes, bytes],
        *,
        is_stopping: Callable[[], bool],
    ) -> None:
        """`rows`: of durable producer links, by key, as the store has them. `is_stopping`: whether the node ends."""
        self._limits = limits
        self._clock = clock
        self._turns = turns
        self._work = work
        self._connections = connections
        self._memory = memory
        self._settlements = settlements
        self._returns = returns
        self._producer_parts = producer_parts
        self._consumer_parts = consumer_parts
        self.is_stopping = is_stopping
        links.serve_in("resumable", lambda: [record.holder for record in self.incoming.values()])
        self.incoming: dict[bytes, Incoming] = {}
        self.outgoing: dict[bytes, Outgoing] = {}
        self.by_cursor: dict[Cursor, dict[Outgoing, None]] = {}
        """The same of each cursor that has any: there may be thousands of others."""
        self.going_on: dict[Queue, dict[ResumableConsumer, None]] = {}
        """Consumers that resume their deliveries when their queue is offered next, that is in the next turn."""
        self.due: list[tuple[float, int, Suspendable]] = []
        self._given = 0
        turns.effects.on(AnswerProducer, answer_producer)
        turns.effects.on(AnswerConsumer, answer_consumer)
        for key, row in rows.items():
            self._load(key, row)

    # ------------------------------------------------------------------------------------------------ attach

    def reattached(self, peer: Peer, link: Receiver | Sender) -> None:
        """An attach arrived: ends an older link of its name that may be resumed, whether its loss is known or not. An
        attach without a map also deletes what was kept.
        """
        attach = link.remote_attach
        key = _key(peer, link)
        incoming, outgoing = self.incoming.get(key), self.outgoing.get(key)
        if outgoing is not None and outgoing.consumer is not None and outgoing.until is None:
            outgoing.consumer.fenced = True
            text = f"link {link.name!r} is attached on a newer connection"
            outgoing.consumer.detach_with(text, conditions.STOLEN)
        if attach is None or attach.unsettled is not None:
            return
        if incoming is not None and incoming.holder is None:
            self._forget(incoming)
        if outgoing is not None:
            self._forget(outgoing)

    def producer(
        self, peer: Peer, link: Receiver, queue: Queue, *, target: Target, destination: str | None, to: str
    ) -> bool:
        """Answers the attach of a producer's link whose tags must be remembered; False for any other link."""
        attach = link.remote_attach
        assert attach is not None
        offset = (attach.properties or {}).get(TAG_OFFSET)
        key = _key(peer, link)
        record = self.incoming.get(key)
        hold_s = self._hold_s(target, record)
        asked = attach.unsettled
        if record is not None and record.holder is not None:
            older, record.holder = record.holder, None
            older.detach_with(f"link {link.name!r} is resumed on a newer one", conditions.STOLEN)
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= UINT_MAX or not hold_s:
            if record is not None:
                self._forget(record)
            return False
        resumed = asked is not None and record is not None and record.target == str(target.address)
        if record is None or not resumed:
            if record is not None:
                self._forget(record)
            tags = TagRing(self._limits.resume_tags_max)
            record = self.incoming[key] = Incoming(key, hold_s, target=str(target.address), durable=False, tags=tags)
            self.count(record)
        record.hold_s, record.until = hold_s, None
        record.durable = target.durable == UNSETTLED_STATE and queue.config.durable
        producer = ResumableProducer(
            self._producer_parts,
            peer,
            link,
            queue,
            record,
            self,
            tag_offset=int(offset),
            destination=destination,
            to=to,
        )
        record.holder = link.context = producer
        granted = replace(target, durable=UNSETTLED_STATE if record.durable else 0)
        if target.timeout:
            granted.timeout = int(hold_s)
        theirs = asked if resumed else None
        effect = AnswerProducer(self._turns.event, peer.number, link.name, producer, theirs, granted)
        self._turns.gathered.then.append(effect)
        return True

    def consumer(
        self,
        peer: Peer,
        link: Sender,
        cursor: Cursor,
        asked: Source,
        echoed: Source,
        selector: EntrySelector | None = None,
        *,
        answering: Answering = at_once,
    ) -> bool:
        """Answers a consumer's attach, and resumes it if possible; False if nothing of it is to be kept.

        `echoed` is the source as it is applied; `selector`: of a consumer that competes for what that matches;
        `answering` has the attach answered.
        """
        attach = link.remote_attach
        assert attach is not None
        key = _key(peer, link)
        record = self.outgoing.get(key)
        hold_s = self._hold_s(asked, record)
        theirs = attach.unsettled
        if record is not None and (theirs is None or record.cursor is not cursor):
            self._forget(record)
            record = None
        if cursor.name:  # a subscription has one reader: entries that another one left are this one's
            for other in list(self.by_cursor.get(cursor, ())):
                if other is not record:
                    self._forget(other)
        if record is None and not hold_s:
            return False
        resumed = record is not None
        if record is None:
            record = self.outgoing[key] = Outgoing(key, hold_s, cursor=cursor)
            self.by_cursor.setdefault(cursor, {})[record] = None
            self.count(record)
        record.hold_s, record.until = hold_s, None
        steps = []
        if resumed and theirs is not None:
            mine = dict.fromkeys(record.held)
            steps = compare(role=False, mine=mine, theirs=theirs, incomplete=attach.incomplete_unsettled)
        link.use_tags(link.session.tag_offset(record.next_tag))
        link.context = consumer = ResumableConsumer(self._consumer_parts, peer, link, cursor, record, self, selector)
        consumer.take_over(steps)
        self.count(record)
        unsettled = {step.tag: None for step in steps if step.act is not ResumeAction.RESEND} if resumed else None
        granted = replace(echoed, timeout=int(hold_s)) if asked.timeout else echoed

        def answer(told: Told) -> None:
            """The effects of the outcomes in the peer's map are on disk."""
            if link.detached or link.context is not consumer:
                peer.refuse_detached(link)
                return
            link.accept(source=granted, unsettled=unsettled, properties=told)
            consumer.credited()  # by a flow that came with the attach
            peer.touch()

        if resumed:
            consumer.answer_later(partial(answering, answer))
        else:
            answering(answer)
        return True

    def _hold_s(self, terminus: Source | Target, record: Suspendable | None) -> float:
        """For how many seconds the link is kept after its end, as its terminus asks; also 0 if no more links can be
        kept."""
        limits = self._limits
        if record is None and (
            len(self.incoming) + len(self.outgoing) >= limits.resume_links_max
            or not self._memory.resumable.fits(RECORD_BYTES)
        ):
            return 0.0
        if str(terminus.expiry_policy) == "never":
            return limits.resume_s_max
        return min(float(terminus.timeout), limits.resume_s_max)

    def go_on(self, queue: Queue) -> None:
        """Sends again what resumed consumers of the queue held, before new messages and within the bounds of a turn;
        half of a turn is left to the queue's other readers."""
        waiting, work = self.going_on[queue], self._work
        most = work.offered_count + work.offered_count_max // 2
        while waiting and work.offered_count < most and not work.is_used_up:
            consumer = next(iter(waiting))
            del waiting[consumer]
            if consumer in consumer.cursor.consumers:  # otherwise a failure interrupted its end
                consumer.resume()
        if waiting:
            queue.touch()
        elif self.going_on.get(queue) is waiting:
            del self.going_on[queue]

    def goes_no_further(self, consumer: ResumableConsumer) -> None:
        """Its link has ended: nothing more of it is sent or applied, and a waiting attach is answered."""
        consumer.steps.clear()
        consumer.outcomes_due.clear()
        consumer.answer_now()
        waiting = self.going_on.get(consumer.queue)
        if waiting is not None:
            waiting.pop(consumer, None)
            if not waiting:
                del self.going_on[consumer.queue]

    # ------------------------------------------------------------------------------------------------ ends

    def ended(self, record: Suspendable, *, closed: bool) -> None:
        """The link of the record has ended; the record is kept for its time, unless it is `closed` for good."""
        if closed or not record.hold_s:
            self._forget(record)
            return
        self.count(record)
        record.until = self._clock.now + record.hold_s
        self._given += 1
        heappush(self.due, (record.until, self._given, record))
        if len(self.due) > 64 + 2 * (len(self.incoming) + len(self.outgoing)):  # links that were resumed in time
            self.due[:] = [item for item in self.due if item[2].until == item[0]]
            heapify(self.due)

    def count(self, record: Suspendable) -> None:
        """Brings the account of memory up to date."""
        held = 0 if record.over else record.held_bytes
        self._memory.resumable.recount(record.counted_bytes, held)
        record.counted_bytes = held

    def rejected(self, record: Incoming, tag: bytes, state: object) -> None:
        """Remembers a rejected delivery, because its sender may ask for the outcome when it resumes, while there is
        room."""
        known = record.rejected
        if record.over:
            return
        if tag not in known and (len(known) >= REJECTED_MAX or not self._memory.rejected.charge(REJECTED_BYTES)):
            if not known:
                return
            del known[next(iter(known))]
        known[tag] = state

    def _forget(self, record: Suspendable) -> None:
        record.until = None
        record.over = True
        self.count(record)
        if isinstance(record, Incoming):
            record.gone = True
            self._memory.rejected.refund(len(record.rejected) * REJECTED_BYTES)
            record.rejected.clear()
            if self.incoming.get(record.key) is record:
                del self.incoming[record.key]
            if record.has_row:
                row = ("custody", ROW_KIND + record.key)
                self._work.batch.puts.pop(row, None)
                self._work.batch.deletes.append(row)
        elif isinstance(record, Outgoing):
            if self.outgoing.get(record.key) is record:
                del self.outgoing[record.key]
            mine = self.by_cursor.get(record.cursor, {})
            mine.pop(record, None)
            if not mine:
                self.by_cursor.pop(record.cursor, None)
            record.uncount()
            if record.consumer is not None and record.held:
                returns = self._returns
                returns.requeue(record.consumer, record.cursor, [*record.held.values()], failed=True)
            record.consumer = None

    def recover(self) -> None:
        """After a failure was contained: links of closed connections end."""
        connections = self._connections
        for incoming in list(self.incoming.values()):
            holder = incoming.holder
            if holder is not None and connections.get(holder.peer.number) is not holder.peer:
                incoming.holder = None
                self.ended(incoming, closed=False)
        for outgoing in list(self.outgoing.values()):
            consumer = outgoing.consumer
            if outgoing.until is None and (
                consumer is None or connections.get(consumer.peer.number) is not consumer.peer
            ):
                self._forget(outgoing)

    def release(self, queue: Queue, cursor: Cursor | None = None) -> None:
        """A reader wants the queue, or one of its cursors, for itself: entries of lost consumers are requeued."""
        for item in queue.cursors if cursor is None else (cursor,):
            for record in list(self.by_cursor.get(item, ())):
                if record.until is not None:
                    self._forget(record)

    def next_deadline(self) -> float | None:
        return self.due[0][0] if self.due else None

    def tick(self, now: float) -> None:
        """Forgets links that were not resumed in time."""
        while self.due and self.due[0][0] <= now:
            at, _, record = heappop(self.due)
            if record.until == at:
                self._forget(record)

    def forget_oldest(self) -> bool:
        """Memory is used up: forgets the link that has waited the longest to be resumed; False if none waits."""
        while self.due:
            at, _, record = heappop(self.due)
            if record.until == at:
                self._forget(record)
                return True
        return False

    def stop(self) -> None:
        """The node stops: entries of lost consumers are requeued, so that they count as shown."""
        self._settlements.stop()
        for record in list(self.outgoing.values()):
            if record.until is not None:
                self._forget(record)
        self._returns.stop()

    # ------------------------------------------------------------------------------------------------ the store

    def before_commit(self, turn: Turn) -> None:
        """Writes the tags of durable links with the batch that stores their messages."""
        for link, deliveries in turn.arrivals.items():
            if not isinstance(link, ResumableProducer) or not link.record.durable or link.record.gone:
                continue
            record = link.record
            tags = record.tags.copy()
            link.note(tags, deliveries)
            record.has_row = True
            row = pack_link(record.hold_s, record.target, tags)
            self._work.batch.puts["custody", ROW_KIND + record.key] = row

    def _load(self, key: bytes, row: bytes) -> None:
        """A durable link of an earlier run of the node: suspended from now on."""
        limits = self._limits
        hold_s, target, tags = unpack_link(row, limits.resume_tags_max)
        record = Incoming(key, min(hold_s, limits.resume_s_max), target=target, durable=True, tags=tags)
        record.has_row = True
        self.incoming[key] = record
        self.ended(record, closed=False)


def _key(peer: Peer, link: Receiver | Sender) -> bytes:
    opened: Any = peer.amqp.remote_open
    user = peer.amqp.authenticated_user or ""
    direction = "in" if link.role else "out"
    if peer.host:  # told from the default host's, whatever its users and containers are called
        direction = f"{direction}@{peer.host}"
    key = f"{direction}\0{user}\0{opened.container_id}\0{link.name}".encode()
    return key if len(key) <= KEY_BYTES_MAX else sha256(key).digest()
