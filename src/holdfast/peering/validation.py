"""Invariants of sessions with neighbours (docs/adr/0020).

Rules of this file: reads, never changes; BrokenInvariant says what contradicts what.
"""

from collections.abc import Mapping

from holdfast.broker.entries.host_names import destination_of
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.hop.next_hop import NextHop
from holdfast.custody.hop.paced_sender import PacedSender
from holdfast.custody.hop.validation import senders
from holdfast.engine.due_times import DueTimes
from holdfast.engine.invariants import must
from holdfast.federation import validation as federation
from holdfast.federation.weight import held_bytes
from holdfast.pacing import validation as pacing
from holdfast.pacing.table import ROWS_MAX
from holdfast.peering.binding_control import BindingControl
from holdfast.peering.binding_messages import WAITING_MAX as WAITING_HEARD_MAX
from holdfast.peering.rate_control import WAITING_MAX, RateControl
from holdfast.peering.sessions import Neighbour
from holdfast.peers.connections import Connections
from holdfast.peers.validation import alive
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Turns


def sessions(
    neighbours: Mapping[str, Neighbour],
    connections: Connections,
    catalog: Catalog,
    forwarding: Forwarding,
    *,
    stopping: bool,
) -> None:
    """A session has a living connection, or none; so has its hop."""
    for name, neighbour in neighbours.items():
        peer = neighbour.peer
        if peer is not None:
            alive(connections, peer, f"neighbour {name}: its")
            must(peer.neighbour is neighbour, f"neighbour {name}: its connection is another's")
        must(not neighbour.established or peer is not None, f"neighbour {name} is Established without a connection")
        must(not neighbour.offered or neighbour.established, f"neighbour {name} is offered to routing, and down")
        senders(neighbour.hop, connections, catalog, forwarding, stopping=stopping)
        must(neighbour.hop.peer is (peer if neighbour.established else None), f"neighbour {name}: its hop is elsewhere")


def due_times(due_times: DueTimes[Neighbour]) -> None:
    """No session has an earlier deadline than `DueTimes` has for it, unless it was stirred (engine/due_times.py)."""
    for neighbour, told in due_times.told.items():
        at = neighbour.next_deadline()
        if at is not None and neighbour not in due_times.stirred:
            must(told <= at, f"neighbour {neighbour.name} wants to act earlier than it told", at, told)


def bindings(control: BindingControl, turns: Turns) -> None:
    """Federation's state agrees with the sessions, and with the turn that has its records."""
    node = control.federation
    if node is None:
        return
    federation.validate(node)
    messages = control.messages
    must(messages.eager.keys() <= node.neighbours.keys(), "federation: something is to be said to who is away")
    must(messages.unsent.keys() <= node.neighbours.keys(), "federation: a message waits for who is away")
    must(messages.waiting.keys() <= node.neighbours.keys(), "federation: somebody who is away was heard")
    must(
        all(0 < len(waiting) <= WAITING_HEARD_MAX for waiting in messages.waiting.values()),
        "federation: too many messages of a neighbour wait, or none",
    )
    held = {name: sum(map(held_bytes, waiting)) for name, waiting in messages.waiting.items()}
    must(messages.waiting_bytes == held, "federation: bytes of what waits", messages.waiting_bytes, held)
    under_way = node.sets.under_way is not None
    must(under_way == (control.written is not None), "federation: a commit is under way in no turn, or a turn without")
    open_turns = (turns.gathered, turns.in_flight)
    must(
        not under_way or any(control.written is turn for turn in open_turns),
        "federation: the turn of its records is over",
    )


def rates(control: RateControl, next_hops: Mapping[str, NextHop], now: float) -> None:
    """Waiting messages of pacing are bounded; each sender to a root keeps to its rate."""
    must(control.waiting_count <= WAITING_MAX, "pacing: too many messages wait for credit", control.waiting_count)
    must(all(control.waiting.values()), "pacing: a neighbour without messages waits for credit")
    for root, pacer in control.pacers.items():
        pacing.origin(pacer.origin)
        told = destination_of(pacer.origin.group, pacer.origin.root)
        must(told == root, f"pacing: the reports to {root} are for another", told)
        for hop in next_hops.values():
            sender = hop.senders.get(root)
            kept = sender is None or (isinstance(sender, PacedSender) and sender.pacer is pacer)
            must(kept, f"neighbour {hop.name}: its sender to {root} keeps to no rate")
    if control.root is not None:
        tables = control.root.groups.tables.values()
        for table in tables:
            pacing.table(table, now)
        rows = sum(len(table.rows) for table in tables)
        must(rows <= ROWS_MAX, "pacing: too many rows of all virtual hosts together", rows)
