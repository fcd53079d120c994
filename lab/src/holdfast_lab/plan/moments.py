"""Named moments of a node's work: what a fault can be aimed at, and what it meets where it strikes.

Rules of this file: a moment is read from the core between its turns and changes nothing; testing for it
need not be cheap, as it happens only while a fault waits for it, and at each strike. `draws/drawn_aims.py` draws all
moments with the same probability.
"""

from collections.abc import Callable
from typing import Final

from holdfast.core.node import NodeCore
from holdfast.peers.neighbours.session_states import State

DOWN: Final = "the node is down"
AT_REST: Final = "nothing of this"

AIM_S: Final = 5.0
"""How long a fault waits for its moment, in virtual time; then it strikes all the same."""

Moment = Callable[[NodeCore], bool]


def _gathers(core: NodeCore) -> bool:
    batch = core.work.batch
    return bool(batch.appends or batch.retires or batch.puts or batch.pieces)


def _holds(core: NodeCore) -> bool:
    return any(cursor.acquired for queue in core.catalog.queues.values() for cursor in queue.cursors)


def _in_doubt(core: NodeCore) -> bool:
    return any(sender.in_doubt for hop in core.next_hops.values() for sender in hop.senders.values())


def _comes_up(core: NodeCore) -> bool:
    made = (State.CONNECT, State.OPEN_SENT, State.OPEN_CONFIRM)
    return any(neighbour.state in made for neighbour in core.neighbours.values())


def _lacks_some(core: NodeCore) -> bool:
    origins = core.destination.waiters
    return any(not origin.is_whole(group) for origin in origins for group in origin.groups.by_first.values())


MOMENTS: Final[dict[str, Moment]] = {
    "a commit is under way": lambda core: core.turns.in_flight is not None,
    "a commit waits behind another": lambda core: core.turns.in_flight is not None and _gathers(core),
    "a large message comes": lambda core: bool(core.streams),
    "a large message goes": lambda core: bool(core.connections.sending),
    "consumers hold messages": _holds,
    "a neighbour has not answered": _in_doubt,
    "a session comes up": _comes_up,
    "producers wait for room": lambda core: bool(core.links.waiting_for_space),
    "messages are parked": lambda core: bool(core.links.parked_receivers),
    "messages wait for an earlier one": lambda core: bool(core.destination.waiters),
    "messages that waited find their queue full": lambda core: bool(core.destination.blocked),
    "messages that waited are moved": lambda core: bool(core.destination.releasing),
    "neighbours gave messages back": lambda core: bool(core.forwarding.returned),
    "a purge goes on": lambda core: bool(core.jobs.purges),
    "what links held goes back": lambda core: bool(core.jobs.returns.lanes),
    "outcomes are carried out": lambda core: bool(core.jobs.settlements.waiting),
    "a link may be resumed": lambda core: any(record.until is not None for record in core.resume.outgoing.values()),
    "a consumer drains": lambda core: bool(core.links.drains),
    "reading is paused": lambda core: bool(core.pressure.paused),
    "a deleted queue leaves": lambda core: bool(core.catalog.leaving),
    "messages get new numbers": lambda core: bool(core.catalog.ledger.renewals),
    "the disk is full": lambda core: core.disk.full,
    "the disk is stalled": lambda core: core.disk.stalled,
    "the node stops": lambda core: core.stopping,
    "a transaction is open": lambda core: any(item.posts or item.takes for item in core.transactions.open.values()),
    "a transaction is committed": lambda core: bool(core.transactions.deciding),
    "a group is incomplete": _lacks_some,
}
"""By name: whether a node is in it."""

OF_TRANSACTIONS: Final = ("a transaction is open", "a transaction is committed")
SCENES_ALONE: Final = (*OF_TRANSACTIONS, "a group is incomplete")
"""Those that only scenes aim at, which bring about what they need."""


def met(core: NodeCore | None) -> list[str]:
    """The moments that a node is in; DOWN where there is none, AT_REST where it is in none."""
    if core is None:
        return [DOWN]
    return [name for name, moment in MOMENTS.items() if moment(core)] or [AT_REST]
