"""Recovery after a failure: forgets the peer, counts shared state again, and wakes everything that may wait.

Rules of this file: it only runs after a failure (docs/adr/0019). Each part repairs its own state (`Parts.recovering`,
`Parts.waking`); a peer is forgotten here, because it is in tables of many parts.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from holdfast.core import undo
from holdfast.core.parts import Parts
from holdfast.links.ingress import Ingress
from holdfast.links.outgoing import Egress
from holdfast.peers.peer import Peer, PeerLink, Requesting


class Recovery:
    """Of the whole node."""

    def __init__(self, core: Parts) -> None:
        self.core = core

    def take_back_gathered(self, ended: Collection[Peer]) -> None:
        """Undoes the gathered turn; `ended`: peers whose deliveries get no answer."""
        undo.take_back_gathered(self.core, ended)

    def forget(self, peer: Peer, links: Sequence[PeerLink]) -> None:
        """Removes the peer from every table; each step is tried again if it fails."""
        core = self.core
        mine = [*core.links.of_peer(peer), *(link for link in links if link.peer is peer)]
        for link in dict.fromkeys(mine):
            link.link.context = None
            _surely(partial(_gone, link))
            if isinstance(link, Requesting):
                _surely(partial(core.users.forget, link))  # first: its own tables say what else must be forgotten
            _surely(partial(core.links.forget, link))
        for send in list(peer.sends):
            _surely(send.close)
        core.connections.sending.pop(peer, None)
        core.connections.touched.pop(peer, None)
        core.pressure.paused.pop(peer, None)
        core.turns.gathered.heard_bytes -= core.turns.gathered.heard.pop(peer, 0)
        for tell in core.connections.leaving:
            _surely(partial(tell, peer))
        if peer.neighbour is not None:
            _surely(partial(peer.neighbour.lost, peer, "a failure of this node, see its log"))
        elif peer.remote is not None:
            _surely(partial(peer.remote.lost, peer, "a failure of this node, see its log"))

    def take_stock(self) -> None:
        """Counts shared state again from its holders: the failure may have come between a change and its count."""
        for part in self.core.recovering():
            part.recover()

    def wake_all(self) -> None:
        """Wakes everything that may wait for a step that the failure interrupted."""
        for part in self.core.waking:
            part.wake()


def _gone(link: PeerLink) -> None:
    if isinstance(link, Ingress):
        link.gone()
    elif isinstance(link, Egress):
        link.gone([])


def _surely(step: Callable[[], None]) -> None:
    """Runs a step, and once more if it fails."""
    try:
        step()
    except Exception:
        step()
