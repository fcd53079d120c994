"""Sessions with neighbours: a BGP-like state table over AMQP's open (traffic-control §3.2, figure 5; docs/sessions.md).

Rules of this file: the table (peers/neighbours/session_states.py) is the machine; nothing else changes a state. A
session is Established when control links are attached both ways and the peer's hello, with its marks, has arrived. The
hold time is the smaller of both sides'; any byte that arrives restarts it, and probes (liveness.py) cause such bytes.
"""

from collections.abc import Callable, Set
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.frames import EMPTY_FRAME
from holdfast.amqp.wire.performatives import Error, Source, Target
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.custody.hop.links import control_session
from holdfast.custody.hop.next_hop import NextHop
from holdfast.engine import events
from holdfast.engine.back_off import jittered_s
from holdfast.peering import control
from holdfast.peering.control import CONTROL_ADDRESS, ControlSender
from holdfast.peering.liveness import FALSE_ALARM_S, MISSES_MAX, Liveness, ProbeAction
from holdfast.peering.session_parts import SessionParts
from holdfast.peers.neighbours.features import versions_of
from holdfast.peers.neighbours.session_port import CONTROL_RESERVE
from holdfast.peers.neighbours.session_states import TRANSITIONS, SessionEvent, State
from holdfast.peers.peer import Peer
from holdfast.routing.damping import Damping
from holdfast.schema import is_whole, is_whole_within
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.units import written

STORE: Final = Symbol("holdfast:store")
HOLD_TIME: Final = Symbol("holdfast:hold-time")
DIAL: Final = Symbol("holdfast:dial")

RETRY_S: Final = (0.1, 5.0)
"""The first and the longest back-off of a dial, before its jitter: many peers come back at once when a site heals."""
REDIAL_S: Final = (0.05, 5.0)
"""Seconds between two dials after changes of the network, the first and the longest: changes come in bursts."""
SIGNS: Final = 2
"""Empty frames per `probe_s` to a neighbour from which this node does not read, so that it does not drop the link."""


