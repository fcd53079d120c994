"""Lines in the log about peers."""

from collections.abc import Container
from types import FrameType
from typing import Final

from holdfast.broker.entries.host_names import HostedName, hosted, shown
from holdfast.engine.log import Log
from holdfast.peers.peer import Peer, host_of

PEER_CHARACTERS_MAX: Final = 500
"""Characters of one line about a peer, which may contain the peer's text."""


class PeerLog:
    """Writes lines about peers. The limit of lines is separate for each neighbour and user, and for each address
    without one, so that no peer uses up the lines of another. Other peers do not
    affect the lines about a neighbour, or about a peer that we dialled."""

    def __init__(self, log: Log, users: Container[HostedName]) -> None:
        """`users`: the names that are configured."""
        self._log = log
        self._users = users

    def write(self, caller: FrameType, peer: Peer, level: str, text: str) -> None:
        """A line about `peer`; `caller` is the frame that logged it."""
        where = f" in virtual host {peer.host!r}" if peer.host else ""
        text = f"{peer.name}{where}: {text}"[:PEER_CHARACTERS_MAX]
        user = peer.amqp.authenticated_user
        if peer.neighbour is not None:
            about = peer.neighbour.name
        elif peer.remote is not None:
            about = peer.remote.name
        elif peer.dialled:
            about = ""
        elif user is not None and hosted(peer.host, user) in self._users:
            about = f"user {shown(peer.host, user)}" if peer.host else f"user {user}"
        else:
            about = self._log.of_stranger(host_of(peer.address))
        self._log.write_for(caller, level, about, text)
