"""The table of link states: one record for each node, what each neighbour was told of it, and the graph that it makes.

Rules of this file: pure, no clock. Whatever order rows come in, and however often, who has had the same rows holds the
same table. What is told stays told for the session: control messages arrive, or the session ends. Everything from a
neighbour is checked row by row (rows.py). Source: esb-dynamic-routing §3.2, §4.2, §4.3; docs/adr/0015-routing.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from holdfast.routing.records import VERSION_END, VERSION_HIGH, Edition, Known, Record, Told
from holdfast.routing.rows import Malformed, read_row, read_summary_row, write_row, write_summary_row

ROWS_MAX: Final = 100
"""Rows of one control message."""

BYTES_MAX: Final = 16_384
"""About what the rows of one message take; one row alone may be larger, by its neighbours' names."""

SUMMARY_ROWS_MAX: Final = 250


class LinkStates:
    """The records that one node knows, its own among them. `initial`: what the topology file says, each node's links,
    and which of them are `supers`.

    Which record may be told to whom is the caller's to say (`to_tell`); that all is told once is this class's. What the
    file gives is never above `records_max` or `neighbours_max`: all that have it would refuse what its nodes say.
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
        self.records_max = max(records_max, len(initial))
        self.neighbours_max = max(neighbours_max, max(map(len, initial.values()), default=0))
        first = set(supers)
        self.known: dict[str, Known] = {
            node: Known(Record(node, 0, tuple(sorted(links.items())), is_super=node in first))
            for node, links in initial.items()
        }
        self.told: dict[str, Told] = {}
        self.digest = 0
        """Of all records that were said, not of stamps: equal tables, equal digests, in whatever order they came."""
        self.floor = 0
        """The highest version that anybody says of this very node; its own next word goes past it."""
        self.must_reoriginate = False
        """A neighbour has another, no older record of this node, or one that says it is lost: originate it again."""
        self.changed = False
        """The graph, or who is a super node, may be another since the caller last took this back."""
        self.words = 0
        """Counts what was taken of records, our own among them: who keeps something that is made of them compares."""
        self.unstamped: dict[str, None] = {}
        self.resets = False
        """Our own version would have come to its end: it begins anew once all others' copies are void (`void`)."""
        self.quarantined: dict[str, None] = {}
        """Nodes whose versions began anew of late: a high one is what was, and not taken. The caller clears it."""
        self.stale: dict[tuple[str, str], None] = {}
        """(neighbour, node) of such that came all the same: the neighbour has not heard of it. The caller clears it."""
        self.dropped: dict[str, tuple[int, int]] = {}
        """Nodes that were forgotten, and the version and fingerprint that are not taken any more."""
        self.malformed: Callable[[str, str], None] = lambda neighbour, text: None

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
        """Our record, anew. `version` is where it begins; it is past all that was ever heard of us."""
        own = self.own
        before = own.record.version if own is not None else 0
        first, version = version, max(version, before + 1, self.floor + 1)
        if version >= VERSION_HIGH:
            version, self.floor, self.resets = min(first, VERSION_HIGH - 1), 0, True
            self.quarantined[self.name] = None
            self._forget_editions(self.name)
        self._put(Known(Record(self.name, version, tuple(sorted(links.items())), store, left, is_super)))
        self.must_reoriginate = False

    # ------------------------------------------------------------------------------------------------ a super's words

    def stamp(self, name: str, by: str, count: int) -> None:
        """As super node: the record of `name` may go everywhere."""
        known = self.known.get(name)
        if known is None:  # a fault in memory took the record alone
            self.unstamped.pop(name, None)
        elif known.stamp is None:
            known.stamp = by, count
            self._note(name)

    def lose(self, name: str, by: str) -> bool:
        """As super node: the node is gone, whatever its record says. Ends with its next word."""
        known = self.known.get(name)
        if known is None or known.gone or not known.record.version or name == self.name:
            return False
        self._put(Known(known.record, known.stamp, by))
        return True

    # ------------------------------------------------------------------------------------------------ hearing

    def receive(self, neighbour: str, rows: Iterable[object]) -> None:
        """Takes what is newer. Malformed rows are told and dropped."""
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
                if theirs is None or not theirs.covers(heard.edition):  # else what we told is on its way to them
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
        ):  # two words of one version: all take the same of them
            self._put(heard)
        elif heard.edition[:2] == mine.edition[:2]:
            stamp, lost_by = mine.stamp or heard.stamp, mine.lost_by or heard.lost_by
            if (stamp is None) != (mine.stamp is None) or lost_by != mine.lost_by:
                self._put(Known(mine.record, stamp, lost_by))

    def _is_void(self, neighbour: str, name: str, version: int) -> bool:
        """Whether that version is from before its node began anew; who has it has not heard of that, and is told."""
        is_void = name in self.quarantined and version >= VERSION_HIGH
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
        """That neighbour has this of us. What is newer than our own word is contradicted without being seen: who has it
        may have nobody to tell it to. False where the neighbour is to be told ours whatever it has."""
        if self._is_void(neighbour, self.name, theirs.version):
            return False
        self.floor = max(self.floor, theirs.version)
        mine = self.own
        if mine is not None and mine.record.version and theirs[:2] > mine.edition[:2]:
            self.must_reoriginate = not mine.record.left
        return True

    # ------------------------------------------------------------------------------------------------ telling

    def up(self, neighbour: str) -> None:
        """A session with it begins: until its summary comes it is told news alone."""
        self.told[neighbour] = Told()

    def down(self, neighbour: str) -> None:
        self.told.pop(neighbour, None)

    def forget(self, neighbour: str) -> None:
        """All is told to it again, whatever it was told."""
        told = self.told.get(neighbour)
        if told is not None:
            told.editions.clear()
            told.pending.update(dict.fromkeys(self.known))
            told.summarised = True

    def summary(self) -> list[list[list[Any]]]:
        """What we have, in rows for the messages of one summary: node, version, fingerprint, bits."""
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
        """What that neighbour has; after the `last` message it is told what is newer here."""
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
        # What was told since the session began may be missing in a summary that had left before.
        since = told.editions if not told.summarised else {}
        told.editions = {**told.summary, **since}
        told.summary, told.summarised = None, True
        told.pending.update(dict.fromkeys(self.known))

    def to_tell(self, neighbour: str, may: Callable[[Known], bool]) -> tuple[list[list[Any]], dict[str, Edition]]:
        """Rows for the next message to it, bounded, and what it has then (`was_told`); nothing where all is told.

        What `may` not be told yet stays to be told.
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
        """Whether it may not have been told all."""
        told = self.told.get(neighbour)
        return told is not None and (not told.summarised or bool(told.pending))

    def has_no_link(self, name: str, to: str) -> bool:
        """Whether that node has said its links, and none to the other is among them, up or down."""
        known = self.known.get(name)
        return known is not None and known.record.version > 0 and to not in dict(known.record.links)

    # ------------------------------------------------------------------------------------------------ upkeep

    def void(self, name: str) -> bool:
        """Its node begins its versions anew: what is known of it stays in use until its next word, whatever version
        that has. False where the version here is not near the end, and so none that is reset."""
        known = self.known.get(name)
        self.quarantined[name] = None
        if name == self.name or known is None or known.record.version < VERSION_HIGH:
            return False
        self._forget_editions(name)
        self._put(Known(replace(known.record, version=0), known.stamp, known.lost_by))
        return True

    def told_again(self, neighbour: str, name: str) -> None:
        """That neighbour is told the record of `name`, whatever it is thought to have."""
        told = self.told.get(neighbour)
        if told is not None:
            told.editions.pop(name, None)
            told.pending[name] = None

    def drop(self, name: str) -> Edition | None:
        """Forgets a node that is gone; None where it is not known. Its last word is not taken again while it stands in
        `dropped`, which is the caller's to clear."""
        known = self.known.get(name)
        if known is None:
            return None
        self._remove(known)
        self.dropped[name] = known.edition[:2]
        return known.edition

    def _remove(self, known: Known) -> None:
        name = known.record.name
        del self.known[name]
        self.digest ^= known.digest
        self._forget_editions(name)
        self.unstamped.pop(name, None)
        self.changed = True
        self.words += 1

    def recount(self) -> None:
        """Makes anew what is kept beside the records, and removes a record whose version cannot be told: neighbours
        refuse it each time, and who has the right one tells it. A fault in memory does no lasting harm there."""
        for known in [known for known in self.known.values() if not 0 <= known.record.version < VERSION_END]:
            if known.record.name != self.name:  # our own begins anew with our next word
                self._remove(known)
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
        """Each node's links that carry messages, with their costs: the starting node says so, and the other does not
        say that the way back is down. Both ends probe, so either may be the first to know."""
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

    def _put(self, known: Known) -> None:
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
        """What is said of `name` is another word now: every neighbour may have to be told."""
        if self.known[name].stamp is None:
            self.unstamped[name] = None
        else:
            self.unstamped.pop(name, None)
        for told in self.told.values():
            told.pending[name] = None
