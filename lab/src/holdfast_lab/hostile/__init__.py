"""A client that misuses AMQP 1.0 at every layer, drawn from a seed.

The lying neighbour (`holdfast_lab/runs/liar.py`) is its twin.

Rules of this package: no socket, no clock, no random source of its own: bytes in, bytes out. The fuzzer, the simulator
and the soak drive the same client. Acts register themselves where they are defined: `links`, `deliveries`, `nodes`,
`wire`.
"""

from holdfast_lab.hostile import deliveries, links, nodes, wire
from holdfast_lab.hostile.acts import ACTS
from holdfast_lab.hostile.client import HostileClient, Places

__all__ = ["ACTS", "HostileClient", "Places", "deliveries", "links", "nodes", "wire"]
