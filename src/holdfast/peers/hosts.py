"""Which virtual host a connection is in, by its login and its open (AMQP 1.0 §2.7.1, §5.3.3.2; ADR 0071).

Rules of this file: pure. A hostname is a claim: it only chooses among the hosts that the login allows. A node without
`[[vhost]]` ignores the hostname of a client.
"""

from collections.abc import Container, Iterable, Sequence
from ipaddress import ip_address
from typing import Final

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, hosted
from holdfast.peers.peer import Peer
from holdfast.settings.node import NodeConfig

PREFIX: Final = "vhost:"
"""The prefix of a host's name, as clients of other brokers write it too: never the name of a machine."""


class VirtualHosts:
    """The virtual hosts of a node, by the names that clients use."""

    def __init__(self, config: NodeConfig) -> None:
        self._node = config.name
        self._names = {name.casefold(): host.name for host in config.vhosts for name in (host.name, *host.aliases)}
        self._exact = {host.name for host in config.vhosts}
        own = ("localhost", config.name, *config.own_addresses, *config.hostnames)
        self._own = {name.casefold() for name in own}
        self._connections_max = {host.name: host.connections_max for host in config.vhosts}
        self.names = tuple(host.name for host in config.vhosts)

    def named(self, hostname: str | None) -> str | None:
        """The host that `hostname` names; DEFAULT_HOST if it names the node, or nothing; None if there is no such
        host."""
        if not hostname:
            return DEFAULT_HOST
        if hostname.startswith(PREFIX):
            name = hostname[len(PREFIX) :]
            return name if name in self._exact else None
        text = hostname.casefold()
        found = self._names.get(text)
        if found is not None or not self._exact:
            return found or DEFAULT_HOST
        return DEFAULT_HOST if text in self._own or _is_ip(text) else None

    def of_login(self, user: str, hostname: str | None, users: Container[HostedName]) -> list[str]:
        """The hosts in which a user of that name may log in: the one that SASL's hostname names, if it has such a user;
        otherwise all that have one."""
        named = self.named(hostname)
        if named and hosted(named, user) in users:
            return [named]
        return [name for name in (DEFAULT_HOST, *self.names) if hosted(name, user) in users]

    def enter(self, login_hosts: Sequence[str], hostname: str | None) -> str | Error:
        """The host of a connection whose open has that hostname, or the error that closes it. `login_hosts`: those that
        its login allows; empty without a login, which allows any. The error does not reveal which other hosts exist."""
        named = self.named(hostname)
        if named is not None and (not login_hosts or named in login_hosts):
            return named
        if named == DEFAULT_HOST:
            if len(login_hosts) == 1:
                return login_hosts[0]
            text = "virtual hosts have a user of that name and password each; give the hostname of one"
            return Error(Symbol(conditions.NOT_ALLOWED), text)
        text = f"no virtual host {(hostname or '').removeprefix(PREFIX)[:60]!r} at {self._node!r}"
        if login_hosts:  # the same for one that is there
            text = f"{text} for this user; log in as one of its users"
        return Error(Symbol(conditions.NOT_FOUND), text)

    def too_many_connections(self, host: str, connections: Iterable[Peer]) -> str | None:
        """Why one more connection is too many for the host; None if it is not. `connections`: those that are open."""
        most = self._connections_max.get(host)
        if most is None:
            return None
        found = sum(peer.host == host and peer.amqp.usable for peer in connections)
        if found < most:
            return None
        return f"virtual host {host!r} has {most} connections, the most it may have (connections_max of the [[vhost]])"


def _is_ip(text: str) -> bool:
    try:
        ip_address(text.removeprefix("[").removesuffix("]").partition("%")[0])
    except ValueError:
        return False
    return True
