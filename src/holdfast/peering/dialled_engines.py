"""The AMQP engines of connections that this node dials, to neighbours and to remotes.

Rules of this file: a neighbour is told what nodes tell each other in their open; a remote gets the open of any client,
and has the bounds of one.
"""

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from holdfast.amqp import connection as amqp
from holdfast.amqp.connection import Partials
from holdfast.amqp.effort import ATTACH
from holdfast.amqp.login.mechanisms import mechanisms_for
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.engine import events
from holdfast.engine.clock import Clock
from holdfast.peering import sessions
from holdfast.peers.entrance import Entrance
from holdfast.peers.neighbours import features
from holdfast.peers.peer import host_of
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.remotes import RemoteConfig

PRODUCT: Final[dict[Any, Any]] = {Symbol("product"): "Holdfast"}


def bounds(config: NodeConfig) -> dict[str, Any]:
    """The settings that all connections have."""
    limits = config.limits
    return {
        "container_id": config.name,
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


def bounds_of_strangers(config: NodeConfig) -> dict[str, Any]:
    """The settings of connections to clients and remotes, beside `bounds`."""
    limits = config.limits
    return {
        "handshake_time_out_s": limits.handshake_time_out_s,
        "peer_idle_time_out_min_s": limits.peer_idle_time_out_min_s,
        "effort_per_s": limits.attaches_per_s * ATTACH,
        "effort_burst": limits.attaches_burst * ATTACH,
    }


def properties(store: UUID, hold_s: float) -> dict[Any, Any]:
    """The properties of our open to nodes and clients."""
    return PRODUCT | {sessions.STORE: store, sessions.HOLD_TIME: Ulong(int(hold_s * 1000))}


class DialledEngines:
    """Creates them. `store`: the store's UUID as this node advertises it."""

    def __init__(
        self, config: NodeConfig, clock: Clock, entrance: Entrance, partials: Partials, store: Callable[[], UUID]
    ) -> None:
        self._config = config
        self._clock = clock
        self._entrance = entrance
        self._partials = partials
        self._store = store

    def of_neighbour(
        self, event: events.ConnectionOpened, config: NeighbourConfig, dial: int, offers: tuple[str, ...]
    ) -> amqp.Connection:
        """`dial`: the number of this dial; `offers`: the features that this node offers."""
        told = properties(self._store(), config.hold_time_s) | {sessions.DIAL: Ulong(dial)}
        return self._engine(
            event,
            config,
            offered_capabilities=offers,
            properties={**told, **features.VERSIONS},
            desired_capabilities=(features.CUSTODY,),
            idle_time_out_s=config.hold_time_s,
        )

    def of_remote(self, event: events.ConnectionOpened, config: RemoteConfig) -> amqp.Connection:
        """The engine of a connection to a remote."""
        hostname, idle_s = config.hostname or host_of(config.remote), self._config.limits.idle_time_out_s
        return self._engine(
            event,
            config,
            hostname=hostname,
            properties=PRODUCT,
            idle_time_out_s=idle_s,
            **bounds_of_strangers(self._config),
        )

    def _engine(
        self, event: events.ConnectionOpened, config: NeighbourConfig | RemoteConfig, **rest: Any
    ) -> amqp.Connection:
        """Without a nonce of the driver a password is sent as PLAIN."""
        exposed = not (event.encrypted or event.loopback) and bool(event.nonce)
        user, allowed = config.user or None, self._config.plain_without_tls
        settings = amqp.Settings(
            **bounds(self._config),
            **rest,
            mechanism=mechanisms_for(user, certified=event.encrypted, exposed=exposed, plain_allowed=allowed),
            nonce=self._entrance.nonce(event),
            user=config.user,
            password=config.password if user else None,
        )
        return amqp.Connection(settings, server=False, now=self._clock.now, partials=self._partials)
