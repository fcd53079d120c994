"""Names within virtual hosts: the same name in two hosts means two things (docs/adr/0071-virtual-hosts.md).

Rules of this file: pure. Tables of the node are keyed by `HostedName`, which only `hosted` makes from a host and a
name, so that no name from a peer can refer to another host. The default host is "", and its names are unchanged.
"""

from typing import Final, NewType, Protocol

DEFAULT_HOST: Final = ""

HostedName = NewType("HostedName", str)
"""A name with its host, as tables and the store's keys have it: HOST, NUL and NAME; NAME alone in the default host."""

_NUL: Final = "\0"


def hosted(host: str, name: str) -> HostedName:
    """The name in that host. Valid hosts and names have no NUL; a name with one, which a peer may send, names nothing
    in any host."""
    key = f"{host}{_NUL}{name}" if host else name if _NUL not in name else _NUL + name
    return key  # type: ignore[return-value]  # to call a NewType costs as much as all of this, for each arrival


class Named(Protocol):
    """An object with a name within a virtual host, `vhost`."""

    @property
    def name(self) -> str: ...
    @property
    def vhost(self) -> str: ...


class InHost:
    """The key of an object with a name within a virtual host."""

    __slots__ = ()

    @property
    def key(self: Named) -> HostedName:
        """Its name among those of all hosts."""
        return hosted(self.vhost, self.name)


def read_key(key: str) -> tuple[str, str]:
    """The host and the name of a key of the store."""
    host, nul, name = key.partition(_NUL)
    return (host, name) if nul else (DEFAULT_HOST, key)


def destination_of(host: str, node: str) -> str:
    """The destination of custody: the node, or HOST@NODE for messages that end in that virtual host there."""
    return f"{host}@{node}" if host else node


def host_of(destination: str) -> str:
    """The virtual host of messages for that destination, at every node."""
    return destination.rpartition("@")[0]


def node_of(destination: str) -> str:
    """The node where they end. No name of a node has an `@`."""
    return destination.rpartition("@")[2]


def said_in(host: str, text: str) -> str:
    """Text for the log about that host; for another host than the default one it begins with the host's name."""
    return f"virtual host {host!r}: {text}" if host else text


def shown(host: str, name: str) -> str:
    """Host and name, for a person who sees several hosts: in the default one only the name, quoted."""
    return f"{name!r} of virtual host {host!r}" if host else repr(name)
