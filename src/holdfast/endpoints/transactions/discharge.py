"""The commit of a transaction: everything in it is in one turn's batch, or nothing is (AMQP 1.0 §4.3).

Rules of this file: before anything is changed, it is checked that everything can be done. What a refused turn must
revert is tied together (`Turn.tied`, `QueueRows.tied`). Effects that need no disk, such as requeued messages and queues
in memory, follow once the batch is stored. The commit is answered only then.
"""

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Accepted, Error, Modified, Rejected
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.bands import PRIORITY_MOST
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries import annotate, entry
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.entries.work import Work
from holdfast.broker.message_records import record_message
from holdfast.broker.queue import Queue
from holdfast.broker.topic import Topic
from holdfast.custody.dead_lettering import DEATH_BYTES_MAX, REASON_CHARACTERS_MAX, DeadLettering
from holdfast.custody.names.identity import Identities
from holdfast.endpoints.spreading import LEARNS, NOWHERE, Branch, Spreading
from holdfast.endpoints.transactions.together import Together, is_appended
from holdfast.endpoints.transactions.transactions import Transactions
from holdfast.endpoints.transactions.work import Post, Take, Transaction
from holdfast.engine.effects import Effect
from holdfast.engine.outbox import Outbox
from holdfast.links.disk import Disk
from holdfast.peers.limits.memory import Memory
from holdfast.settings.node import NodeConfig
from holdfast.state import tied
from holdfast.state.catalog import DELAYED, Catalog
from holdfast.state.room import Room
from holdfast.state.turns import Turns, runs

ENTRY_OVERHEAD: Final = 512
"""Bytes that an entry may have beyond its value."""


class Wait(NamedTuple):
    """The transaction cannot be committed yet: the next answer of the disk decides."""


WAIT: Final = Wait()

Spread = dict[Post, tuple[Branch, ...]]
"""Messages to topics that go to other nodes too."""


@dataclass(frozen=True, slots=True, eq=False)
class Discharged(Effect):
    """A transaction is in the turn: `answer` is called when the turn is stored, or with the reason why it is not."""

    txn_id: str
    transaction: Transaction = field(repr=False)
    answer: Callable[[Error | None], None] = field(repr=False)


@dataclass(frozen=True, slots=True)
class CommitParts:
    """What commits use of the node. `streams`: large messages that are arriving."""

    config: NodeConfig
    catalog: Catalog
    turns: Turns
    work: Work[Queue]
    room: Room
    disk: Disk
    memory: Memory
    outbox: Outbox
    identities: Identities
    dead_lettering: DeadLettering
    streams: Container[Any]
    spreading: Spreading


def _error(condition: str, text: str) -> Error:
    return Error(Symbol(condition), text)


