"""Where links stand: every table of a node that has links of its peers, in one place (docs/adr/0020).

Rules of this file: who adds a table of links adds it here. The invariants look there for links whose connection is
gone, containment for those of the peer that it ends. Custody's senders stand in none of them: they outlive their
connections, and `Neighbour.lost` has them let go.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.core.egress import Egress
from holdfast.core.ingress import Ingress
from holdfast.core.peer import Peer
from holdfast.core.users import Use

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore


def _waiting(core: "NodeCore") -> dict[str, dict[Any, Any]]:
    """Tables whose keys are links for which something is to be done; `forget` takes a link out of them."""
    return {
        "refills": core.refills, "starved": core.starved, "presettled": core.presettled, "drains": core.drains,
        "requests": core.requests, "requests of users": core.users.waiting, "requests granted": core.users.granted,
        "memory": core.memory.waiting,
    }  # fmt: skip


def _serving(core: "NodeCore") -> dict[str, Iterable[Any]]:
    """Where links stand for as long as they serve; their own end, `gone`, takes them out."""
    queues = core.catalog.queues.values()
    return {
        "producers": [link for held in core.producers.values() for link in held],
        "relays": core.relays,
        "readers": [link for held in core.readers.values() for link in held],
        "takers": [taker for queue in queues for cursor in queue.cursors for taker in cursor.takers],
        "blocked consumers": [link for use in uses_of(core) for link in use.blocked_consumers],
        "replies": core.reply_links.values(),
        "custody receivers": core.custody_receivers.values(),
        # Who has nothing parked any more drops out when it is looked at (offering.py).
        "parked receivers": [link for link in core.parked_receivers if link.parked],
        "streams": [stream.bringer for stream in core.streams],
        "holders": [producer.holder for producer in core.catalog.producers.values()],
        "resumable": [record.holder for record in core.resume.incoming.values()],
    }


def in_tables(core: "NodeCore") -> "Iterator[tuple[str, Ingress | Egress]]":
    """Each link in each table, with the table's name."""
    for name, table in (*_waiting(core).items(), *_serving(core).items()):
        for link in table:
            if isinstance(link, (Ingress, Egress)):  # else it is custody's sender, or nobody
                yield name, link


def of_engine(peer: Peer) -> "list[Ingress | Egress]":
    """The links that the engine of a connection knows, also those whose attach is still to be answered."""
    known = {
        link: None
        for session in peer.amqp.sessions
        for link in (*session.links.values(), *session.remote_links.values())
    }
    return [link.context for link in known if isinstance(link.context, (Ingress, Egress))]


def of_peer(core: "NodeCore", peer: Peer) -> "list[Ingress | Egress]":
    """All links of a peer that any table of the node has, whatever its engine says."""
    found: dict[Any, None] = dict.fromkeys(of_engine(peer))
    found.update(dict.fromkeys(link for link in (*peer.egress, *peer.stalled) if isinstance(link, (Ingress, Egress))))
    found.update(dict.fromkeys(link for _, link in in_tables(core) if link.peer is peer))
    return list(found)


def forget(core: "NodeCore", link: Any) -> None:
    """Nothing is to be done for the link any more."""
    core.users.forget(link)  # first: it looks at its own tables to know what else to forget
    for table in (*_waiting(core).values(), core.parked_receivers, link.peer.egress, link.peer.stalled):
        table.pop(link, None)


def uses_of(core: "NodeCore") -> list[Use]:
    """What each user and each neighbour has."""
    return [core.users.anonymous, *core.users.by_name.values(), *core.users.neighbours.values()]
