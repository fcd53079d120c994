"""Every table of a node that contains links of its peers, in one place (docs/adr/0020).

Rules of this file: owners of other tables of links register them here. The invariants search them for links of closed
connections, and containment for those of the peer that it ends. Custody senders are in none of them: they outlive their
connections, and `Neighbour.lost` detaches them.
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sized
from typing import Any, Protocol

from holdfast.broker.queue import Queue
from holdfast.peers.peer import Peer, PeerLink, Refilled, Requesting


class Presettled(Protocol):
    """A consumer that was sent settled deliveries, whose entries leave at the end of the turn."""

    def finish_presettled(self) -> None: ...


class Drained(Protocol):
    """A link that sends messages, and may be asked to use up its credit (AMQP 1.0 §2.6.7)."""

    link: Any

    def drain_if_idle(self) -> bool: ...


class Reader(Protocol):
    """A link that reads a queue by sequence."""

    @property
    def has_more(self) -> bool: ...
    def pump(self) -> None: ...
    def detach_with(self, reason: str, condition: str) -> None: ...


class Producing(Protocol):
    """A link that brings messages into a queue; `parked`: those that wait for room. `ends`: it gets no credit, and ends
    once its messages are answered."""

    peer: Peer
    link: Any
    ends: bool

    @property
    def parked(self) -> Sized: ...
    def refill(self) -> None: ...
    def stop(self) -> None: ...
    def detach_with(self, reason: str, condition: str) -> None: ...


class LinkTables:
    """Links with work before the end of the turn, the readers and producers of each queue, and other tables of
    links."""

    def __init__(self) -> None:
        self.refills: dict[Refilled, None] = {}
        """Links that may take more, once in this turn."""
        self.waiting_for_space: dict[Refilled, None] = {}
        """Links that hold back what they have until a commit says how much room there is."""
        self.presettled: dict[Presettled, None] = {}
        self.drains: dict[Drained, None] = {}
        self.producers: dict[Queue, dict[Producing, None]] = {}
        self.relays: dict[Refilled, None] = {}
        """Clients' links without an address."""
        self.readers: dict[Queue, dict[Reader, None]] = {}
        self.requests: dict[Requesting, None] = {}
        """Links of `$management` with requests that wait, in the order in which they are served."""
        self.reply_links: dict[tuple[Peer, str], Any] = {}
        self.custody_receivers: dict[bytes, Any] = {}
        self.parked_receivers: dict[Any, None] = {}
        """Those that parked something; one with nothing parked is removed lazily."""
        self._waiting: dict[str, Callable[[], MutableMapping[Any, Any]]] = {
            "refills": lambda: self.refills, "waiting_for_space": lambda: self.waiting_for_space,
            "presettled": lambda: self.presettled, "drains": lambda: self.drains, "requests": lambda: self.requests,
        }  # fmt: skip
        self._serving: dict[str, Callable[[], Iterable[Any]]] = {
            "producers": lambda: [link for held in self.producers.values() for link in held],
            "relays": lambda: self.relays,
            "readers": lambda: [link for held in self.readers.values() for link in held],
            "replies": self.reply_links.values,
            "custody receivers": self.custody_receivers.values,
            "parked receivers": lambda: [link for link in self.parked_receivers if link.parked],
        }

    # ------------------------------------------------------------------------------------------------ tables of others

    def wait_in(self, name: str, table: Callable[[], MutableMapping[Any, Any]]) -> None:
        """Registers a table whose keys are links with work to do; `forget` removes a link from it."""
        self._waiting[name] = table

    def serve_in(self, name: str, links: Callable[[], Iterable[Any]]) -> None:
        """Registers a table of links that are removed by their own end, `gone`."""
        self._serving[name] = links

    # ------------------------------------------------------------------------------------------------ each queue's

    def producers_of(self, queue: Queue) -> "dict[Producing, None]":
        return self.producers.setdefault(queue, {})

    def readers_of(self, queue: Queue) -> dict[Reader, None]:
        return self.readers.setdefault(queue, {})

    def forget_queue(self, queue: Queue) -> None:
        """The queue was deleted; no link uses it."""
        self.producers.pop(queue, None)
        self.readers.pop(queue, None)

    # ------------------------------------------------------------------------------------------------ what waits

    def wait_for_room(self, link: Refilled) -> None:
        """The link waits with its messages until the next commit reports the room."""
        self.waiting_for_space[link] = None

    def room_may_be_back(self) -> None:
        """Links that wait for room try again in this turn."""
        self.refills.update(self.waiting_for_space)
        self.waiting_for_space.clear()

    def all_may_go_on(self) -> None:
        """As `room_may_be_back`; links of neighbours with messages that wait for anything else try again too."""
        self.room_may_be_back()
        self.refills.update(dict.fromkeys(link for link in self.parked_receivers if link.parked))

    def draining(self, link: Drained) -> None:
        if link.link.drain:
            self.drains[link] = None

    def forget(self, link: PeerLink) -> None:
        """The link has no more work."""
        tables: list[MutableMapping[Any, Any]] = [table() for table in self._waiting.values()]
        for table in (*tables, self.parked_receivers, link.peer.egress, link.peer.stalled):
            table.pop(link, None)

    # ------------------------------------------------------------------------------------------------ whose

    def waiting(self, name: str) -> MutableMapping[Any, Any]:
        """The table of that name, of those whose keys are links with work to do."""
        return self._waiting[name]()

    def each(self) -> Iterator[tuple[str, PeerLink]]:
        """Each link in each table, with the table's name."""
        for name, table in (*self._waiting.items(), *self._serving.items()):
            for link in table():
                if isinstance(link, PeerLink):  # otherwise it is a custody sender, or none
                    yield name, link

    def of_peer(self, peer: Peer) -> list[PeerLink]:
        """All links of a peer in any table of the node, whatever its engine knows."""
        found = dict.fromkeys(links_of(peer))
        found.update(dict.fromkeys(link for link in (*peer.egress, *peer.stalled) if isinstance(link, PeerLink)))
        found.update(dict.fromkeys(link for _, link in self.each() if link.peer is peer))
        return list(found)


def links_of(peer: Peer) -> list[PeerLink]:
    """The links that the engine of a connection knows, also those whose attach is not answered yet."""
    known = {
        link: None
        for session in peer.amqp.sessions
        for link in (*session.links.values(), *session.remote_links.values())
    }
    return [link.context for link in known if isinstance(link.context, PeerLink)]
