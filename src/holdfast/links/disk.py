"""The state of the disk: whether it answers, whether it has room, whether the store's file exists, and what the node
does otherwise (docs/adr/0026, docs/adr/0043).

Rules of this file: nothing received is dropped because the disk is slow, and nothing is accepted before it is stored.
While a commit is not answered, or the file is gone, no link gets credit, deliveries in progress wait, neighbours are
informed, and no route leads through this node; its sessions stay up. This ends when the commit is answered, or the file
is put back.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import TRY_LATER
from holdfast.amqp.wire.performatives import Error, Rejected
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.broker.queue import Queue
from holdfast.columns import size
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.engine.port import Batch, Space
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.neighbours.session_port import Session
from holdfast.settings.limits import Limits
from holdfast.state.room import Room
from holdfast.units import MIB

ROOM_BYTES: Final = 256 * 1024
"""With less room clients get no credit, and neighbours little or none: the rest is for messages in progress."""

ADVICE: Final = (
    "No message is accepted. Stored messages can be consumed until this process ends: "
    "put the file back, or consume them and restart the node with a store that exists"
)
KIND: Final = "disk"
"""The kind of the control message that says whether the sender's disk stalls; a node that does not know it ignores
it."""


RETRY_S: Final = 1.0
"""The next try after a commit was refused that adds nothing, or whose retry was: no answer to a sender makes it fit."""

ROOMY_S: Final = 10.0
"""How long there must be room before a spell without it counts as over: who takes messages as others bring them frees
and fills the same bytes many times a second."""

LOOK_S: Final = 1.0
"""How often it is asked whether the store's file is still at its place; a commit that appends asks for its name."""


def _refusal(text: str) -> Rejected:
    return Rejected(Error(Symbol(conditions.RESOURCE_LIMIT_EXCEEDED), text, {TRY_LATER: True}))


FULL: Final = "the node's disk is full"
GONE: Final = "the node's store file was removed: the node accepts no message until it is back"
_FULL: Final = _refusal(FULL)
_GONE: Final = _refusal(GONE)


class StoreFile(Protocol):
    """A store that knows whether its file is in its place, and how much disk space there is."""

    @property
    def on_disk(self) -> bool: ...
    def gone(self) -> str | None: ...
    def space(self) -> Space: ...
    def room_bytes(self) -> int: ...


