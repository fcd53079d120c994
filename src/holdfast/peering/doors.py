"""Admission: opens the engine of each connection, and decides which connection is a neighbour's.

Rules of this file: every claim of a peer is checked (ARCHITECTURE, "Who is believed"). Logins are checked by
peers/entrance.py.
"""

from collections.abc import Callable, Collection, Mapping, Set
from functools import partial
from json import dumps
from types import FrameType
from typing import Any, Final, Protocol
from uuid import UUID

from holdfast.amqp import connection as amqp
from holdfast.amqp.connection import Partials
from holdfast.amqp.login.mechanisms import ANONYMOUS
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import ANONYMOUS_RELAY, DELAYED_DELIVERY, SHARED_SUBSCRIPTIONS, TOPIC_PREFIX_KEY
from holdfast.amqp.wire.performatives import Error, Open
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.entries.address import TOPIC_PREFIX
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, hosted
from holdfast.engine import events
from holdfast.engine.clock import Clock
from holdfast.names import NAME_BYTES_MAX
from holdfast.peering.dialled_engines import DialledEngines, bounds, bounds_of_strangers, properties
from holdfast.peers.accounts import Accounts
from holdfast.peers.audit import OK, Audit
from holdfast.peers.connections import Connections, Deliver
from holdfast.peers.containers import ESTABLISHMENT_FAILED, answer_open
from holdfast.peers.credentials import parse
from holdfast.peers.deadlines import Deadlines
from holdfast.peers.entrance import Entrance
from holdfast.peers.hosts import VirtualHosts
from holdfast.peers.limits.guard import Guard
from holdfast.peers.limits.memory import CONNECTION_BYTES, Memory
from holdfast.peers.limits.refusals import Refusals
from holdfast.peers.logins import Logins
from holdfast.peers.neighbours import features
from holdfast.peers.neighbours.shared_bodies import WINDOW_BYTES
from holdfast.peers.peer import Peer, host_of
from holdfast.peers.user_list import StoredUser
from holdfast.peers.users import Users
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.remotes import RemoteConfig

RULES_CHANGED: Final = "closed: what its user may do has changed; log in again"
LOGGED_OUT: Final = "closed: its user was removed, or has another password; log in again"
USERS_BEGAN: Final = "closed: the node has users now; log in as one of them"


class Session(Protocol):
    """A neighbour's session, as far as admission uses it."""

    config: NeighbourConfig

    @property
    def name(self) -> str: ...
    @property
    def dials(self) -> int: ...
    def connected(self, peer: Peer) -> None: ...
    def opened(self, peer: Peer, properties: dict[Any, Any]) -> None: ...


class Remote(Protocol):
    """A remote, as far as admission uses it."""

    config: RemoteConfig

    def connected(self, peer: Peer) -> None: ...
    def opened(self, peer: Peer) -> None: ...


