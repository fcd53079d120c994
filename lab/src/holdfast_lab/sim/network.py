"""Simulated links and the connections that run over them: rate, delay, jitter, loss, queues, partitions, cuts.

Rules of this file: a connection keeps its bytes in order, as TCP does: what is lost on a link is sent again and comes
late, and all behind it waits. Only a cut loses bytes, and it may fall at any of them.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, Protocol

from holdfast_lab.plan.networks import LinkShape
from holdfast_lab.sim.cuts import END_OF_STREAM, cut_anywhere, cut_at_frames
from holdfast_lab.sim.world import Timer, World

MSS_BYTES: Final = 1_448
SEGMENT_BYTES: Final = 16 * 1024
"""A write beyond this goes as several arrivals, cut between frames."""
RETRANSMIT_MIN_S: Final = 0.2
RETRANSMIT_ROUNDS_MAX: Final = 6
CONNECT_TIME_OUT_S: Final = 3.0
PAUSE_HIGH_BYTES: Final = 64 * 1024
PAUSE_LOW_BYTES: Final = 16 * 1024
"""Unsent bytes of a connection at which its writer must pause, and may continue: node/network/transport.py's idea."""

WHOLE_BYTES: Final = 4_096
WHOLE_SHARE: Final = 0.5
"""Where writes come in pieces, so many of those up to that size come whole all the same."""
PIECE_BYTES_MAX: Final = 4_096
PIECES_MEANT: Final = 32
"""A piece is so large at the most, and a write is cut into no more than twice so many where that suffices."""
PIECE_GAP_S: Final = 0.000_3
"""The longest time between two pieces on a link that has no rate."""


class Holder(Protocol):
    """The owner of an end of a connection: a node or a client."""

    def opened(self, end: "End", *, dialled: bool) -> None: ...
    def received(self, end: "End", data: bytes) -> None: ...
    def lost(self, end: "End", reason: str) -> None: ...
    def writing(self, end: "End", *, paused: bool) -> None: ...


LOOPBACK: Final = LinkShape(delay_s=0.000_05)


class Direction:
    """From one place to another. `up` False: a partition, nothing passes and neither end is notified."""

    __slots__ = ("free_at", "held", "pieces", "profile", "random", "slow", "up")

    def __init__(self, profile: LinkShape, random: Random, pieces: Random) -> None:
        self.profile = profile
        self.random = random
        self.pieces = pieces
        """Draws how what is written is cut."""
        self.up = True
        self.slow = 1.0
        self.free_at = 0.0
        self.held: dict[Pipe, None] = {}

    def set_slow(self, factor: float, now: float) -> None:
        """Slows the direction by that factor from now on, also for bytes that wait already."""
        if self.free_at > now:
            self.free_at = now + (self.free_at - now) * factor / self.slow
        self.slow = factor

    def give_back(self, size: int, now: float) -> None:
        """Bytes that will never be sent, since their connection is gone, no longer take up the rate."""
        rate = self.now_profile().rate
        if rate is not None:
            self.free_at = max(now, self.free_at - size / rate)

    def now_profile(self) -> LinkShape:
        """With `slow`, a factor on delay and under rate."""
        if self.slow == 1.0:
            return self.profile
        rate = self.profile.rate / self.slow if self.profile.rate is not None else None
        return replace(self.profile, rate=rate, delay_s=self.profile.delay_s * self.slow)


class Pipe:
    """One direction of one connection: what is under way, in order."""

    __slots__ = (
        "arrives_at", "dead", "direction", "end", "flight", "held", "lost_bytes", "paused", "unsent", "unsent_bytes",
        "waiting", "written_bytes",
    )  # fmt: skip

    def __init__(self, direction: Direction, end: "End") -> None:
        self.direction = direction
        self.end = end
        """Who receives."""
        self.arrives_at = 0.0
        self.dead = False
        self.held = False
        """Bytes to this end are held until `let_go`."""
        self.flight: deque[tuple[bytes, Timer]] = deque()
        self.waiting: deque[bytes] = deque()
        """Held by a partition, or behind what is."""
        self.unsent: deque[tuple[float, int]] = deque()
        """(departure, bytes) of what the link's rate holds back, oldest first."""
        self.unsent_bytes = 0
        self.paused = False
        self.written_bytes = self.lost_bytes = 0
        """Given to it so far, and of them what a cut or an end took away."""

    @property
    def under_way(self) -> int:
        """Bytes that have not arrived and may."""
        return sum(len(data) for data, _ in self.flight) + sum(map(len, self.waiting))