class Disk:
    """Whether the disk answers, has room and has the store's file. `stalled`: the commit under way has taken longer
    than `commit_stall_s`. `gone`: why the store's file cannot be found again after a restart; None normally."""

    def __init__(
        self,
        limits: Limits,
        clock: Clock,
        log: Log,
        store: StoreFile,
        room: Room,
        links: LinkTables,
        sessions: Mapping[str, Session],
        *,
        finish: Callable[[Callable[[], None]], None],
    ) -> None:
        """`finish(step)`: runs the step; if it fails, the other steps still follow, and it is tried again."""
        self._limits = limits
        self._clock = clock
        self._log = log
        self._store = store
        self._room = room
        self._links = links
        self._sessions = sessions
        self._finish = finish
        self._each_change: list[Callable[[], None]] = []
        self.stalled = False
        self.gone: str | None = None
        self._look_at = clock.now
        self.stalls = 0
        """The number of stalls since the node's start."""
        self._since: float | None = None
        """When the commit in progress began."""
        self._neighbours: dict[str, int] = {}
        """Neighbours whose disk stalls, as they last said, and in which of their sessions."""
        self._owed: dict[str, None] = {}
        """Neighbours that gave no credit for the last word on this disk: it goes with the next."""
        self._refused = 0
        """The number of consecutive refused commits."""
        self._retry_at: float | None = None
        self._full_since: float | None = None
        """Since when there has been no room, as logged."""
        self._roomy_since: float | None = None
        """Since when there has been room again, during such a period."""

    def each_change(self, tell: Callable[[], None]) -> None:
        """`tell` is called when `takes_nothing` changes, before the neighbours are informed."""
        self._each_change.append(tell)

    # ------------------------------------------------------------------------------------------------ commits

    def began(self) -> None:
        """A commit was handed over."""
        self._since = self._clock.now

    def answered(self) -> None:
        """The commit was answered: stored or refused."""
        finish = self._finish  # the commit has been answered, even if reporting it fails
        self._refused = 0
        since, self._since = self._since, None
        if self.stalled and since is not None:
            self.stalled = False
            text = f"the disk answers again, after {self._clock.now - since:.1f} s"
            finish(partial(self._log.write, "INFO", text))
            finish(self._changed)
        finish(self._follow_room)

    def refused(self, batch: Batch) -> None:
        """The commit was refused because there is no space."""
        before = self._refused
        self.answered()
        self._refused = before + 1
        if self._refused > 1 or not (batch.appends or batch.pieces):
            self._retry_at = self._clock.now + RETRY_S

    @property
    def refuses(self) -> bool:
        """Whether it has refused the last commit that it answered."""
        return self._refused > 0

    @property
    def rests(self) -> bool:
        """Whether the gathered turn waits before it is tried again."""
        if self._retry_at is not None and self._clock.now >= self._retry_at:
            self._retry_at = None
        return self._retry_at is not None

    def look(self) -> None:
        """Checks whether the store's file is in its place, and acts on a change."""
        gone = self._store.gone()
        if gone == self.gone:
            return
        before, self.gone = self.gone, gone
        self._room.measure()
        if gone is None:
            self._log.write("WARNING", "the store's file is back: messages are taken again")
        else:
            self._log.write("ERROR", f"the store's file is gone: {gone}. {ADVICE}")
        if (gone is None) != (before is None):
            self._links.room_may_be_back()
            self._changed()

    def _follow_room(self) -> None:
        """Logs at once that the node accepts nothing for lack of room, and later that it accepts messages again."""
        if self.gone is not None:
            return
        if self._room.bytes < ROOM_BYTES:
            self._roomy_since = None
            if self._full_since is None:
                self._full_since = self._clock.now
                text = "the disk is full: new messages wait or are refused until there is room"
                self._log.write("ERROR", f"{text}; {self.bounded_by()}")
        elif self._full_since is not None:
            if self._roomy_since is None:
                self._roomy_since = self._clock.now
            if self._clock.now >= self._roomy_since + ROOMY_S:
                lasted_s = self._roomy_since - self._full_since
                self._full_since = self._roomy_since = None
                self._log.write("INFO", f"the disk has room again, after {lasted_s:.0f} s: messages are taken")

    def tick(self, now: float) -> None:
        """Logs once for each stall that a commit has not been answered."""
        self._follow_room()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self.look()
        limit_s = self._limits.commit_stall_s
        if not self.stalled and self._since is not None and now >= self._since + limit_s:
            self.stalled = True
            self.stalls += 1
            text = f"the disk has not answered a commit for {limit_s:g} s: nothing is taken until it does"
            self._log.write("WARNING", text)
            self._changed()

    def next_deadline(self) -> float | None:
        stalls_at = None if self.stalled or self._since is None else self._since
        if stalls_at is not None:
            stalls_at += self._limits.commit_stall_s
        look_at = self._look_at if self._store.on_disk else None
        roomy_at = None if self._roomy_since is None else self._roomy_since + ROOMY_S
        is_new = self._full_since is None and self.gone is None and self._room.bytes < ROOM_BYTES
        full_at = self._clock.now if is_new else None  # it is full, and the log has yet to say so
        found = (look_at, stalls_at, roomy_at, full_at, self._retry_at)
        return min((at for at in found if at is not None), default=None)

    @property
    def takes_nothing(self) -> bool:
        """Whether the node accepts no messages from anybody, whatever room there is."""
        return self.stalled or self.gone is not None

    @property
    def text(self) -> str:
        """Why there is no room for a message."""
        return FULL if self.gone is None else GONE

    @property
    def refusal(self) -> Rejected:
        """The outcome for the message's sender."""
        return _FULL if self.gone is None else _GONE

    def _changed(self) -> None:
        links = self._links
        links.refills.update(dict.fromkeys(links.custody_receivers.values()))
        for producers in links.producers.values():
            links.refills.update(dict.fromkeys(producers))
        links.refills.update(links.relays)
        for tell in self._each_change:  # if one fails, the others are told all the same
            self._finish(tell)
        for neighbour in self._sessions.values():
            if neighbour.established:
                self._finish(partial(self._tell, neighbour))

    # ------------------------------------------------------------------------------------------------ room

    @property
    def full(self) -> bool:
        """Whether the remaining room is too small for new messages of clients."""
        return not self._room.has(ROOM_BYTES)

    def gives_credit(self, queue: Queue) -> bool:
        """Whether producers of `queue` may be given credit now."""
        return not self.takes_nothing and (not queue.config.durable or not self.full)

    # ------------------------------------------------------------------------------------------------ neighbours

    def established(self, neighbour: Session) -> None:
        """A session is up: the neighbour is sent the state of a disk that stalls."""
        self._neighbours.pop(neighbour.name, None)
        self._owed.pop(neighbour.name, None)
        if self.takes_nothing:
            self._tell(neighbour)

    def credited(self, neighbour: Session) -> None:
        """The neighbour has given credit: it is told what could not be sent before."""
        if neighbour.name in self._owed:
            self._tell(neighbour)

    def _tell(self, neighbour: Session) -> None:
        if neighbour.send(self._word(), reserve=0):
            self._owed.pop(neighbour.name, None)
        else:
            self._owed[neighbour.name] = None

    def _word(self) -> dict[str, Any]:
        """An earlier version, which does not know `gone`, treats it as a stall, which has the same effect."""
        return {"kind": KIND, "stalled": self.takes_nothing, **({"gone": True} if self.gone is not None else {})}

    def hear(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        """Handles a control message of KIND: whether that neighbour's disk works."""
        stalled = fields.get("stalled") is True
        if stalled == self.stalled_at(neighbour):
            return
        if stalled:
            self._neighbours[neighbour.name] = neighbour.established_count
            why = "the file of its store is gone" if fields.get("gone") is True else "its disk does not answer"
            self._log.write("WARNING", f"neighbour {neighbour.name}: {why}, and it takes nothing")
        else:
            del self._neighbours[neighbour.name]
            self._log.write("INFO", f"neighbour {neighbour.name}: its disk answers, and it takes messages again")

    def stalled_at(self, neighbour: Session) -> bool:
        """Whether that neighbour has reported in this session that its disk stalls."""
        return self._neighbours.get(neighbour.name) == neighbour.established_count and neighbour.established

    # ------------------------------------------------------------------------------------------------ reports

    @property
    def _state(self) -> str:
        if self.gone is not None:
            return "gone"
        return "stalled" if self.stalled else "full" if self.full else "ok"

    def bounded_by(self) -> str:
        """What bounds the store, and what to do if it has no room."""
        space = self._store.space()
        if space.file_bytes + MIB > space.bytes_max:
            return f"the store has reached [store] bytes_max ({size(space.bytes_max)}): consume messages, or raise it"
        limit = space.file_limit_bytes
        if limit is not None and space.file_bytes + MIB > limit:
            text = f"the node may write no file larger than {size(limit)} (ulimit -f), and the store has"
            return f"{text} {size(space.file_bytes)}: consume messages, or raise that limit"
        left = f"its file system has {size(space.free_bytes)} left"
        return f"{left}, and the store has {size(space.file_bytes)}: consume messages, or give it more space"

    def status(self) -> dict[str, Any]:
        """The fields of `status`."""
        now, since = self._clock.now, self._since
        space = self._store.space()
        return {
            "state": self._state,
            "reason": self.gone or (self.bounded_by() if self.full else None),
            "commit_s": 0.0 if since is None else round(now - since, 3),
            "stalls": self.stalls,
            "file_bytes": Ulong(space.file_bytes),
            "bytes_max": Ulong(space.bytes_max),
            "free_bytes": Ulong(space.free_bytes),
        }
