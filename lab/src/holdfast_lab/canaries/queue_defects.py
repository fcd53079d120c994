"""Canaries in the turn and in the queues: the order of commits and answers, and what consumers and producers are told.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from holdfast.amqp.links.resuming import ResumeAction
from holdfast.custody.hop.receiver import CustodyReceiver
from holdfast_lab.canaries.hop_defects import MANY
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _counted_one_too_many(original: Function) -> Function:
    """Ranges of more than a few messages are one message too long."""

    def measured(queue: Any, start: int, messages_max: int, bytes_max: int) -> Any:
        found = original(queue, start, messages_max, bytes_max)
        if found.messages < 2 or found.messages >= messages_max:
            return found
        more = original(queue, found.end, 1, 1)
        size = found.bytes + more.bytes
        return found._replace(end=more.end, messages=found.messages + more.messages, bytes=size)

    return measured


def _settled_before_stored(original: Function) -> Function:
    """Messages that came over two links in one turn are accepted when their commit begins, not when it ends."""

    def _begin_commit(self: Any) -> Any:
        turn = self.turns.gathered
        result = original(self)
        if self.turns.in_flight is turn and len(turn.arrivals) > 2:
            for link in [link for link in turn.arrivals if isinstance(link, CustodyReceiver)]:
                link.stored(turn.arrivals.pop(link))
        return result

    return _begin_commit


def _shown_before_stored(original: Function) -> Function:
    """A large batch is offered to consumers as its commit begins."""

    def _begin_commit(self: Any) -> Any:
        turn = self.turns.gathered
        result = original(self)
        if self.turns.in_flight is turn and len(turn.batch.appends) > MANY:
            for queue, sequence in turn.visible:
                queue.show_up_to(sequence)
        return result

    return _begin_commit


def _producer_forgotten(original: Function) -> Function:
    """Of the producers of one turn, all but the first have their numbers only in memory."""

    def put(self: Any, producer: Any) -> None:
        puts = self._work.batch.puts
        mine = ("producers", producer.key)
        others = sum(key[0] == "producers" and key != mine for key in puts)
        original(self, producer)
        if others:
            del puts[mine]

    return put


def _run_noted_in_part(original: Function) -> Function:
    """Of a long run of a named producer's messages, the last is stored and its number is not."""

    def stored(self: Any, turn: Any, count: int) -> None:
        original(self, turn, count - 1 if count > MANY else count)

    return stored


def _run_kept_in_vain(original: Function) -> Function:
    """The numbers of a long run stay stored where its turn is undone."""

    def stored(self: Any, turn: Any, count: int) -> None:
        original(self, turn, count)
        if count > MANY:
            turn.producers[self._producer] = self._producer.stored

    return stored


def _bound_counts_leaving_twice(original: Function) -> Function:
    """Messages that leave with the commit in flight make room twice."""

    def fits(self: Any, size: int, priority: int = 9) -> bool:
        if original(self, size, priority):
            return True
        leaving = sum(queue_id == self.queue_id for queue_id, _ in self.work.retires_in_flight)
        most = self.config.messages_max
        return most is not None and leaving > 1 and self.messages - leaving < most

    return fits


def _redelivery_not_marked(original: Function) -> Function:
    """After a crash the last message that may have been delivered comes as a first delivery."""

    def failures(self: Any, sequence: int) -> int | None:
        if sequence == self.shown_below - 1 and sequence > MANY and not self.name:
            found: int | None = self.counts.get(sequence)
            return found
        count: int | None = original(self, sequence)
        return count

    return failures


def _given_back_unmarked(original: Function) -> Function:
    """A message that is released while another released one waits is delivered again as a first delivery."""

    def requeue(self: Any, sequences: list[int], *, failed: bool) -> None:
        waiting = len(self.requeued)
        original(self, sequences, failed=failed)
        if waiting and not failed and len(sequences) == 1 and not self.counts.get(sequences[0]):
            self.counts.pop(sequences[0], None)

    return requeue


def _given_back_to_the_tail(original: Function) -> Function:
    """Far into a queue, messages read ahead from the disk go before released ones."""

    def _next(self: Any, limit: int) -> Any:
        if not self.requeued or self.requeued[0] < 4 * MANY or len(self.prefetched) < 2:
            return original(self, limit)
        returned, self.requeued = self.requeued, []
        item = original(self, limit)
        self.requeued = sorted(returned + self.requeued)
        return item if item is not None else original(self, limit)

    return _next


def _advanced_beyond(original: Function) -> Function:
    """An advance over several entries goes one too far if more entries follow."""

    def advance(self: Any, sequence: int) -> None:
        if self.mode == "take" and sequence > self.floor + 4 and sequence + 3 < self.queue.visible:
            sequence += 1
        original(self, sequence)

    return advance


