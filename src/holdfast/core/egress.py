"""Links that carry messages to clients: consumers that share a cursor, durable subscriptions, and readers by
sequence that move nothing (amqp-illustrations, "Consumption from Message Queues"; CUSTODY, "Readers").

Rules of this file: sends only what is on disk; an outcome's effect is answered once it is on disk; what a lost link
held goes back to its old place.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.amqp.conditions import MESSAGE_SIZE_EXCEEDED, RESOURCE_LIMIT_EXCEEDED, UNKNOWN_TRANSACTION
from holdfast.amqp.connection import Sender
from holdfast.amqp.performatives import Accepted, Modified, Received, Rejected, Released, TransactionalState
from holdfast.broker import entry
from holdfast.broker.cursor import PUMP_BYTES, READ_BYTES, READ_COUNT, Cursor
from holdfast.broker.queue import Queue
from holdfast.broker.taker import UNLIMITED
from holdfast.core import annotate
from holdfast.core.carried import passed_by
from holdfast.core.drains import has_something, offers, only_excluded
from holdfast.core.endings import end_too_large
from holdfast.core.peer import Peer
from holdfast.core.sending import LargeSend, bare_length
from holdfast.core.store_names import names_of
from holdfast.units import MIB

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

RUN_BYTES_MAX: Final = 2 * MIB
"""The longest entry of a run: any that is held whole, which `stream_bytes` bounds, unless that was set higher."""

BROWSE_LIMIT: Final = 256
"""Entries that a reader by sequence is given when it is offered its queue; as many that have expired it passes."""

WAIT_TURNS: Final = 32
"""Turns in a row without a message that a drain waits while another consumer is handed what is next."""


def size_of(parts: tuple[Any, ...], value: bytes = b"\0\0") -> int:
    """Bytes of the delivery that tells of an entry."""
    return bare_length(value, parts) if value[1] & entry.BLOB else sum([len(part) for part in parts])


def too_large(link: Sender, parts: tuple[Any, ...], value: bytes = b"\0\0") -> bool:
    """Whether the peer said that it takes no delivery of that size (§2.7.3); `value`: the entry that it tells of."""
    limit = link.message_bytes_max
    return limit is not None and size_of(parts, value) > limit


def refuse_transaction(link: "ConsumerLink | ReaderLink", state: TransactionalState) -> None:
    """A disposition is of a transaction that nobody declared: its link ends, and what it holds goes back."""
    text = f"txn-id {state.txn_id.hex()}: transactions are not offered here"
    link.core.end_link(link, text, UNKNOWN_TRANSACTION)


class Egress:
    """What all links that carry messages away share."""

    def __init__(self, core: "NodeCore", peer: Peer, link: Sender) -> None:
        self.core = core
        self.peer = peer
        self.link = link
        peer.egress[self] = None

    def credited(self) -> None:
        """The peer moved its credit, or the session's window opened."""

    def outcomes(self, contexts: list[Any], state: object, settled: bool, first: int, last: int) -> None:
        """The peer's word on deliveries of ours; `contexts` as they were sent."""

    def gone(self, unsettled: list[Any]) -> None:
        """The link was detached, by either side, or its connection is lost."""


class Offered(Egress):
    """A link that is handed the messages of a queue, as far as its connection's budget of the turn goes."""

    def __init__(self, core: "NodeCore", peer: Peer, link: Sender, queue: Queue) -> None:
        super().__init__(core, peer, link)
        self.queue = queue
        self.last_budget = 0
        """The last of its connection's budgets of which it was handed something (Peer.budget_number)."""

    @property
    def room_bytes(self) -> int:
        """Of messages that its connection may be handed in this turn."""
        return max(1, min(READ_BYTES, self.core.memory.handed_max - self.peer.handed_bytes))

    @property
    def may_write(self) -> bool:
        """`has_budget`, and the link has credit and room in the session's window for a message."""
        return self.link.sendable and self.has_budget

    @property
    def has_budget(self) -> bool:
        """Whether its connection takes messages now, and was handed less than it may be in a turn."""
        return self.peer.writable and not self._is_used_up

    @property
    def _is_used_up(self) -> bool:
        return self.peer.handed_bytes >= self.core.memory.handed_max

    def defer(self) -> None:
        """It would send now: where its connection's budget of the turn is used up, its queue is offered in the next."""
        if self.peer.writable and self._is_used_up:
            self.peer.deferred[self] = None

    def handed(self, size: int) -> None:
        """Messages of so many bytes are on their way to the connection."""
        peer = self.peer
        peer.handed_bytes += size
        self.last_budget = peer.budget_number
        peer.touch()

    def credited(self) -> None:
        self.queue.touch()
        self.core.draining(self)

    def drain_if_idle(self) -> bool:
        """Answers a drain where there is nothing to send now; True when the drain is over (CLIENTS 23, 24)."""
        raise AssertionError("such a link is a consumer or a reader")

    def offer_again(self) -> None:
        """It was deferred in this turn: its queue is offered in the next one, behind those that are told so before."""
        self.queue.work.busy.pop(self.queue, None)
        self.queue.touch()


