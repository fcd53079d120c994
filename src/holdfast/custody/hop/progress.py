"""The stored progress of each hop to this node, which answers a sender's attach (CUSTODY, hop 2).

Rules of this file: progress is stored in the same batch as the messages.
"""

from collections.abc import Mapping

from holdfast.broker.entries.host_names import node_of
from holdfast.custody.hop.links import hop_key
from holdfast.custody.hop.receiver import CustodyReceiver
from holdfast.custody.hop.state import HopState
from holdfast.peers.link_tables import LinkTables
from holdfast.state.ledger import Ledger
from holdfast.state.turns import Turn


class HopProgress:
    """`stored`: by the key of a hop, (epoch, last stored); receivers share it. `hops`: by neighbour."""

    def __init__(self, ledger: Ledger, links: LinkTables, hops: Mapping[str, HopState]) -> None:
        self.stored = dict(ledger.hops)
        self._ledger = ledger
        self._links = links
        self._hops = hops

    def before_commit(self, turn: Turn) -> None:
        for link in turn.arrivals:
            if isinstance(link, CustodyReceiver):
                turn.hops[link.key] = (link.epoch_bytes, link.taken)
                self._ledger.put_hop(link.key, link.epoch_bytes, link.taken)

    def committed(self, turn: Turn) -> None:
        self.stored.update(turn.hops)

    def forget(self, destination: str) -> None:
        """Its node left: forgets hops to that destination, or from that node, that have no link. If a sender continues
        such a hop, the answer has no progress, and the sender sends again what it has not retired."""
        name, node = destination.encode(), node_of(destination).encode()
        shortened = {hop_key(neighbour, destination) for neighbour in self._hops}
        for key in {**self._ledger.hops, **self.stored}:
            of_it = key.endswith(b"\0" + name) or key.startswith(node + b"\0") or key in shortened
            if of_it and key not in self._links.custody_receivers:
                self.stored.pop(key, None)
                self._ledger.drop_hop(key)
