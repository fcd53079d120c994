"""The stored state of custody: numbers given and received, marks, stores of neighbours (tables `custody` and
`origins`).

Rules of this file: tables are read once, at start; every change is added to the turn's batch.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from uuid import UUID

from holdfast.broker.entries.host_names import DEFAULT_HOST, host_of
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored import custody_records
from holdfast.broker.stored.origins import Origin
from holdfast.state.own_names import OwnNames, read


class Ledger:
    """Everything durable of custody. `name`: the node's; `transit`: its transmission queues by destination."""

    def __init__(self, name: str, work: Work[Queue], transit: dict[str, Queue]) -> None:
        self._name = name
        self._work = work
        self._transit = transit
        self.names = OwnNames(name, name)
        self.by_host: defaultdict[str, dict[UUID, Origin]] = defaultdict(dict)
        """By virtual host: the origins of what is for this node, by their UUIDs."""
        self.origins = self.by_host[DEFAULT_HOST]
        self.former_origins: dict[tuple[UUID, str], Origin] = {}
        """By origin and suffix: those counted for another name of this node, of which something waits still."""
        self.identities: dict[str, int] = {}
        """By destination: the next number of an identity given here."""
        self.renewals: dict[str, custody_records.Renewal] = {}
        """By destination: what a store that was put back still numbers anew; its queue offers nothing until then."""
        self.receipts: dict[str, int] = {}
        """By destination: the last mark for our messages that it sent."""
        self.passing: dict[tuple[UUID, str], int] = {}
        """By (origin, destination) of messages that others sent to others: the highest mark that passed here."""
        self.neighbour_stores: dict[str, UUID] = {}
        self.replaced: dict[UUID, None] = {}
        """Stores that a neighbour's name had before, whose gaps are still to be closed."""
        self.hops: dict[bytes, tuple[bytes, int]] = {}
        self.links: dict[bytes, bytes] = {}
        """By key: the rows of links that may be resumed, as they were when the node started."""

    # ------------------------------------------------------------------------------------------------ start

    def load(
        self,
        small: dict[bytes, bytes],
        origins: Iterable[tuple[bytes, bytes]],
        custody: Iterable[tuple[bytes, bytes]],
        former: UUID | None,
    ) -> None:
        """Reads tables `node`, `origins` and `custody`. `former`: the earlier identity of the store, if it got a new
        UUID."""
        self._load_names(small)
        for key, data in origins:
            self._load_origin(UUID(bytes=key), "", data)
        for key, data in custody:
            kind, rest = key[:1], key[1:]
            if former is not None and kind in b"ir":  # of numbers that another store gave
                self._work.batch.deletes.append(("custody", key))
            else:
                self._load_row(kind, rest, data)

    def _load_row(self, kind: bytes, rest: bytes, data: bytes) -> None:
        if kind == b"i":
            self.identities[rest.decode()] = int.from_bytes(data, "big")
        elif kind == b"r":
            self.receipts[rest.decode()] = int.from_bytes(data, "big")
        elif kind == b"m":
            self.passing[UUID(bytes=rest[:16]), rest[16:].decode()] = int.from_bytes(data, "big")
        elif kind == b"o":
            self.replaced[UUID(bytes=rest)] = None
        elif kind == b"n":
            self.neighbour_stores[rest.decode()] = UUID(bytes=data)
        elif kind == b"h":
            self.hops[rest] = custody_records.unpack_hop(data)
        elif kind == b"l":
            self.links[rest] = data
        elif kind == custody_records.NAMED_ORIGIN:
            self._load_origin(UUID(bytes=rest[:16]), rest[16:].decode(), data)
        elif kind == b"w":
            self._load_renewal(rest.decode(), data)

    def _load_names(self, small: dict[bytes, bytes]) -> None:
        self.names = read(small, self._name)
        if custody_records.NAME not in small:  # a new store, or one of an earlier version
            self._work.batch.puts["node", custody_records.NAME] = self._name.encode()

    def _load_origin(self, uuid: UUID, suffix: str, data: bytes) -> None:
        """Rows of another name stay on disk only; those that waiting messages may need are loaded."""
        names, host = self.names, host_of(suffix)
        if suffix == names.own(host):
            self.by_host[host][uuid] = Origin.load(uuid, custody_records.unpack_origin(data), suffix, host)
        elif any(suffix == names.suffix(name) for _, name in names.waited):
            self.former_origins[uuid, suffix] = Origin.load(uuid, custody_records.unpack_origin(data), suffix, host)

    def _load_renewal(self, destination: str, data: bytes) -> None:
        if destination in self._transit:
            self.renewals[destination] = custody_records.unpack_renewal(data)
            self._transit[destination].stopped = True
        else:  # its queue was created in a turn that a crash lost, with its contents
            self.drop_renewal(destination)

    # ------------------------------------------------------------------------------------------------ origins

    def origin(self, host: str, uuid: UUID) -> Origin:
        """The record of that origin in that virtual host, created if there is none."""
        origins = self.by_host[host]
        origin = origins.get(uuid)
        if origin is None:
            origin = origins[uuid] = Origin(uuid, suffix=self.names.own(host), host=host)
        return origin

    def origin_at(self, host: str, uuid: UUID, sequence: int) -> Origin:
        """The record of that origin for a message at `sequence` of that host's `$waiting`."""
        suffix = self.names.suffix_at(host, sequence)
        if suffix == self.names.own(host):
            return self.origin(host, uuid)
        return self.former_origins.setdefault((uuid, suffix), Origin(uuid, suffix=suffix, host=host))

    def all_origins(self) -> Iterator[Origin]:
        """The records of the present name, in each host, and those of other names with waiting messages."""
        return chain(*(origins.values() for origins in self.by_host.values()), self.former_origins.values())

    def marks(self) -> dict[tuple[UUID, str], int]:
        """The mark of each of the present name, by origin and virtual host."""
        found = [(host, origin) for host, origins in self.by_host.items() for origin in origins.values()]
        return {(origin.origin, host): origin.mark for host, origin in found}

    def put_origin(self, origin: Origin) -> None:
        place = custody_records.origin_key(origin.origin, origin.suffix)
        self._work.batch.puts[place] = custody_records.pack_origin(origin.record())

    def forget_waited(self) -> None:
        """Forgets the other names, because no message for them waits."""
        self.former_origins.clear()
        if self.names.waited:
            self.names = self.names._replace(waited=())
            self._work.batch.puts.pop(("node", custody_records.WAITED), None)
            self._work.batch.deletes.append(("node", custody_records.WAITED))

    # ------------------------------------------------------------------------------------------------ rows

    def put_identity(self, destination: str, following: int) -> None:
        """Stores `following`, the next number for that destination."""
        self._work.batch.puts["custody", b"i" + destination.encode()] = following.to_bytes(8, "big")
        self.identities[destination] = following

    def put_renewal(self, destination: str, renewal: custody_records.Renewal) -> None:
        self.renewals[destination] = renewal
        self._transit[destination].stopped = True
        self._work.batch.puts["custody", b"w" + destination.encode()] = custody_records.pack_renewal(renewal)

    def drop_renewal(self, destination: str) -> None:
        """Deletes its row with this batch."""
        self._drop(b"w" + destination.encode())

    def put_numbered_by(self, store: UUID) -> None:
        """Stores that the numbers of identities are those of that store from this batch on."""
        self._work.batch.puts["custody", custody_records.NUMBERED_BY] = store.bytes

    def put_receipt(self, destination: str) -> None:
        self._work.batch.puts["custody", b"r" + destination.encode()] = self.receipts[destination].to_bytes(8, "big")

    def put_passing(self, origin: UUID, destination: str, mark: int) -> None:
        self.passing[origin, destination] = mark
        self._work.batch.puts["custody", b"m" + origin.bytes + destination.encode()] = mark.to_bytes(8, "big")

    def drop_passing(self, pair: tuple[UUID, str]) -> None:
        del self.passing[pair]
        self._drop(b"m" + pair[0].bytes + pair[1].encode())

    def put_replaced(self, store: UUID) -> None:
        self.replaced[store] = None
        self._work.batch.puts["custody", b"o" + store.bytes] = b"\1"

    def drop_replaced(self, store: UUID) -> None:
        if store in self.replaced:
            del self.replaced[store]
            self._drop(b"o" + store.bytes)

    def _drop(self, key: bytes) -> None:
        self._work.batch.puts.pop(("custody", key), None)
        self._work.batch.deletes.append(("custody", key))

    def put_neighbour(self, name: str, store: UUID) -> None:
        self.neighbour_stores[name] = store
        self._work.batch.puts["custody", b"n" + name.encode()] = store.bytes

    def put_hop(self, key: bytes, epoch: bytes, last: int) -> None:
        self.hops[key] = (epoch, last)
        self._work.batch.puts["custody", b"h" + key] = custody_records.pack_hop(epoch, last)

    def drop_hop(self, key: bytes) -> None:
        if self.hops.pop(key, None) is not None:
            self._drop(b"h" + key)
