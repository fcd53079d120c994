"""A node that is told to stop: peers are told, and what is in somebody's hands goes back to its places.

Rules of this file: what can fail is tried once more, for the node ends whatever becomes of it.
"""

from typing import TYPE_CHECKING

from holdfast.amqp.performatives import Error
from holdfast.amqp.types import Symbol

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore


def stop(core: "NodeCore") -> None:
    """Begins the end; `Stopped` follows once all connections are closed and all is stored. Idempotent."""
    if core.stopping:
        return
    core.stopping = True
    try:
        _leave(core)
    except Exception as error:
        core.containment.failed(error)
        _leave(core)


def _leave(core: "NodeCore") -> None:
    if core.routing is not None:
        core.routing.leave()
    for neighbour in core.neighbours.values():
        neighbour.dial_at = None
    for peer in list(core.connections.values()):
        peer.amqp.close(Error(Symbol("amqp:connection:forced"), "the node is stopping"))
        peer.touch()
    core.resume.stop()
    for queue in core.catalog.queues.values():
        for taker in list(queue.shared.takers):
            queue.shared.release(taker)
        queue.shared.give_back(list(queue.shared.shown), failed=True)
    core.catalog.before_stop()
    core.outbox.record(
        "node", {"event": "stopped", "store": str(core.identities.store_uuid), "resident_bytes": core.resident_bytes}
    )
