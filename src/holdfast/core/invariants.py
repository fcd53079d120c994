"""All invariants of a node, which hold after every event, in the order in which they are checked (docs/adr/0020).

Rules of this file: a list. A check is in the module `validation` of the package whose state it checks; if it compares
several packages, of the highest of them.
"""

import sys

from holdfast.core.parts import Parts
from holdfast.custody import validation as custody
from holdfast.endpoints import validation as endpoints
from holdfast.endpoints.entry_changes import leaving_by_hand
from holdfast.endpoints.transactions.validation import transactions
from holdfast.engine.invariants import must
from holdfast.links import validation as links
from holdfast.management import validation as management
from holdfast.peering import validation as peering
from holdfast.peers import validation as peers
from holdfast.peers.link_tables import links_of
from holdfast.queue_links import validation as queue_links
from holdfast.state import validation as state


def check(core: Parts, *, entries_max: int | None = None) -> None:
    """Raises BrokenInvariant for the first invariant that is broken. `entries_max`: how many entries are read."""
    catalog, turns, work, connections = core.catalog, core.turns, core.work, core.connections
    streams, stopping, jobs = core.streams, core.stopping, core.jobs
    entries = state.entries_of(catalog, turns, work, sys.maxsize if entries_max is None else entries_max)
    known = [link for peer in connections.values() for link in links_of(peer)]
    state.queues(entries, catalog, turns, work, purges=jobs.purges, suspended=core.queue_changes.suspended())
    peers.engines(connections)
    endpoints.large_sends(known, core.next_hops.values(), connections)
    links.tables(known, core.links, connections, catalog, streams)
    links.arrived(known, core.clock.steady_ms)
    endpoints.clients(known, stopping=stopping)
    peering.sessions(core.neighbours, connections, catalog, core.forwarding, stopping=stopping)
    peers.memory(core.memory, connections)
    links.pressure(core.pressure, connections, streams)
    management.answers(connections)
    peers.guard(core.guard, core.refusals, connections)
    endpoints.resumable(core.resume)
    resting = core.containment.resting
    endpoints.too_large(
        core.too_large, lambda queue: not (stopping or queue.stopped or queue in work.dirty_queues or queue in resting)
    )
    endpoints.admission(core.admission, catalog)
    endpoints.node_drain(core.node_drain, core.links, core.turns)
    transactions(core.transactions, connections, catalog, core.queue_links.reserved(), stopping=stopping)
    custody.delivery_limits(core.delivery_limits, catalog, turns, work)
    queue_links.links(core.queue_links, catalog, stopping=stopping)
    queue_links.tied(core.queue_links, core.transactions, core.delivery_limits, core.dead_lettering, catalog)
    endpoints.dynamic_nodes(core.dynamic_nodes, connections, catalog)
    peers.users(core.users, connections)
    for waits, part in core.timed:  # else it is not asked (peers/deadlines.py)
        must(bool(waits) or part.next_deadline() is None, "a part that has nothing to wait for has a deadline", part)
    peering.due_times(core.due_times)
    peering.bindings(core.bindings, turns)
    endpoints.topic_bindings(core.topic_bindings, connections)
    peering.rates(core.rates, core.next_hops, core.clock.now)
    state.blobs(entries, core.blobs, catalog, turns, work)
    links.blobs(core.blobs, connections, streams)
    custody.expired(catalog, turns, leaving_by_hand(turns))
    custody.delays(entries, core.delays, catalog)
    custody.origins(entries, core.destination, catalog)
    custody.identities(entries, core.identities, catalog)
    state.turn(catalog, turns, work)
    endpoints.jobs(jobs, catalog, turns)