class Commits:
    """Commits transactions."""

    def __init__(self, parts: CommitParts, transactions: Transactions) -> None:
        self._parts = parts
        self._transactions = transactions
        parts.turns.effects.on_decided(Discharged, self._decided)

    def commit(self, transaction: Transaction, answer: Callable[[Error | None], None]) -> Error | Wait | None:
        """Puts everything in the transaction into the turn; `answer` gets the result. Returns an error if it cannot be
        committed and must be rolled back, or WAIT if that is not known yet."""
        if self._transactions.waits(transaction, self._parts.streams):
            return WAIT
        refused = transaction.error or self._gone(transaction)
        if refused is not None:
            return refused
        spread = self._spread(transaction)
        no_room = self._no_room(transaction, spread) or self._no_room_elsewhere(transaction, spread)
        if no_room is not None:
            return no_room
        turn = self._parts.turns.gathered
        effect = Discharged(self._parts.turns.event, transaction.txn_id.hex(), transaction, answer)
        turn.changes += 1
        self._parts.work.request_commit()
        self._transactions.decide(transaction)
        turn.decided.append(effect)
        self._store(transaction, spread)
        return None

    def _spread(self, transaction: Transaction) -> Spread:
        """The destinations of its messages to topics besides this node."""
        spreading, spread = self._parts.spreading, {}
        for post in transaction.posts:
            message = post.message
            if isinstance(message.queue, Topic) and (branches := spreading.branches(message.queue, message.value)):
                spread[post] = branches
        return spread

    def _no_room_elsewhere(self, transaction: Transaction, spread: Spread) -> Error | None:
        """Why copies for other nodes cannot be stored."""
        if any(self._parts.spreading.learns(post.message.queue) for post in transaction.posts):
            return _error(conditions.RESOURCE_LIMIT_EXCEEDED, LEARNS)
        counts: dict[Queue, tuple[Branch, int, int, int]] = {}  # one queue may have branches of several kinds
        for post, branches in spread.items():
            for branch, more in self._parts.spreading.sizes(branches, post.message.value).items():
                _, count, size, lowest = counts.get(branch.queue, (branch, 0, 0, PRIORITY_MOST))
                counts[branch.queue] = branch, count + 1, size + more, min(lowest, post.message.value[2])
        for branch, count, size, lowest in counts.values():
            if self._parts.spreading.lacks_room(branch, size, count, priority=lowest):
                text = f"queue {branch.queue.name!r} has no room for {count} messages of the transaction"
                return _error(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        return None

    # ------------------------------------------------------------------------------------------------ asked

    def _gone(self, transaction: Transaction) -> Error | None:
        """Why it can no longer be committed: something that it concerns was deleted."""
        catalog = self._parts.catalog
        for queue in dict.fromkeys(post.message.queue for post in transaction.posts):
            if not catalog.has(queue):
                return _error(conditions.RESOURCE_DELETED, f"queue {queue.name!r} was deleted")
        for (cursor, sequence), _ in transaction.takes.items():
            held = cursor.acquired.get(sequence)
            if not catalog.has_cursor(cursor) or held is None or held.consumer is not transaction:
                text = f"sequence {sequence} of queue {cursor.queue.name!r} has left the queue"
                return _error(conditions.RESOURCE_DELETED, text)
        return self._wrong_producer(transaction)

    def _wrong_producer(self, transaction: Transaction) -> Error | None:
        most = self._parts.config.limits.ranges_max if self._parts.memory.ranges.room else 1
        numbers = {}
        for post in transaction.posts:
            producer = post.message.producer
            if producer is None:
                continue
            if producer.epoch != post.epoch:  # the newer link was told the producer's numbers without these
                text = f"producer {producer.name!r} has a newer link"
                return _error(conditions.STOLEN, text)
            if producer not in numbers:
                numbers[producer] = producer.stored.copy()
            before = len(numbers[producer])
            numbers[producer].add(post.message.number)
            if len(numbers[producer]) > max(before, most):
                text = f"producer {producer.name!r} has too many gaps in its numbers; the limit is {most}"
                text += " (ranges_max, or 1 while memory is short)"
                return _error(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        return None

    def _no_room(self, transaction: Transaction, spread: Spread) -> Error | Wait | None:
        parts = self._parts
        needed = 0
        delayed: Counter[str] = Counter()
        in_memory: Counter[Queue] = Counter()
        for post in transaction.posts:
            message = post.message
            needed += (len(message.value) + ENTRY_OVERHEAD) * len(spread.get(post, ()))
            if message.queue.config.durable:
                needed += len(message.value) + ENTRY_OVERHEAD
                delayed[message.queue.host] += parts.catalog.is_delayed(message.queue, message.value)
            else:
                in_memory[message.queue] += message.size
        for taken in transaction.takes.values():
            if _is_copied(taken):
                needed += taken.size + taken.extra_bytes + DEATH_BYTES_MAX
        for host, count in delayed.items():  # its reservation counts for itself; a clock may have been set back since
            own = transaction.shares.get(parts.catalog.own(host, DELAYED)) if count else None
            if count > parts.catalog.delayed_room(host) + (0 if own is None else own.reserved):
                most = parts.config.limits.delayed_max
                text = f"{count} more messages would be delayed; delayed_max is {most}"
                return _error(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        for queue, size in in_memory.items():
            if queue.memory is not None and not queue.memory.fits(size):
                return _error(conditions.RESOURCE_LIMIT_EXCEEDED, f"queue {queue.name!r} has no memory left")
        if not needed:
            return None
        if parts.disk.takes_nothing:
            return WAIT
        if parts.room.has(needed):
            return None
        return WAIT if not parts.room.is_known else parts.disk.refusal.error

    # ------------------------------------------------------------------------------------------------ stored

    def _store(self, transaction: Transaction, spread: Spread) -> None:
        """Puts everything that needs the disk into the gathered turn."""
        parts = self._parts
        together = Together(transaction.posts, parts.config.limits.group_messages_max, spread)
        for why in together.apart:
            self._transactions.groups_apart += 1
            transaction.peer.log("WARNING", f"messages of its transaction are not shown together: {why}")
        for post in transaction.posts:
            if post.message.queue.config.durable:
                self._append(post, together, spread.get(post, ()))
        accepted: dict[Cursor, list[int]] = {}
        for (cursor, sequence), taken in transaction.takes.items():
            outcome = taken.outcome
            queue = parts.catalog.queue_of(cursor)
            if isinstance(outcome, Rejected) and queue.kind is not QueueKind.DEAD_LETTERS:
                value = queue.value(sequence)
                if value is not None:
                    value = entry.with_earlier(value, cursor.failures(sequence) or 0)
                    parts.dead_lettering.dead_letter(queue.host, value, _reason(outcome), queue.name)
            elif isinstance(outcome, Modified) and outcome.message_annotations and queue.config.durable:
                self._annotate(taken, queue)
            if isinstance(outcome, (Accepted, Rejected)) and queue.config.durable:
                accepted.setdefault(cursor, []).append(sequence)
        for cursor, sequences in accepted.items():
            self._retire(transaction, cursor, sequences)

    def _append(self, post: Post, together: Together | None = None, branches: tuple[Branch, ...] = NOWHERE) -> None:
        parts, message = self._parts, post.message
        producer = message.producer
        if not is_appended(post):  # it was stored by another link meanwhile, which also published it
            post.told = True
            return
        if producer is not None:
            parts.turns.gathered.keep_producer(producer)
            producer.stored.add(message.number)
        value = message.value
        if together is not None:
            parts.spreading.spread(message.queue, branches, value, together.next)
        if message.destination is not None:
            identity = parts.identities.next(message.destination)
            group = None if together is None else together.next(message.destination)
            value = entry.repack(entry.unpack(value)._replace(identity=identity, group=group))
        if message.unknown is not None:
            sequence = parts.dead_lettering.dead_letter_unroutable(
                message.queue.host, value, message.to, message.unknown
            )
        elif isinstance(message.queue, Topic):  # listeners get it once it is stored
            sequence = message.queue.append_now(value, message.size)
        else:
            sequence = message.queue.append(value, message.size)
        if post.link.remembers_tags and not post.settled:
            parts.turns.gathered.arrived(post.link, post.delivery_id)
        if parts.config.telemetry_messages:
            record_message(parts.outbox, "stored", message.queue, sequence, value)

    def _annotate(self, taken: Take, queue: Queue) -> None:
        notes = annotate.notes_added(taken.outcome.message_annotations)
        if notes.added:
            peer = taken.link.peer
            _, why = self._parts.dead_lettering.annotate_entry(peer, queue, taken.sequence, notes)
            if why:
                peer.log("WARNING", f"its annotations of sequence {taken.sequence} are left out: {why}")

    def _retire(self, transaction: Transaction, cursor: Cursor, sequences: list[int]) -> None:
        tied.retire(self._parts.catalog, self._parts.turns.gathered, cursor, transaction, sequences)

    # ------------------------------------------------------------------------------------------------ decided

    def _decided(self, effect: Discharged, stored: bool) -> None:
        transaction = effect.transaction
        if transaction not in self._transactions.deciding:
            return  # tried again after a failure
        for cursor in dict.fromkeys(cursor for cursor, _ in transaction.takes):
            tied.untie(self._parts.catalog, cursor, [number for at, number in transaction.takes if at is cursor])
        error = None if stored else self._why_not()
        if stored:
            self._follow(transaction)
        self._transactions.roll_back(transaction)  # of what is stored nothing is left but what is counted
        self._transactions.forget(transaction)
        effect.answer(error)

    def _why_not(self) -> Error:
        why = self._transactions.refusal
        if why:
            return _error(conditions.RESOURCE_LIMIT_EXCEEDED, why)
        return _error(conditions.TRANSACTION_ROLLBACK, "the node could not commit the transaction, see its log")

    def _follow(self, transaction: Transaction) -> None:
        """It is on disk: does what needs no disk, and settles the deliveries in it. Tried again if it fails."""
        self._transactions.release(transaction)  # of queues in memory: they get their messages now
        for post in transaction.posts:
            queue = post.message.queue
            if post.told or queue.config.durable or not self._parts.catalog.has(queue):
                continue
            self._append(post)
            post.told = True
        takes = transaction.takes
        self._answer(takes)
        finished: dict[Cursor, list[int]] = {}
        back: dict[tuple[Cursor, bool], list[int]] = {}
        for (cursor, sequence), taken in takes.items():
            held = cursor.acquired.get(sequence)
            if held is None or held.consumer is not transaction or not self._parts.catalog.has_cursor(cursor):
                continue
            outcome = taken.outcome
            if isinstance(outcome, (Accepted, Rejected)):
                finished.setdefault(cursor, []).append(sequence)
                continue
            failed = False
            if isinstance(outcome, Modified):
                failed = bool(outcome.delivery_failed)
                if outcome.undeliverable_here:
                    taken.link.exclude(sequence)
                if outcome.message_annotations and not cursor.queue.config.durable:
                    self._annotate(taken, self._parts.catalog.queue_of(cursor))
            back.setdefault((cursor, failed), []).append(sequence)
        for cursor, sequences in finished.items():
            cursor.finish(sequences)
        for (cursor, failed), sequences in back.items():
            cursor.requeue(sequences, failed=failed)
        for cursor in dict.fromkeys(cursor for cursor, _ in takes):
            cursor.queue.touch()

    def _answer(self, takes: dict[tuple[Cursor, int], Take]) -> None:
        """Settles the deliveries that their peers left unsettled, with the outcome that they have now."""
        open_of: dict[Any, dict[int, Take]] = {}
        for taken in takes.values():
            if taken.link.provisional.pop(taken.sequence, None) is taken:
                open_of.setdefault(taken.link, {})[taken.sequence] = taken
        for link, mine in open_of.items():
            sender = link.link
            if sender.detached:
                continue
            ids = [(number, mine[context]) for number, context in sender.unsettled.items() if context in mine]
            by_outcome: list[tuple[Any, list[int]]] = []
            for number, taken in ids:
                if not by_outcome or by_outcome[-1][0] != taken.outcome:
                    by_outcome.append((taken.outcome, []))
                by_outcome[-1][1].append(number)
            for outcome, numbers in by_outcome:
                for first, last in runs(numbers):
                    sender.settle(first, last, outcome)
            link.peer.touch()


def _is_copied(taken: Take) -> bool:
    """Whether its message is stored again: as a dead letter, or with annotations."""
    outcome = taken.outcome
    return isinstance(outcome, Rejected) or (isinstance(outcome, Modified) and bool(outcome.message_annotations))


def _reason(outcome: Rejected) -> str:
    said = outcome.error
    words = "rejected" if said is None else f"rejected: {said.condition} {said.description or ''}".strip()
    return words[:REASON_CHARACTERS_MAX]
