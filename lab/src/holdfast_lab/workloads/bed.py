"""What a workload may ask of its bed: simulated nodes (`sim/sim_bed.py`) or real ones (`real/testbed.py`).

Rules of this file: types only. A workload is asyncio over the client library and this; it never learns which bed it
lies in. Every message it sends ends with a key, by which a run can follow it from outside.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, Protocol

from holdfast.client import Connection, Delivery
from holdfast_lab.base.client_history import History


class Bed(Protocol):
    """Nodes that run, and the record of what clients sent and got."""

    history: History

    @property
    def nodes(self) -> Sequence[str]:
        """Names, in the topology's order."""

    def now(self) -> float:
        """Seconds; the running loop's time."""

    def wall_ms(self, node: str) -> int:
        """What that node takes for the time, in milliseconds since the epoch."""

    def stream(self, name: str) -> Random:
        """A random stream of the run's seed for one use."""

    async def connect(self, node: str, client: str, *, vhost: str = "") -> Connection:
        """The client library's connection to that node, named `client`, that comes back after every break. `vhost`: the
        virtual host there; "" for the default one."""

    async def dial(
        self, node: str, client: str, protocol: Callable[[], asyncio.Protocol], *, honest: bool = False
    ) -> asyncio.Transport:
        """A bare connection to that node, for bytes that no library would say. `honest`: it keeps to the protocol, and
        what it sends is for disks, so that what the node says is judged as of any client. Raises OSError."""

    def disk_of(self, node: str, delivery: Delivery) -> int:
        """Which of that node's disks gave it, as `history.disks_changed` counts them: the one that the node had when
        the delivery's connection was made. A receiver hands out what it had before a break while it is away, so this
        may be a disk that is gone.
        """

    def spawn(self, work: Coroutine[Any, Any, None], name: str, *, background: bool = False) -> None:
        """Runs `work` beside; an exception in it fails the run. The run waits for it unless `background`."""
