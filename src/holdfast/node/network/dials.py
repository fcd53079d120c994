"""Dials to the neighbours and remotes that a node reaches by address.

Rules of this file: the core decides when one is dialled; every dial ends in a connection or ConnectFailed,
unless a new dial has replaced it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from holdfast.dialling import dial
from holdfast.engine.events import ConnectFailed, Event
from holdfast.names import HostPort, parse_host_port
from holdfast.node.config import parse_local
from holdfast.node.network.certificates import Certificates
from holdfast.node.network.encryption import Encryption
from holdfast.node.network.transport import Peer, PeerOwner
from holdfast.node.socket_errors import describe
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.remotes import RemoteConfig

_log = logging.getLogger(__name__)

Dialled = NeighbourConfig | RemoteConfig


class Dials:
    """At most one dial for each of `dialled`, neighbours and remotes by name. A new connection belongs to `owner`;
    `feed` hands an event to the core."""

    def __init__(
        self,
        dialled: Iterable[Dialled],
        feed: Callable[[Event], None],
        owner: PeerOwner,
        certificates: Certificates | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._feed = feed
        self._owner = owner
        self._certificates = certificates
        self._server_names: dict[str, str] = {}
        """Whose certificate it must be, by name, where TLS is spoken."""
        self._remotes: dict[str, HostPort] = {}
        self._sources: dict[str, HostPort] = {}
        self.under_way: dict[str, asyncio.Task[None]] = {}
        """By name; a fresh dial takes the place of one that is under way."""
        self._dialled: dict[str, Dialled] = {}
        self.configure(dialled, certificates)

    def configure(self, dialled: Iterable[Dialled], certificates: Certificates | None) -> None:
        """Sets what may be dialled; dials of others, and of those that changed, end."""
        before, self._dialled = self._dialled, {each.name: each for each in dialled}
        self._certificates = certificates
        for table in (self._server_names, self._remotes, self._sources):
            table.clear()
        for each in self._dialled.values():
            if each.remote is not None:
                where = parse_host_port("remote", each.remote, port_min=1)
                self._remotes[each.name] = where
                if each.tls:
                    self._server_names[each.name] = each.server_name or where.host
            if each.local is not None:
                self._sources[each.name] = parse_local("local", each.local)
        for name, task in list(self.under_way.items()):
            if before.get(name) != self._dialled.get(name):
                task.cancel()

    @property
    def wanted(self) -> bool:
        """Whether anything is dialled."""
        return bool(self._remotes)

    def dial(self, neighbour: str) -> None:
        """Begins to dial the neighbour or remote of that name."""
        before = self.under_way.get(neighbour)
        self.under_way[neighbour] = self._loop.create_task(self._dial(neighbour))
        if before is not None:
            before.cancel()

    def cancel(self) -> None:
        """Cancels all running dials, because the node is stopping."""
        for task in list(self.under_way.values()):
            task.cancel()

    def _encryption(self, neighbour: str) -> Encryption | None:
        server_name = self._server_names.get(neighbour)
        if server_name is None:
            return None
        assert self._certificates is not None
        return self._certificates.dialled(server_name)

    async def _dial(self, neighbour: str) -> None:
        where = self._remotes.get(neighbour)
        if where is None:  # it was removed, or dials this node now
            self._feed(ConnectFailed(neighbour=neighbour, reason="its remote was removed from the configuration"))
            self.under_way.pop(neighbour, None)
            return
        source = self._sources.get(neighbour)
        try:
            own = await dial(where.host, where.port, source=source)
            try:
                peer = Peer(self._owner, neighbour, self._encryption(neighbour))
                await self._loop.create_connection(lambda: peer, sock=own)
            except BaseException:
                own.close()
                raise
        except asyncio.CancelledError:
            if self.under_way.get(neighbour) is asyncio.current_task():  # otherwise a new one has replaced it
                self._feed(ConnectFailed(neighbour=neighbour, reason="given up"))
        except OSError as error:
            way = f"{source} to {where}" if source is not None else str(where)
            self._feed(ConnectFailed(neighbour=neighbour, reason=f"{way}: {describe(error)}"))
        except Exception as error:
            _log.exception("neighbour %s: the dial failed", neighbour)
            self._feed(ConnectFailed(neighbour=neighbour, reason=describe(error)))
        finally:
            if self.under_way.get(neighbour) is asyncio.current_task():
                del self.under_way[neighbour]
