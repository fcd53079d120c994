"""Virtual hosts, and who may log in."""

from dataclasses import dataclass
from typing import Final

from holdfast.broker.entries.host_names import DEFAULT_HOST, InHost
from holdfast.errors import ConfigError
from holdfast.names import HOST_BYTES_MAX, check_name
from holdfast.settings.checks import positive

HOSTS_MAX: Final = 256
ALIAS_BYTES_MAX: Final = 253
"""Characters of a host name (RFC 1035, 2.3.4)."""


def check_hostname(key: str, text: str) -> None:
    """ConfigError where no client can give that as the hostname of its connection."""
    if not text or not text.isprintable() or " " in text or len(text.encode()) > ALIAS_BYTES_MAX:
        expected = f"expected names of 1 to {ALIAS_BYTES_MAX} printable bytes without spaces"
        raise ConfigError(f"invalid value {text[:60]!r} for {key}; {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class VhostConfig:
    """A virtual host (docs/virtual-hosts.md, `[[vhost]]`): queues, users and links of its own. `aliases`: what clients
    may call it beside `name`, as the hostname of their connection. The bounds are those of all its users together."""

    name: str
    aliases: tuple[str, ...] = ()
    connections_max: int | None = None
    queues_max: int | None = None

    def validate(self) -> None:
        """Raises ConfigError that names the host and the key."""
        check_name(self.name)
        where = f"vhost {self.name!r}"
        if len(self.name.encode()) > HOST_BYTES_MAX:
            raise ConfigError(f"invalid name of {where}; expected at most {HOST_BYTES_MAX} bytes")
        for alias in self.aliases:
            check_hostname(f"{where} aliases", alias)
        positive(f"{where} connections_max", self.connections_max)
        positive(f"{where} queues_max", self.queues_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserConfig(InHost):
    """Who may log in: by a password, by a certificate in which that name stands (SASL EXTERNAL), or by either. The
    bounds are those of all its connections together; None: as `[limits]` says."""

    name: str
    password: str | None = None
    certificate: str | None = None
    connections_max: int | None = None
    links_max: int | None = None
    unsettled_bytes_max: int | None = None
    requests_per_s: int | None = None
    vhost: str = DEFAULT_HOST

    def __repr__(self) -> str:
        return f"UserConfig(name={self.name!r})"
