"""What the accounts of a node's memory must say: a walk through all holders of a peer's bytes (peers/limits/memory.py).

Rules of this file: sums what is held, not what was counted. Who adds a holder adds it here.
"""

from collections.abc import Iterable
from typing import Any

from holdfast.amqp.links.pending import Pending
from holdfast.broker.cursors.exclusions import ASIDE_BYTES, EXCLUDED_BYTES, GIVEN_BACK_BYTES
from holdfast.broker.entries.entry_log import ENTRY_BYTES
from holdfast.core.node import NodeCore
from holdfast.endpoints.addresses.dynamic_nodes import Temporary
from holdfast.endpoints.relay import RelayLink
from holdfast.endpoints.resumption.producer import REJECTED_BYTES
from holdfast.federation.weight import held_bytes
from holdfast.management.requests import ReplyLink, RequestLink
from holdfast.peers.limits.memory import PARKED_BYTES, REQUEST_BYTES


def links_of(core: NodeCore) -> Iterable[Any]:
    for peer in core.connections.values():
        for session in peer.amqp.sessions:
            for link in session.remote_links.values():
                if link.context is not None:
                    yield link.context


def check_accounts(core: NodeCore) -> None:
    """Each account is what a walk through its holders finds, and the total is their sum."""
    memory = core.memory
    queues = list(core.catalog.queues.values())
    links = list(links_of(core))
    found: dict[str, int] = {}
    found["parked"] = sum(
        PARKED_BYTES + len(item.payload)
        for link in links
        for item in getattr(link, "parked", ())
        if not hasattr(item, "ahead")
    )
    asking = [link.requests if isinstance(link, RelayLink) else link for link in links]
    waiting = [item for link in asking if isinstance(link, RequestLink) for item in link.waiting]
    answers = [item for link in links if isinstance(link, ReplyLink) for item in link.waiting]
    found["requests"] = sum(REQUEST_BYTES + len(item.payload) for item in waiting) + sum(map(len, answers))
    held = [queue for queue in queues if not queue.config.durable]
    for name, mine in (
        ("queues", [queue for queue in held if not isinstance(queue, Temporary)]),
        ("dynamic", [queue for queue in held if isinstance(queue, Temporary)]),
    ):
        found[name] = sum(queue.bytes_held + ENTRY_BYTES * len(queue.ephemeral) for queue in mine)
        bodies = sum(len(value) for queue in mine for value in queue.ephemeral.values())
        assert found[name] >= bodies
    found["cached"] = sum(len(value) for queue in queues for value in queue.cache.values())
    found["resumable"] = sum(
        record.held_bytes for record in (*core.resume.incoming.values(), *core.resume.outgoing.values())
    )
    cursors = [cursor for queue in queues for cursor in queue.cursors]
    found["aside"] = sum(ASIDE_BYTES * len(cursor.exclusions.aside) for cursor in cursors)
    found["aside"] += sum(cursor.selections.counted for cursor in cursors if cursor.selections is not None)
    found["excluded"] = sum(
        EXCLUDED_BYTES * len(consumer.excluded) for cursor in cursors for consumer in cursor.consumers
    )
    found["given_back"] = sum(  # counted as a queue is offered anew: one with news is offered in the next turn
        cursor.exclusions.counted_given_back
        if cursor.queue in core.work.dirty_queues
        else GIVEN_BACK_BYTES * len(cursor.counts)
        for cursor in cursors
    )
    found["rejected"] = sum(REJECTED_BYTES * len(record.rejected) for record in core.resume.incoming.values())
    found["bindings"] = sum(held_bytes(each) for waiting in core.bindings.messages.waiting.values() for each in waiting)
    found["settling"] = core.jobs.settlements.held_bytes
    found["connections"] = sum(peer.held_bytes for peer in core.connections.values())
    accounts = {account.name: account.held for account in memory.accounts}
    turns = core.turns
    answered_later = (
        turns.gathered.then or turns.in_flight is not None or core.jobs.purges or core.questions.next_deadline()
    )
    for name, size in found.items():
        if name == "requests" and answered_later:
            assert accounts[name] >= size, name
        else:
            assert accounts[name] == size, f"{name}: {accounts[name]} counted, {size} found"
    ahead = [(cursor, sum(len(value) for _, value in cursor.prefetched)) for cursor in cursors]
    assert accounts["read_ahead"] == sum(cursor.read_ahead_bytes for cursor, _ in ahead)
    for cursor, size in ahead:
        assert size <= cursor.read_ahead_bytes
    for peer in core.connections.values():
        if peer not in memory.changed:
            engine = peer.amqp
            least = len(engine._rest) + engine.terms_bytes + engine.partial_bytes + peer.unread_bytes
            waiting_out = [item for session in engine.sessions for item in session.backlog]
            least += sum(len(item.payload) for item in waiting_out if isinstance(item, Pending))
            assert peer.held_bytes >= least
    assert memory.total.held == sum(accounts.values())
