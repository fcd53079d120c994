"""How far each hop to this node has come, as it is on disk: what a sender that asks is told (CUSTODY, hop 2).

Rules of this file: how far a hop has come is stored with what came.
"""

from holdfast.custody.hop.receiver import CustodyReceiver
from holdfast.state.ledger import Ledger
from holdfast.state.turns import Turn


class HopProgress:
    """`stored`: by the key of a hop, (epoch, last stored); receivers share it."""

    def __init__(self, ledger: Ledger, stored: dict[bytes, tuple[bytes, int]]) -> None:
        self._ledger = ledger
        self._stored = stored

    def before_commit(self, turn: Turn) -> None:
        for link in turn.arrivals:
            if isinstance(link, CustodyReceiver):
                turn.hops[link.key] = (link.epoch_bytes, link.taken)
                self._ledger.put_hop(link.key, link.epoch_bytes, link.taken)

    def committed(self, turn: Turn) -> None:
        self._stored.update(turn.hops)
