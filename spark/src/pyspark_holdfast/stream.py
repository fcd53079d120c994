"""The streaming reader: plans the batches of a query, and lets nodes forget what its checkpoint proves.

Rules of this file: a batch is a range of sequences of each queue and nothing else, so that Spark may plan and read it
any number of times. Reading acknowledges nothing. A node is told to let entries go only for what the query's checkpoint
proves, after that proof is on disk. A node that is away keeps its place in every offset.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from holdfast.errors import ConfigError
from pyspark_holdfast.admission import Request, turned, within_aim, within_bytes
from pyspark_holdfast.belonging import Belonging
from pyspark_holdfast.bus import NodeUnreachable, QueueMadeAnew, Window
from pyspark_holdfast.checkpoint import Checkpoint, SinkLog, batches_in
from pyspark_holdfast.fleet import Fleet
from pyspark_holdfast.leftovers import Leftovers
from pyspark_holdfast.members import Member, NodePart, placed
from pyspark_holdfast.offsets import FORMER, Offset, Part, Place, offset_of, part_between, shown
from pyspark_holdfast.ranges import NodeTask, QueueRange, tasks_of
from pyspark_holdfast.reading import Reading, Source

if TYPE_CHECKING:
    from pyarrow import RecordBatch

log = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 0.2
"""How often a batch that was begun asks whether its nodes are there."""

T = TypeVar("T")


class HoldfastStreamReader(Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One object in one process plans a run of a query; copies of it read in the workers."""

    def __init__(self, source: Source, options: Mapping[str, str]) -> None:
        super().__init__(source, options)
        if self.options.subscription is None:
            raise ConfigError("option 'subscription' is missing; expected the name of this query's place")
        if self.options.checkpoint is None:
            raise ConfigError("option 'checkpoint' is missing; expected the same path as checkpointLocation")
        if self.options.ending_at is not None:
            raise ConfigError("option 'endingAt' belongs to a batch query, spark.read; leave it out")
        sink = SinkLog(self.options.sink_path) if self.options.sink_path is not None else None
        self._subscription = self.options.subscription
        self._checkpoint = Checkpoint(self.options.checkpoint, self._subscription, sink)
        self._parts: list[NodePart] = []
        self._fleet: Fleet[int] | None = None
        self._tails: dict[str, int] = {}
        """Where each queue ended when it was looked at last."""
        self._targets: dict[str, int] | None = None
        self._turn = 0
        self._planned_at: float | None = None
        self._belonging = Belonging(self.options, self._checkpoint)
        self._leftovers = Leftovers(self.options.checkpoint, self._subscription)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_parts": [], "_fleet": None}

    # ----------------------------------------------------------------------------------------------- planning

    def initialOffset(self) -> dict[str, Any]:
        """The subscriptions' places: they stay the same until the first batch is proven."""
        members = self._opened()
        places = {key: Place(member.uuid, member.place.advanced) for key, member in members.items()}
        return Offset(self._subscription, places).json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; moves nothing but what the checkpoint proves."""
        self._opened()
        self._release()
        first = self._parsed(start)
        rows_max: int | None = self.options.rows_max
        bytes_max = self.options.bytes_max
        if isinstance(limit, ReadMaxRows):
            rows_max = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        elif isinstance(limit, ReadAllAvailable):
            rows_max = bytes_max = None
        begins = {key: self._belonging.begin(first, member) for key, member in self._members().items()}
        self._turn += 1
        begins = {key: begins[key] for key in turned(sorted(begins), self._turn)}
        if bytes_max is not None and rows_max is not None:
            ends = within_bytes(begins, rows_max, bytes_max, self._measured)
        else:
            ends = within_aim(self._peeked(begins, rows_max), begins, rows_max, self.options.bytes_aim)
        again, left = self._due(first)
        reached = self._reached(first, begins, ends, again, left)
        if reached is None or (not again and left == first.left and self._waits(begins)):
            return start
        self._planned_at = time.monotonic()
        return reached.json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.rows_max)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Only for Spark's own progress report, where it shows how far behind the query is."""
        tails = self._tails if self._targets is None else self._targets
        members = self._members()
        places = {key: Place(members[key].uuid, tail) for key, tail in tails.items() if key in members}
        return Offset(self._subscription, places).json()

    def prepareForTriggerAvailableNow(self) -> None:
        """What lies in the queues now is what this run reads; what comes later waits for the next run, and what a node
        has that is away."""
        members = self._opened(wait_s=self.options.retry_s)
        self._targets = self._each_member(members, lambda member: member.bus.place().tail)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Tasks that depend on `start` and `end` alone: after a crash the same batch is the same tasks."""
        last = offset_of(end)
        if last is None or not self._checkpoint.holds(last):
            at = end if last is None else ", ".join(str(place.seq) for place in last.places.values())
            raise ConfigError(
                f"option 'checkpoint': {self._checkpoint.path} does not hold the batch that ends at {at}; give "
                "this query's own checkpointLocation"
            )
        self._checkpoint.sync_plan()  # before any effect: planned anew after a power loss, it could be another batch
        self._opened()
        first, last, members = self._needed(self._parsed(start), self._parsed(end))
        ranges: dict[tuple[int, str], list[QueueRange]] = {}
        for key, (number, member) in members.items():
            place = last.places[key]
            begin = self._belonging.begin(first, member)
            stop = self._belonging.begin(last, member)
            if place.queue != member.uuid:  # gone, and the query is to go on all the same
                continue
            name = self._parts[number].name
            assert name is not None
            earlier = last.again[key].ranges if key in last.again else ()
            ranges.setdefault((number, name), []).extend(
                QueueRange(member.address, *one, member.lease, member.uuid) for one in (*earlier, (begin, stop))
            )
        # Spark takes an empty list for one task that reads everything.
        return [*tasks_of(ranges, self.options.rows_per_partition)] or [NodeTask(0, "", ())]

    def commit(self, end: dict[str, Any]) -> None:
        """A chance to release; what may be released is read from the checkpoint, never taken from `end`."""
        self._opened()
        self._release()

    def stop(self) -> None:
        """Closes the connections. Spark does not always call it: the next run fences this one."""
        parts, fleet = self._parts, self._fleet
        self._parts, self._fleet = [], None
        if fleet is not None:
            fleet.end([part.node.close for part in parts])

    # ------------------------------------------------------------------------------------------------ reading

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        return self.rows(partition)

    # ---------------------------------------------------------------------------------------------- releasing

    def _release(self) -> None:
        """What the checkpoint has proven: synced, then released where it is beyond a node's place."""
        proven = self._checkpoint.proven()
        if proven is None:
            return
        moved: dict[str, Place] = {}
        members = self._members()
        left = self._leftovers.after(proven.batch, proven.lines)
        for key, member in members.items():
            place = self._checkpoint.place(proven.lines, key, member.uuid)
            if place is None:
                continue
            place = place.before(left.get(key))
            if self._belonging.is_of(place, member) and place.seq > member.advanced:
                moved[key] = place
        released = {key: Place(member.uuid, member.advanced) for key, member in members.items()}
        self._checkpoint.make_durable(proven, released)  # whatever moved: the next batch is planned on top of it
        if not moved:
            return

        def advance(member: Member) -> int:
            member.advanced = member.bus.advance(member.lease, moved[member.key].seq)
            return member.advanced

        self._each_member({key: members[key] for key in moved}, advance)
        self._leftovers.forget(proven.batch)

    # ------------------------------------------------------------------------------------------- nodes, queues

    def _reach(self) -> Fleet[int]:
        """The nodes of this run; nothing is connected before it is asked."""
        if self._fleet is None:
            options = self.options
            for url in options.urls:
                own = options.at(url)
                self._parts.append(NodePart(own, self._source.node(own), len(self._parts)))
            names = {number: str(url) for number, url in enumerate(options.urls)}
            parts = self._parts
            self._fleet = Fleet(
                names,
                all_needed=options.on_node_away == "fail",
                answered_at=lambda number: parts[number].node.answered_at,
            )
        return self._fleet

    def _opened(self, wait_s: float = 0.0) -> dict[str, Member]:
        """The queues of all nodes that are there, each opened once in a run; those that are away are waited for so
        long."""
        fleet = self._reach()
        if self.options.starting_from == "next" and batches_in(self._checkpoint.path / "offsets"):
            for part in self._parts:
                part.has_begun = True
        fleet.each({number: part.opened for number, part in enumerate(self._parts)}, wait_s=wait_s)
        return self._members()

    def _members(self) -> dict[str, Member]:
        """The queues of nodes that are there. ConfigError where two URLs reach one."""
        return {key: member for key, (_, member) in self._placed().items()}

    def _placed(self) -> dict[str, tuple[int, Member]]:
        away = {} if self._fleet is None else self._fleet.away
        return placed([part for number, part in enumerate(self._parts) if number not in away])

    def _each_member(self, members: Mapping[str, Member], call: Callable[[Member], T]) -> dict[str, T]:
        """What `call` returns for each, the nodes side by side; without those of nodes that go away over it."""
        there = self._placed()
        by_node: dict[int, list[Member]] = {}
        for key, member in members.items():
            if key in there:
                by_node.setdefault(there[key][0], []).append(member)

        def calls(some: list[Member]) -> dict[str, T]:
            return {member.key: call(member) for member in some}

        work = {number: partial(calls, some) for number, some in by_node.items()}
        return {key: value for found in self._reach().each(work).values() for key, value in found.items()}

    def _needed(self, first: Offset, last: Offset) -> tuple[Offset, Offset, dict[str, tuple[int, Member]]]:
        """The queues that a batch from `first` to `last` reads: it cannot do without one of them. NodeUnreachable after
        the time for which a node is tried again."""
        until = time.monotonic() + self.options.retry_s
        batch = batches_in(self._checkpoint.path / "offsets")[-1]
        while True:
            there, first, last = self._placed(), self._named(first), self._named(last)
            left = self._leftovers.of_plan(batch, first, last)
            keys = [key for key, place in last.places.items() if first.places.get(key) != place or key in last.again]
            missing = [key for key in keys if key not in there and key not in left]
            if not missing:
                return first, last, {key: there[key] for key in keys if key in there and key not in left}
            assert self._fleet is not None
            away = self._fleet.away
            if not away:
                raise ConfigError(
                    f"checkpoint {self._checkpoint.path}: the batch that was begun reads {shown(missing[0])}, which "
                    "the options url and address do not mean; give it again until this batch is done"
                )
            if self._leaves(batch, first, last, missing):
                return first, last, {key: there[key] for key in keys if key in there and key not in left}
            if time.monotonic() > until:
                told = "; ".join(away.values())
                raise NodeUnreachable(f"the batch that was begun reads {shown(missing[0])}, and nodes are away: {told}")
            time.sleep(LOOK_AGAIN_S)
            self._opened()

    def _leaves(self, batch: int, first: Offset, last: Offset, missing: Iterable[str]) -> bool:
        """Whether the batch does without these queues, whose nodes are away: from now on, or since its table has it
        already. It cannot where nothing says where its part of a queue begins."""
        sink = self._checkpoint.sink
        if self.options.on_node_away != "leaveOut" or sink is None:
            return False
        if batch in sink.batches():
            return True
        parts: dict[str, Part] = {}
        for key in missing:
            part = part_between(first, last, key)
            if part is None:
                return False
            parts[key] = part
        self._leftovers.leave(batch, parts)
        for key in parts:
            log.warning("batch %d leaves out %s, whose node is away; a later batch has it", batch, shown(key))
        return True

    def _due(self, first: Offset) -> tuple[dict[str, Part], dict[str, Part]]:
        """What earlier batches left out of our queues: that of nodes which are there, and that of others."""
        planned = batches_in(self._checkpoint.path / "offsets")
        again: dict[str, Part] = {}
        left: dict[str, Part] = {}
        members = self._members()
        for key, part in self._leftovers.after(planned[-1], [first]).items() if planned else ():
            if key not in first.places:  # of another source of the query
                continue
            if key not in members:
                left[key] = part
            elif self._belonging.is_of(Place(part.queue, 0), members[key]):
                again[key] = part
        return again, left

    # ---------------------------------------------------------------------------------------------- the places

    def _peeked(self, begins: Mapping[str, int], rows_max: int | None) -> dict[str, Window]:
        """What the next batch may take of each queue; without `rows_max` all."""
        bytes_max = None if rows_max is None else self.options.bytes_aim

        def look(member: Member) -> Window:
            return member.bus.peek(member.lease, begins[member.key], rows_max, bytes_max)

        return self._windows(begins, look)

    def _measured(self, wanted: Mapping[str, Request]) -> dict[str, Window]:
        def look(member: Member) -> Window:
            return member.bus.measure(member.lease, *wanted[member.key])

        return self._windows(wanted, look)

    def _windows(self, keys: Iterable[str], look: Callable[[Member], Window]) -> dict[str, Window]:
        """What these queues answer, in the order of `keys`."""
        members = self._members()
        found = self._each_member({key: members[key] for key in keys if key in members}, look)
        for key, window in found.items():
            self._tails[key] = window.tail
            members[key].tail = max(members[key].tail, window.tail, window.end)
        return {key: found[key] for key in keys if key in found}

    def _waits(self, begins: Mapping[str, int]) -> bool:
        """Whether there is too little for a batch, and time left."""
        options = self.options
        if self._targets is not None or self._planned_at is None or options.rows_min <= 1:
            return False
        there = sum(max(0, self._tails.get(key, begin) - begin) for key, begin in begins.items())
        return there < options.rows_min and time.monotonic() - self._planned_at < options.delay_s

    def _reached(
        self,
        first: Offset,
        begins: Mapping[str, int],
        ends: Mapping[str, int],
        again: Mapping[str, Part],
        left: Mapping[str, Part],
    ) -> Offset | None:
        """The offset of a batch with these ends; None where there is nothing for one."""
        members = self._members()
        places: dict[str, Place] = {}
        # What the batch before left out is in our offset at once: another source's batch lets its files go.
        is_new = bool(again) or left != first.left
        for key, end in ends.items():
            if key not in members:  # its node went away while others were asked again
                continue
            if self._targets is not None:
                if key not in self._targets:  # it came after the run had begun
                    continue
                end = min(end, self._targets[key])
            places[key] = Place(members[key].uuid, max(begins[key], end))
            is_new |= first.places.get(key) != places[key]
        return replace(first.moved(places), again=again, left=left) if is_new else None

    def _parsed(self, value: dict[str, Any]) -> Offset:
        """The Offset in `value`. Raises ConfigError where it is none of this subscription."""
        offset = offset_of(value)
        if offset is None or offset.sub != self._subscription:
            raise ConfigError(
                f"checkpoint {self._checkpoint.path}: invalid place {value}; expected one of subscription "
                f"{self._subscription!r}"
            )
        return self._named(offset)

    def _named(self, offset: Offset) -> Offset:
        """With the place of an earlier version's checkpoint under the key of its queue, if that is known."""
        place = offset.places.get(FORMER)
        if place is None:
            return offset
        members = self._members()
        if self.options.is_single:
            return offset.named(dict.fromkeys([place.queue], next(iter(members), FORMER)))
        named = offset.named({member.uuid: key for key, member in members.items()})
        if FORMER in named.places and self._fleet is not None and not self._fleet.away:
            text = f"the queue {place.queue} that checkpoint {self._checkpoint.path} has read is at none of these nodes"
            if self.options.fail_on_data_loss:
                raise QueueMadeAnew(f"{text}; give its url and address too, or a new checkpoint with a new output")
            self._belonging.warn(text)
        return named
