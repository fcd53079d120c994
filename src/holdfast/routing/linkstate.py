"""The table of link states: one record for each node, what each neighbour was sent of it, and the resulting graph.

Rules of this file: pure, no clock. Nodes that have received the same rows have the same table, in whatever order and
however often the rows came. What was sent in a session has arrived: control messages arrive, or the session ends.
Everything from a neighbour is checked row by row (rows.py). Source: esb-dynamic-routing §3.2, §4.2, §4.3;
docs/adr/0015-routing.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from holdfast.routing.records import VERSION_END, VERSION_HIGH, VERSION_VOID, Edition, Known, Record, Told, silent
from holdfast.routing.rows import Malformed, read_row, read_summary_row, write_row, write_summary_row

ROWS_MAX: Final = 100
"""Rows of one control message."""

BYTES_MAX: Final = 16_384
"""About what the rows of one message take; one row alone may be larger, by its neighbours' names."""

SUMMARY_ROWS_MAX: Final = 250


class LinkStates:
    """The records that one node knows, including its own. `initial`: each node's links in the topology file; `supers`:
    its super nodes. The caller decides which record may be sent to which neighbour (`to_tell`); this class makes sure
    that each is sent once. The contents of the file always fit `records_max` and `neighbours_max`, because otherwise
    all nodes would refuse the records of its nodes.
    """

    def __init__(
        self,
        name: str,
        initial: Mapping[str, Mapping[str, int]],
        *,
        supers: Iterable[str] = (),
        records_max: int,
        neighbours_max: int,
    ) -> None:
        self.name = name
        self.records_max, self.neighbours_max = records_max, neighbours_max
        self.grow(initial)
        self.known: dict[str, Known] = silent(initial, supers)
        self.told: dict[str, Told] = {}
        self.digest = 0
        """Of all records that were said, not of stamps: equal tables, equal digests, in whatever order they came."""
        self.floor = 0
        """The highest version that anybody says of this very node; its own next word goes past it."""
        self.must_reoriginate = False
        """A neighbour has another, no older record of this node, or one that says it is lost: originate it again."""
        self.changed = False
        """The graph, or the set of super nodes, may have changed since the caller last reset this."""
        self.words = 0
        """Counts what was taken of records, our own among them: who keeps something that is made of them compares."""
        self.unstamped: dict[str, None] = {}
        self.resets = False
        """Our own version would have come to its end: it begins anew once all others' copies are void (`void`)."""
        self.quarantined: dict[str, None] = {}
        """Nodes whose versions began anew of late: a high one is what was, and not taken. The caller clears it."""
        self.stale: dict[tuple[str, str], None] = {}
        """(neighbour, node) of such that came all the same: the neighbour does not have it. The caller clears it."""
        self.dropped: dict[str, tuple[int, int]] = {}
        """Forgotten nodes, with the version and fingerprint that are not accepted again."""
        self.malformed: Callable[[str, str], None] = lambda neighbour, text: None

    def grow(self, initial: Mapping[str, Mapping[str, int]]) -> None:
        """Raises the bounds to what the file has."""
        self.records_max = max(self.records_max, len(initial))
        self.neighbours_max = max(self.neighbours_max, max(map(len, initial.values()), default=0))

    # ------------------------------------------------------------------------------------------------ own words

    @property
    def own(self) -> Known | None:
        return self.known.get(self.name)

    def originate(
        self,
        links: Mapping[str, int | None],
        *,
        version: int,
        store: UUID | None = None,
        left: bool = False,
        is_super: bool = False,
    ) -> None:
        """Originates a new version of our record: at least `version`, above our last one, and above every version of it
        that was received (after a reset, every one that is not void). If that would be VERSION_HIGH or more (after a
        reset, VERSION_VOID), the versions are reset."""
        own = self.own
        before = own.record.version if own is not None else 0
        first, version = version, max(version, before + 1, self.floor + 1)
        if version >= (VERSION_VOID if self.name in self.quarantined else VERSION_HIGH):
            version, self.floor, self.resets = min(first, VERSION_VOID - 1), 0, True
            self.quarantined[self.name] = None
            self._forget_editions(self.name)
        self.put(Known(Record(self.name, version, tuple(sorted(links.items())), store, left, is_super)))
        self.must_reoriginate = False

    # ------------------------------------------------------------------------------------------------ a super's words

    def stamp(self, name: str, by: str, count: int) -> None:
        """As super node: stamps the record of `name`, so that it is flooded."""
        known = self.known.get(name)
        if known is None:  # a memory fault removed only the record
            self.unstamped.pop(name, None)
        elif known.stamp is None:
            known.stamp = by, count
            self._note(name)

    def lose(self, name: str, by: str) -> bool:
        """As super node: declares the node lost, whatever its record says, until its next record."""
        known = self.known.get(name)
        if known is None or known.gone or not known.record.version or name == self.name:
            return False
        self.put(Known(known.record, known.stamp, by))
        return True

    # ------------------------------------------------------------------------------------------------ hearing

    def receive(self, neighbour: str, rows: Iterable[object]) -> None:
        """Accepts newer records. Malformed rows are reported and dropped."""
        for row in rows:
            try:
                heard = read_row(row, self.neighbours_max)
            except Malformed as error:
                self.malformed(neighbour, str(error))
                continue
            name = heard.record.name
            self._take(neighbour, heard)
            told = self.told.get(neighbour)
            if told is not None and name in self.known and (neighbour, name) not in self.stale:
                theirs = told.editions.get(name)
                if theirs is None or not theirs.covers(heard.edition):  # otherwise our record is on its way to them
                    told.editions[name] = heard.edition
                told.pending[name] = None

    def _take(self, neighbour: str, heard: Known) -> None:
        name = heard.record.name
        if self._is_void(neighbour, name, heard.record.version):
            self.told_again(neighbour, name)
            return
        if name in self.dropped and name != neighbour:
            if heard.edition[:2] <= self.dropped[name]:
                return
            del self.dropped[name]
        mine = self.known.get(name)
        if mine is None and len(self.known) >= self.records_max:
            self.malformed(neighbour, f"the row of {name!r}: {self.records_max} nodes are known, the most there may be")
        elif name == self.name:
            self._take_own(heard)
        elif (
            mine is None or heard.edition[:2] > mine.edition[:2]
        ):  # two records of one version: all nodes choose the same one
            self.put(heard)
        elif heard.edition[:2] == mine.edition[:2]:
            stamp, lost_by = mine.stamp or heard.stamp, mine.lost_by or heard.lost_by
            if (stamp is None) != (mine.stamp is None) or lost_by != mine.lost_by:
                self.put(Known(mine.record, stamp, lost_by))

    def _is_void(self, neighbour: str, name: str, version: int) -> bool:
        """Whether that version is from before a reset of its node; a neighbour that has it is told of the reset."""
        is_void = name in self.quarantined and version >= VERSION_VOID
        if is_void:
            self.stale[neighbour, name] = None
        return is_void

    def _take_own(self, heard: Known) -> None:
        mine = self.own
        self.floor = max(self.floor, heard.record.version)
        if mine is None or not mine.record.version or heard.record.version < mine.record.version:
            return
        if heard.record.fingerprint != mine.record.fingerprint or heard.lost_by is not None:
            self.must_reoriginate = not mine.record.left
        elif heard.stamp is not None and mine.stamp is None:
            mine.stamp = heard.stamp
            self._note(self.name)

    def _take_own_edition(self, neighbour: str, theirs: Edition) -> bool:
        """A neighbour has this version of our record. If it is newer than ours, our version is raised without seeing
        the record, because the neighbour may have nobody to send it to. False if the neighbour must be sent ours in any
        case."""
        if self._is_void(neighbour, self.name, theirs.version):
            return False
        self.floor = max(self.floor, theirs.version)
        mine = self.own
        if mine is not None and mine.record.version and theirs[:2] > mine.edition[:2]:
            self.must_reoriginate = not mine.record.left
        return True

    # ------------------------------------------------------------------------------------------------ telling

    def up(self, neighbour: str) -> None:
        """A session with that neighbour begins: until its summary arrives, it only gets changes."""
        self.told[neighbour] = Told()

    def down(self, neighbour: str) -> None:
        self.told.pop(neighbour, None)

    def forget(self, neighbour: str) -> None:
        """Everything is sent to that neighbour again."""
        told = self.told.get(neighbour)
        if told is not None:
            told.editions.clear()
            told.pending.update(dict.fromkeys(self.known))
            told.summarised = True

    def summary(self) -> list[list[list[Any]]]:
        """Our summary, as rows for its messages: node, version, fingerprint, bits."""
        messages: list[list[list[Any]]] = [[]]
        size = 0
        for name, known in self.known.items():
            if not known.record.version:
                continue
            if len(messages[-1]) >= SUMMARY_ROWS_MAX or size > BYTES_MAX:
                messages.append([])
                size = 0
            row, length = write_summary_row(name, known.edition)
            messages[-1].append(row)
            size += length
        return messages

    def receive_summary(self, neighbour: str, rows: Iterable[object], *, first: bool, last: bool) -> None:
        """The summary of a neighbour; after its `last` message the neighbour gets what is newer here."""
        told = self.told.get(neighbour)
        if told is None:
            return
        if first or told.summary is None:
            told.summary = {}
        for row in rows:
            try:
                name, edition = read_summary_row(row)
            except Malformed as error:
                self.malformed(neighbour, str(error))
                continue
            if name == self.name and not self._take_own_edition(neighbour, edition):
                continue
            if len(told.summary) < self.records_max:
                told.summary[name] = edition
        if not last:
            return
        # Records that were sent since the session began may be missing in a summary that was sent before.
        since = told.editions if not told.summarised else {}
        told.editions = {**told.summary, **since}
        told.summary, told.summarised = None, True
        told.pending.update(dict.fromkeys(self.known))

    def to_tell(self, neighbour: str, may: Callable[[Known], bool]) -> tuple[list[list[Any]], dict[str, Edition]]:
        """Rows for the next message to that neighbour, bounded, and what it has afterwards (`was_told`); empty if
        everything was sent. Records that it `may` not get yet are kept.
        """
        told = self.told.get(neighbour)
        rows: list[list[Any]] = []
        editions: dict[str, Edition] = {}
        size = 0
        if told is None:
            return rows, editions
        for name in list(told.pending):
            known = self.known.get(name)
            theirs = told.editions.get(name)
            if known is None or not known.record.version or (theirs is not None and theirs.covers(known.edition)):
                del told.pending[name]
                continue
            if not may(known):
                continue
            row, length = write_row(known)
            if rows and (len(rows) >= ROWS_MAX or size + length > BYTES_MAX):
                break
            rows.append(row)
            editions[name] = known.edition
            size += length
        return rows, editions

    def was_told(self, neighbour: str, editions: Mapping[str, Edition]) -> None:
        told = self.told.get(neighbour)
        if told is not None:
            told.editions.update(editions)
            for name in editions:
                told.pending.pop(name, None)

    def waits(self, neighbour: str) -> bool:
        """Whether some records may not have been sent to that neighbour."""
        told = self.told.get(neighbour)
        return told is not None and (not told.summarised or bool(told.pending))

    def has_no_link(self, name: str, to: str) -> bool:
        """Whether that node has advertised its links, and none of them leads to the other, up or down."""
        known = self.known.get(name)
        return known is not None and known.record.version > 0 and to not in dict(known.record.links)

    # ------------------------------------------------------------------------------------------------ upkeep

    def void(self, name: str) -> bool:
        """Resets the versions of a node: its record stays in use until the next one, whatever version that has. False
        if the version here is not near the highest, so that there is nothing to reset."""
        known = self.known.get(name)
        self.quarantined[name] = None
        if name == self.name or known is None or known.record.version < VERSION_VOID:
            return False
        self._forget_editions(name)
        self.put(Known(replace(known.record, version=0), known.stamp, known.lost_by))
        return True

    def told_again(self, neighbour: str, name: str) -> None:
        """The record of `name` is sent to that neighbour again."""
        told = self.told.get(neighbour)
        if told is not None:
            told.editions.pop(name, None)
            told.pending[name] = None

    def drop(self, name: str) -> Edition | None:
        """Forgets a node that has left; None if it is not known. Its last record is not accepted again while it is in
        `dropped`, which the caller clears."""
        known = self.known.get(name)
        if known is None:
            return None
        self.remove(known)
        self.dropped[name] = known.edition[:2]
        return known.edition

    def remove(self, known: Known) -> None:
        name = known.record.name
        del self.known[name]
        self.digest ^= known.digest
        self._forget_editions(name)
        self.unstamped.pop(name, None)
        self.changed = True
        self.words += 1

    def recount(self) -> None:
        """Recomputes what is derived from the records, and removes a record with an invalid version, which neighbours
        would always refuse; a neighbour with the correct one sends it. So a memory fault does no lasting harm."""
        for known in [known for known in self.known.values() if not 0 <= known.record.version < VERSION_END]:
            if known.record.name != self.name:  # our own is replaced by our next record
                self.remove(known)
        before, self.digest = self.digest, 0
        for name, known in self.known.items():
            self.digest ^= known.digest
            if known.stamp is None and known.record.version:
                self.unstamped[name] = None
        self.changed = self.changed or self.digest != before

    def _forget_editions(self, name: str) -> None:
        for told in self.told.values():
            told.editions.pop(name, None)
            if told.summary is not None:
                told.summary.pop(name, None)

    # ------------------------------------------------------------------------------------------------ the graph

    def edges(self) -> dict[str, dict[str, int]]:
        """Each node's usable links, with their costs: the node says so, and the other end does not say that the reverse
        direction is down. Both ends probe, so either may be the first to know."""
        down = {
            (name, neighbour)
            for name, known in self.known.items()
            for neighbour, cost in known.record.links
            if cost is None
        }
        gone = {name for name, known in self.known.items() if known.gone}
        return {
            name: {
                neighbour: cost
                for neighbour, cost in known.record.links
                if cost is not None and neighbour not in gone and (neighbour, name) not in down
            }
            for name, known in self.known.items()
            if name not in gone
        }

    def put(self, known: Known) -> None:
        name = known.record.name
        before = self.known.get(name)
        if before is not None:
            self.digest ^= before.digest
        self.digest ^= known.digest
        same = (
            before is not None
            and before.record.links == known.record.links
            and before.record.is_super == known.record.is_super
            and before.gone == known.gone
        )
        self.changed = self.changed or not same
        self.words += 1
        self.known[name] = known
        self._note(name)

    def _note(self, name: str) -> None:
        """The record of `name` has changed: every neighbour may have to get it."""
        if self.known[name].stamp is None:
            self.unstamped[name] = None
        else:
            self.unstamped.pop(name, None)
        for told in self.told.values():
            told.pending[name] = None