class Neighbour:
    """The session with one configured neighbour. `hop`: as a next hop, which outlives sessions. `kind`: of its link."""

    def __init__(self, parts: SessionParts, config: NeighbourConfig, hop: NextHop, kind: str | None) -> None:
        self._parts = parts
        self.clock = clock = parts.clock
        self.config = config
        self.hop = hop
        hop.joined(stir=self.stir, tell_version=self.tell_version, features=lambda: self.features)
        self.state = State.IDLE
        self.since = self.heard_at = self.away_since = clock.now
        self.reason = self.ended = ""
        """Why the last session ended or the last dial failed; `ended` holds only the former."""
        self.peer: Peer | None = None
        self.rival_at: float | None = None
        """When a connection under this name with another store was first refused, since the session's connection was
        opened."""
        self.control: ControlSender | None = None
        self.refill: Callable[[], None] = lambda: None
        """Tops up the credit of the neighbour's control link."""
        self.heard_hello = False
        self.attempts = 0
        self.dialling = False
        self.dial_at: float | None = clock.now if config.remote is not None else None
        self.dialled_at = clock.now
        self.redial_s = REDIAL_S[0]
        self.dials = max(0, parts.started_wall_ms)
        """Our dials' numbers: they grow over restarts too."""
        self.their_dial: int | None = None
        """The number of the neighbour's dial that opened the session's connection."""
        self.hello_dial: int | None = None
        """The neighbour's last dial when it chose that connection, from its hello: a later dial shows that it has lost
        the connection."""
        self.say_at = 0.0
        self.sign_at = 0.0
        """When the next sign of life is sent, while nothing is read from it."""
        self.liveness = Liveness(probe_s=config.probe_every_s(kind), keepalive_s=config.keepalive_s)
        self.liveness.reset(config.hold_time_s)
        self.damping = Damping()
        self.offered = False
        """Whether routing may use the link: Established, and not held down."""
        self.flaps = self.established_count = 0
        self.bytes_in = self.bytes_out = 0
        """Bytes received in sessions that have ended."""
        self.written_bytes = 0
        """Bytes written to this connection, as the driver last measured."""
        self.declared_at: float | None = None
        """When the link was last declared down, while this may still turn out to be a false alarm."""
        self.process: int | None = None
        """The start of the neighbour's process, from its hello."""
        self.version: int | None = None
        """The version of its forwarding table, as last received."""
        self.software: str | None = None
        self.protocol: int | None = None
        """The versions of its software and protocol, from its last open; None if that had none."""
        parts.times.add(self)

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def established(self) -> bool:
        return self.state is State.ESTABLISHED

    @property
    def features(self) -> Set[str]:
        return frozenset() if self.peer is None else self.peer.features

    def drop(self, reason: str) -> None:
        if self.peer is not None:
            self._parts.connections.drop(self.peer, reason)

    def configure(self, config: NeighbourConfig, kind: str | None) -> None:
        """Changes its settings: the session begins again with them, unless only the kind of the link has changed."""
        self.stir()
        if config == self.config:
            self.liveness.probe_s = config.probe_every_s(kind)
            return
        self.config = config
        self.liveness = Liveness(probe_s=config.probe_every_s(kind), keepalive_s=config.keepalive_s)
        self.liveness.reset(config.hold_time_s)
        self.attempts = 0
        self.drop("its [[neighbour]] has changed")
        if config.remote is None:
            self.dial_at = None
        elif self.peer is None and not self._parts.is_stopping():
            self.dial_at = self.clock.now

    def leave(self, reason: str) -> None:
        """It was removed from the neighbours: ends its session and gives up a dial in progress."""
        self.drop(reason)
        self.dial_at = None

    @property
    def damped(self) -> bool:
        """Whether its flapping keeps it from routing."""
        at = self.damping.reuse_at()
        return at is not None and self.clock.now < at

    def stir(self) -> None:
        """Its deadline may have become earlier."""
        self._parts.times.stirred[self] = None

    def _move(self, happened: SessionEvent, reason: str = "") -> None:
        self.stir()
        before = self.state
        after = self.state = TRANSITIONS[before, happened]
        if before is after:
            return
        parts = self._parts
        self.since = self.clock.now
        if happened is SessionEvent.LOST:
            self.reason = reason
            self.ended = reason if before is State.ESTABLISHED else self.ended
        fields = {"neighbour": self.name, "state": after.value, "previous": before.value, "reason": reason}
        parts.outbox.record("session", fields | {"round_trip_s": self.liveness.smoothed_s, "damped": self.damped})
        level = "INFO" if State.ESTABLISHED in (before, after) else "DEBUG"
        text = f"neighbour {self.name}: {before.value} -> {after.value}"
        parts.log.write(level, f"{text}: {reason}" if reason else text, about=self.name)
        if before is State.ESTABLISHED:
            self.away_since = self.clock.now
            parts.bindings.lost(self)
            self._fell()
        elif after is State.ESTABLISHED:
            self.established_count += 1
            self.attempts = 0
            self.reason = self.ended  # what failed on the way here is over

    # ------------------------------------------------------------------------------------------------ routing

    def _offer(self) -> None:
        """The session is Established: routing may use it, unless it flaps."""
        self.damping.release(self.clock.now)
        at = self.damping.reuse_at()
        if at is not None:
            damped_s = at - self.clock.now
            text = f"neighbour {self.name}: its session broke too often: no route uses it for {damped_s:.1f} s"
            self._parts.log.write(
                "WARNING", f"{text}; look at the line between the two nodes, and at its log", about=self.name
            )
            return
        self.offered = True
        if self._parts.routing is not None:
            self._parts.routing.link_up(self)

    def _fell(self) -> None:
        if not self._parts.is_stopping():
            self.damping.fell(self.clock.now)
        if self.offered:
            self._withdraw()

    def _withdraw(self) -> None:
        """Withdraws the link from routing. If that fails, `recover` repeats it."""
        if self._parts.routing is not None:
            self._parts.routing.link_down(self)
        self.offered = False

    def _tell_cost(self) -> None:
        """Reports the link's measured cost to routing."""
        round_trip_s, loss_share = self.liveness.smoothed_s, self.liveness.take_loss_share()
        if self.offered and self._parts.routing is not None and round_trip_s is not None:
            self._parts.routing.cost_measured(self, round_trip_s, loss_share, self.hop.backlog_bytes())

    # ------------------------------------------------------------------------------------------------ time

    def tick(self, now: float) -> None:
        """Dials, probes, and ends what does not answer, or has been silent for the hold time."""
        if self.dial_at is not None and now >= self.dial_at:
            self._dial(now)
        peer = self.peer
        if peer is None:
            return
        if peer.pauses:  # what it said meanwhile lies unread, and has no answer: it is told that we live
            self.heard_at = now
            if now >= self.sign_at and self._control_is_up:
                self.sign_at = now + self.liveness.probe_s / SIGNS
                if not peer.amqp.output:
                    peer.amqp.output.append(EMPTY_FRAME)
                peer.touch()
        if now >= self.heard_at + self.liveness.hold_time_s:
            self._parts.connections.drop(peer, f"nothing heard for {written(self.liveness.hold_time_s)} s")
            return
        self._act(self.liveness.tick(now, self.heard_at, self.hop.unanswered_at()))
        if self.peer is not peer:
            return
        if self._control_is_up and now >= self.say_at:
            self.say_at = now + self.config.keepalive_s
            self.hop.tell_marks(self.send)
            self._tell_cost()
        if self.established and not self.offered and self.damping.release(now):
            self._offer()
        self.hop.tick(now)

    def next_deadline(self) -> float | None:
        if self.peer is None:
            return self.dial_at if not self.dialling or self.state is State.CONNECT else None
        liveness = self.liveness
        moments = [
            self.heard_at + liveness.hold_time_s,
            liveness.next_deadline(self.heard_at, self.hop.unanswered_at()),
        ]
        if self._control_is_up:
            moments += [self.say_at, self.sign_at] if self.peer.pauses else [self.say_at]
        if self.established:
            moments += self.hop.next_deadlines()
            if not self.offered:
                moments.append(self.damping.reuse_at())
        return min([at for at in moments if at is not None])

    def _act(self, act: ProbeAction) -> None:
        peer = self.peer
        if peer is None or act is ProbeAction.NOTHING:
            return
        if act is ProbeAction.DOWN:
            self.declared_at = self.clock.now
            self._parts.connections.drop(peer, f"{MISSES_MAX} probes without an answer")
            return
        if act is ProbeAction.PROBE and self.control is not None:
            # the version again: what told of a change may have been dropped
            self.control.send(control.probe(self.liveness.number, self._parts.forwarding.version))
        self._parts.outbox.put(events.MeasureOutput(connection=peer.number))

    def measured(self, peer: Peer, event: events.OutputMeasured) -> None:
        """The driver's answer to MeasureOutput."""
        if peer is self.peer:
            self.written_bytes = event.written_bytes
            self.liveness.measured(event.acknowledged_bytes, event.written_bytes)

    # ------------------------------------------------------------------------------------------------ dialling

    def _dial(self, now: float) -> None:
        """Dials; a dial in progress is replaced."""
        fresh = self.dialling and self.state is State.CONNECT
        if not fresh and (self.dialling or self.state is not State.IDLE):
            return
        if fresh:
            self.redial_s = min(2 * self.redial_s, REDIAL_S[1])
        self.dial_at = None
        self.dialled_at = now
        self.dialling = True
        self.dials += 1
        if not fresh:
            self._move(SessionEvent.DIALLED)
        self._parts.outbox.put(events.Connect(neighbour=self.name))

    def connect_failed(self, reason: str) -> None:
        self._dial_ended()
        if self.state is State.CONNECT:
            self._move(SessionEvent.LOST, reason)
            if self._parts.routing is not None:  # the table may have begun with this link
                self._parts.routing.link_down(self)
        if self.peer is None:
            self._dial_later()

    def _dial_ended(self) -> None:
        self.stir()
        self.dialling = False
        self.redial_s = REDIAL_S[0]

    def _dial_later(self) -> None:
        if self.config.remote is None or self._parts.is_stopping():
            return
        self.dial_at = self.clock.now + jittered_s(RETRY_S, self.attempts, self._parts.rng)
        self.attempts += 1

    def network_changed(self) -> None:
        """A carrier, an address or a route came or went: dials again, or probes the session at once. A connect in
        progress would repeat its SYN only after seconds, and a back-off does not know of the repair.
        """
        self.stir()
        self.attempts = 0
        if self.peer is not None:
            self._act(self.liveness.network_changed(self.clock.now, self.heard_at))
        elif self.config.remote is not None and not self._parts.is_stopping():
            self.dial_at = max(self.clock.now, self.dialled_at + self.redial_s)

    # ------------------------------------------------------------------------------------------------ opening

    def connected(self, peer: Peer) -> None:
        """Our dial succeeded; open, begin and the control link are sent in one flight."""
        self._dial_ended()
        if self.state is not State.CONNECT:  # they reached us meanwhile
            self._parts.connections.drop(peer, "the neighbour reached us first")
            return
        self.dial_at = None
        self._move(SessionEvent.CONNECTED)
        self._hold(peer, None)

    def opened(self, peer: Peer, properties: dict[Any, Any]) -> None:
        """Handles the peer's open, on a connection that we dialled or that was assigned to this neighbour."""
        if self._parts.stores.refuse_shared(self.name, peer, properties.get(STORE)):
            return
        if peer is self.peer:
            self._move(SessionEvent.OPENED)
        else:
            told = properties.get(DIAL)
            dial = int(told) if is_whole(told) else None
            if self.peer is not None and not self._yields_to(dial, properties.get(STORE)):
                self._refuse(peer, properties.get(STORE))
                return
            old, self.peer = self.peer, None
            self._move(SessionEvent.ACCEPTED, "the neighbour opened a new connection" if old is not None else "")
            if old is not None:
                self._let_go(old)
                self._parts.connections.drop(old, "the neighbour opened a new connection")
            self._hold(peer, dial)
        theirs = properties.get(HOLD_TIME)
        self.liveness.hold_time_s = self.config.hold_time_s
        if is_whole(theirs) and theirs > 0:
            self.liveness.hold_time_s = max(min(self.config.hold_time_s, theirs / 1000), 0.1)
        self.software, self.protocol = versions_of(properties)
        store = properties.get(STORE)
        if isinstance(store, UUID):
            self._parts.stores.heard(self.name, store)

    def _refuse(self, peer: Peer, store: object) -> None:
        """A second connection while the session is up. If its store differs from the session's, it may be a second node
        of this name, and the refusal says so; it is one if the first connection is active after the second arrived."""
        parts = self._parts
        ours = parts.catalog.ledger.neighbour_stores.get(self.name)
        if not isinstance(store, UUID) or ours is None or store == ours:
            parts.connections.drop(peer, "a session with this neighbour is up")
            return
        if self.rival_at is None:
            self.rival_at = self.clock.now
        elif self.heard_at > self.rival_at + self.config.keepalive_s:
            parts.incidents.name_contested(self.name)
        text = f"another node named {self.name!r}, with another store, has a session already; node names must be unique"
        peer.log("INFO", text)
        peer.amqp.close(Error(Symbol(conditions.NOT_ALLOWED), text))
        peer.touch()

    def _yields_to(self, dial: int | None, store: object = None) -> bool:
        """Whether the session's connection gives way to a newer one, from the neighbour's dial number `dial` and with
        that store. A connection with another store may belong to a second node of this name: only a silent connection
        gives way to it.

        RFC 4271 §6.8 with names for identifiers: of two that cross, both sides keep the one that the lower name
        dialled. Once its hello has arrived on the session's connection, the neighbour has chosen that one, and only a
        later dial replaces it: then the neighbour has lost it, which we may not know yet.
        """
        assert self.peer is not None
        if self.clock.now - self.heard_at > self.config.keepalive_s:
            return True
        ours = self._parts.catalog.ledger.neighbour_stores.get(self.name)
        if self.established and isinstance(store, UUID) and ours is not None and store != ours:
            return False
        if dial is not None and self.hello_dial is not None:
            return dial > self.hello_dial
        if not self.peer.dialled:
            return dial is None or self.their_dial is None or dial > self.their_dial
        return self.name < self._parts.config.name

    def _hold(self, peer: Peer, dial: int | None) -> None:
        self.peer = peer
        peer.neighbour = self
        self.their_dial, self.hello_dial = dial, None
        self.heard_at = self.clock.now
        self.rival_at = None
        self.heard_hello = False
        self.written_bytes = 0
        self.hop.told.clear()
        self.liveness.reset(self.config.hold_time_s)
        self._attach_control(peer)

    def session_begun(self, peer: Peer) -> None:
        """An AMQP session of either side began on that connection."""
        if peer is self.peer and self.control is None:
            self._attach_control(peer)

    def _attach_control(self, peer: Peer) -> None:
        session = control_session(peer) if peer.amqp.usable else None
        if session is None:
            return
        if len(session.links) > session.handle_max_out:
            peer.log("WARNING", f"no session with {self.name!r}: it takes no control link (handle-max)")
            return
        self.hop.links.begin(peer, session)
        link = session.attach_sender(
            f"control:{self._parts.config.name}",
            Source(address=CONTROL_ADDRESS),
            Target(address=CONTROL_ADDRESS),
            snd_settle_mode=1,
        )
        self.control = link.context = ControlSender(self._parts.connections, peer, link, self)
        peer.touch()

    @property
    def _control_is_up(self) -> bool:
        """Our control link was answered, and its first messages were begun."""
        return self.control is not None and self.control.greeted and self.control.link.attached

    def control_attached(self) -> None:
        """Our control link was answered: sends the hello with our marks before anything else."""
        self.stir()
        self.hop.told.clear()
        self._tell_hello()
        self.say_at = self.clock.now + self.config.keepalive_s
        self.liveness.begin(self.clock.now)
        self._maybe_established()

    def _tell_hello(self) -> None:
        """Sends the hello; if the neighbour gives too little credit, the rest follows later, because no other message
        replaces it."""
        parts = self._parts
        assert self.control is not None
        self.control.hello_owed = not self.hop.tell_hello(
            self.send,
            {
                "kind": "hello",
                "store": parts.advertised_uuid(),
                "version": Ulong(parts.forwarding.version),
                "process": Ulong(max(0, parts.started_wall_ms)),
                "dial": Ulong(self.dials),
                "declared": self.declared_at is not None,
            },
        )

    def control_credited(self) -> None:
        """Our control link has credit: sends messages that found none."""
        if self.control is not None and self.control.hello_owed:
            self._tell_hello()
            self._maybe_established()
        self._parts.disk.credited(self)
        self._parts.rates.credited(self)
        self._parts.bindings.credited(self)

    def tell_identity(self) -> None:
        """Sends the hello again if the control link is attached, because this node's store may have changed."""
        if self.control is not None and self.control.link.attached:
            self.control_attached()

    def _maybe_established(self) -> None:
        peer = self.peer
        if self.control is None or self.control.hello_owed:
            return
        if peer is not None and self.state is State.OPEN_CONFIRM and self.heard_hello and self._control_is_up:
            self._move(SessionEvent.CONTROL_UP)
            self.hop.session_up(peer)
            self._parts.forwarding.established(self.hop)
            self._parts.clocks.established()
            self._parts.disk.established(self)
            self._parts.rates.established(self)
            self._parts.bindings.established(self)
            self._offer()

    # ------------------------------------------------------------------------------------------------ losing

    def lost(self, peer: Peer, reason: str) -> None:
        """The connection has ended."""
        if peer is not self.peer:
            return
        self.peer = None
        self._let_go(peer)
        self.flaps += 1
        self._move(SessionEvent.LOST, reason)
        self._dial_later()

    def recover(self, *, dial_over: bool = False) -> None:
        """After a contained failure: completes the end of a connection or a dial if it was interrupted."""
        self.stir()
        if dial_over:
            self._dial_ended()
        self.hop.recover(stopping=self._parts.is_stopping())
        peer = self.peer
        if peer is not None:
            if self._parts.connections.holds(peer):
                return
            self.peer = None
            self._let_go(peer)
        if self.state is not State.IDLE and not (self.state is State.CONNECT and self.dialling):
            self._forget_control()
            self.hop.links_lost()
            self._move(SessionEvent.LOST, "a failure of this node, see its log")
        if self.offered and not self.established:
            self._withdraw()
        if self.state is State.IDLE and self.dial_at is None:
            self._dial_later()

    def _forget_control(self) -> None:
        self.control, self.refill = None, lambda: None

    def _let_go(self, peer: Peer) -> None:
        self._forget_control()
        self.bytes_in += peer.heard_bytes
        self.bytes_out += self.written_bytes
        self.written_bytes = 0
        self._parts.rates.lost(self)
        self.hop.session_lost()

    # ------------------------------------------------------------------------------------------------ control

    def send(self, fields: dict[str, Any], *, reserve: int = CONTROL_RESERVE) -> bool:
        """Sends one control message; False if the link has no credit, and then it is dropped. `reserve`: credit that is
        left for probes and echoes.
        """
        if self.control is None or self.peer is None:
            return False
        return self.control.send(control.VALUE + encode(fields), reserve=reserve)

    @property
    def messages_waiting(self) -> int:
        return self._parts.bindings.messages.count(self.name)

    def tell_version(self) -> None:
        """Our forwarding table changed: sends its version, so that the neighbour tries again what we sent back."""
        self.send({"kind": "table", "version": Ulong(self._parts.forwarding.version)})

    def hear_probe(self, number: int, version: int) -> None:
        if self.control is not None:
            self.control.answer(number)
        self._on_version(version)

    def hear_echo(self, number: int) -> None:
        self.liveness.echo(number, self.clock.now)

    def hear(self, fields: dict[Any, Any]) -> None:
        """Handles a control message. An unknown kind comes from a newer version, and is ignored."""
        kind = fields.get("kind")
        if kind in ("hello", "table"):
            self._on_version(fields.get("version"))
        if kind == "probe" or kind == "echo":
            number = fields.get("number")
            if is_whole_within(number, 0, 2**64):
                if kind == "probe":
                    self.hear_probe(number, fields.get("version", 0))
                else:
                    self.hear_echo(number)
        elif kind in ("hello", "marks"):
            self.hop.hear_marks(fields.get("marks"))
            if kind == "hello":
                self._on_hello(fields)
        elif isinstance(kind, str) and (hears := self._parts.kinds.get(str(kind))) is not None:
            hears(self, fields)

    def _on_hello(self, fields: dict[Any, Any]) -> None:
        store, process, dial = fields.get("store"), fields.get("process"), fields.get("dial")
        if isinstance(store, UUID):
            self._parts.stores.heard(self.name, store)
        if is_whole(dial):
            self.hello_dial = int(dial)
        if not self.heard_hello:
            declared, self.declared_at = self.declared_at, None
            soon = declared is not None and self.clock.now - declared <= FALSE_ALARM_S
            if soon and process is not None and process == self.process and fields.get("declared") is False:
                self.liveness.back()
        self.process = int(process) if is_whole(process) else None
        self.heard_hello = True
        self._maybe_established()

    def _on_version(self, version: object) -> None:
        if is_whole(version) and version != self.version:
            self.version = int(version)
            self._parts.forwarding.version_heard(self.hop)
