"""Who is let in: the engine of each connection, who may log in, and who may speak as a neighbour.

Rules of this file: nothing is believed before it is checked (ARCHITECTURE, "Hostile until checked"). Passwords are
compared in constant time and never told.
"""

from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from json import dumps
from typing import TYPE_CHECKING, Any

from holdfast.amqp import connection as amqp
from holdfast.amqp.effort import ATTACH
from holdfast.amqp.performatives import Error, Open
from holdfast.amqp.sasl import LoginWaits
from holdfast.amqp.types import Symbol, Ulong
from holdfast.core import events, sessions
from holdfast.core.containers import answer_open
from holdfast.core.logins import Login
from holdfast.core.memory import CONNECTION_BYTES
from holdfast.core.peer import Peer, host_of
from holdfast.core.relay import ANONYMOUS_RELAY
from holdfast.names import NAME_BYTES_MAX

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore


def open_door(core: "NodeCore", event: events.ConnectionOpened) -> None:
    """A transport is up: its engine, with what we say of ourselves, and the session that dialled it."""
    limits = core.config.limits
    common: dict[str, Any] = {
        "container_id": core.config.name,
        "max_frame_size": limits.frame_bytes_max,
        "nesting_max": limits.nesting_max,
        "max_message_size": limits.message_bytes_max,
        "channel_max": limits.sessions_max - 1,
        "handle_max": limits.session_links_max - 1,
        "sessions_max": limits.sessions_max,
        "links_max": limits.links_max,
        "unsettled_max": limits.incoming_unsettled_max,
        "partial_bytes_max": limits.partial_bytes_max,
        "terms_bytes_max": limits.terms_bytes_max,
        "name_bytes_max": limits.name_bytes_max,
        "runs": True,
    }
    told: dict[Any, Any] = {
        Symbol("product"): "Holdfast",
        sessions.STORE: core.told_uuid,
    }
    if event.neighbour is not None:
        neighbour = core.neighbours[event.neighbour]
        config = neighbour.config
        told[sessions.HOLD_TIME] = Ulong(int(config.hold_time_s * 1000))
        told[sessions.DIAL] = Ulong(neighbour.dials)
        settings = amqp.Settings(
            **common,
            offered_capabilities=(sessions.CAPABILITY, sessions.ALIASES),
            properties=told,
            desired_capabilities=(sessions.CAPABILITY,),
            idle_time_out_s=config.hold_time_s,
            mechanism="PLAIN" if config.user else "ANONYMOUS",
            user=config.user,
            password=config.password if config.user else None,
        )
        engine = amqp.Connection(settings, server=False, now=core.clock.now, partials=core.pressure.partials)
    else:
        hold = min((item.hold_time_s for item in core.config.neighbours), default=3.0)
        told[sessions.HOLD_TIME] = Ulong(int(hold * 1000))
        settings = amqp.Settings(
            **common,
            offered_capabilities=(sessions.CAPABILITY, ANONYMOUS_RELAY),
            properties=told,
            answer_open=lambda theirs, ours: _answer_open(core, event.connection, theirs, ours),
            idle_time_out_s=limits.idle_time_out_s,
            handshake_time_out_s=limits.handshake_time_out_s,
            peer_idle_time_out_min_s=limits.peer_idle_time_out_min_s,
            effort_per_s=limits.attaches_per_s * ATTACH,
            effort_burst=limits.attaches_burst * ATTACH,
            sasl_required=bool(core.config.users) or not event.loopback,
        )
        engine = amqp.Connection(
            settings,
            server=True,
            now=core.clock.now,
            authenticate=_authenticator(core, event),
            partials=core.pressure.partials,
        )
    peer = Peer(
        event.connection,
        engine,
        address=event.peer,
        loopback=event.loopback,
        dialled=event.neighbour is not None,
        touched=core.connections.touched,
        log=core.peer_log.write,
    )
    engine.tell = partial(core.told, peer)
    core.connections[event.connection] = peer
    core.memory.passed_bytes += CONNECTION_BYTES
    core.deadlines.watch(peer)
    if event.neighbour is not None:
        core.neighbours[event.neighbour].connected(peer)
    peer.touch()
    if not peer.dialled:
        core.guard.came(peer)
    if core.stopping:
        core.connections.drop(peer, "the node is stopping")


def _answer_open(core: "NodeCore", number: int, theirs: Open, ours: Open) -> Error | None:
    """Why the connection is closed as it opens, and nothing that came with its open is begun; None where it stays.

    Aliases are offered to who offers them: a client's answer stays as short as it was.
    """
    if sessions.ALIASES in [str(item) for item in theirs.offered_capabilities or ()]:
        ours.offered_capabilities = (*(ours.offered_capabilities or ()), Symbol(sessions.ALIASES))
    refused = answer_open(core, theirs, ours)
    peer = core.connections.get(number)
    if refused is not None or peer is None or _speaks_as(core, peer, theirs) is not None:
        return refused
    reason = core.guard.reserved.get(peer) or core.users.too_many_connections(peer)
    if reason is None:
        return None
    core.users.count_refused(peer)
    return core.refusals.error(peer, reason)


