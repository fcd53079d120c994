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
    """Who has a name within a virtual host, `vhost`."""

    @property
    def name(self) -> str: ...
    @property
    def vhost(self) -> str: ...


class InHost:
    """Of what has a name within a virtual host: its key."""

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
    """What custody is for: the node, or HOST@NODE where the messages are to end in that virtual host there."""
    return f"{host}@{node}" if host else node


def host_of(destination: str) -> str:
    """The virtual host in which messages for that destination are, from their first node to their last."""
    return destination.rpartition("@")[0]


def node_of(destination: str) -> str:
    """The node where they end. No name of a node has an `@`."""
    return destination.rpartition("@")[2]


def said_in(host: str, text: str) -> str:
    """What a log says of something in that host, which of another one than the default begins with its name."""
    return f"virtual host {host!r}: {text}" if host else text


def shown(host: str, name: str) -> str:
    """Host and name, for a person who sees several hosts: in the default one only the name, quoted."""
    return f"{name!r} of virtual host {host!r}" if host else repr(name)
