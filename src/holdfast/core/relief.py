"""Frees memory when it is used up, and lets those that wait for memory continue (docs/adr/0030).

Rules of this file: caches are freed first, then links that wait to be resumed, then the heaviest connection of the user
that holds the most; connections with less than their share stay. If too many messages are undeliverable on links (AMQP
1.0 §3.4.5), links end, those with the most first. The work of one turn is bounded.
"""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heapreplace
from itertools import islice
from operator import itemgetter
from typing import Final, Protocol

from holdfast.accounts import Account
from holdfast.amqp.wire.conditions import RESOURCE_LIMIT_EXCEEDED
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.peers.connections import Connections
from holdfast.peers.limits.memory import REFILL_BYTES, REPLY_BYTES, STALLED_A_TURN, Memory
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Peer, PeerLink

FORGOTTEN_A_TURN: Final = 100
"""Links that wait to be resumed and are forgotten in one turn."""

ENDED_A_TURN: Final = 100
"""Consumers' links that end in one turn."""


class Suspended(Protocol):
    """The state of a link that may be resumed."""

    counted_bytes: int

    @property
    def holder(self) -> PeerLink | None: ...


class Resumable(Protocol):
    """Links that wait to be resumed."""

    @property
    def incoming(self) -> Mapping[bytes, Suspended]: ...
    def forget_oldest(self) -> bool: ...


class Relief:
    """`who`: the user or address for which a connection counts."""

    def __init__(
        self,
        memory: Memory,
        connections: Connections,
        links: LinkTables,
        resumable: Resumable,
        who: Callable[[Peer], str],
    ) -> None:
        self._memory = memory
        self._connections = connections
        self._links = links
        self._resumable = resumable
        self._who = who

    # ------------------------------------------------------------------------------------------------ given back

    def make_room(self) -> None:
        """Frees caches; beyond the bound also links that wait to be resumed, then the heaviest connections."""
        memory, total = self._memory, self._memory.total
        memory.read_ahead.let_all_go()
        if total.held <= total.held_max:
            return
        for _ in range(FORGOTTEN_A_TURN):
            if total.held <= total.held_max or not self._resumable.forget_oldest():
                break
        self._drop_heaviest()

    def _drop_heaviest(self) -> None:
        """Drops the heaviest connection of the user that holds the most, repeatedly; those with less than their share
        stay."""
        memory, total = self._memory, self._memory.total
        share = memory.share()
        held_by = {peer: memory.weight(peer) for peer in self._connections.values()}
        for record in self._resumable.incoming.values():
            if record.holder is not None:
                held_by[record.holder.peer] = held_by.get(record.holder.peer, 0) + record.counted_bytes
        of_each: dict[str, list[tuple[int, Peer]]] = {}
        for peer, held in sorted(held_by.items(), key=itemgetter(1)):
            if peer.neighbour is None and not peer.dialled and held > share:
                of_each.setdefault(self._who(peer), []).append((held, peer))
        heaviest = [(-sum(held for held, _ in theirs), who) for who, theirs in of_each.items()]
        heapify(heaviest)
        while heaviest and total.held > total.held_max:
            together, who = heaviest[0]
            held, peer = of_each[who].pop()
            if of_each[who]:
                heapreplace(heaviest, (together + held, who))
            else:
                heappop(heaviest)
            memory.dropped += 1
            text = f"it holds {held} bytes of the node's memory and {who} {-together}, more than any other"
            self._connections.drop(peer, f"{text}, and memory is used up (memory_bytes_max)")

    def end_excluders(self) -> None:
        """Ends links until an eighth of the bound is free, so that the next exclusion does not look through all links
        again. The bound of one link, `excluded_max`, is checked in endpoints/consumer.py."""
        account = self._memory.withheld.excluded
        enough = account.held_max - account.held_max // 8
        left = ENDED_A_TURN
        held = {
            peer: [link for link in peer.egress if isinstance(link, ConsumerLink) and link.excluded]
            for peer in self._connections.values()
        }
        counts = {peer: sum(len(link.excluded) for link in links) for peer, links in held.items() if links}
        for peer in sorted(counts, key=counts.__getitem__, reverse=True):
            text = f"its connection called {counts[peer]} messages undeliverable, the most of all"
            for link in sorted(held[peer], key=lambda link: len(link.excluded), reverse=True):
                if left <= 0 or account.held <= enough:
                    return
                left -= 1
                link.detach_with(f"{text}, and no more can be kept", RESOURCE_LIMIT_EXCEEDED)

    # ------------------------------------------------------------------------------------------------ given

    def give(self) -> None:
        """Lets those that wait for memory continue."""
        memory = self._memory
        if memory.stalled:
            self._wake_stalled()
        for account, before in list(memory.room_before.items()):
            if account.room > max(before, min(account.held_max // 8, REFILL_BYTES)):
                self._refill(account)

    def _wake_stalled(self) -> None:
        """Continues requests if there is room for answers; otherwise only those of connections that hold less than
        their share, some of them each turn."""
        memory = self._memory
        for peer in list(islice(memory.stalled, None if memory.total.fits(REPLY_BYTES) else STALLED_A_TURN)):
            del memory.stalled[peer]
            if memory.has_room(peer, REPLY_BYTES):
                self._links.requests.update(peer.stalled)
                peer.stalled.clear()
            else:
                memory.stalled[peer] = None

    def _refill(self, account: Account) -> None:
        """Gives links to queues of that account credit again, or finds out how much is still missing."""
        memory = self._memory
        del memory.room_before[account]
        for link in [link for link in memory.waiting if link.queue.memory is account]:
            del memory.waiting[link]
            self._links.refills[link] = None
            link.queue.touch()
