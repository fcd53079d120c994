"""Invariants of clients' links, and of the state that outlives them (docs/adr/0020).

Rules of this file: reads, never changes; BrokenInvariant says what contradicts what.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.amqp.connection import Sender
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.queue import Queue
from holdfast.custody.hop.next_hop import NextHop
from holdfast.endpoints.addresses.dynamic_nodes import PREFIX, DynamicNodes, Temporary
from holdfast.endpoints.addresses.node_drain import NodeDrain
from holdfast.endpoints.admission import ROWS_MAX, Admission
from holdfast.endpoints.background_jobs import BackgroundJobs
from holdfast.endpoints.browser import ReaderLink
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.endpoints.producer import ProducerLink
from holdfast.endpoints.resumption.consumer import ResumableConsumer
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.endpoints.settlements import Settles
from holdfast.endpoints.too_large import TooLarge, no_longer_blocks
from holdfast.endpoints.topic_bindings import TopicBindings
from holdfast.engine.invariants import must
from holdfast.peers.connections import Connections
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import PeerLink
from holdfast.peers.use import Use
from holdfast.peers.validation import alive
from holdfast.state.catalog import Catalog
from holdfast.state.producer_ends import EndProducer
from holdfast.state.turns import Turns


def admission(admission: Admission, catalog: Catalog) -> None:
    """Room by priority matches the settings, and the rows of refusals are bounded."""
    must(len(admission.refused) <= 2 * ROWS_MAX, "too many rows of refusals", len(admission.refused))
    for name, queue in catalog.queues.items():
        asked = min(queue.config.room_low, queue.config.room_normal) < 1
        must((queue.bands is not None) == asked, f"queue {name!r}: room by priority, and its settings", queue.config)


def node_drain(drain: NodeDrain, links: LinkTables, turns: Turns) -> None:
    """While the node is drained, no link sends new messages, except to dynamic nodes. A link that ends after the
    answers to its messages has no credit, and waits for them."""
    pending = [*turns.gathered.then, *(turns.in_flight.then if turns.in_flight is not None else ())]
    ending = {effect.link for effect in pending if isinstance(effect, EndProducer)}
    for queue, held in links.producers.items():
        must(
            all(link in ending for link in held if link.ends), f"queue {queue.name!r}: links that never end", len(held)
        )
        stays = not queue.name.startswith(PREFIX) and [link for link in held if not link.ends]
        must(not (drain.active and stays), "the node is drained, and links bring messages for", queue.name)


def topic_bindings(bound: TopicBindings, connections: Connections) -> None:
    """Federation has the bindings of the topics' subscriptions; links that wait for a confirmation exist."""
    for name, wanted, told in bound.told():
        must(wanted == told, f"topic {name!r}: what its subscriptions want, and what is told of it", wanted, told)
    for asking in bound.waiting.values():
        must(asking.peer in connections.values(), "a confirmation is waited for on a connection that is gone")
        must(not asking.link.detached, "a confirmation is waited for on a link that is gone", asking.link)
    numbers = {asking.link: token for token, asking in bound.waiting.items()}
    must(numbers == bound.tokens, "confirmations that are waited for, by link", numbers, bound.tokens)


def large_sends(known: list[PeerLink], hops: Iterable[NextHop], connections: Connections) -> None:
    """Each large message that is being sent belongs to a link or a hop."""
    sending: list[Any] = [link.large for link in known if isinstance(link, (ConsumerLink, ReaderLink))]
    sending += [sender.large for hop in hops for sender in hop.senders.values()]
    sent = {send for send in sending if send is not None}
    must(
        sent == {send for peer in connections.sending for send in peer.sends},
        "large messages sent, and those of links",
    )


def clients(known: list[PeerLink], *, stopping: bool) -> None:
    """Consumers and cursors agree on unsettled entries; a named producer has one link."""
    for link in known:
        if isinstance(link, ConsumerLink):
            _consumer(link, stopping=stopping)
        elif isinstance(link, ProducerLink) and link.producer is not None:
            must(link.producer.holder is link, f"producer {link.producer.name!r} speaks from two links")


