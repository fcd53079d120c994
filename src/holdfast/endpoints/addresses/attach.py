"""The checks of a peer's attach: its terms, whether it is allowed, and which object serves its address (AMQP 1.0
§2.6.3, §3.5; CLIENTS 13 to 17, 32 to 35, 39).

Rules of this file: everything in an attach is hostile until checked; a refusal is an attach with a null terminus and a
detach that says what is expected. It knows no kinds of links: the object that serves an address registers itself.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.access.actions import RECEIVE, SEND
from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.effort import ATTACH
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import RCV_SETTLE_MODE_MAX, SND_SETTLE_MODE_MAX, Attach, Source, Target
from holdfast.endpoints.addresses.link_refusal import Refusal, permit, plain_address
from holdfast.engine.clock import Clock
from holdfast.errors import ConfigError
from holdfast.peers.authorise import Authoriser
from holdfast.peers.limits.memory import LINK_BYTES, Memory
from holdfast.peers.peer import Peer
from holdfast.peers.users import Users
from holdfast.state.catalog import Catalog, TooManyQueues

DURABILITY_MAX: Final = 2
EXPIRY_POLICIES: Final = ("link-detach", "session-end", "connection-close", "never")

QUEUE_EFFORT: Final = 2 * ATTACH
"""Effort that a queue created for a client counts for its connection, besides the attach or message."""

Receive = Callable[[Peer, Receiver, Any], None]
"""Answers the attach of a peer's sender: (peer, our link, the address as `plain_address` returns it). Raises Refusal,
ConfigError or TooManyQueues."""

Send = Callable[[Peer, Sender, Any], None]
"""The same for a peer's receiver."""


class AttachTable:
    """Passes each attach to the object that serves its address; all must be registered by `serve` before the first."""

    _receive_all: Receive
    _send_all: Send

    def __init__(
        self,
        clock: Clock,
        memory: Memory,
        catalog: Catalog,
        users: Users,
        authoriser: Authoriser,
        *,
        ask: Callable[[Peer, str, Source | Target, Any], None],
        reattached: Callable[[Peer, Receiver | Sender], None],
    ) -> None:
        """`ask` raises Refusal if the peer may not use the terminus of an attach to an address that is not registered.
        `reattached` is called with each attach that replaces an older link of its name, if there is one."""
        self._clock = clock
        self._memory = memory
        self._catalog = catalog
        self._users = users
        self._authoriser = authoriser
        self._ask = ask
        self._reattached = reattached
        self._receives: dict[str, Receive] = {}
        self._sends: dict[str, Send] = {}
        self._vital: set[str] = set()

    def serve(
        self, address: str, *, receive: Receive | None = None, send: Send | None = None, vital: bool = False
    ) -> None:
        """Registers the handlers of attaches to one address; in a direction without a handler it is an ordinary
        address. `vital`: a neighbour's link to it is accepted also without room.
        """
        if receive is not None:
            self._receives[address] = receive
        if send is not None:
            self._sends[address] = send
        if vital:
            self._vital.add(address)

    def serve_others(self, *, receive: Receive, send: Send) -> None:
        """Registers the handlers of all other attaches, which also check the permission, because only they know the
        address."""
        self._receive_all = receive
        self._send_all = send

    def open(self, peer: Peer, link: Receiver | Sender) -> None:
        """Accepts the peer's attach with the link that it asks for, or refuses it."""
        if not peer.amqp.usable:
            return
        if peer.remote is not None:
            link.refuse(conditions.NOT_ALLOWED, "this node attaches all links of this connection, which it has dialled")
            peer.touch()
            return
        if link.detached:  # by what came behind the attach
            peer.refuse_detached(link)
            return
        queues = self._catalog.next_queue_id
        try:
            if link.remote_attach is not None:
                _check_terms(link.remote_attach)
            terminus, address = _terminus(link)
            self._permit(peer, link, terminus, address)  # before anything is taken from an older link of its name
            if link.role or link.remote_attach is None or link.remote_attach.source is not None:
                self._reattached(peer, link)  # an attach without a source only asks, and replaces no link
            self._check_room(peer, link)
            named = address if isinstance(address, str) else ""  # no address is registered as that
            if isinstance(link, Receiver):
                self._receives.get(named, self._receive_all)(peer, link, address)
            else:
                self._sends.get(named, self._send_all)(peer, link, address)
        except Refusal as refusal:
            link.refuse(refusal.condition, refusal.description)
        except TooManyQueues as error:
            link.refuse(conditions.RESOURCE_LIMIT_EXCEEDED, str(error))
        except ConfigError as error:
            link.refuse(conditions.INVALID_FIELD, str(error))
        if self._catalog.next_queue_id != queues:
            peer.amqp.charge_late(QUEUE_EFFORT, self._clock.now)
        peer.touch()

    def _permit(self, peer: Peer, link: Receiver | Sender, terminus: Source | Target | None, address: Any) -> None:
        """Refusal if the peer may not have the link. For a registered address, its handler decides what neighbours may
        have."""
        if terminus is None:
            return
        action, served = (SEND, self._receives) if isinstance(link, Receiver) else (RECEIVE, self._sends)
        if not (isinstance(address, str) and address in served):
            self._ask(peer, action, terminus, address)
        elif peer.neighbour is None:
            permit(self._authoriser, peer, action, address)

    def _is_vital(self, address: object) -> bool:
        return isinstance(address, str) and address in self._vital  # a peer may send a list, which has no hash

    def _check_room(self, peer: Peer, link: Receiver | Sender) -> None:
        """Refusal if the peer's user has too many links, or the node has no memory."""
        target = link.remote_attach.target if link.remote_attach is not None else None
        if peer.neighbour is not None and isinstance(target, Target) and self._is_vital(target.address):
            return
        text = self._users.too_many_links(peer)
        if text is None and not self._memory.admits(peer, LINK_BYTES):
            text = "the node's memory is used up; try again later"
        if text is not None:
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)


def _terminus(link: Receiver | Sender) -> tuple[Source | Target | None, Any]:
    """The terminus at this node that the attach asks for, and its address as `plain_address` returns it."""
    attach = link.remote_attach
    terminus = None if attach is None else attach.target if isinstance(link, Receiver) else attach.source
    kind = Target if isinstance(link, Receiver) else Source
    return (terminus, plain_address(terminus.address)) if isinstance(terminus, kind) else (None, None)


def _check_terms(attach: Attach) -> None:
    """Checks the fields that AMQP restricts to a few values; other values would be echoed as if they were applied."""
    for what, found, most in (
        ("snd-settle-mode", attach.snd_settle_mode, SND_SETTLE_MODE_MAX),
        ("rcv-settle-mode", attach.rcv_settle_mode, RCV_SETTLE_MODE_MAX),
    ):
        if found > most:
            raise Refusal(conditions.INVALID_FIELD, f"invalid value {found} for {what}; expected 0 to {most}")
    for what, terminus in (("source", attach.source), ("target", attach.target)):
        if not isinstance(terminus, (Source, Target)):
            continue
        if terminus.durable > DURABILITY_MAX:
            text = f"invalid value {terminus.durable} for {what} durable; expected 0 to {DURABILITY_MAX}"
            raise Refusal(conditions.INVALID_FIELD, text)
        if terminus.expiry_policy not in EXPIRY_POLICIES:
            text = (
                f"invalid value {terminus.expiry_policy!r} for {what} expiry-policy; expected one of "
                f"{', '.join(EXPIRY_POLICIES)}"
            )
            raise Refusal(conditions.INVALID_FIELD, text)
