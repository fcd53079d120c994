"""The names that a node has had with one store, and what was counted for which of them (ADR 0025).

Rules of this file: who sends to a node counts its numbers by its name, so the node counts what it finished by its own
name too, each by itself: rows of another name stay as they are until the node has that name again. The name under
which a store was opened last is in the store; under another one it gets a new UUID.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from holdfast.broker.entries.host_names import destination_of, host_of, node_of, read_key
from holdfast.broker.queue import COUNTERS
from holdfast.broker.stored import records
from holdfast.engine.port import Rows


class Tables(Protocol):
    """What is asked of a store."""

    def table(self, name: str) -> Iterable[tuple[bytes, bytes]]: ...


class OwnNames(NamedTuple):
    """`first`: the name whose rows say no name. `waited`: (end, name) each, ascending: what waits in `$waiting` below
    that sequence, and not below an earlier end, came for that name; HOST@NAME of what waits in a virtual host's."""

    present: str
    first: str
    waited: tuple[tuple[int, str], ...] = ()

    def suffix(self, name: str) -> str:
        """What the rows of that name's origins say of it; HOST@ and that in a virtual host."""
        if name == self.first:
            return ""
        host, node = host_of(name), node_of(name)
        return destination_of(host, "" if node == self.first else node)

    def own(self, host: str) -> str:
        """The suffix of the present name."""
        return self.suffix(destination_of(host, self.present))

    def suffix_at(self, host: str, sequence: int) -> str:
        """Of the name for which came what waits at that sequence of the host's `$waiting`."""
        theirs = (name for end, name in self.waited if sequence < end and host_of(name) == host)
        return self.suffix(next(theirs, destination_of(host, self.present)))

    def name_of(self, suffix: str) -> str:
        return node_of(suffix) or self.first


def read(rows: Mapping[bytes, bytes], present: str) -> OwnNames:
    """From table `node`; a store of an earlier version, and a new one, has had the present name alone."""
    first = rows.get(records.FIRST_NAME)
    waited = rows.get(records.WAITED)
    return OwnNames(
        present,
        present if first is None else first.decode(),
        () if waited is None else records.unpack_waited(waited),
    )


class Renamed(NamedTuple):
    """A store that was opened under the name `former` last, and is under another one now."""

    former: str
    changed: dict[bytes, bytes]
    """Rows of table `node` that say so."""
    destinations: tuple[tuple[bytes, bytes], ...]
    """Of table `custody`: the rows of the numbers given for each destination, and what they begin at anew."""

    def names_alone(self, _: UUID) -> Rows:
        """That it has another name."""
        return {("node", key): value for key, value in self.changed.items()}

    def rows(self, fresh: UUID) -> Rows:
        """As `names_alone`, and the numbers that it gives are the fresh UUID's, from the first on."""
        rows = {("custody", key): value for key, value in self.destinations}
        return {**self.names_alone(fresh), **rows, ("custody", records.NUMBERED_BY): fresh.bytes}


def change(store: Tables, present: str, waiting: str) -> Renamed | None:
    """Where the store was opened under another name than `present` last; None where it was not, or nobody knows.

    `waiting`: the queue of what waits for an earlier number, in each virtual host.
    """
    rows = dict(store.table("node"))
    known = rows.get(records.NAME)
    if known is None or known.decode() == present:
        return None
    before = read(rows, known.decode())
    ends = {}
    for key, record in store.table("queues"):
        host, name = read_key(key.decode())
        if name == waiting and (end := _end(rows, record)):
            ends[host] = end
    waited = tuple(item for item in before.waited if host_of(item[1]) in ends)
    waited += tuple((end, destination_of(host, before.present)) for host, end in ends.items())
    changed = {
        records.NAME: present.encode(),
        records.FIRST_NAME: before.first.encode(),
        records.WAITED: records.pack_waited(waited),
    }
    begin = {b"i": 1, b"r": 0}
    destinations = [(key, begin[key[:1]]) for key, _ in store.table("custody") if key[:1] in begin]
    return Renamed(before.present, changed, tuple((key, number.to_bytes(8, "big")) for key, number in destinations))


def _end(rows: Mapping[bytes, bytes], record: bytes) -> int:
    """Behind the last sequence of the queue with that record; 0 where it is empty."""
    counters = rows.get(records.counters_key(int(records.unpack_map(record)["id"])))
    if counters is None:
        return 0
    following, messages, _, _ = COUNTERS.unpack(counters)
    return int(following) if messages else 0
