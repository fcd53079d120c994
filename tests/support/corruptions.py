"""Corruptions of all but queues and the turn (support/corruption.py).

Rules of this file: one function, or one line, each.
"""

from copy import copy
from typing import Any
from uuid import UUID

from holdfast.broker.cursors.entry_consumer import Acquired
from holdfast.broker.stored.origins import Origin
from holdfast.broker.stored.ranges import RangeSet
from holdfast.endpoints.too_large import Met
from support.corruption import breaks, one_more
from support.queue_corruptions import lying
from support.standing import apart, committing, rejecting, sending, serving, streaming, waiting

# --------------------------------------------------------------------------------------------------------- peers


@breaks("peers: a connection stands under another number", serving)
def _(s: Any) -> None:
    s.peer.number += 1000


@breaks("peers: connection {} has another's session", serving)
def _(s: Any) -> None:
    others = [peer for peer in s.core.connections.values() if peer is not s.peer]
    next(iter(s.peer.amqp.sessions)).connection = others[0].amqp


@breaks("peers: account {}: bytes, and those of its holders", serving)
def _(s: Any) -> None:
    s.core.memory.connections.held += 1
    s.core.memory.total.held += 1


@breaks("peers: bytes of requests and answers", serving)
def _(s: Any) -> None:
    s.peer.request_bytes = s.core.memory.requests.held + 1


one_more("peers: the account of all memory, and its parts", serving, lambda s: s.core.memory.total, "held")


@breaks("peers: connections by address", serving)
def _(s: Any) -> None:
    s.core.guard.by_address["10.0.0.9"] = 1


@breaks("peers: guard: a", serving)
def _(s: Any) -> None:
    gone = s.rig.client(s.node)
    (peer,) = [peer for peer in s.core.connections.values() if peer.amqp.remote_open is None]
    gone.close_transport()
    s.rig.settle()
    s.core.guard.half_open[peer] = None


one_more("peers: {}: connections", serving, lambda s: s.peer.use, "connections")
one_more("peers: {}: links", serving, lambda s: s.peer.use, "links")
one_more("peers: {}: unsettled bytes", serving, lambda s: s.peer.use, "unsettled_bytes")
one_more("peers: {}: consumers of the round, and those that wait", serving, lambda s: s.peer.use, "round_length")


@breaks("peers: {}: its consumers wait, though there is room", serving)
def _(s: Any) -> None:
    s.peer.use.blocked_consumers[s.links["r9"]] = None


# --------------------------------------------------------------------------------------------------------- links


@breaks("links: {}: a link's", serving)
def _(s: Any) -> None:
    del s.core.connections[s.peer.number]
    s.core.links.refills[s.links["s1"]] = None


@breaks("links: a large message that is under way, and that no link brings", streaming)
def _(s: Any) -> None:
    (stream,) = s.core.streams
    stream.bringer.growing = None
    stream.bringer.parked.clear()


@breaks("links: connection {}: a large message nobody sends", streaming)
def _(s: Any) -> None:
    (send,) = s.slow.sends
    send.peer = s.peer


@breaks("links: a link of the engine belongs to another of the core", serving)
def _(s: Any) -> None:
    one, other = (s.links[name] for name in ("r9", "r10"))
    one.link.context, other.link.context = other, one


@breaks("links: {} of {}: a link that its connection does not know", serving)
def _(s: Any) -> None:
    link = s.links["s3"]
    for session in s.peer.amqp.sessions:
        for known in (session.links, session.remote_links):
            for handle in [handle for handle, item in known.items() if item is link.link]:
                del known[handle]


@breaks("links: {} of {}: a link of {}", serving)
def _(s: Any) -> None:
    held = s.core.links.producers[s.plain]
    s.core.links.producers[s.work].update(held)
    held.clear()


@breaks("links: {}: queue {} is gone", serving)
def _(s: Any) -> None:
    queue = s.core.catalog.queues.pop("named")
    assert queue in s.core.links.producers


one_more("links: bytes of large messages", streaming, lambda s: s.core.pressure, "ahead_bytes")
one_more("links: bytes of deliveries that have not come whole", streaming, lambda s: s.core.pressure.partials, "held")
one_more("links: connection {}: parked bytes", serving, lambda s: s.peer, "parked_bytes")
one_more("links: connection {}: large bytes", streaming, lambda s: s.peer, "ahead_bytes")


@breaks("links: blob {}: nobody brings it", streaming)
def _(s: Any) -> None:
    lying(s).open = True


@breaks("links: blob {}: who sends it", streaming)
def _(s: Any) -> None:
    lying(s).pins += 1


