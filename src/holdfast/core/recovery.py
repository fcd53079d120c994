"""After a failure: what its peer had is forgotten, what peers share is counted anew, whoever may wait is asked again.

Rules of this file: it runs after a failure alone (docs/adr/0019). Each part mends what it owns (`Parts.recovering`,
`Parts.waking`); a peer is forgotten here, for what it has stands in tables of many.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from holdfast.core import undo
from holdfast.core.parts import Parts
from holdfast.links.incoming import Ingress
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
        """Takes all that the peer has out of every table; each step is tried again where it fails."""
        core = self.core
        mine = [*core.links.of_peer(peer), *(link for link in links if link.peer is peer)]
        for link in dict.fromkeys(mine):
            link.link.context = None
            _surely(partial(_gone, link))
            if isinstance(link, Requesting):
                _surely(partial(core.users.forget, link))  # first: its own tables say what else is to be forgotten
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

    def take_stock(self) -> None:
        """Counts anew what peers share, from who holds it: the failure may lie between a change and its count."""
        for part in self.core.recovering():
            part.recover()

    def wake_all(self) -> None:
        """Whoever waited for a step that the failure cut short is asked again; that costs a look each."""
        for part in self.core.waking:
            part.wake()


def _gone(link: PeerLink) -> None:
    if isinstance(link, Ingress):
        link.gone()
    elif isinstance(link, Egress):
        link.gone([])


def _surely(step: Callable[[], None]) -> None:
    """A step of an ending: tried again where it fails, since what it did not do once it may do then."""
    try:
        step()
    except Exception:
        step()