def _resumed_in_part(original: Function) -> Function:
    """The last of several messages that a resumed consumer held is left out if it had settled others."""

    def resume(self: Any) -> None:
        decided = sum(step.act is ResumeAction.SETTLE for step, _ in self.steps)
        if decided and len(self.steps) > decided + 1 and self.steps[-1][1] > 2 * MANY:
            self.steps.pop()
        original(self)

    return resume


def _selector_forgotten(original: Function) -> Function:
    """A subscription with unfinished deliveries has no selector after a restart."""

    def attach(self: Any, consumer: Any, selector: Any = None, *, shows: bool = True) -> None:
        if self.selector is not None and self.floor < self.shown_below:
            self.selector = None
        original(self, consumer, selector, shows=shows)

    return attach


def _freed_and_forgotten(original: Function) -> Function:
    """Of several messages that are released together only one is matched against the selector."""

    def freed(self: Any, sequences: Any) -> None:
        original(self, list(sequences)[:1])

    return freed


def _topic_lets_go_early(original: Function) -> Function:
    """A message leaves once the quickest subscription has finished it, though others have not."""

    def _finished_between(self: Any, low: int) -> list[tuple[int, int]]:
        quickest = max(self.named.values(), key=lambda cursor: cursor.floor)
        return self.swept.gaps(low, quickest.floor - 1) if quickest.floor > low else []

    return _finished_between


def _topic_matches_nothing(original: Function) -> Function:
    """Of messages that are matched again after a start all are marked as unwanted."""

    def _mark_some(self: Any, first: int, end: int) -> None:
        real = self.interests_of_named()
        self.subscribed = SimpleNamespace(effort=real.effort, is_changing=False, wanting=lambda value: ())
        try:
            original(self, first, end)
        finally:
            self.subscribed = real

    return _mark_some


def _forgotten_for_good(original: Function) -> Function:
    """What was forgotten, because too much waits for consumers that can have it, is not scanned again for them."""

    def rescan_from(self: Any, consumers: Any) -> None:
        return None

    return rescan_from


def _offered_on_its_way_out(original: Function) -> Function:
    """Only messages held by consumers count as taken, not accepted ones that are still on the disk."""

    def _is_taken(self: Any, sequence: int) -> bool:
        return sequence in self.ahead

    return _is_taken


def _read_fence_skipped(original: Function) -> Function:
    """The reader that was replaced last goes on reading."""

    def _check_lease(queue: Any, held: list[Any]) -> None:
        cursor = queue.named.get(str(held[0]))
        if cursor is None or held[2] != cursor.lease_epoch - 1:
            original(queue, held)

    return _check_lease


