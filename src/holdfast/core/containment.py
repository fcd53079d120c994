"""Failures contained: an exception in what one peer's bytes set off ends that peer, never the node (docs/adr/0019).

Rules of this file: except for `run`, `finish`, `tick` and `next_deadline`, nothing here runs unless something was
raised. Whom a failure belongs to is read from its traceback: every peer that a function under way was called on, or
with. After it `NodeCore.validate` has the last word. What contradicts itself (`BrokenInvariant`), a store that fails,
and an assertion about what peers share end the node, before the next commit is handed over.
"""

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final

from holdfast.amqp import conditions
from holdfast.amqp.connection import Connection, Link, Session
from holdfast.amqp.performatives import Error
from holdfast.amqp.types import Symbol
from holdfast.broker.queue import ENTRY_BYTES, Queue
from holdfast.core import events, invariants, undo
from holdfast.core.browser import ReaderLink
from holdfast.core.consumer import ConsumerLink
from holdfast.core.incoming import Ingress, Intake
from holdfast.core.link_tables import links_of
from holdfast.core.outgoing import Egress
from holdfast.core.peer import Peer, PeerLink, Requesting
from holdfast.errors import BrokenInvariant, StorageError

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

OURS: Final = "holdfast."
PROTOCOL: Final = "holdfast.amqp."

DEFECT: Final = "please report this as a defect of Holdfast"
RETRY_S: Final = (1.0, 60.0)
"""How long a part of the node rests after its own failure, longer each time up to the second."""

ENTRIES_MAX: Final = 10_000
"""Entries that the check after a failure reads from the store: a deep queue's sums are taken as they stand."""

COUNTED_MAX: Final = 1_000
"""The last connections that ended for a failure: what fails again before a transport is gone is one of theirs."""

ATTEMPTS_MAX: Final = 10_000
"""Failures contained in one event; each ends a peer, or has a part rest."""


