"""The disk under a node: whether it answers, whether it has room, and what the node does meanwhile (docs/adr/0026).

Rules of this file: nothing received is dropped because the disk is slow, and nothing is accepted before it is stored.
While a commit does not come back no link is given credit, what is under way waits, neighbours are told, and no route
leads through this node; its sessions go on. The answer to the commit ends all of it.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from holdfast.broker.queue import Queue
    from holdfast.core.node import NodeCore
    from holdfast.core.sessions import Neighbour

ROOM_BYTES: Final = 256 * 1024
"""With less room no client is given credit, and a neighbour none or little: the rest is for messages under way."""

KIND: Final = "disk"
"""Of the control message that says whether the sender's disk stalls; who does not know it passes it over."""


class Disk:
    """Of one node. `stalled`: the commit under way has taken longer than `commit_stall_s`."""

    def __init__(self, core: "NodeCore") -> None:
        self.core = core
        self.stalled = False
        self.stalls = 0
        """Since the node's start."""
        self._since: float | None = None
        """When the commit under way was handed over."""
        self._neighbours: dict[str, int] = {}
        """Neighbours whose disk stalls, as they last said, and in which of their sessions."""
        self._owed: dict[str, None] = {}
        """Neighbours that gave no credit for the last word on this disk: it goes with the next."""
        core.control_kinds[KIND] = self._hear

    # ------------------------------------------------------------------------------------------------ commits

    def began(self) -> None:
        """A commit was handed over."""
        self._since = self.core.now

    def answered(self) -> None:
        """It came back, stored or refused."""
        since, self._since = self._since, None
        if self.stalled and since is not None:
            self.stalled = False
            self.core.log("INFO", f"the disk answers again, after {self.core.now - since:.1f} s")
            self._changed()

    def tick(self, now: float) -> None:
        """Logs once for each stall that a commit has not been answered."""
        limit_s = self.core.config.limits.commit_stall_s
        if not self.stalled and self._since is not None and now >= self._since + limit_s:
            self.stalled = True
            self.stalls += 1
            text = f"the disk has not answered a commit for {limit_s:g} s: nothing is taken until it does"
            self.core.log("WARNING", text)
            self._changed()

    def next_deadline(self) -> float | None:
        if self.stalled or self._since is None:
            return None
        return self._since + self.core.config.limits.commit_stall_s

    def _changed(self) -> None:
        core = self.core
        core.refills.update(dict.fromkeys(core.custody_receivers.values()))
        for producers in core.producers.values():
            core.refills.update(dict.fromkeys(producers))
        if core.routing is not None:
            core.routing.disk_changed()
        for neighbour in core.neighbours.values():
            if neighbour.established:
                self._tell(neighbour)

    # ------------------------------------------------------------------------------------------------ room

    @property
    def full(self) -> bool:
        """Whether the remaining room is too small for new messages of clients."""
        return not self.core.has_room(ROOM_BYTES)

    def gives_credit(self, queue: "Queue") -> bool:
        """Whether producers of `queue` may be given credit now."""
        return not self.stalled and (not queue.config.durable or not self.full)

    # ------------------------------------------------------------------------------------------------ neighbours

    def established(self, neighbour: "Neighbour") -> None:
        """A session is up: the neighbour is sent the state of a disk that stalls."""
        self._neighbours.pop(neighbour.name, None)
        self._owed.pop(neighbour.name, None)
        if self.stalled:
            self._tell(neighbour)

    def credited(self, neighbour: "Neighbour") -> None:
        """It may be told what it gave no credit for."""
        if neighbour.name in self._owed:
            self._tell(neighbour)

    def _tell(self, neighbour: "Neighbour") -> None:
        if neighbour.send({"kind": KIND, "stalled": self.stalled}, reserve=0):
            self._owed.pop(neighbour.name, None)
        else:
            self._owed[neighbour.name] = None

    def _hear(self, neighbour: "Neighbour", fields: dict[Any, Any]) -> None:
        stalled = fields.get("stalled") is True
        if stalled == self.stalled_at(neighbour):
            return
        if stalled:
            self._neighbours[neighbour.name] = neighbour.established_count
            self.core.log("WARNING", f"neighbour {neighbour.name}: its disk does not answer, and it takes nothing")
        else:
            del self._neighbours[neighbour.name]
            self.core.log("INFO", f"neighbour {neighbour.name}: its disk answers again")

    def stalled_at(self, neighbour: "Neighbour") -> bool:
        """Whether that neighbour has said in this session that its disk stalls."""
        return self._neighbours.get(neighbour.name) == neighbour.established_count and neighbour.established

    # ------------------------------------------------------------------------------------------------ reports

    def status(self) -> dict[str, Any]:
        """What `status` tells."""
        now, since = self.core.now, self._since
        return {
            "state": "stalled" if self.stalled else "full" if self.full else "ok",
            "commit_s": 0.0 if since is None else round(now - since, 3),
            "stalls": self.stalls,
        }