class End:
    """One end of a connection."""

    __slots__ = ("alive", "connection", "holder", "neighbour", "number", "peer")

    def __init__(self, connection: "SimConnection", holder: Holder, peer: str, neighbour: str | None) -> None:
        self.connection = connection
        self.holder = holder
        self.peer = peer
        """The other side's place, by name."""
        self.neighbour = neighbour
        self.number = 0
        """The holder's own name for it."""
        self.alive = True

    def send(self, data: bytes) -> None:
        if self.alive:
            self.connection.send(self, data)

    def close(self, *, abort: bool = False) -> None:
        """Ends our end now. The other side is notified after the bytes that were sent, or at once with `abort`."""
        if self.alive:
            self.alive = False
            self.connection.closed_by(self, abort=abort)


class SimConnection:
    """A TCP connection between two places."""

    __slots__ = ("ends", "network", "pipes", "serial")

    def __init__(self, network: "SimNetwork", serial: int) -> None:
        self.network = network
        self.serial = serial
        self.ends: list[End] = []
        self.pipes: list[Pipe] = []

    def other(self, end: End) -> End:
        return self.ends[1] if end is self.ends[0] else self.ends[0]

    def pipe_to(self, end: End) -> Pipe:
        return self.pipes[0] if end is self.ends[0] else self.pipes[1]

    @property
    def over(self) -> bool:
        return not (self.ends[0].alive or self.ends[1].alive)

    # ------------------------------------------------------------------------------------------------ bytes

    def measured(self, end: End) -> tuple[int, int]:
        """Of what was written at that end, the bytes that have arrived, and all."""
        pipe = self.pipe_to(self.other(end))
        return pipe.written_bytes - pipe.lost_bytes - pipe.under_way, pipe.written_bytes

    def send(self, end: End, data: bytes) -> None:
        pipe = self.pipe_to(self.other(end))
        size = len(data)
        pipe.written_bytes += size
        if pipe.dead:
            pipe.lost_bytes += size
        elif self.network.piece_bytes:
            self._send_in_pieces(pipe, data)
        elif size > SEGMENT_BYTES and pipe.direction.profile.rate is not None:
            for segment in cut_at_frames(data, SEGMENT_BYTES):
                self._transmit(pipe, segment)
        else:
            self._transmit(pipe, data)

    def _send_in_pieces(self, pipe: Pipe, data: bytes) -> None:
        size, random = len(data), pipe.direction.pieces
        if size <= WHOLE_BYTES and random.random() < WHOLE_SHARE:
            self._transmit(pipe, data)
            return
        most = max(2 * self.network.piece_bytes, min(PIECE_BYTES_MAX, size // PIECES_MEANT))
        for piece in cut_anywhere(data, lambda: random.randint(1, most)):
            self._transmit(pipe, piece)
            pipe.arrives_at += random.uniform(0.0, PIECE_GAP_S)

    def _transmit(self, pipe: Pipe, data: bytes) -> None:
        direction = pipe.direction
        if not direction.up or pipe.waiting or pipe.held:
            pipe.waiting.append(data)
            direction.held[pipe] = None
            return
        now = self.network.world.now
        profile = direction.now_profile()
        departs = now
        if profile.rate is not None:
            size = len(data)
            departs = max(now, direction.free_at) + size / profile.rate
            direction.free_at = departs
            self._account(pipe, now, departs, size)
        arrives = departs + profile.delay_s
        if profile.jitter_s:
            arrives += direction.random.uniform(0.0, profile.jitter_s)
        if profile.loss:
            arrives += self._retransmissions(direction, profile, len(data))
        if profile.rate is not None and (departs - now) * profile.rate > profile.queue_bytes:
            arrives += max(RETRANSMIT_MIN_S, 2 * profile.delay_s)
        self._deliver_at(pipe, arrives, data)

    def _deliver_at(self, pipe: Pipe, arrives: float, data: bytes) -> None:
        if arrives < pipe.arrives_at:
            arrives = pipe.arrives_at
        pipe.arrives_at = arrives
        pipe.flight.append((data, self.network.world.at(arrives, self._arrived, pipe)))

    def _retransmissions(self, direction: Direction, profile: LinkShape, size: int) -> float:
        """Seconds until the last packet of the segment is through: the round trip guessed, doubled each round."""
        packets = -(-size // MSS_BYTES)
        lost = 1.0 - (1.0 - profile.loss) ** packets
        late, wait = 0.0, max(RETRANSMIT_MIN_S, 3 * profile.delay_s)
        for _ in range(RETRANSMIT_ROUNDS_MAX):
            if direction.random.random() >= lost:
                break
            lost = profile.loss
            late += wait
            wait *= 2
        return late

    def _account(self, pipe: Pipe, now: float, departs: float, size: int) -> None:
        self._departed(pipe, now)
        if pipe.unsent:  # in order, also where the link has become faster since
            departs = max(departs, pipe.unsent[-1][0])
        pipe.unsent.append((departs, size))
        pipe.unsent_bytes += size
        if not pipe.paused and pipe.unsent_bytes > PAUSE_HIGH_BYTES:
            pipe.paused = True
            self._tell_writer(pipe, paused=True)
            self._resume_later(pipe)

    def _departed(self, pipe: Pipe, now: float) -> None:
        while pipe.unsent and pipe.unsent[0][0] <= now:
            pipe.unsent_bytes -= pipe.unsent.popleft()[1]

    def _resume_later(self, pipe: Pipe) -> None:
        left = pipe.unsent_bytes
        for departs, size in pipe.unsent:
            left -= size
            if left <= PAUSE_LOW_BYTES:
                self.network.world.at(departs, self._resume, pipe)
                return

    def _resume(self, pipe: Pipe) -> None:
        self._departed(pipe, self.network.world.now)
        if not pipe.paused:
            return
        if pipe.unsent_bytes > PAUSE_LOW_BYTES:
            self._resume_later(pipe)
            return
        pipe.paused = False
        self._tell_writer(pipe, paused=False)

    def _tell_writer(self, pipe: Pipe, *, paused: bool) -> None:
        writer = self.other(pipe.end)
        if writer.alive:
            writer.holder.writing(writer, paused=paused)

    def _arrived(self, pipe: Pipe) -> None:
        data, _ = pipe.flight.popleft()
        end = pipe.end
        if data is END_OF_STREAM:
            self._lose(end, "the peer closed the connection")
        elif end.alive:
            end.holder.received(end, data)

    # ------------------------------------------------------------------------------------------------ partitions

    def release(self, pipe: Pipe) -> None:
        """The partition is over: what it held is sent again, some time later."""
        if pipe.held:
            return
        held, pipe.waiting = pipe.waiting, deque()
        if pipe.dead:
            return
        profile = pipe.direction.now_profile()
        late = pipe.direction.random.uniform(RETRANSMIT_MIN_S, 2 * RETRANSMIT_MIN_S)
        arrives = self.network.world.now + late + profile.delay_s
        for data in held:
            if profile.rate is not None:
                arrives += len(data) / profile.rate
            self._deliver_at(pipe, arrives, data)

    # ------------------------------------------------------------------------------------------------ late bytes

    def hold(self, end: End) -> None:
        """Holds bytes in transit to that end, and later ones, until `let_go`."""
        pipe = self.pipe_to(end)
        pipe.held = True
        for data, timer in pipe.flight:
            timer.cancel()
            pipe.waiting.append(data)
        pipe.flight.clear()

    def held(self, end: End) -> list[bytes]:
        """The writes that lie there."""
        return list(self.pipe_to(end).waiting)

    def let_go(self, end: End) -> None:
        """What was held arrives now, all at once; an end that has been closed meanwhile takes nothing."""
        pipe = self.pipe_to(end)
        pipe.held = False
        pipe.arrives_at = 0.0
        held, pipe.waiting = pipe.waiting, deque()
        pipe.direction.held.pop(pipe, None)
        for data in held:
            self._deliver_at(pipe, self.network.world.now, data)

    def reset_for(self, end: End) -> None:
        """Resets that end alone; bytes in flight to the other end, and then the end of the stream, still arrive."""
        other = self.other(end)
        if end.alive:
            end.alive = False
            self._kill(self.pipe_to(end))
            self._transmit(self.pipe_to(other), END_OF_STREAM)
            end.holder.lost(end, "reset")

    # ------------------------------------------------------------------------------------------------ ends

    def closed_by(self, end: End, *, abort: bool) -> None:
        other = self.other(end)
        incoming, outgoing = self.pipe_to(end), self.pipe_to(other)
        self._kill(incoming)
        if abort:
            self.network.world.after(outgoing.direction.profile.delay_s, self._reset, outgoing)
        elif not outgoing.dead:
            self._transmit(outgoing, END_OF_STREAM)

    def _reset(self, pipe: Pipe) -> None:
        if pipe.held and not pipe.dead:
            pipe.waiting.append(END_OF_STREAM)
        elif pipe.direction.up and not pipe.dead:
            self._kill(pipe)
            self._lose(pipe.end, "reset by the peer")

    def _lose(self, end: End, reason: str) -> None:
        if end.alive:
            end.alive = False
            self._kill(self.pipe_to(self.other(end)))
            end.holder.lost(end, reason)
            self.network.forget(self)

    def _forget_unsent(self, pipe: Pipe) -> None:
        now = self.network.world.now
        self._departed(pipe, now)
        if pipe.unsent_bytes:
            pipe.direction.give_back(pipe.unsent_bytes, now)
            pipe.unsent.clear()
            pipe.unsent_bytes = 0

    def _kill(self, pipe: Pipe) -> None:
        pipe.dead = True
        pipe.lost_bytes += pipe.under_way
        self._forget_unsent(pipe)
        for _, timer in pipe.flight:
            timer.cancel()
        pipe.flight.clear()
        pipe.waiting.clear()
        pipe.direction.held.pop(pipe, None)

    def cut(self, *, silent: bool, keep: Sequence[float]) -> None:
        """Breaks both directions at a byte. `keep[i]` of 0 to 1: the share of direction i's bytes under way that
        still arrives. `silent`: nobody is told."""
        for pipe, share in zip(self.pipes, keep, strict=True):
            self._truncate(pipe, share)
        if silent:
            return
        for end in self.ends:
            # Behind the bytes that still arrive, in their moment: a reset overtakes nothing here.
            pipe = self.pipe_to(end)
            last = pipe.flight[-1][1].when if pipe.flight else self.network.world.now
            self.network.world.at(last, self._lose, end, "reset")

    def _truncate(self, pipe: Pipe, share: float) -> None:
        """Leaves that share of the bytes under way; the frame that the cut falls in comes in part."""
        flight = [item for item in pipe.flight if item[0] is not END_OF_STREAM]
        for item in pipe.flight:
            if item[0] is END_OF_STREAM:
                item[1].cancel()
        left = int(share * sum(len(data) for data, _ in flight))
        kept: deque[tuple[bytes, Timer]] = deque()
        for data, timer in flight:
            if left <= 0:
                timer.cancel()
            else:
                kept.append((data[:left], timer))
            left -= len(data)
        pipe.lost_bytes += pipe.under_way - sum(len(data) for data, _ in kept)
        pipe.flight = kept
        self._forget_unsent(pipe)
        pipe.waiting.clear()
        pipe.direction.held.pop(pipe, None)
        pipe.dead = True


class Waiting:
    """Holds a dialled end until its owner takes it; nothing can come before that."""

    def received(self, end: End, data: bytes) -> None:
        return

    def lost(self, end: End, reason: str) -> None:
        return

    def writing(self, end: End, *, paused: bool) -> None:
        return


class Place(Holder, Protocol):
    """A node as the network sees it."""

    name: str

    @property
    def listening(self) -> bool: ...


class SimNetwork:
    """All places and the links between them. `piece_bytes`: mean size of the pieces in which writes arrive, cut at any
    byte; large writes have larger ones, about 64 each, and half of the writes up to WHOLE_BYTES stay whole. 0: none is
    cut."""

    def __init__(self, world: World, *, piece_bytes: int = 0) -> None:
        self.world = world
        self.piece_bytes = piece_bytes
        self.places: dict[str, Place] = {}
        self.connections: dict[SimConnection, None] = {}
        self.dials_refused = False
        self._directions: dict[tuple[str, str], Direction] = {}
        self._seeds = world.seeds.child("network")
        self._serial = 0

    def add(self, place: Place) -> None:
        self.places[place.name] = place

    def join(self, one: str, other: str, there: LinkShape, back: LinkShape | None = None) -> None:
        """A link between two places, each way with its profile."""
        for source, target, profile in ((one, other, there), (other, one, back or there)):
            self._directions[source, target] = self._made(profile, source, target)

    def direction(self, source: str, target: str) -> Direction:
        """The link's direction; a client's place is beside its node, over the loopback."""
        found = self._directions.get((source, target))
        if found is None:
            found = self._directions[source, target] = self._made(LOOPBACK, source, target)
        return found

    def _made(self, profile: LinkShape, source: str, target: str) -> Direction:
        name = f"{source}>{target}"
        return Direction(profile, self._seeds.stream(name), self._seeds.stream(f"{name}/pieces"))

    def links(self) -> list[tuple[str, str]]:
        """Each joined pair once, in the order of joining."""
        return [pair for index, pair in enumerate(self._directions) if pair[::-1] not in list(self._directions)[:index]]

    # ------------------------------------------------------------------------------------------------ dialling

    def dial(self, holder: Holder, source: str, target: str, *, neighbour: str | None, failed: Any) -> None:
        """A TCP connect; `holder.opened` comes one round trip later, or `failed(reason)`. Nobody waits for the answer
        over a link that was slowed down too much."""
        there, back = self.direction(source, target), self.direction(target, source)
        trip = there.now_profile().delay_s + back.now_profile().delay_s
        usual = there.profile.delay_s + back.profile.delay_s
        if not there.up or not back.up or trip > usual + CONNECT_TIME_OUT_S:
            self.world.after(CONNECT_TIME_OUT_S, failed, "timed out")
            return
        self.world.after(trip, self._answer, holder, source, target, neighbour, failed)

    def _answer(self, holder: Holder, source: str, target: str, neighbour: str | None, failed: Any) -> None:
        place = self.places.get(target)
        if not (self.direction(source, target).up and self.direction(target, source).up):
            self.world.after(CONNECT_TIME_OUT_S, failed, "timed out")
            return
        if place is None or not place.listening or self.dials_refused:
            failed("refused")
            return
        self._serial += 1
        connection = SimConnection(self, self._serial)
        ours = End(connection, holder, target, neighbour)
        theirs = End(connection, place, source, None)
        connection.ends = [ours, theirs]
        connection.pipes = [Pipe(self.direction(target, source), ours), Pipe(self.direction(source, target), theirs)]
        self.connections[connection] = None
        place.opened(theirs, dialled=False)
        holder.opened(ours, dialled=True)

    def forget(self, connection: SimConnection) -> None:
        if connection.over:
            self.connections.pop(connection, None)

    def between(self, one: str, other: str) -> list[SimConnection]:
        """Connections under way between the two, oldest first."""
        wanted = {one, other}
        return [item for item in self.connections if {item.ends[0].peer, item.ends[1].peer} == wanted]

    def of_clients(self, node: str) -> list[SimConnection]:
        """Connections under way between that node and who is no node, oldest first."""
        return [
            item
            for item in self.connections
            if node in (peers := {end.peer for end in item.ends}) and not peers <= self.places.keys()
        ]

    # ------------------------------------------------------------------------------------------------ faults

    def set_up(self, source: str, target: str, *, up: bool) -> None:
        """A partition of one direction, or its end."""
        direction = self.direction(source, target)
        direction.up = up
        if up:
            held, direction.held = direction.held, {}
            for pipe in held:
                pipe.end.connection.release(pipe)

    def host_gone(self, place: Holder, *, told: bool) -> None:
        """A place died. `told`: its kernel lives and resets its connections; else they fall silent."""
        for connection in list(self.connections):
            for end in connection.ends:
                if end.holder is place and end.alive:
                    if told:
                        end.close(abort=True)
                    else:
                        end.alive = False
                        connection.cut(silent=True, keep=(1.0, 1.0))
                    self.forget(connection)