def _consumer(link: ConsumerLink, *, stopping: bool) -> None:
    where = f"consumer {link.link.name!r} of queue {link.cursor.queue.name!r}"
    mine = {sequence for sequence, acquired in link.cursor.acquired.items() if acquired.consumer is link}
    must(link in link.cursor.consumers or stopping, f"{where} is no consumer of its cursor")
    large = 0 if link.large is None else 1
    if stopping:
        return
    if link.presettled:
        held, sent = len(link.batch) + large, {*link.batch, *([] if link.large is None else [link.large.context])}
    else:
        waiting = link.waiting if isinstance(link, ResumableConsumer) else {}
        held = link.held + len(waiting)
        sent = {*link.link.unsettled.values(), *waiting.values()}
        if isinstance(link, ResumableConsumer):
            sent |= {sequence for _, sequence in link.steps}
    must(len(mine) == held, f"{where}: entries in its hands, and counted", len(mine), held)
    must(mine <= sent, f"{where} holds what it was never sent", sorted(mine - sent)[:20])


def resumable(resume: Resumption) -> None:
    """Each consumer's link that may be resumed is registered with its cursor."""
    found: dict[Cursor, set[int]] = {}
    for record in resume.outgoing.values():
        found.setdefault(record.cursor, set()).add(id(record))
    indexed = {cursor: {*map(id, records)} for cursor, records in resume.by_cursor.items()}
    must(found == indexed, "links that may be resumed, by cursor", len(found), len(indexed))


def dynamic_nodes(nodes: DynamicNodes, connections: Connections, catalog: Catalog) -> None:
    """Dynamic nodes are counted by connection and have an owner."""
    queues = [queue for queue in catalog.queues.values() if isinstance(queue, Temporary)]
    counts = Counter(queue.peer for queue in queues if queue.peer is not None)
    must(nodes.of_peer == dict(counts), "dynamic nodes by connection")
    for queue in queues:
        if queue.peer is not None and queue not in nodes.due:
            alive(connections, queue.peer, f"{queue.name}: its maker's")


def too_large(too_large: TooLarge, is_offered: Callable[[Queue], bool]) -> None:
    """No link stays stopped at an entry that no longer blocks it. `is_offered`: whether this turn has offered the
    queue's messages, so that nothing is left for the next one."""
    for queue, consumers in too_large.met_in.items():
        for consumer, met in consumers.items() if is_offered(queue) else ():
            where = f"consumer {consumer.link.name!r} of queue {queue.name!r}"
            over = consumer in too_large.waiting and no_longer_blocks(consumer.cursor, met)
            must(not over, f"{where} stays stopped at an entry that no longer blocks it", met)


def jobs(jobs: BackgroundJobs, catalog: Catalog, turns: Turns) -> None:
    """Background work is for existing queues; waiting outcomes are counted by user and by link; a cursor knows whether
    entries go back to it over several turns."""
    for queue in jobs.purges:
        must(catalog.has(queue), f"a purge of queue {queue.name!r}, which is gone")
    for queue in catalog.queues.values():
        for cursor in queue.cursors:
            told, waits = cursor.returning, cursor in jobs.returns.lanes
            must(told == waits, f"queue {queue.name!r}: whether entries go back to a cursor", told, waits)
    settlements = jobs.settlements
    by_user: Counter[tuple[Cursor, Use | None]] = Counter()
    by_link: Counter[Settles] = Counter()
    for settlement in settlements.waiting:
        by_user[settlement.cursor, settlement.link.use] += len(settlement.sequences)
        by_link[settlement.link] += len(settlement.sequences)
    must(settlements.counts.keys() == by_user.keys() and settlements.counts == by_user, "outcomes that wait")
    for link, count in by_link.items():
        must(link.settling == count, f"consumer {link.link.name!r}: outcomes that wait", link.settling, count)
    for sender, *_ in turns.gathered.answers:
        must(isinstance(sender, Sender), "an answer to what is no sender")