@breaks("management: connection {}: bytes of answers", serving)
def _(s: Any) -> None:
    s.peer.reply_bytes += 1
    s.core.memory.requests.held += 1
    s.core.memory.total.held += 1


# ----------------------------------------------------------------------------------------------------- endpoints


@breaks("endpoints: large messages sent, and those of links", streaming)
def _(s: Any) -> None:
    s.slow.sends.clear()


@breaks("endpoints: producer {} speaks from two links", serving)
def _(s: Any) -> None:
    link = next(link for link in s.links.values() if getattr(link, "producer", None) is not None)
    link.producer.holder = None


@breaks("endpoints: {} is no consumer of its cursor", serving)
def _(s: Any) -> None:
    link = s.links["kept"]
    s.core.queue_changes.suspended = lambda: {id(link)}
    del link.cursor.consumers[link]
    del link.cursor.unfiltered[link]
    link.cursor.queue.has_consumers = False


@breaks("endpoints: {}: entries in its hands, and counted", serving)
def _(s: Any) -> None:
    s.links[s.held.name].held += 1


@breaks("endpoints: {} holds what it was never sent", serving)
def _(s: Any) -> None:
    shared = s.plain.shared
    shared.acquired[1] = Acquired(shared.acquired[3].consumer, shared.acquired[3].size)
    shared.requeued.remove(1)
    shared.requeued.append(3)
    del shared.acquired[3]


@breaks("endpoints: links that may be resumed, by cursor", serving)
def _(s: Any) -> None:
    s.core.resume.by_cursor.clear()


@breaks("endpoints: links that may be resumed, by cursor", serving)
def _(s: Any) -> None:
    s.core.resume.by_cursor[s.plain.shared] = {}


@breaks("endpoints: dynamic nodes by connection", serving)
def _(s: Any) -> None:
    s.core.dynamic_nodes.of_peer[s.peer] += 1


@breaks("endpoints: {}: its maker's", serving)
def _(s: Any) -> None:
    made = next(queue for queue in s.core.catalog.queues.values() if getattr(queue, "peer", None) is not None)
    gone = type("Gone", (), {"number": 77})()
    made.peer = gone
    s.core.dynamic_nodes.of_peer = {gone: 1}


@breaks("endpoints: outcomes that wait", rejecting)
def _(s: Any) -> None:
    s.core.jobs.settlements.counts.popitem()


@breaks("endpoints: {} stays stopped at an entry that no longer blocks it", serving)
def _(s: Any) -> None:
    link = s.links[s.held.name]
    s.core.too_large.waiting[link] = 1.0
    s.core.too_large.met_in[s.plain] = {link: Met(99, 1_000, alone=True)}


@breaks("endpoints: queue {}: whether entries go back to a cursor", serving)
def _(s: Any) -> None:
    s.plain.shared.returning = True


@breaks("endpoints: a purge of queue {}, which is gone", serving)
def _(s: Any) -> None:
    s.core.jobs.purges[type("Gone", (), {"name": "gone", "key": "gone"})()] = None


@breaks("endpoints: consumer {}: outcomes that wait", rejecting)
def _(s: Any) -> None:
    (settlement,) = s.core.jobs.settlements.waiting
    settlement.link.settling += 1


@breaks("endpoints: an answer to what is no sender", committing)
def _(s: Any) -> None:
    s.core.turns.gathered.answers.append((object(), 0, 0, None))


# ------------------------------------------------------------------------------------------------------- peering


@breaks("peering: neighbour {} is Established without a connection", sending)
def _(s: Any) -> None:
    s.neighbour.peer = None


@breaks("peering: neighbour {} is offered to routing, and down", apart)
def _(s: Any) -> None:
    s.neighbour.offered = True


@breaks("peering: neighbour {}: its hop is elsewhere", waiting)
def _(s: Any) -> None:
    s.core.neighbours["jfk"].hop.peer = None


@breaks("peering: neighbour {}: its", sending)
def _(s: Any) -> None:
    s.neighbour.peer = s.rig.client(s.node) and type("Gone", (), {"number": 77})()


@breaks("peering: neighbour {}: its connection is another's", sending)
def _(s: Any) -> None:
    s.peer.neighbour = None


@breaks("peering: neighbour {} wants to act earlier than it told", sending)
def _(s: Any) -> None:
    s.core.due_times.stirred.clear()
    s.core.due_times.told[s.neighbour] = 1e9


# ------------------------------------------------------------------------------------------------------- custody