QUEUE_CANARIES = (
    Canary(
        name="read-fence-skipped",
        sentence="A range is read under the lease before the last.",
        target="endpoints.attaching.consumer_attach:_check_lease",
        signature="(queue: holdfast.broker.queue.Queue, held: list[typing.Any]) -> None",
        broken=_read_fence_skipped,
        expected="read under lease",
    ),
    Canary(
        name="counted-one-too-many",
        sentence="A range whose bytes are counted ends behind the message with which it is too large.",
        target="management.operations.subscriptions:measured",
        signature="(queue: holdfast.broker.entries.entry_log.EntryLog, start: int, messages_max: int, bytes_max: int) "
        "-> holdfast.management.operations.ranges.Measured",
        broken=_counted_one_too_many,
        expected="messages and",
    ),
    Canary(
        name="settled-before-stored",
        sentence="What came over two links in one turn is accepted as its commit begins, not when it is on disk.",
        target="core.node:NodeCore._begin_commit",
        signature="(self) -> bool",
        broken=_settled_before_stored,
        expected="which it has not stored",
    ),
    Canary(
        name="shown-before-stored",
        sentence="A large batch is offered to consumers as its commit begins, not when it is on disk.",
        target="core.node:NodeCore._begin_commit",
        signature="(self) -> bool",
        broken=_shown_before_stored,
        expected="last copy is gone",
    ),
    Canary(
        name="producer-forgotten",
        sentence="What a producer has stored is not stored with its message where producers share a commit.",
        target="state.named_producers:NamedProducers.put",
        signature="(self, producer: holdfast.broker.stored.producers.Producer) -> None",
        broken=_producer_forgotten,
        expected="appended twice",
    ),
    Canary(
        name="run-noted-in-part",
        sentence="Of a long run of a named producer's messages the last number is not noted as stored.",
        target="endpoints.numbered_runs:NumberedRuns.stored",
        signature="(self, turn: holdfast.state.turns.Turn, count: int) -> None",
        broken=_run_noted_in_part,
        expected="appended twice",
    ),
    Canary(
        name="run-kept-in-vain",
        sentence="The numbers of a long run stay stored where the disk refuses its turn.",
        target="endpoints.numbered_runs:NumberedRuns.stored",
        signature="(self, turn: holdfast.state.turns.Turn, count: int) -> None",
        broken=_run_kept_in_vain,
        expected="which it has not stored",
    ),
    Canary(
        name="bound-counts-leaving-twice",
        sentence="A full queue takes more because what is leaving is counted as gone twice.",
        target="broker.queue:Queue.fits",
        signature="(self, size: int, priority: int = 9) -> bool",
        broken=_bound_counts_leaving_twice,
        expected="its bound is",
    ),
    Canary(
        name="redelivery-not-marked",
        sentence="After a crash the last message that may have been shown comes unmarked.",
        target="broker.cursors.shown:Shown.failures",
        signature="(self, sequence: int) -> int | None",
        broken=_redelivery_not_marked,
        expected="not as a redelivery",
    ),
    Canary(
        name="given-back-unmarked",
        sentence="A message released while others that were given back wait comes again unmarked.",
        target="broker.cursors.holdings:Holdings.requeue",
        signature="(self, sequences: list[int], *, failed: bool) -> None",
        broken=_given_back_unmarked,
        expected="not as a redelivery",
    ),
    Canary(
        name="given-back-to-the-tail",
        sentence="Far on in a queue, a message given back goes behind what was read ahead from the disk.",
        target="broker.cursors.cursor:Cursor._next",
        signature="(self, limit: int) -> tuple[int, bytes, int, int | None] | None",
        broken=_given_back_to_the_tail,
        expected="was given back, and",
    ),
    Canary(
        name="advanced-beyond",
        sentence="ADVANCE lets one more entry go than the reader's checkpoint has.",
        target="broker.cursors.holdings:Holdings.advance",
        signature="(self, sequence: int) -> None",
        broken=_advanced_beyond,
        expected="last copy is gone",
    ),
    Canary(
        name="resumed-in-part",
        sentence="A resumed consumer that had decided on some messages is not sent the last of the others again.",
        target="endpoints.resumption.consumer:ResumableConsumer.resume",
        signature="(self) -> None",
        broken=_resumed_in_part,
        expected="holds what it was never sent",
    ),
    Canary(
        name="selector-forgotten",
        sentence="After a restart a subscription's selector is not applied.",
        target="broker.cursors.cursor:Cursor.attach",
        signature="(self, consumer: holdfast.broker.cursors.entry_consumer.EntryConsumer, "
        "selector: holdfast.broker.cursors.entry_consumer.EntrySelector | None = None, *, shows: bool = True) -> None",
        broken=_selector_forgotten,
        expected="does not select",
    ),
    Canary(
        name="freed-and-forgotten",
        sentence="Of several messages that are given back at once a selector is told only of the first.",
        target="broker.cursors.matches:Matches.freed",
        signature="(self, sequences: collections.abc.Iterable[int]) -> None",
        broken=_freed_and_forgotten,
        expected="passed over what matches",
    ),
    Canary(
        name="topic-lets-go-early",
        sentence="A topic lets go what its quickest subscription has finished.",
        target="broker.topic:Topic._finished_between",
        signature="(self, low: int) -> list[tuple[int, int]]",
        broken=_topic_lets_go_early,
        expected="is held and no entry",
    ),
    Canary(
        name="topic-matches-nothing",
        sentence="After a start no subscription with a selector or a bound is given what a topic still holds.",
        target="broker.topic:Topic._mark_some",
        signature="(self, first: int, end: int) -> None",
        broken=_topic_matches_nothing,
        expected="were accepted",
    ),
    Canary(
        name="apart-and-forgotten",
        sentence="A consumer of large messages gets no more of those that lay behind the first few without credit.",
        target="broker.cursors.waiting_for_others:WaitingForOthers.rescan_from",
        signature="(self, consumers: collections.abc.Iterable[holdfast.broker.cursors.entry_consumer.EntryConsumer]) "
        "-> int | None",
        broken=_forgotten_for_good,
        expected="was handed out while",
    ),
    Canary(
        name="offered-on-its-way-out",
        sentence="A consumer without a selector is offered what one with a selector has accepted in this moment.",
        target="broker.cursors.cursor:Cursor._is_taken",
        signature="(self, sequence: int) -> bool",
        broken=_offered_on_its_way_out,
        expected="was shown twice",
    ),
)
