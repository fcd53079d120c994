"""Whose a store is: traces and identities hold stores by their UUIDs, people are told nodes (docs/amqp.md, "Paths";
docs/where.md).

Rules of this file: looks, never changes, and remembers nothing: names are those known when it is asked. A reader asks
for each message that it is told the path of.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.broker import entry
from holdfast.core.aliases import stores_of

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore


def name_of(core: "NodeCore", store: UUID) -> str:
    """The node that has, or had, that store: by its own record in the topology, else by what it said as a neighbour;
    the UUID itself where nobody said so."""
    if core.routing is not None:
        routed = core.routing.name_of_store(store)
        if routed is not None:
            return routed
    if store == core.identities.store_uuid:
        return core.config.name
    for name, known in core.catalog.neighbour_stores.items():
        if known == store:
            return name
    return str(store)


def names_of(core: "NodeCore", trace: bytes) -> list[str]:
    """The nodes of a trace as entries hold it, in its order."""
    return [name_of(core, entry.uuid_of(store)) for store in stores_of(trace)]
