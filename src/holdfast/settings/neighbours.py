"""The nodes that a node keeps a session with."""

from dataclasses import dataclass
from typing import Final

from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.settings.checks import positive, server_name_with
from holdfast.units import written

PROBE_S_MIN: Final = 0.005
"""A node that probed its neighbours more often would do little else."""

PROBE_S_BY_KIND: Final = {"tcp": 0.05, "tls": 0.05, "serial": 1.0}
"""How long an idle link of that kind goes unprobed, where nothing is configured: a LAN, and a line of 9,600 baud."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourConfig:
    """A node that we keep a session with. `remote` HOST:PORT where we dial; None where the other side does.

    `local` HOST or HOST:PORT: the local address that a dial goes out from, the update source of traffic-control §3.2.
    `keepalive_s` is how often the link is measured and our marks are sent, `probe_s` how soon an idle one is probed
    (None: by the kind of link that a topology says it is; where none does, `keepalive_s`), `hold_time_s` how long
    silence may last (traffic-control §3.2: the session is managed as BGP's; the smaller of both sides' holds). `hosts`:
    the virtual hosts, beside the default one, whose messages may cross to it and from it. `tls`: TLS is spoken at
    `remote`, by whoever has a certificate for `server_name` (None: for the host of `remote`).
    """

    name: str
    remote: str | None = None
    local: str | None = None
    keepalive_s: float = 1.0
    hold_time_s: float = 3.0
    probe_s: float | None = None
    user: str | None = None
    password: str | None = None
    hosts: tuple[str, ...] = ()
    tls: bool = False
    server_name: str | None = None

    def __repr__(self) -> str:
        return f"NeighbourConfig(name={self.name!r}, remote={self.remote!r})"

    @property
    def account(self) -> str:
        """The user as whom its messages are published here (amqp-illustrations, "Message Relay"): the one that it logs
        in as; of a neighbour that this node dials, which does not log in, its own name."""
        return self.name if self.remote is not None else self.user or self.name

    def probe_every_s(self, kind: str | None) -> float:
        """After so much silence an idle link is probed; `kind`: what a topology says that it is."""
        if self.probe_s is not None:
            return self.probe_s
        return min(PROBE_S_BY_KIND.get(kind or "", self.keepalive_s), self.keepalive_s)

    def validate(self) -> None:
        """Raises ConfigError that names the neighbour and the key."""
        check_name(self.name)
        where = f"neighbour {self.name!r}"
        if self.probe_s is not None and not PROBE_S_MIN <= self.probe_s <= self.hold_time_s:
            raise ConfigError(
                f"invalid value {self.probe_s} for {where} probe_s; expected a number of seconds from "
                f"{written(PROBE_S_MIN)} to hold_time_s ({written(self.hold_time_s)})"
            )
        if self.local is not None and self.remote is None:
            raise ConfigError(f"{where} has local without remote; add remote, or remove local")
        server_name_with(where, self.server_name, tls=self.tls)
        positive(f"{where} keepalive_s", self.keepalive_s)
        positive(f"{where} hold_time_s", self.hold_time_s)
        if self.hold_time_s < self.keepalive_s:
            raise ConfigError(
                f"invalid value {self.hold_time_s} for {where} hold_time_s; expected at least keepalive_s "
                f"({self.keepalive_s})"
            )
