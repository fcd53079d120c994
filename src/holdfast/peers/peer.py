"""One connection as the core sees it: its AMQP engine, its user or neighbour, and its links.

Rules of this file: a peer is a client until a session adopts it as a neighbour; what only neighbours may send is
accepted only from neighbours (ARCHITECTURE, "Who is believed").
"""

import sys
from collections.abc import Callable, Sized
from math import inf
from types import FrameType
from typing import Any, Final, Protocol

from holdfast.amqp.connection import Connection, Link
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error
from holdfast.broker.entries.blob import Blob
from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.engine.events import OutputMeasured
from holdfast.peers.neighbours.shared_bodies import GivenBodies, TakenBodies
from holdfast.peers.neighbours.trace_aliases import Count
from holdfast.peers.use import Use

NEVER: Final = inf
REASON_CHARACTERS_MAX: Final = 300
"""Characters of a peer's own reason for closing."""

EFFORT: Final = "effort"
UNSTORED: Final = "unstored"
"""Why a connection is not read for a while: it causes much work (peers/limits/guard.py), or its messages are not on
disk yet (links/pressure.py)."""


class Refilled(Protocol):
    """A link that accepts more messages when there is room again."""

    def refill(self) -> None: ...


class Writer(Protocol):
    """A link that sends when it can."""

    def credited(self) -> None: ...


class Deferred(Writer, Protocol):
    """A link that gets no more in this turn; `last_budget`: the last budget of its connection of which it used some."""

    last_budget: int

    def offer_again(self) -> None: ...


class Sending(Protocol):
    """A large message that is being sent to a peer (links/large_sends.py)."""

    peer: "Peer"
    blob: Blob

    @property
    def may_go_on(self) -> bool: ...
    def step(self) -> int: ...
    def close(self) -> None: ...


class Adopted(Protocol):
    """The neighbour whose session has adopted a connection (peering/sessions.py), and is notified of its events."""

    heard_at: float

    @property
    def name(self) -> str: ...
    def stir(self) -> None: ...
    def opened(self, peer: "Peer", properties: dict[Any, Any]) -> None: ...
    def session_begun(self, peer: "Peer") -> None: ...
    def measured(self, peer: "Peer", event: OutputMeasured) -> None: ...
    def lost(self, peer: "Peer", reason: str) -> None: ...


class Reached(Protocol):
    """The remote to which a connection was dialled (endpoints/remotes/remote.py), and which is notified of its
    events."""

    @property
    def name(self) -> str: ...
    def session_begun(self, peer: "Peer") -> None: ...
    def lost(self, peer: "Peer", reason: str) -> None: ...


class Audited(Protocol):
    """The audit log, as far as links know it."""

    def failed(self, peer: "Peer", error: Error) -> None: ...
    def refused(self, peer: "Peer", action: str, address: str) -> None: ...
    def changed(self, peer: "Peer", text: str) -> None: ...


class PeerLink:
    """A peer's link, as the node serves it; it is the `context` of the engine's link."""

    peer: "Peer"
    link: Any


class Requesting(PeerLink):
    """A link of `$management`; `waiting`: requests that were not carried out yet, the oldest first."""

    waiting: Sized

    def serve_one(self) -> int:
        """Carries out the oldest request; returns the cost."""
        raise AssertionError("management/requests.py serves")