class Containment:
    """Ends the peers that a failure belongs to, or lets the part that failed rest, and undoes the turn."""

    def __init__(self, core: "NodeCore") -> None:
        self.core = core
        self.peers_ended = 0
        self._counted: deque[int] = deque(maxlen=COUNTED_MAX)
        self.parts_failed = 0
        """Failures on behalf of no single peer."""
        self.resting: dict[object, float] = {}
        """Parts that failed, and until when they rest."""
        self._failures: dict[object, tuple[float, int]] = {}
        """When each part failed last, and how often before it had run for a while."""
        self._unfinished: dict[Callable[[], None], None] = {}
        """Steps that failed, and rest."""
        self.unchecked = False
        """Something was contained in this event, and the invariants are still to be checked."""

    # ------------------------------------------------------------------------------------------------ the failure

    def failed(self, error: Exception, *owners: object, changed: bool = True) -> bool:
        """Ends the peers that the failure belongs to; `owners` are among them. False where it belongs to none.

        `changed`: the turn was changed by what failed, so it is undone. Raises BrokenInvariant where the node must end.
        """
        core = self.core
        peers = dict.fromkeys(peer for owner in owners if (peer := peer_of(core, owner)) is not None)
        frames = _frames(error)
        for frame in frames:
            peers.update(dict.fromkeys(_peers_in(core, frame)))
        if isinstance(error, (BrokenInvariant, StorageError)):
            raise error
        if isinstance(error, AssertionError) and not (frames and any(_peers_in(core, frames[-1]))):
            raise BrokenInvariant(f"assertion failed at {_place(frames)}: {error}") from error
        self.unchecked = True
        try:
            if changed:
                undo.take_back_gathered(core, peers)
            sound = not any(_module(frame).startswith(PROTOCOL) for frame in frames[-1:])
            links = _links_in(frames)
            for peer in peers:
                self._end(peer, links, error, _place(frames), sound=sound)
            for neighbour in core.neighbours.values():
                neighbour.recover()
            self._take_stock()
            self._wake_all()
        except BrokenInvariant:
            raise
        except Exception as second:
            raise BrokenInvariant(f"{_place(_frames(second))}: what failed could not be undone: {second!r}") from error
        return bool(peers)

    def part_failed(self, part: object, error: Exception, *, changed: bool = True) -> None:
        """As `failed`, in work on behalf of no single peer. The part rests, unless the failure is a peer's."""
        if self.failed(error, part, changed=changed):
            return
        self.parts_failed += 1
        now = self.core.clock.now
        first, longest = RETRY_S
        self._failures = {key: found for key, found in self._failures.items() if now - found[0] <= 2 * longest}
        times = self._failures.get(part, (now, 0))[1]
        self._failures[part] = now, times + 1
        rest_s = min(longest, first * 2.0 ** min(times, 10))
        self.resting[part] = now + rest_s
        place = _place(_frames(error))
        text = f"{_name(part)}: {_told(error)} at {place}; tried again in {rest_s:g} s"
        self.core.log.write("ERROR", f"{text}; {DEFECT}", about=place)

    def run(self, part: object, work: Callable[..., None], *given: Any, gathers: bool = True) -> None:
        """Work on behalf of no single peer, unless it rests. `gathers`: whether it may add anything to the turn."""
        if part in self.resting:
            return
        before = self.core.turns.gathered.extent() if gathers else ()
        try:
            work(*given)
        except Exception as error:
            self.part_failed(part, error, changed=gathers and self.core.turns.gathered.extent() != before)

    def finish(self, step: Callable[[], None], *, undoing: bool = False) -> None:
        """A step that must not be left out: where it fails, and that is no peer's, it is tried again after a rest.

        `undoing`: the turn is being undone, and is not for this.
        """
        turn = self.core.turns.gathered
        before = turn.extent()
        try:
            step()
        except Exception as error:
            changed = self.core.turns.gathered is not turn or turn.extent() != before
            self.part_failed(step, error, changed=changed and not undoing)
            if step in self.resting:
                self._unfinished[step] = None

    def next_deadline(self) -> float | None:
        """When the first part that rests is tried again."""
        return min(self.resting.values(), default=None)

    def tick(self, now: float) -> None:
        over = [part for part, at in self.resting.items() if at <= now]
        for part in over:
            del self.resting[part]
        if over:
            self._wake_all()
        for step in [step for step in self._unfinished if step not in self.resting]:
            del self._unfinished[step]
            self.finish(step)

    def opening_failed(self, event: events.ConnectionOpened, error: Exception) -> None:
        """A connection that could not be taken: the transport ends, whatever was made of it."""
        core = self.core
        known = core.connections.get(event.connection)
        self.failed(error, known)
        if known is None:
            place = _place(_frames(error))
            core.log.write(
                "ERROR", f"{event.peer}: {_told(error)} at {place}; the connection is ended; {DEFECT}", about=place
            )
            self.count(event.connection)
            core.outbox.put(events.CloseConnection(connection=event.connection, abort=True))
        if event.neighbour is not None:
            core.neighbours[event.neighbour].recover(dial_over=True)

    # ------------------------------------------------------------------------------------------------ its peer

    def count(self, connection: int) -> None:
        """The connection of that number ends for a failure, or it is 0: one that was not opened does."""
        if connection not in self._counted:
            self.peers_ended += 1
            if connection:
                self._counted.append(connection)

    def _end(self, peer: Peer, links: list[Ingress | Egress], error: Exception, place: str, *, sound: bool) -> None:
        """Ends the connection, with a close frame where `sound` (the engine can still write one); forgets the peer.

        `links` were just being changed.
        """
        core = self.core
        self.count(peer.number)
        core.log.write(
            "ERROR", f"{peer.name}: {_told(error)} at {place}; the connection is ended; {DEFECT}", about=place
        )
        if not core.connections.holds(peer):  # it was just ending
            self._forget(peer, links)
            return
        del core.connections[peer.number]
        chunks: list[bytes | memoryview] = []
        try:
            if sound:
                peer.amqp.transport_lost(
                    Error(Symbol(conditions.INTERNAL_ERROR), "the node failed to handle what came; see its log")
                )
                chunks = peer.amqp.take_output(core.clock.now)
            else:
                peer.amqp.transport_lost()
        except Exception:
            chunks = []  # it cannot be told: the transport ends without a word
        if chunks:
            core.outbox.put(events.SendBytes(connection=peer.number, chunks=chunks))
        core.outbox.put(events.CloseConnection(connection=peer.number, abort=not chunks))
        self._forget(peer, links)

    def _forget(self, peer: Peer, links: list[Ingress | Egress]) -> None:
        """Takes all that the peer has out of every table; each step is tried again where it fails."""
        core = self.core
        mine = [*core.links.of_peer(peer), *(link for link in links if link.peer is peer)]
        for link in dict.fromkeys(mine):
            link.link.context = None
            _surely(partial(_gone, link))
            if isinstance(link, Requesting):
                _surely(partial(core.users.forget, link))  # first: its own tables say what else is to be forgotten
            _surely(partial(core.links.forget, link))
        for send in list(peer.sends):
            _surely(send.close)
        core.connections.sending.pop(peer, None)
        core.connections.touched.pop(peer, None)
        core.pressure.paused.pop(peer, None)
        core.turns.gathered.heard_bytes -= core.turns.gathered.heard.pop(peer, 0)
        for part in (core.guard, core.refusals, core.memory, core.users):
            _surely(partial(part.left, peer))
        if peer.neighbour is not None:
            _surely(partial(peer.neighbour.lost, peer, "a failure of this node, see its log"))

    # ------------------------------------------------------------------------------------------------ all others

    def _take_stock(self) -> None:
        """Counts anew what peers share, from who holds it: the failure may lie between a change and its count."""
        core = self.core
        core.resume.recover()
        core.chores.returns.waiting.clear()  # whoever is gone holds nothing
        suspended = [record for record in core.resume.outgoing.values() if record.until is not None]
        kept = {id(record.taker): {*record.held.values()} for record in suspended}
        for queue in core.catalog.queues.values():
            for cursor in queue.cursors:
                cursor.exclusions.recount(cursor.takers, cursor.returned)
                here = {*map(id, cursor.takers), *map(id, core.chores.settlements.waiting)}
                lost = [
                    number
                    for number, item in cursor.shown.items()
                    if id(item.taker) not in here and number not in kept.get(id(item.taker), ())
                ]
                cursor.give_back(lost, failed=True)
                queue.look_again(cursor.returned)
        brought = {stream.blob for stream in core.streams}
        pins = Counter(send.blob for peer in core.connections.values() for send in peer.sends)
        for blob in core.blobs.by_number.values():
            blob.open = blob.open and blob in brought
            blob.pins = pins[blob]
        pressure = core.pressure
        links: list[Any] = [link for peer in core.connections.values() for link in links_of(peer)]
        for queue in core.catalog.queues.values():
            if queue.memory is not None:
                queue.counted_bytes = queue.bytes_held + ENTRY_BYTES * queue.messages
        for peer in core.connections.values():
            intakes = [link for link in links_of(peer) if isinstance(link, Intake)]
            peer.parked_bytes = sum(map(invariants.parked_bytes_of, intakes))
        memory = core.memory
        for account, size in invariants.held_by_account(core, links).items():
            account.held = size
        memory.total.held = sum(account.held for account in memory.accounts)
        unsettled = invariants.unsettled_bytes(core, links)
        for use in core.users.all():
            mine = [peer for peer in core.connections.values() if peer.use is use]
            use.connections, use.links = len(mine), sum(peer.counted_links for peer in mine)
            use.unsettled_bytes = unsettled[use]
            use.settled(0)  # there may be room again
        pressure.ahead_bytes = sum(stream.counted for stream in core.streams)
        pressure.partials.held = sum(map(invariants.partial_bytes_of, core.connections.values()))

    def _wake_all(self) -> None:
        """Whoever waited for a step that the failure cut short is asked again; that costs a look each."""
        core = self.core
        for queue in core.catalog.queues.values():
            core.chores.offer_again(queue)
        for destination, _ in core.catalog.transmissions():
            core.forwarding.steer(destination)
        for peer in core.connections.values():
            peer.touch()
            core.deadlines.watch(peer)
            if peer.sends:
                core.connections.sending[peer] = None
            for link in links_of(peer):
                if isinstance(link, Intake):
                    core.links.refills[link] = None
                elif isinstance(link, (ConsumerLink, ReaderLink)):
                    link.credited()
                    if isinstance(link, ConsumerLink) and link.batch:
                        core.links.presettled[link] = None