@breaks("custody.hop: neighbour {}: nothing of {} waits for an answer", sending)
def _(s: Any) -> None:
    s.sender.cursor.finish(list(s.sender.in_doubt.values()))
    s.sender.in_doubt.clear()


@breaks("custody.hop: {} is no consumer of its queue", apart)
def _(s: Any) -> None:
    s.sender.queue.shared.consumers.clear()
    s.sender.queue.shared.unfiltered.clear()
    s.sender.queue.has_consumers = False
    s.core.queue_changes.suspended = lambda: {id(s.sender)}


@breaks("custody.hop: {}: its queue is gone", sending)
def _(s: Any) -> None:
    del s.core.catalog.queues["@hub"]
    s.core.links.producers.clear()


@breaks("custody.hop: {} has a link without a connection", sending)
def _(s: Any) -> None:
    s.sender.peer = None


@breaks("custody.hop: {} is open without a link", apart)
def _(s: Any) -> None:
    s.sender.open = True


@breaks("custody.hop: {} has entries in its hands, and forgot them", sending)
def _(s: Any) -> None:
    s.sender.in_doubt.popitem()


@breaks("custody.hop: {} has a link's place, and no link", sending)
def _(s: Any) -> None:
    s.sender.link = s.sender.peer = None
    s.sender.open = False


@breaks("custody.hop: {} has work, and nothing attaches its link", sending)
def _(s: Any) -> None:
    s.sender.link = s.sender.peer = None
    s.sender.open = False
    del s.sender.places.holding[s.sender]


@breaks("custody.hop: {}: its", sending)
def _(s: Any) -> None:
    s.sender.peer = type("Gone", (), {"number": 77})()


@breaks("custody.hop: {} speaks on a connection that the session has left", sending)
def _(s: Any) -> None:
    s.sender.peer = next(peer for peer in s.core.connections.values() if peer is not s.peer)


@breaks("custody: {}: finished at or below its mark", waiting)
def _(s: Any) -> None:
    s.origin.finished = RangeSet([(s.origin.mark + 1, s.origin.mark + 1)])


@breaks("custody: messages that wait, and entries of $waiting", waiting)
def _(s: Any) -> None:
    del s.origin.waiting[3]


@breaks("custody: origin {} is blocked, and nothing of it waits", waiting)
def _(s: Any) -> None:
    other = s.core.catalog.ledger.origin("", UUID(int=7))
    assert not other.waiting
    s.core.destination.blocked[other] = None


@breaks("custody: {}: nobody counts how long it waits", waiting)
def _(s: Any) -> None:
    s.core.destination.waiters.clear()


@breaks("custody: origins of which something waits, and no time that is counted", waiting)
def _(s: Any) -> None:
    s.core.destination.next_tick = None
    s.core.destination.ticking.clear()


@breaks("links: {}: a link that its connection does not know any more", serving)
def _(s: Any) -> None:
    s.core.links.waiting_for_space[copy(s.links["s8"])] = None


@breaks("custody: {}: {} waits below the mark", waiting)
def _(s: Any) -> None:
    s.origin.mark = 2


@breaks("custody: {}: {} waits and is finished", waiting)
def _(s: Any) -> None:
    s.origin.finished = RangeSet([(3, 3)])


@breaks("custody: {}: {} waits and lies nowhere", waiting)
def _(s: Any) -> None:
    s.origin.waiting[3].held_at = 77


@breaks("custody: {}: numbers that are still to be given", apart)
def _(s: Any) -> None:
    s.core.catalog.ledger.identities["hub"] = 1


@breaks("custody: transmission queue {} is gone", apart)
def _(s: Any) -> None:
    s.core.catalog.transit["gone"] = type("Gone", (), {"queue_id": 999, "name": "@gone", "key": "@gone", "host": ""})()


@breaks("custody: {}: its queue is another host's", apart)
def _(s: Any) -> None:
    s.core.catalog.transit["acme@hub"] = s.core.catalog.transit["hub"]


@breaks("custody: origin {} counts for another virtual host", waiting)
def _(s: Any) -> None:
    s.core.catalog.ledger.by_host["acme"][s.origin.origin] = Origin(s.origin.origin)


@breaks("core: a part that has nothing to wait for has a deadline", serving)
def _(s: Any) -> None:
    s.core.timed.append(({}, s.core.warnings))


@breaks("links: {}: what waits, and when it came", serving)
def _(s: Any) -> None:
    s.links["s7"].came_ms.clear()


@breaks("links: {}: came after now", serving)
def _(s: Any) -> None:
    link = s.links["s7"]
    link.came_ms = dict.fromkeys(link.came_ms, s.core.clock.steady_ms + 1)
