"""The brokers that are no Holdfast nodes, and that a node exchanges messages with (docs/remotes.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.settings.checks import server_name_with
from holdfast.settings.hosts import check_hostname
from holdfast.settings.queues import QueueConfig

REMOTES_MAX: Final = 64
"""The maximum number of remotes of a node: each is asked for its deadline in every turn."""

ADDRESSES_MAX: Final = 256
"""The maximum number of addresses at one remote to which messages are sent, and of those from which some are fetched:
each is a link."""

REMOTE_NAME_BYTES_MAX: Final = 199
"""The maximum size of a remote's name, in UTF-8: with an address before it, it is the key of a queue."""

FAR_ADDRESS_BYTES_MAX: Final = 1_024
"""The maximum size of an address at a remote, in UTF-8."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Messages of the address `source` at the remote are published here, to the address `target`."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig:
    """A broker that this node dials at `remote`, HOST:PORT. `local`, `user`, `password`, `tls`, `server_name`: as of a
    neighbour (settings/neighbours.py).

    `hostname`: the virtual host there, in the connection's open; None: the host of `remote`. `addresses`: (the address
    here, what it is called there), where the two differ. `bytes_max`, `messages_max`, `when_full`, `deliveries_max`: of
    the queue of each address, as of any queue.
    """

    name: str
    remote: str
    local: str | None = None
    user: str | None = None
    password: str | None = None
    tls: bool = False
    server_name: str | None = None
    hostname: str | None = None
    addresses: tuple[tuple[str, str], ...] = ()
    bytes_max: int | None = None
    messages_max: int | None = None
    when_full: str = "block"
    deliveries_max: int | None = None
    fetch: tuple[Fetch, ...] = ()

    def __repr__(self) -> str:
        return f"RemoteConfig(name={self.name!r}, remote={self.remote!r})"

    def far(self, address: str) -> str:
        """What that address is called at the remote."""
        return dict(self.addresses).get(address, address)

    def queue(self, address: str) -> QueueConfig:
        """The settings of the queue of what waits for that address."""
        return QueueConfig(
            name=f"{address}@{self.name}", bytes_max=self.bytes_max, messages_max=self.messages_max,
            when_full=self.when_full, deliveries_max=self.deliveries_max,
        )  # fmt: skip

    def validate(self) -> None:
        """Raises ConfigError that names the remote and the key."""
        if len(check_name(self.name).encode()) > REMOTE_NAME_BYTES_MAX:
            text = f"invalid name {self.name[:60]!r} of a remote"
            raise ConfigError(f"{text}; expected at most {REMOTE_NAME_BYTES_MAX} bytes")
        where = f"remote {self.name!r}"
        server_name_with(where, self.server_name, tls=self.tls)
        if self.hostname is not None:
            check_hostname(f"{where} hostname", self.hostname)
        for here, there in self.addresses:
            check_name(here)
            _check_far(f"{where} addresses", there)
        self.queue("address").check_values(where)
        for key, count in (("addresses", len(self.addresses)), ("fetch", len(self.fetch))):
            if count > ADDRESSES_MAX:
                raise ConfigError(f"{where} has {count} {key}; the limit is {ADDRESSES_MAX}")
        for fetch in self.fetch:
            _check_far(f"{where} fetch from", fetch.source)
            if self.fetch.count(fetch) > 1:
                text = f"{where} fetches from {fetch.source[:60]!r} to {fetch.target[:60]!r}"
                raise ConfigError(f"{text} twice; list it once")


def _check_far(key: str, text: str) -> None:
    if not (text and text.isprintable() and len(text.encode()) <= FAR_ADDRESS_BYTES_MAX):
        text = f"invalid value {text[:60]!r} for {key}; expected 1 to {FAR_ADDRESS_BYTES_MAX} bytes"
        raise ConfigError(f"{text} of printable characters")


def check_remotes(remotes: Sequence[RemoteConfig], taken: dict[str, str]) -> None:
    """Raises ConfigError. `taken`: the names of nodes, each with what has it."""
    names = dict(taken)
    if len(remotes) > REMOTES_MAX:
        raise ConfigError(f"there are {len(remotes)} [[remote]]; the limit is {REMOTES_MAX}")
    for remote in remotes:
        remote.validate()
        if remote.name in names:
            raise ConfigError(f"remote {remote.name!r} has the name of {names[remote.name]}; give it another one")
        names[remote.name] = "another [[remote]]"
