"""The names that a node has had with one store, and which rows belong to which name (ADR 0025).

Rules of this file: senders number messages by the name of the destination, so a node keeps the finished numbers of each
of its names separately: rows of another name stay unchanged until the node has that name again. The name under which a
store was opened last is in the store; under another one it gets a new UUID.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from holdfast.broker.entries.host_names import destination_of, host_of, node_of, read_key
from holdfast.broker.queue import COUNTERS
from holdfast.broker.stored import custody_records, records
from holdfast.engine.port import Rows


class Tables(Protocol):
    """What is needed of a store."""

    def table(self, name: str) -> Iterable[tuple[bytes, bytes]]: ...


class OwnNames(NamedTuple):
    """`first`: the name whose rows have no suffix. `waited`: (end, name) pairs, ascending: messages in `$waiting` below
    that sequence, and not below an earlier end, came for that name; HOST@NAME for those of a virtual host."""

    present: str
    first: str
    waited: tuple[tuple[int, str], ...] = ()

    def suffix(self, name: str) -> str:
        """The suffix in the rows of that name's origins; in a virtual host HOST@ precedes it."""
        if name == self.first:
            return ""
        host, node = host_of(name), node_of(name)
        return destination_of(host, "" if node == self.first else node)

    def own(self, host: str) -> str:
        """The suffix of the present name."""
        return self.suffix(destination_of(host, self.present))

    def suffix_at(self, host: str, sequence: int) -> str:
        """The suffix of the name for which the message at that sequence of the host's `$waiting` came."""
        names = (name for end, name in self.waited if sequence < end and host_of(name) == host)
        return self.suffix(next(names, destination_of(host, self.present)))

    def name_of(self, suffix: str) -> str:
        return node_of(suffix) or self.first


def read(rows: Mapping[bytes, bytes], present: str) -> OwnNames:
    """Reads table `node`; a store of an earlier version, and a new one, only had the present name."""
    first = rows.get(custody_records.FIRST_NAME)
    waited = rows.get(custody_records.WAITED)
    return OwnNames(
        present,
        present if first is None else first.decode(),
        () if waited is None else custody_records.unpack_waited(waited),
    )


class Renamed(NamedTuple):
    """A store that was last opened under the name `former`, and now has another one."""

    former: str
    changed: dict[bytes, bytes]
    """Rows of table `node` that say so."""
    destinations: tuple[tuple[bytes, bytes], ...]
    """Of table `custody`: the rows of the numbers given for each destination, and what they begin at anew."""

    def names_alone(self, _: UUID) -> Rows:
        """The rows for another name."""
        return {("node", key): value for key, value in self.changed.items()}

    def rows(self, fresh: UUID) -> Rows:
        """As `names_alone`, and its numbers start again under the new UUID."""
        rows = {("custody", key): value for key, value in self.destinations}
        return {**self.names_alone(fresh), **rows, ("custody", custody_records.NUMBERED_BY): fresh.bytes}


def change(store: Tables, present: str, waiting: str) -> Renamed | None:
    """The change, if the store was last opened under another name than `present`; None if not, or if that is unknown.
    `waiting`: the name of the queue `$waiting`, which each virtual host has.
    """
    rows = dict(store.table("node"))
    known = rows.get(custody_records.NAME)
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
        custody_records.NAME: present.encode(),
        custody_records.FIRST_NAME: before.first.encode(),
        custody_records.WAITED: custody_records.pack_waited(waited),
    }
    begin = {b"i": 1, b"r": 0}
    destinations = [(key, begin[key[:1]]) for key, _ in store.table("custody") if key[:1] in begin]
    return Renamed(before.present, changed, tuple((key, number.to_bytes(8, "big")) for key, number in destinations))


def _end(rows: Mapping[bytes, bytes], record: bytes) -> int:
    """One past the last sequence of the queue with that record; 0 if it is empty."""
    counters = rows.get(records.counters_key(int(records.unpack_map(record)["id"])))
    if counters is None:
        return 0
    following, messages, _, _ = COUNTERS.unpack(counters)
    return int(following) if messages else 0
