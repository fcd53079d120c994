"""The connection to one remote: dialled again whenever it has ended, with a link for each address (docs/remotes.md).

Rules of this file: the remote is a stranger, so its answers end this connection at most. Links are attached once a
session is begun, each where link_slots.py finds one for it.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from holdfast.amqp.session.session import Session
from holdfast.broker.queue import Queue
from holdfast.endpoints.consumer import ConsumerParts
from holdfast.endpoints.producer import ProducerParts
from holdfast.endpoints.remotes.fetching import FetchingLink
from holdfast.endpoints.remotes.kept_link import ANSWER_S, KeptLink
from holdfast.endpoints.remotes.link_slots import LinkSlots
from holdfast.endpoints.remotes.sending import SendingLink
from holdfast.engine import events
from holdfast.engine.back_off import jittered_s
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.peering.sessions import RETRY_S
from holdfast.peers.connections import Connections
from holdfast.peers.peer import Peer
from holdfast.settings.remotes import RemoteConfig

IDLE: Final = "idle"
CONNECT: Final = "connect"
OPENING: Final = "opening"
UP: Final = "up"

BEGINS_S: Final = 1.0
"""How long a remote that allows a single session may take after its open to begin that itself: its begin may come in a
later read, and if this node had begun one by then, it could not be answered."""


@dataclass(frozen=True, slots=True)
class RemoteParts:
    """What the connections to remotes use of the node."""

    clock: Clock
    rng: Random
    outbox: Outbox
    log: Log
    connections: Connections
    consumers: ConsumerParts
    producers: ProducerParts


class Remote:
    """One remote. `links`: all that are to be attached, those of `sending` by queue among them."""

    def __init__(self, parts: RemoteParts, config: RemoteConfig) -> None:
        self._parts = parts
        self._clock = parts.clock
        self.config = config
        self.peer: Peer | None = None
        self.slots = LinkSlots(parts.clock, self._given)
        self.dialling = False
        self.dial_at: float | None = parts.clock.now
        self.attempts = 0
        self.since = parts.clock.now
        self.reason = ""
        """Why the last connection ended, or the last dial failed; empty while there is a session."""
        self.left = False
        """It is dialled no more: it was removed, or the node stops."""
        self._answer_by: float | None = None
        """Until when the remote must have begun a session."""
        self._begin_at: float | None = None
        """When this node begins the only session that the remote allows, if that has not begun it."""
        self._attached = 0
        """Attaches so far."""
        self.lost_count = 0
        """Connections that have ended."""
        self.resting: dict[KeptLink, None] = {}
        """Links that wait for a time."""
        self.sending: dict[Queue, SendingLink] = {}
        self.fetching = [FetchingLink(parts.producers, fetch, self.resting) for fetch in config.fetch]
        for link in self.fetching:
            self._join(link)

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def links(self) -> list[KeptLink]:
        return [*self.sending.values(), *self.fetching]

    @property
    def is_up(self) -> bool:
        """Whether there is a session."""
        return self.slots.peer is not None

    @property
    def state(self) -> str:
        """The word for it in `status`."""
        if self.is_up:
            return UP
        return OPENING if self.peer is not None else CONNECT if self.dialling else IDLE

    def _told(self, text: str) -> None:
        self._parts.log.write("WARNING", f"remote {self.name}: {text}", about=self.name)

    def _join(self, link: KeptLink) -> None:
        link.log, link.refused, link.exceeded = self._told, self.slots.link_refused, self.slots.exceeded

    # ------------------------------------------------------------------------------------------------ dialling

    def _dial(self) -> None:
        self.dial_at = None
        self.dialling = True
        self._parts.outbox.put(events.Connect(neighbour=self.name))

    def connect_failed(self, reason: str) -> None:
        if not self.dialling:  # a dial of the settings before the last change was given up
            return
        self.dialling = False
        if self.peer is None:
            self._wait(reason)

    def _wait(self, reason: str) -> None:
        """The connection has ended, or there was none: it is dialled again, later each time."""
        if reason != self.reason and not self.left:
            self._told(f"no connection: {reason}")
        self.reason, self.since = reason, self._clock.now
        if self.left:
            return
        self.dial_at = self._clock.now + jittered_s(RETRY_S, self.attempts, self._parts.rng)
        self.attempts += 1

    def network_changed(self) -> None:
        """Dials at once: the wait does not know of the repair."""
        if self.dial_at is not None:
            self.attempts = 0
            self.dial_at = self._clock.now

    # ------------------------------------------------------------------------------------------------ connected

    def connected(self, peer: Peer) -> None:
        """The dial has succeeded."""
        self.dialling = False
        if self.peer is not None:  # of the settings before the last change
            self._parts.connections.drop(peer, "there is a connection to this remote")
            return
        self.dial_at = None
        self.peer = peer
        peer.remote = self

    def opened(self, peer: Peer) -> None:
        """The remote has opened the connection: a session is begun, or awaited for a moment if it allows one alone."""
        self._answer_by = self._clock.now + ANSWER_S
        if peer.amqp.channels == 1:
            self._begin_at = self._clock.now + BEGINS_S
        else:
            self._begin(peer)

    def _begin(self, peer: Peer) -> None:
        self._begin_at = None
        if peer.amqp.usable and peer.amqp.session_count < peer.amqp.channels:
            peer.amqp.begin()
        peer.touch()

    def session_begun(self, peer: Peer) -> None:
        """A session was begun, by either side: links are attached in those that both have begun."""
        if self.is_up:
            self.slots.give()
            return
        if not self.slots.begin(peer):
            return
        self._answer_by = self._begin_at = None
        self.since, self.reason = self._clock.now, ""
        self._parts.log.write("INFO", f"remote {self.name}: connected to {peer.name}", about=self.name)
        for link in self.links:
            self._attach(link)

    def _attach(self, link: KeptLink) -> None:
        link.due_at = None
        if self.peer is None or not self.is_up:
            return  # it is attached when there is a session
        if self.slots.sessions:
            self.slots.ask(link)
        else:
            self._parts.connections.drop(self.peer, "it ended the session")

    def _given(self, link: KeptLink, peer: Peer, session: Session) -> None:
        self._attached += 1
        link.attach(peer, session, self._attached)

    # ------------------------------------------------------------------------------------------------ its queues

    def add(self, queue: Queue, address: str) -> None:
        """Messages of that queue go to the remote."""
        if queue in self.sending:
            return
        link = self.sending[queue] = SendingLink(self._parts.consumers, queue, self.config.far(address), self.resting)
        self._join(link)
        self._attach(link)

    def release(self, queue: Queue) -> None:
        """That queue is about to be deleted: nothing uses it any more."""
        link = self.sending.pop(queue, None)
        if link is not None:
            self.slots.drop(link)
            link.end()

    # ------------------------------------------------------------------------------------------------ its end

    def lost(self, peer: Peer, reason: str) -> None:
        """The connection has ended; its links were told before."""
        if peer is self.peer:
            if self.is_up and self._clock.now - self.since >= RETRY_S[1]:
                self.attempts = 0  # one that ends at once is dialled later each time
            self._let_go()
            self._wait(reason)

    def _let_go(self) -> None:
        self.peer = self._answer_by = self._begin_at = None
        self.slots.end()
        self.lost_count += 1
        for link in self.links:
            link.let_go()

    def leave(self, reason: str) -> None:
        """It was removed from the configuration, or changed."""
        self.stop()
        if self.peer is not None:
            self._parts.connections.drop(self.peer, reason)

    def stop(self) -> None:
        """It is dialled no more."""
        self.left = True
        self.dial_at = None

    def recover(self, *, dial_over: bool = False) -> None:
        """After a contained failure: completes the end of a connection or a dial if it was interrupted."""
        self.dialling = self.dialling and not dial_over
        peer = self.peer
        if peer is not None and not self._parts.connections.holds(peer):
            self._let_go()
        if self.peer is None and not self.dialling and self.dial_at is None:
            self._wait("a failure of this node, see its log")

    # ------------------------------------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        if self.peer is None:
            return self.dial_at
        times = [self._answer_by, self._begin_at, self.slots.due_at, *(link.due_at for link in self.resting)]
        return min((at for at in times if at is not None), default=None)

    def tick(self, now: float) -> None:
        if self.dial_at is not None and now >= self.dial_at:
            self._dial()
        if self._begin_at is not None and self.peer is not None and now >= self._begin_at:
            self._begin(self.peer)
        if self._answer_by is not None and self.peer is not None and now >= self._answer_by:
            self._parts.connections.drop(self.peer, f"it has not begun a session for {ANSWER_S:g} s")
        for link in list(self.resting):
            if link.due_at is not None and now >= link.due_at:
                if link.link is None:
                    self._attach(link)
                else:
                    link.go_on()
        self.slots.tick(now)