class ConsumerLink(Offered):
    """A consumer on `cursor`: the queue's shared one, or a durable subscription's own."""

    def __init__(self, core: "NodeCore", peer: Peer, link: Sender, cursor: Cursor, *, presettled: bool) -> None:
        super().__init__(core, peer, link, cursor.queue)
        self.cursor = cursor
        self.presettled = presettled
        self.excluded: set[int] = set()
        self.held = 0
        self.held_bytes = 0
        """Of what it holds unsettled, as the queue counts it."""
        self.settling = 0
        """What it rejected or annotated and is on its way (settlements.py): until then it counts as if it were held."""
        self.use = peer.use
        self.batch: list[int] = []
        """Presettled entries handed out in this turn: finished when it ends."""
        self.large: LargeSend | None = None
        self.turns_waited = self.last_waited = 0
        """In how many turns its drain waited for another consumer, and the last of them (Work.turns)."""
        self.bytes_max = UNLIMITED if link.message_bytes_max is None else link.message_bytes_max
        cursor.attach(self)

    @property
    def run_bytes_max(self) -> int:
        return RUN_BYTES_MAX

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
            return 0  # also behind a large one that was settled before its end, until that is told
        settlements = self.core.chores.settlements
        if self._waits_for_its_user() or (settlements.waiting and settlements.is_crowded(self)):
            return 0
        credit = self.link.credit
        left = self.core.config.limits.unsettled_max - self.held - self.settling
        return credit if credit < left else left

    def delivery_bytes(self, sequence: int, value: bytes) -> int:
        parts = annotate.for_consumer(value, sequence, self.cursor.failures(sequence), self.core.clock.steady_ms)
        return size_of(parts, value)

    def _waits_for_its_user(self) -> bool:
        """Whether its user holds all the unsettled messages that it may, or too much of what it rejected waits; then
        the user has it offered again once there is room."""
        use = self.use
        if use is None or self.presettled or (use.unsettled_bytes < use.unsettled_bytes_max and not use.crowded):
            return False
        use.blocked_consumers[self] = None
        return True

    def count_held(self, size: int) -> None:
        if not self.presettled:
            self.held_bytes += size
            if self.use is not None:
                self.use.given(size)

    def _settled(self, size: int) -> None:
        """So much of it is settled or given back; what it does not hold counts for nothing."""
        size = self.held_bytes if not self.held else min(size, self.held_bytes)
        self.held_bytes -= size
        if self.use is not None:
            self.use.settled(size)

    def _size_of(self, sequences: list[int]) -> int:
        shown = self.cursor.shown
        return sum([shown[sequence].size for sequence in sequences if sequence in shown])

    def take(self, sequence: int, value: bytes, delivery_count: int | None) -> None:
        core = self.core
        parts = annotate.for_consumer(value, sequence, delivery_count, core.clock.steady_ms)
        if self.bytes_max < UNLIMITED and (size := size_of(parts, value)) > self.bytes_max:
            self._too_large(sequence, value, size)
            return
        message_format = int.from_bytes(value[20:24], "big")
        if value[1] & entry.BLOB:
            self.large = LargeSend(
                core, self.peer, self.link, value, parts,
                context=sequence, settled=self.presettled, message_format=message_format, ended=self._large_ended,
            )  # fmt: skip
        else:
            self.link.send(parts, context=sequence, settled=self.presettled, message_format=message_format)
        if not self.presettled:
            self.held += 1
        elif self.large is None:
            self.batch.append(sequence)
            core.presettled[self] = None
        self.handed(len(value))
        if core.config.telemetry_messages:
            core.record_message("sent", self.cursor.queue, sequence, value)

    def take_all(self, sequences: Sequence[int], values: Sequence[bytes]) -> int:
        link, core = self.link, self.core
        if core.config.telemetry_messages:
            return 0
        heads, bodies = annotate.plain_for_consumer(sequences, values)
        taken = link.send_run(heads, bodies, sequences, settled=self.presettled)
        if self.presettled:
            if taken:
                self.batch += sequences[:taken]
                core.presettled[self] = None
        else:
            self.held += taken
        self.handed(sum(map(len, values[:taken])))
        return taken

    def _too_large(self, sequence: int, value: bytes, size: int) -> None:
        """Nobody who is attached takes so much: this link is detached, or after some links the entry leaves."""
        core, cursor = self.core, self.cursor
        self._settled(entry.size_of(value))
        alone = not cursor.another_takes(sequence, size)
        ended = cursor.links_ended.get(sequence, 0)
        if alone and ended >= core.config.limits.too_large_links_max:
            if not end_too_large(core, cursor, sequence, value, size):  # it waits for who takes more
                cursor.set_aside(sequence, size)
            return
        cursor.give_back([sequence], failed=False)
        if alone:
            cursor.links_ended[sequence] = ended + 1
        text = f"sequence {sequence} has {size} bytes, this link takes {self.link.message_bytes_max}"
        core.end_link(self, text, MESSAGE_SIZE_EXCEEDED)

    def end_large(self) -> None:
        """The link is gone: nothing more of a large message is sent on it."""
        if self.large is not None:
            self.large.close()
            self.large = None

    def _large_ended(self) -> None:
        large, self.large = self.large, None
        if large is not None and self.presettled:
            self.batch.append(large.context)
            self.core.presettled[self] = None
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
        """Whether there is something to hand out, and this node and this link are in a state to do so.

        Who holds all that it may gets nothing before it settles, and may be waiting for this answer to do so.
        """
        core, cursor = self.core, self.cursor
        if not offers(core, cursor.queue) or (cursor.aside_full and not self.deferred):
            return False
        if cursor.place_kept and not self._waits_for_another():
            return False
        if self.held + self.settling >= core.config.limits.unsettled_max or self._waits_for_its_user():
            return False
        return not core.chores.settlements.is_crowded(self) and has_something(cursor, marks=not core.disk.stalled)

    def _waits_for_another(self) -> bool:
        """Counts the turn, once; whether its drain waits in it for the consumer that what is next is kept for."""
        if self.last_waited != self.core.work.turns:
            self.last_waited = self.core.work.turns
            self.turns_waited += 1
        return self.turns_waited <= WAIT_TURNS

    def handed(self, size: int) -> None:
        super().handed(size)
        self.turns_waited = 0

    def outcomes(self, contexts: list[Any], state: object, settled: bool, first: int, last: int) -> None:
        cursor = self.cursor
        if isinstance(state, TransactionalState):
            refuse_transaction(self, state)
            return
        if state is None or isinstance(state, Received):
            if not settled:
                return
            state = self.link.default_outcome
        elif not settled and not isinstance(state, (Accepted, Rejected, Released, Modified)):
            return  # no outcome: the delivery stays open (session.py)
        self.held -= len(contexts)
        if self.large is not None and self.large.context in contexts:
            self.large.stop()  # it has heard enough
        if isinstance(state, Accepted):
            cursor.finish(contexts)
            self._settled(cursor.finished_bytes)
            cursor.queue.touch()
            if not settled:
                self.core.turn.answers.append((self.link, first, last, state))
            return
        self._settled(self._size_of(contexts))
        answer = None if settled else (self.link, first, last, state)
        if isinstance(state, Rejected):
            self.core.chores.settlements.reject(self, contexts, state, answer)
        elif isinstance(state, Modified):
            if state.undeliverable_here:
                cursor.exclusions.exclude(self, [sequence for sequence in contexts if sequence in cursor.shown])
            notes = annotate.notes_added(state.message_annotations)
            if notes.added:
                self.core.chores.settlements.annotate(self, contexts, state, notes, answer)
                answer = None
            else:
                cursor.give_back(contexts, failed=bool(state.delivery_failed))
        else:
            cursor.give_back(contexts, failed=False)
        cursor.queue.touch()
        if answer is not None and not isinstance(state, Rejected):
            self.core.turn.answers.append(answer)
        self.check_excluded()

    def all_settled(self) -> None:
        """Nothing that it rejected or annotated waits in settlements.py any more; what that took is on disk with the
        next commit."""

    def check_excluded(self) -> None:
        """Ends the link where more is undeliverable on it than may be."""
        most = self.core.config.limits.excluded_max
        if len(self.excluded) > most and self.cursor.exclusions.count(self) > most:
            text = f"accepted are {most} messages of the queue that are undeliverable on one link"
            self.core.end_link(self, text, RESOURCE_LIMIT_EXCEEDED)

    def gone(self, unsettled: list[Any]) -> None:
        held = self.held
        known = [*unsettled, *self.link.unsettled.values(), *([] if self.large is None else [self.large.context])]
        self.let_go()
        self.end_large()
        self.finish_presettled()
        self.cursor.release(self)
        self.core.chores.returns.give_back_found(
            self, self.cursor, lambda: self.in_hands(known, held=held), max(held, len(known))
        )
        self.core.temporaries.left(self, self.cursor.queue)

    def in_hands(self, unsettled: list[Any], *others: int, held: int = 0) -> list[int]:
        """What it holds, `held` and `self.held` entries: of its deliveries without an outcome, of those that its end
        told, and of `others`. Where that is less, as after a failure, all that is shown is looked through."""
        shown = self.cursor.shown
        known = {
            *unsettled,
            *self.link.unsettled.values(),
            *others,
            *([] if self.large is None else [self.large.context]),
        }
        mine = [sequence for sequence in known if sequence in shown and shown[sequence].taker is self]
        if len(mine) < self.held + held:
            mine = [sequence for sequence, item in shown.items() if item.taker is self]
        return mine

    def let_go(self) -> None:
        """The link holds nothing any more."""
        self.held = 0
        self._settled(self.held_bytes)
        if self.use is not None:
            self.use.blocked_consumers.pop(self, None)