class Peer:
    """`number` is the driver's name for the connection. `writable`: the socket accepts more than control frames.
    `pauses`: why it is not read. `ahead_bytes`: bytes of its large messages that are in no batch yet."""

    __slots__ = (
        "_log", "account", "address", "ahead_bytes", "aliases_given", "aliases_taken", "amqp", "audit", "bodies_given",
        "bodies_taken", "budget_number", "certificate", "counted_links",
        "deferred", "dialled", "egress", "features", "handed_bytes", "has_control", "heard_bytes", "held_bytes",
        "host", "late", "login_hosts", "login_told", "loopback", "neighbour", "number", "parked_bytes", "pauses",
        "remote", "reply_bytes", "request_bytes", "sends", "stalled", "tls_version", "touched",
        "unread_bytes", "unsent_bytes", "use", "wake_at", "why_closed", "writable",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        amqp: Connection,
        *,
        address: str,
        loopback: bool,
        dialled: bool,
        touched: "dict[Peer, None]",
        log: "Callable[[FrameType, Peer, str, str], None]",
    ) -> None:
        self.number = number
        self.amqp = amqp
        self.address = address
        self.loopback = loopback
        self.dialled = dialled
        self.tls_version: str | None = None
        """The version of its TLS; None without TLS, or before the handshake."""
        self.certificate: str | None = None
        """The name in its peer's certificate, which was checked."""
        self.login_hosts: tuple[str, ...] = ()
        """The virtual hosts that its login allows; empty without a login, which allows any."""
        self.login_told = False
        """Whether the audit log has the outcome of its login."""
        self.host = DEFAULT_HOST
        """Its virtual host, set by its open."""
        self.neighbour: Adopted | None = None
        self.remote: Reached | None = None
        self.use: Use | None = None
        """The user or neighbour for which it counts, once known (users.py)."""
        self.counted_links = 0
        """The number of its links that count for that one."""
        self.writable = True
        self.unread_bytes = 0
        """Bytes written since `writable` ended."""
        self.unsent_bytes = 0
        """Bytes that the driver holds for its socket, as last reported."""
        self.handed_bytes = 0
        """Bytes of messages that it got in this turn (links/outgoing.py)."""
        self.budget_number = 1
        """The number of its budget of this turn; counts the budgets that its links have used."""
        self.deferred: dict[Deferred, None] = {}
        """Links that get no more in this turn, because the connection's budget is used up."""
        self.held_bytes = 0
        """The connection's memory, as last measured (peers/limits/memory.py)."""
        self.parked_bytes = 0
        """Deliveries from it that wait for room in their queue."""
        self.late: dict[Refilled, None] = {}
        """Links with the rest of a run for which the connection's share of the turn did not suffice."""
        self.request_bytes = 0
        """Requests from it that are not answered yet."""
        self.reply_bytes = 0
        """Answers to requests that wait for credit."""
        self.stalled: dict[Requesting, None] = {}
        """Links whose requests wait until such answers have gone."""
        self.pauses: set[str] = set()
        self.ahead_bytes = 0
        self.heard_bytes = 0
        """Bytes read from it."""
        self.sends: dict[Sending, None] = {}
        """Large messages that are on their way to it, the next one's turn first."""
        self.has_control = False
        """Whether it has, or had, a control link to us."""
        self.touched = touched
        self._log = log
        self.account: str | None = None
        """The account of a neighbour or remote that this node dialled, which has not logged in here."""
        self.audit: Audited | None = None
        """The audit log for refusals and changes of the peer (audit.py)."""
        self.wake_at = NEVER
        """Its time among the node's deadlines (deadlines.py)."""
        self.why_closed = "closed"
        """The reason for its end, if it ends by a close."""
        self.features: frozenset[str] = frozenset()
        """The features that both it and this node offer (peers/neighbours/features.py)."""
        self.aliases_given, self.aliases_taken = Count(), Count()
        self.bodies_given, self.bodies_taken = GivenBodies(), TakenBodies()
        self.egress: dict[Writer, None] = {}
        """The links of this connection that send messages, notified when the socket accepts more again."""

    @property
    def who(self) -> str | None:
        """The user of its host under which it acts at this node; None without a login."""
        return self.account if self.dialled else self.amqp.authenticated_user

    def pause(self, reason: str) -> bool:
        """Adds a reason for a pause; returns whether the driver must stop reading."""
        before = bool(self.pauses)
        self.pauses.add(reason)
        if self.neighbour is not None:
            self.neighbour.stir()
        return not before

    def unpause(self, reason: str) -> bool:
        """Removes a reason; returns whether the driver must read again."""
        before = bool(self.pauses)
        self.pauses.discard(reason)
        return before and not self.pauses

    def written(self) -> None:
        """The turn's output was handed to the driver: queues of deferred links are offered again, first those of links
        that waited the longest."""
        self.handed_bytes = 0
        self.budget_number += 1
        deferred, self.deferred = self.deferred, {}
        for link in sorted(deferred, key=lambda link: link.last_budget):
            if link in self.egress:
                link.offer_again()

    def closed(self, error: Error | None) -> None:
        """It closed, or answered our close; `error`: that of the peer."""
        if error is not None:
            self.why_closed = f"closed by it: {error.text[:REASON_CHARACTERS_MAX]}"

    def failed(self, error: Error) -> None:
        """It broke the protocol, or a login has failed; `error` says how."""
        self.why_closed = error.text[:REASON_CHARACTERS_MAX]

    def refuse_detached(self, link: Link) -> None:
        """Answers the attach of a link that ended before it was answered, because the peer keeps the handle until it
        has both answers."""
        if not link.attach_sent:
            link.refuse(conditions.DETACH_FORCED, "detached before it was attached")
            self.touch()

    def log(self, level: str, text: str) -> None:
        """Logs a line about it; lines of one place in the code about one peer are limited in rate."""
        self._log(sys._getframe(1), self, level, text)

    def touch(self) -> None:
        """Notes that there is something to write before the turn ends."""
        self.touched[self] = None

    @property
    def name(self) -> str:
        remote = self.amqp.remote_open
        return f"{remote.container_id}@{self.address}" if remote is not None else self.address


def host_of(address: str) -> str:
    """HOST of HOST:PORT."""
    return address.rpartition(":")[0]
