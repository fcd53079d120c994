"""The end of a turn: hands over the batch, shows and settles what is on disk, and sends output.

Rules of this file: order of a turn: gather, commit, then settle. Until the batch is handed over, every change can be
undone; after that, nothing is called that could fail before memory is up to date (docs/adr/0019).
"""

from typing import Final

from holdfast.core.parts import Parts
from holdfast.engine import events
from holdfast.engine.port import Batch
from holdfast.errors import BrokenInvariant
from holdfast.links.outgoing import Egress
from holdfast.peers.peer import Peer
from holdfast.state import steady
from holdfast.state.turns import Turn

STEADY_EVERY_MS: Final = 1_000
"""How far the stored steady time may lie behind, where anything is stored at all."""

RETIRE_WAIT_S: Final = 0.05
RETIRE_COUNT: Final = 500
"""A turn that only retires waits so long, or for so many, to share a commit with what is appended next."""


def _may_wait(core: Parts) -> bool:
    """Whether the turn only retires entries: then it waits a little to join the next append's commit. If the node dies
    within RETIRE_WAIT_S, this causes a redelivery, which is marked as one.
    """
    turn = core.turns.gathered
    batch = turn.batch
    retires_only = 0 < len(batch.retires) < RETIRE_COUNT and not (
        batch.appends or batch.puts or batch.deletes or batch.pieces
        or turn.arrivals or turn.answers or turn.then or turn.moves
    )  # fmt: skip
    is_awaited = core.work.urgent or core.blobs.dropping or core.bindings.is_due
    return retires_only and not (is_awaited or core.stopping)


def _waits(core: Parts) -> bool:
    """Whether the turn waits now; notes until when."""
    if not _may_wait(core):
        core.retire_at = None
        return False
    if core.retire_at is None:
        core.retire_at = core.clock.now + RETIRE_WAIT_S
    if core.clock.now < core.retire_at:
        return True
    core.retire_at = None
    return False


def begin(core: Parts) -> bool:
    """Hands over the gathered turn; True if it needs no disk and is done already."""
    turn, work = core.turns.gathered, core.work
    core.destination.before_commit(turn)  # what it adds may be all that the turn has
    if not (
        turn
        or work.dirty_counters
        or turn.moves
        or work.left
        or work.referred
        or core.blobs.by_number
        or core.bindings.is_due
    ):
        core.retire_at = None
        if turn.heard_bytes:
            turn.forget_heard()
        return False
    if core.disk.rests or _waits(core):
        return False
    for part in core.storing:
        part.before_commit(turn)
    if not (turn or turn.visible or turn.moves):
        turn.forget_heard()
        return False
    if turn.batch and core.clock.steady_ms >= core.steady_stored_ms + STEADY_EVERY_MS:
        core.steady_stored_ms = core.clock.steady_ms  # it never goes back, also after a crash
        steady.put(turn.batch, core.clock)
    fresh = Turn(Batch())
    command = events.Commit(number=core.turns.number + 1, batch=turn.batch)
    left = [(queue.queue_id, sequence) for queue, sequence, _ in turn.moves]
    needs_no_disk = not (turn.batch or left)
    core.catalog.rows.were_put()  # from here on nothing is called that could fail, until the turn is handed over
    turn.batch.retires += left
    turn.referred, work.referred = work.referred, []
    turn.left, work.left = work.left, []
    core.turns.gathered, work.batch, work.moved, work.urgent = fresh, fresh.batch, [], False
    core.commits_failed = 0
    if needs_no_disk:
        completed(core, turn)
        return True
    core.turns.number += 1
    core.turns.in_flight = turn
    work.retires_in_flight = turn.batch.retires
    core.outbox.commands.append(command)
    core.disk.began()
    return False


def completed(core: Parts, turn: Turn) -> None:
    """The turn is on disk. An exception here ends the node, because memory would contradict the disk."""
    try:
        _complete(core, turn)
    except Exception as error:
        text = f"a turn is on disk, and memory did not follow: {error!r}; it has {turn.describe()}"
        raise BrokenInvariant(text) from error


def _complete(core: Parts, turn: Turn) -> None:
    """All of the turn is on disk: shows its entries and settles its deliveries."""
    for part in core.following:
        part.committed(turn)
    failed = core.containment.failed
    gathered, before = core.turns.gathered, core.turns.gathered.extent()
    for link, deliveries in turn.arrivals.items():
        try:
            link.stored(deliveries)
        except Exception as error:
            failed(error, link, changed=core.turns.gathered is not gathered or core.turns.gathered.extent() != before)
            gathered, before = core.turns.gathered, core.turns.gathered.extent()
    for sender, first, last, state in turn.answers:
        try:
            if not sender.detached:
                sender.settle(first, last, state)
                if isinstance(sender.context, Egress):
                    sender.context.answered()
        except Exception as error:
            failed(error, sender, changed=False)
    effects, finish = core.turns.effects, core.containment.finish
    for effect in turn.then:
        finish(effects.after(effect))
    for effect in turn.decided:
        finish(effects.decided(effect, stored=True), decides=True)


def flush(core: Parts) -> None:
    """Sends the turn's output, for each connection in the order in which they were touched."""
    touched = list(core.connections.touched)
    core.memory.changed.update(core.connections.touched)
    core.connections.touched.clear()
    for peer in touched:
        try:
            _flush_one(core, peer)
        except Exception as error:
            core.containment.failed(error, peer)
    if (
        core.stopping
        and not core.stopped
        and not core.connections
        and core.turns.in_flight is None
        and not core.turns.gathered
    ):
        core.stopped = True
        core.outbox.put(events.Stopped())


def _flush_one(core: Parts, peer: Peer) -> None:
    if peer.neighbour is not None:
        peer.neighbour.stir()
    chunks = peer.amqp.take_output(core.clock.now)
    if chunks and (peer.writable or not core.guard.unread(peer, chunks)):
        core.outbox.put(events.SendBytes(connection=peer.number, chunks=chunks))
    if peer.handed_bytes:
        peer.written()
    if peer.amqp.deadline_sooner:
        core.deadlines.watch(peer)
    if peer.amqp.closed and peer.number in core.connections:
        del core.connections[peer.number]
        core.outbox.put(events.CloseConnection(connection=peer.number))
        core.connections.left(peer, peer.why_closed)


def account(core: Parts) -> None:
    """Measures changed connections, frees memory if too much is held, and lets those that wait for memory continue."""
    containment, memory = core.containment, core.memory
    if memory.is_due(core.work.offered_bytes):
        containment.run(memory, memory.measure_changed, gathers=False)
    if memory.is_short:
        containment.run(memory, core.relief.make_room)
    if memory.excludes_too_much:
        containment.run(memory, core.relief.end_excluders)
    if memory.is_waited_for:
        containment.run(memory, core.relief.give)


def is_more_left(core: Parts) -> bool:
    """Whether the end of the turn, which was the last event, leaves something to the next turn, which then comes at
    once: what was added after the turn's work, when its commit had begun or was found not to be needed."""
    if core.connections.touched or (core.dynamic_nodes.due and core.dynamic_nodes not in core.containment.resting):
        return True
    turns = core.turns
    turn = turns.gathered
    if turns.in_flight is not None or core.disk.rests or not (turn or core.work.dirty_counters or turn.moves):
        return False
    return core.retire_at is None or not _may_wait(core)