class Doors:
    """Opens the engine of each connection, and assigns the connection to a client or a neighbour after the peer's
    open."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        connections: Connections,
        memory: Memory,
        deadlines: Deadlines,
        guard: Guard,
        refusals: Refusals,
        users: Users,
        logins: Logins,
        partials: Partials,
        neighbours: Mapping[str, Session],
        remotes: Mapping[str, Remote],
        hosts: VirtualHosts,
        audit: Audit,
        *,
        log: Callable[[FrameType, Peer, str, str], None],
        deliver: Deliver,
        store: Callable[[], UUID],
        is_stopping: Callable[[], bool],
        came_as_neighbour: Callable[[str, str], None],
    ) -> None:
        """`store`: the store's UUID as this node advertises it. `came_as_neighbour(name, text)`: a node that is not
        listed tried to be a neighbour."""
        self._config = config
        self._clock = clock
        self._connections = connections
        self._memory = memory
        self._deadlines = deadlines
        self._guard = guard
        self._refusals = refusals
        self._users = users
        self._partials = partials
        self._neighbours = neighbours
        self._remotes = remotes
        self._hosts = hosts
        self._audit = audit
        self._log = log
        self._deliver = deliver
        self._store = store
        self._is_stopping = is_stopping
        self._accounts = Accounts(config.users, config.neighbours, clock, has_file=config.has_users_file)
        self.entrance = Entrance(config, self._accounts, logins, hosts, audit)
        self._dialled = DialledEngines(config, clock, self.entrance, partials, store)
        self._came_as_neighbour = came_as_neighbour
        self.offers = _offers(len(neighbours), config.limits.memory_bytes_max)
        """The features that this node offers, and uses with peers that offer them too; simulated nodes of an earlier
        version have fewer."""

    def open(self, event: events.ConnectionOpened) -> None:
        """A transport is up: creates its engine with our open, and informs the session that dialled it."""
        neighbour = self._neighbours.get(event.neighbour or "")
        remote = None if event.neighbour is None or neighbour is not None else self._remotes[event.neighbour]
        if neighbour is not None:
            engine = self._dialled.of_neighbour(event, neighbour.config, neighbour.dials, self.offers)
        else:
            engine = self._accepted_engine(event) if remote is None else self._dialled.of_remote(event, remote.config)
        peer = Peer(
            event.connection, engine, address=event.peer, loopback=event.loopback,
            dialled=event.neighbour is not None, touched=self._connections.touched, log=self._log,
        )  # fmt: skip
        engine.tell = partial(self._deliver, peer)
        peer.audit = self._audit if self._audit.is_wanted else None
        self._connections[event.connection] = peer
        self._memory.passed_bytes += CONNECTION_BYTES
        self._deadlines.watch(peer)
        if neighbour is not None:
            peer.account = neighbour.config.account
            neighbour.connected(peer)
        elif remote is not None:
            peer.account = remote.config.name
            remote.connected(peer)
        peer.touch()
        if not peer.dialled:
            self._guard.came(peer)
        if self._is_stopping():
            self._connections.drop(peer, "the node is stopping")

    def _accepted_engine(self, event: events.ConnectionOpened) -> amqp.Connection:
        """The engine of an accepted connection, of a client or a neighbour."""
        mechanisms = self.entrance.mechanisms(event)
        hold_s = min((item.hold_time_s for item in self._config.neighbours), default=3.0)
        settings = amqp.Settings(
            **bounds(self._config),
            **bounds_of_strangers(self._config),
            offered_capabilities=(features.CUSTODY, ANONYMOUS_RELAY, SHARED_SUBSCRIPTIONS, DELAYED_DELIVERY),
            properties=properties(self._store(), hold_s) | {TOPIC_PREFIX_KEY: TOPIC_PREFIX},
            answer_open=lambda theirs, ours: self._answer_open(event.connection, theirs, ours),
            idle_time_out_s=self._config.limits.idle_time_out_s,
            sasl_required=ANONYMOUS not in mechanisms,
            mechanisms=mechanisms,
            nonce=self.entrance.nonce(event),
            keys=self.entrance.keys(lambda: self._connections[event.connection]),
        )
        authenticate = self.entrance.authenticator(event, lambda: self._connections[event.connection])
        return amqp.Connection(
            settings, server=True, now=self._clock.now, authenticate=authenticate, partials=self._partials
        )

    def secured(self, event: events.Secured | events.SecuringFailed) -> None:
        """TLS is established on a connection, before its first bytes, or has failed."""
        peer = self._connections.get(event.connection)
        if peer is None:
            return
        if isinstance(event, events.SecuringFailed):
            peer.log("INFO", event.reason)
            return
        peer.tls_version = event.version
        peer.certificate = event.certificate
        peer.amqp.certify(self.entrance.user_of(event.certificate))

    def _answer_open(self, number: int, theirs: Open, ours: Open) -> Error | None:
        """The error with which the connection is closed right after our open; None if it is accepted. A node is offered
        the features that it offers itself, so a client's answer stays short.
        """
        both = features.offered_by(theirs, self.offers)
        told = ours.offered_capabilities or ()
        ours.offered_capabilities = (
            *told,
            *(Symbol(item) for item in self.offers if item in both and item not in told),
        )
        peer = self._connections.get(number)
        host = DEFAULT_HOST if peer is None else self._hosts.enter(peer.login_hosts, theirs.hostname)
        if isinstance(host, Error):
            if peer is not None:
                peer.log("WARNING", f"refused: {host.description}")
            ours.properties = {**(ours.properties or {}), ESTABLISHMENT_FAILED: True}
            return host
        who = None if peer is None else peer.who
        refused = answer_open(self._connections, self._neighbours, theirs, ours, host=host, who=who)
        if refused is not None or peer is None:
            return refused
        peer.host = host
        if self._speaks_as(peer, theirs) is not None:
            ours.properties = {**(ours.properties or {}), **features.VERSIONS}
            return None
        reason = self._guard.reserved.get(peer) or self._users.too_many_connections(peer)
        if reason is not None:
            self._users.count_refused(peer)
        else:
            reason = self._hosts.too_many_connections(host, self._connections.values())
        return None if reason is None else self._refusals.error(peer, reason)

    def users_changed(self, event: events.UsersChanged) -> None:
        """The file of users has changed. Closes connections of users that were removed or have another password."""
        stored = [StoredUser(name, host, parse(credential)) for host, name, credential in event.users]
        gone = set(self._accounts.change(stored, event.seed))
        self._users.know(self._accounts.stored_names())
        self._audit.configured("the file of users was read")
        self._log_out_users(gone, self.log_out)

    def configure(
        self, config: NodeConfig, differs: Callable[[str | None, str], bool], asking: Collection[Peer] = ()
    ) -> list[tuple[Peer, str]]:
        """The users of the node's own file changed, or the rights of users, as `differs` says. Closes connections of
        users whose login or rights changed; those that are `asking` for it are returned, each with the reason, because
        they get their answer first."""
        leaving: list[tuple[Peer, str]] = []

        def log_out(peer: Peer, why: str) -> None:
            if peer in asking:
                leaving.append((peer, why))
            else:
                self.log_out(peer, why)

        had_users = self._accounts.has_users
        self._config = config
        gone = set(self._accounts.configure(config.users, config.neighbours))
        self.entrance.configure(config.users)
        self._users.configure(config.users, self._accounts.stored_names())
        self._log_out_users(gone, log_out)
        for peer in list(self._connections.values()):
            if peer.remote is not None and differs(peer.who, peer.host):
                self._connections.drop(peer, "the rights of its account have changed")  # it is dialled again
            if peer.dialled:
                continue
            if not had_users and self._accounts.has_users:
                log_out(peer, USERS_BEGAN)
            elif peer.neighbour is None and any(differs(peer.who, host) for host in _hosts_of(peer)):
                log_out(peer, RULES_CHANGED)
        return leaving

    def _log_out_users(self, gone: Set[HostedName], log_out: Callable[[Peer, str], None]) -> None:
        for peer in list(self._connections.values()) if gone else ():
            user = None if peer.dialled else peer.amqp.authenticated_user  # there, we have logged in
            if user is not None and any(hosted(host, user) in gone for host in _hosts_of(peer)):
                log_out(peer, LOGGED_OUT)

    def log_out(self, peer: Peer, why: str) -> None:
        """Closes the connection of a user who may not use it any more. Idempotent."""
        if peer.why_closed in (LOGGED_OUT, RULES_CHANGED, USERS_BEGAN):
            return
        peer.log("INFO", f"connection {why}")
        if not peer.amqp.usable:
            self._connections.drop(peer, why)
            return
        peer.why_closed = why
        peer.amqp.close(Error(Symbol(conditions.UNAUTHORIZED_ACCESS), why))
        peer.touch()
        self._refusals.closing(peer)

    def welcome(self, peer: Peer, event: amqp.Opened) -> None:
        """Handles the peer's open: it is a neighbour whose session begins, or a client."""
        self._meet(peer, event)
        if self._connections.holds(peer) and peer.amqp.usable:
            reason = self._users.enter(peer)
            if reason is not None:
                self._refusals.refuse(peer, reason)
            elif not peer.dialled:
                self._audit.login(peer, outcome=OK)

    def _meet(self, peer: Peer, event: amqp.Opened) -> None:
        self._guard.opened(peer)
        if not peer.amqp.usable:  # closed as it opened (_answer_open), or the node is stopping
            self._refusals.closing(peer)
            return
        name = str(event.open.container_id)
        properties = event.open.properties or {}
        peer.features = features.offered_by(event.open, self.offers)
        if peer.remote is not None:
            self._remotes[peer.remote.name].opened(peer)
        elif peer.dialled:
            neighbour = peer.neighbour
            assert neighbour is not None
            if features.CUSTODY not in peer.features:
                text = "what answers at its remote is not a Holdfast node: it does not offer custody"
                self._connections.drop(peer, f"{text}; correct its remote, or list it as a [[remote]]")
            elif name != neighbour.name:
                text = f"node {name!r} answers at its remote, not {neighbour.name!r}"
                self._connections.drop(peer, f"{text}; correct name or remote of [[neighbour]]")
            else:
                neighbour.opened(peer, properties)
        elif self._speaks_as(peer, event.open) is not None:
            self._neighbours[name].opened(peer, properties)

    def _speaks_as(self, peer: Peer, theirs: Open) -> str | None:
        """The neighbour to which an accepted connection belongs; None: a client."""
        if peer.host != DEFAULT_HOST:
            return None  # its users may be called as neighbours are
        name = str(theirs.container_id)
        offers = features.CUSTODY in features.offered_by(theirs)
        return name if offers and name in self._neighbours and self._is_neighbour(peer, name) else None

    def _is_neighbour(self, peer: Peer, name: str) -> bool:
        """Whether the peer's login proves that it is that neighbour (ARCHITECTURE, "Who is believed")."""
        config = self._neighbours[name].config
        user = peer.amqp.authenticated_user
        if config.user is not None and config.password is not None:
            return user == config.user
        if self._accounts.has_users:
            return user == (config.user or name)
        return peer.loopback

    def why_no_neighbour(self, peer: Peer) -> str:
        """The answer to a connection that asks for what only neighbours may have. If it comes from a Holdfast node,
        which may be meant as a neighbour, it is a warning here as well."""
        theirs = peer.amqp.remote_open
        if theirs is None or features.CUSTODY not in features.offered_by(theirs):
            return "this address is for neighbours, and this connection does not offer custody; use another address"
        here, name = self._config.name, str(theirs.container_id)[:NAME_BYTES_MAX]
        listed = f"[[neighbour]] name = {_quoted(name)}"
        if name == here:
            cure = f"both nodes are called {here!r}: give one of them another name"
        elif name not in self._neighbours:
            cure = self._how_to_list(name, listed)
        else:
            cure = f"it did not log in as {here!r} expects it to: compare user and password with {listed} there"
        self._came_as_neighbour(name, f"a node {name!r} at {host_of(peer.address)} tried to be a neighbour; {cure}")
        return f"this address is for neighbours, which {name!r} is not: {cure}"

    def _how_to_list(self, name: str, listed: str) -> str:
        """How to make that node a neighbour. With a topology file, a [[neighbour]] without a link in it would keep this
        node from starting."""
        here, topology = self._config.name, self._config.topology
        if topology is None or topology.link_between(here, name) is not None:
            return f"it is not listed at {here!r}: add {listed} there"
        added = f"[[link]] from = {_quoted(name)} to = {_quoted(here)} there"
        if topology.node(name) is None:
            added = f"[[node]] name = {_quoted(name)} and {added}"
        own = topology.node(here)
        if own is None or own.address is None:  # such a link alone makes no neighbour
            added = f"{added}, {listed} to the file of {here!r}"
        return f"the topology of {here!r} has no link between the two: add {added}, and reload {here!r}"


def _offers(neighbours: int, memory_bytes_max: int) -> tuple[str, ...]:
    """All features; shared bodies only if those of all neighbours fit a quarter of the node's memory."""
    if 2 * WINDOW_BYTES * neighbours <= memory_bytes_max // 4:
        return features.ALL
    return tuple(one for one in features.ALL if one != features.BODIES)


def _hosts_of(peer: Peer) -> tuple[str, ...]:
    """The virtual host of a client; before it has opened, those that its login may be for."""
    return peer.login_hosts if peer.amqp.remote_open is None else (peer.host,)


def _quoted(name: str) -> str:
    """The text as a TOML string."""
    return dumps(name, ensure_ascii=False)