def _authenticator(core: "NodeCore", event: events.ConnectionOpened) -> Callable[[str, str | None, str | None], bool]:
    users = {user.name: user.password for user in core.config.users}
    theirs = {item.user: item.password for item in core.config.neighbours if item.user and item.password}
    login = Login(core.logins, host_of(event.peer), theirs | users)

    def authenticate(mechanism: str, user: str | None, password: str | None) -> bool:
        """Without users anyone on loopback is let in, but nobody as a neighbour's user without its password."""
        wanted = None if user is None else users.get(user, theirs.get(user))
        if wanted is None and not users and event.loopback:
            return True
        if mechanism != "PLAIN":
            return False
        waits_until = login.waits_until(user)
        if waits_until is not None:
            raise LoginWaits(waits_until)
        return login.answered(user, wanted is not None and _same(wanted, password))

    return authenticate


def welcome(core: "NodeCore", peer: Peer, event: amqp.Opened) -> None:
    """The peer said who it is: a neighbour whose session begins, or else a client."""
    _meet(core, peer, event)
    if core.connections.holds(peer) and peer.amqp.usable:
        reason = core.users.enter(peer)
        if reason is not None:
            core.refusals.refuse(peer, reason)


def _meet(core: "NodeCore", peer: Peer, event: amqp.Opened) -> None:
    core.guard.opened(peer)
    if not peer.amqp.usable:  # closed as it opened (_answer_open), or the node is stopping
        core.refusals.closing(peer)
        return
    name = str(event.open.container_id)
    offered = [str(item) for item in event.open.offered_capabilities or ()]
    properties = event.open.properties or {}
    peer.takes_aliases = sessions.ALIASES in offered
    if peer.dialled:
        neighbour = peer.neighbour
        assert neighbour is not None
        if name != neighbour.name:
            text = f"found node {name!r} at its remote, not {neighbour.name!r}: correct name or remote of [[neighbour]]"
            core.connections.drop(peer, text)
        elif sessions.CAPABILITY not in offered:
            core.connections.drop(peer, "what answers at its remote is no Holdfast node: it does not offer custody")
        else:
            neighbour.opened(peer, properties)
    elif _speaks_as(core, peer, event.open) is not None:
        core.neighbours[name].opened(peer, properties)


def _speaks_as(core: "NodeCore", peer: Peer, theirs: Open) -> str | None:
    """The neighbour as which a connection that came to us speaks; None: a client's."""
    name = str(theirs.container_id)
    offers = sessions.CAPABILITY in (str(item) for item in theirs.offered_capabilities or ())
    return name if offers and name in core.neighbours and _is_neighbour(core, peer, name) else None


def _is_neighbour(core: "NodeCore", peer: Peer, name: str) -> bool:
    """Whether who logged in may speak as that neighbour (ARCHITECTURE, "Hostile until checked")."""
    config = core.neighbours[name].config
    user = peer.amqp.authenticated_user
    if config.user is not None and config.password is not None:
        return user == config.user
    if core.config.users:
        return user == (config.user or name)
    return peer.loopback


def why_no_neighbour(core: "NodeCore", peer: Peer) -> str:
    """What a connection is told that asks for what only neighbours may have. One of another node of ours, which may be
    meant as a neighbour, is among the warnings here as well."""
    theirs = peer.amqp.remote_open
    if theirs is None or sessions.CAPABILITY not in [str(item) for item in theirs.offered_capabilities or ()]:
        return "this address is for neighbours: found a connection that does not offer custody"
    here, name = core.config.name, str(theirs.container_id)[:NAME_BYTES_MAX]
    listed = f"[[neighbour]] name = {_quoted(name)}"
    if name == here:
        cure = f"both nodes are called {here!r}: give one of them another name"
    elif name not in core.neighbours:
        cure = _how_to_list(core, name, listed)
    else:
        cure = f"it did not log in as {here!r} expects it to: compare user and password with {listed} there"
    core.warnings.came_as_neighbour(name, f"a node {name!r} at {host_of(peer.address)} tried to be a neighbour; {cure}")
    return f"this address is for neighbours, which {name!r} is not: {cure}"


def _how_to_list(core: "NodeCore", name: str, listed: str) -> str:
    """What makes a neighbour of that node. Where there is a topology, a [[neighbour]] that it does not join ends this
    one at its next start."""
    here, topology = core.config.name, core.config.topology
    if topology is None or topology.link_between(here, name) is not None:
        return f"it is not listed at {here!r}: add {listed} there"
    added = f"[[link]] from = {_quoted(name)} to = {_quoted(here)} there"
    if topology.node(name) is None:
        added = f"[[node]] name = {_quoted(name)} and {added}"
    own = topology.node(here)
    if own is None or own.address is None:  # such a link alone makes no neighbour
        added = f"{added}, {listed} to the file of {here!r}"
    return f"the topology of {here!r} has no link between the two: add {added}, and restart {here!r}"


def _quoted(name: str) -> str:
    """As TOML has it."""
    return dumps(name, ensure_ascii=False)


def _same(wanted: str, found: str | None) -> bool:
    return found is not None and compare_digest(wanted.encode(), found.encode())