def _gone(link: PeerLink) -> None:
    if isinstance(link, Ingress):
        link.gone()
    elif isinstance(link, Egress):
        link.gone([])


def _surely(step: Callable[[], None]) -> None:
    """A step of an ending: tried again where it fails, since what it did not do once it may do then."""
    try:
        step()
    except Exception:
        step()


# ---------------------------------------------------------------------------------------------------- whose it is


def peer_of(core: "NodeCore", owner: object) -> Peer | None:
    """The peer that a link, a session, an engine or the like belongs to; None where it is nobody's or everybody's."""
    for _ in range(4):
        if isinstance(owner, Peer):
            return owner if hasattr(owner, "egress") else None  # else the failure came while it was made
        if isinstance(owner, Queue):  # whoever made it, others use it too
            return None
        if isinstance(owner, Connection):
            return next((peer for peer in core.connections.values() if peer.amqp is owner), None)
        following = None
        for name in ("peer", "connection", "session", "sender", "link", "bringer"):
            following = getattr(owner, name, None)
            if isinstance(following, (Peer, Connection, Session, Link, Ingress, Egress)):
                break
        else:
            return None
        owner = following
    return None


def _peers_in(core: "NodeCore", frame: FrameType) -> list[Peer]:
    """The peers that the function was called on, or with."""
    code: CodeType = frame.f_code
    names = [*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], *code.co_freevars]
    values = frame.f_locals
    return [peer for name in names if name in values and (peer := peer_of(core, values[name])) is not None]


def _links_in(frames: list[FrameType]) -> list[Ingress | Egress]:
    """The links that the functions were called on, or with, but for those that were still being made: one that was
    half way out of the tables is in none of them."""
    found: dict[Ingress | Egress, None] = {}
    unmade: dict[Ingress | Egress, None] = {}
    for frame in frames:
        for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]:
            value = frame.f_locals.get(name)
            if isinstance(value, (Ingress, Egress)):
                (unmade if frame.f_code.co_name == "__init__" and name == "self" else found)[value] = None
    return [link for link in found if link not in unmade]


def _frames(error: BaseException) -> list[FrameType]:
    """Our own functions that were under way, the outermost first."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        if _module(trace.tb_frame).startswith(OURS):
            frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _place(frames: list[FrameType]) -> str:
    if not frames:
        return "an unknown place"
    code = frames[-1].f_code
    return f"{code.co_filename.rpartition('/')[2]}:{frames[-1].f_lineno} {code.co_qualname}"


def _told(error: Exception) -> str:
    return f"failure {type(error).__name__}: {error}"[:300]


def _name(part: object) -> str:
    if isinstance(part, str):
        return part
    if callable(part):
        return "an answer"
    name = getattr(part, "name", None)
    return f"{type(part).__name__} {name}" if isinstance(name, str) else type(part).__name__
