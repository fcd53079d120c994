"""Receipts: the marks of destinations, passed back to the origins of the messages (CUSTODY, "End to end"). Rules of
this file: state about other nodes' messages is bounded; losing it delays a receipt, and never loses a message.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from holdfast.broker.entries import entry
from holdfast.broker.entries.host_names import destination_of, host_of, node_of
from holdfast.custody.arrival.destination import Destination
from holdfast.custody.hop_port import Hop
from holdfast.custody.names.identity import Identities
from holdfast.state.ledger import Ledger

PAIRS_MAX: Final = 10_000
"""(origin, destination) pairs for which the last sender and the last mark are remembered."""


class Receipts:
    """`name`: the node's; `hops`: its neighbours."""

    def __init__(
        self, name: str, ledger: Ledger, identities: Identities, destination: Destination, hops: Mapping[str, Hop]
    ) -> None:
        self._name = name
        self._ledger = ledger
        self._identities = identities
        self._destination = destination
        self._hops = hops
        self.brought: dict[tuple[UUID, str], str] = {}
        """(origin, destination) -> the neighbour that sent the last such message: the path back for its receipts."""
        self.ways = 0
        """Counts the changes of `brought`, for links that remember its entries."""

    def brought_by(self, origin: UUID, destination: str, neighbour: str) -> None:
        """Records the path back. After a restart the next message that passes records it again."""
        pair = (origin, destination)
        before = self.brought.get(pair)
        if before == neighbour:
            return
        if before is not None:
            self._forget_pair(pair)
        elif len(self.brought) >= PAIRS_MAX:
            self._forget_pair(next(iter(self.brought)))
        self.brought[pair] = neighbour
        self.ways += 1
        self._hops[neighbour].brings[pair] = None

    def _forget_pair(self, pair: tuple[UUID, str]) -> None:
        self.ways += 1
        neighbour = self._hops[self.brought.pop(pair)]
        neighbour.brings.pop(pair, None)
        neighbour.told.pop((pair[1], pair[0]), None)

    def forget(self, neighbour: Hop) -> None:
        """It is no neighbour any more: the next message of each origin records another path back, or this one anew."""
        for pair in list(neighbour.brings):
            self._forget_pair(pair)

    def note(self, origin: UUID, destination: str, mark: int) -> None:
        """Records the highest mark of `destination` for that origin that passed here, in either direction. It is
        stored, a row for each pair in a batch that is written anyway, and sent along with each message of that origin:
        so a destination with a new disk begins there, whichever node restarted in between.
        """
        passing = self._ledger.passing
        if mark <= passing.get((origin, destination), 0):
            return
        if (origin, destination) not in passing and len(passing) >= PAIRS_MAX:
            self._ledger.drop_passing(next(iter(passing)))
        self._ledger.put_passing(origin, destination, mark)

    def receipt_for(self, origin: bytes, destination: str) -> int:
        """The last known receipt, which is sent along with a message of that store; 0 if none is known."""
        ledger = self._ledger
        if origin == self._identities.store_uuid.bytes:
            return ledger.receipts.get(destination, 0)
        return ledger.passing.get((entry.uuid_of(origin), destination), 0) if ledger.passing else 0

    def hear_mark(self, neighbour: Hop, destination: str, origin: UUID, mark: int) -> None:
        """Handles a row of a control message. Each value is passed on at most once, so never in a circle."""
        if node_of(destination) == self._name or mark <= 0 or not neighbour.takes(destination):
            return
        if (origin, destination) in neighbour.brings:  # it need not get its own marks
            neighbour.told[destination, origin] = max(mark, neighbour.told.get((destination, origin), 0))
        if origin == self._identities.store_uuid:
            self._identities.receipt(destination, mark)
        else:
            self.note(origin, destination, mark)

    def marks_for(self, neighbour: Hop, rows_max: int, *, at_first: bool) -> list[tuple[str, UUID, int]]:
        """Marks that were not yet sent to the neighbour, as (destination, origin, mark): those of its own store, and of
        messages that it sent. `at_first` returns all of its own store first: if that was rolled back, it must get them
        before it sends.
        """
        name, stored, passing = self._name, self._destination.stored_marks, self._ledger.passing
        store = self._ledger.neighbour_stores.get(neighbour.name)
        pairs = [] if store is None else [(store, destination_of(host, name)) for host in neighbour.hosts]
        if at_first:
            pairs += [pair for pair in passing if pair[0] == store]
        rows = []
        for origin, destination in dict.fromkeys([*pairs, *neighbour.brings]):
            if node_of(destination) == name:
                mark = stored.get((origin, host_of(destination)), 0)
            else:
                mark = passing.get((origin, destination), 0)
            if mark > neighbour.told.get((destination, origin), 0) and neighbour.takes(destination):
                rows.append((destination, origin, mark))
                if len(rows) >= rows_max:
                    break
        return rows

    def arrived(self, origin: UUID, destination: str, neighbour: str) -> None:
        """A message for this node came from that neighbour: its receipts go back there."""
        self.brought_by(origin, destination, neighbour)