@dataclass(slots=True)
class Looked:
    """What a reader came by when it was offered its queue. `size`: bytes of what it was sent and what it passed."""

    sent: int = 0
    passed: int = 0
    """Entries that had expired."""
    size: int = 0
    waits: bool = False
    """It ended for want of credit, or because the connection takes no more."""

    @property
    def is_all(self) -> bool:
        """Whether that is as much as may be at once: what lies behind is offered again."""
        return self.sent >= BROWSE_LIMIT or self.passed >= BROWSE_LIMIT or self.size >= PUMP_BYTES


class ReaderLink(Offered):
    """Reads `[start, end)` of a queue by sequence and moves nothing; without an end it goes on with what arrives."""

    def __init__(
        self,
        core: "NodeCore",
        peer: Peer,
        link: Sender,
        queue: Queue,
        *,
        start: int | None,
        end: int | None,
        settled: bool,
        tells_path: bool,
    ) -> None:
        super().__init__(core, peer, link, queue)
        self.browsing = start is None
        """By sequence the same range is the same messages, again and again; who browses sees none that has expired."""
        self.position = start or 0
        self.end = end
        self.presettled = settled
        self.tells_path = tells_path
        self.following = -1
        """The entry at the position or next behind it, as it was when it was looked for and could not be sent."""
        self.large: LargeSend | None = None
        core.readers_of(queue)[self] = None

    def drain_if_idle(self) -> bool:
        """As ConsumerLink's, of what no pump answers: credit that is used up, and a queue that offers nothing."""
        link = self.link
        if link.detached or not link.drain:
            return True
        if self.large is not None or (link.credit and offers(self.core, self.queue)):
            return False
        link.drained()
        self.peer.touch()
        return True

    @property
    def has_more(self) -> bool:
        """Whether something lies ahead of it, and its connection takes it."""
        return self.position < self.queue.visible and self.large is None and self.may_write

    def pump(self) -> None:
        """Sends what credit and the connection allow; ends the link at the end of its range."""
        link = self.link
        if self.large is not None:
            return
        limit = BROWSE_LIMIT
        if not self.presettled:
            limit = min(limit, self.core.config.limits.unsettled_max - len(link.unsettled))
        looked = self._send_some(limit)
        if looked.sent or looked.passed:
            self._count(looked)
        if link.detached or self.large is not None:
            return
        if self._over(look=not looked.is_all and self not in self.peer.deferred):
            link.detach(closed=True)
            self.peer.touch()
            self.core.forget_link(link)
        elif looked.is_all:
            self.queue.touch()
        elif link.drain and not looked.waits:  # there is nothing, or what is not settled is all that it may hold
            link.drained()
            self.peer.touch()

    def _send_some(self, limit: int) -> Looked:
        """Sends up to `limit` entries, and passes those that have expired if it browses."""
        link, end = self.link, self.end
        ahead: deque[tuple[int, bytes]] = deque()
        looked = Looked()
        while looked.sent < limit and not looked.is_all and not link.detached:
            if end is not None and self.position >= end:
                break
            if not self.may_write:
                if link.sendable:
                    self.defer()
                looked.waits = True
                break
            if not ahead:  # no more than may be sent, or as many again as were passed: what is not is read again
                count = min(link.credit, link.session.window_out, limit - looked.sent)
                count = min(READ_COUNT, max(count, looked.passed))
                ahead.extend(self.queue.read(self.position, count_max=count, bytes_max=self.room_bytes))
            if end is not None and (ahead[0][0] if ahead else self.queue.visible) >= end:
                self.position = end
                break
            if not ahead:
                break
            sequence, value = ahead.popleft()
            self.position = sequence + 1
            if self.browsing and self.queue.expired(value):
                looked.passed += 1
                looked.size += len(value)
                continue
            path = self._path(value) if self.tells_path and value[1] & entry.CUSTODY else b""
            parts = annotate.for_consumer(value, sequence, None, self.core.clock.steady_ms, path)
            if too_large(link, parts, value):
                self.core.end_link(self, f"sequence {sequence} is larger than this link takes", MESSAGE_SIZE_EXCEEDED)
                break
            message_format = int.from_bytes(value[20:24], "big")
            if value[1] & entry.BLOB:
                self.large = LargeSend(
                    self.core, self.peer, link, value, parts,
                    context=sequence, settled=self.presettled, message_format=message_format, ended=self._large_ended,
                )  # fmt: skip
                break  # what was read refers to blobs that may be gone when this one has been sent
            link.send(parts, context=sequence, settled=self.presettled, message_format=message_format)
            self.handed(len(value))
            looked.sent += 1
            looked.size += len(value)
        return looked

    def _count(self, looked: Looked) -> None:
        """Counts it for the turn: the queue's other readers are offered it before this one is again."""
        self.core.work.offered_bytes += looked.size
        self.core.work.offered_count += looked.sent + looked.passed
        readers = self.core.readers_of(self.queue)
        if len(readers) > 1 and self in readers:
            del readers[self]
            readers[self] = None

    def _path(self, value: bytes) -> bytes:
        """The nodes that a message passed, this one the last, to be told."""
        return annotate.path_items((*names_of(self.core, passed_by(value)), self.core.config.name))

    def _over(self, *, look: bool) -> bool:
        """Whether the whole range was sent: all below the end is visible and was looked at. `look`: in the store, too,
        once for each position, since nothing of what is read there may be sent."""
        if self.end is None or self.position >= self.end:
            return self.end is not None
        if self.queue.visible < self.end or self.following >= self.position or not look:
            return False
        found = self.queue.read(self.position, count_max=1, bytes_max=1)
        self.following = found[0][0] if found else self.end
        return self.following >= self.end

    def outcomes(self, contexts: list[Any], state: object, settled: bool, first: int, last: int) -> None:
        if isinstance(state, TransactionalState):
            refuse_transaction(self, state)
            return
        self.queue.touch()
        if not settled:
            self.link.settle(first, last, state if state is not None else Accepted())
            self.peer.touch()

    def _large_ended(self) -> None:
        self.large = None
        self.queue.touch()

    def gone(self, unsettled: list[Any]) -> None:
        if self.large is not None:
            self.large.close()
            self.large = None
        self.core.readers_of(self.queue).pop(self, None)
        self.core.temporaries.left(self, self.queue)
