"""What all sessions with neighbours use, and the parts that follow their states (peering/sessions.py).

Rules of this file: data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from holdfast.custody.forwarding import Forwarding
from holdfast.custody.names.neighbour_stores import NeighbourStores
from holdfast.engine.clock import Clock
from holdfast.engine.due_times import DueTimes
from holdfast.engine.incidents import Incidents
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.links.disk import Disk
from holdfast.peering.binding_control import BindingControl
from holdfast.peering.clocks import Clocks
from holdfast.peering.rate_control import RateControl
from holdfast.peers.connections import Connections
from holdfast.peers.neighbours.session_port import ControlKinds, Routing
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import Catalog


@dataclass(slots=True)
class SessionParts:
    """What all sessions of a node use. `started_wall_ms`: identifies this run of the node. `advertised_uuid`: the
    store's UUID as this node advertises it."""

    config: NodeConfig
    clock: Clock
    rng: Random
    outbox: Outbox
    log: Log
    connections: Connections
    catalog: Catalog
    incidents: Incidents
    stores: NeighbourStores
    forwarding: Forwarding
    disk: Disk
    clocks: Clocks
    times: DueTimes[Any]
    kinds: ControlKinds
    rates: RateControl
    bindings: BindingControl
    started_wall_ms: int
    advertised_uuid: Callable[[], UUID]
    is_stopping: Callable[[], bool]
    routing: Routing | None = None
    """Set once there is one; None where the node has no topology."""
