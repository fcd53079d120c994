"""The settings of pacing: as a root that gives rates, as a client that asks for one, or as both.

Rules of this file: data and its checks; TOML is read in `node/config.py`.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.pacing.choosing import policy_of
from holdfast.pacing.messages import BYTES_MAX
from holdfast.pacing.policy import PAPER, Thresholds
from holdfast.pacing.table import PERIOD_S
from holdfast.units import written

SHARE: Final = (0.001, 1_000.0)
"""The lowest and the highest share of a client."""

ROOTS_MAX: Final = 1_000
"""Roots that one client asks: each is sent a report a second."""

HOSTS_MAX: Final = 100
"""Virtual hosts, beside the default one, that a node paces."""

WHEN_FULL: Final = ("block", "refuse")

ROOM_LOW: Final = 0.90
"""Of `capacity_bytes`, for clients' messages of priority 0 to 3, where `when_full` is given."""

ROOM_NORMAL: Final = 0.95
"""The same for priority 4."""

ROOM_QUIET_S: Final = 600.0

SHARES_MAX: Final = 10_000
"""Clients with a share of their own: as many as a root's table has rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacingConfig:
    """`[pacing]` (docs/pacing.md).

    At a root `rate` is what it takes of all clients together, in bytes of messages a second; None: it gives no rates.
    Each `period_s` seconds it shares them by `policy`; `lend`, from 0 to 1, is the part of its free space that `level`
    lends. `shares`: (client, its share), 1 for the others. `hosts`: the virtual hosts that are paced beside the default
    one, at a root and at a client; a root divides its rate among them by `host_shares`, (host, its share), "" for the
    default one and 1 where none is given. At a client `roots` are the nodes whose rates it keeps to, and
    `capacity_bytes` is how many bytes that wait for one of them, in one host, count as a full queue; None: what the
    store takes. `weights`: (utilisation of its queue from which it holds, weight), which it reports; the paper's where
    none is given. With `when_full` no more than `capacity_bytes` is taken of programs for one root, of which those of
    low and of default priority may fill a part (settings.QueueConfig).
    """

    rate: int | None = None
    period_s: float = 2.0
    policy: str = "level"
    lend: float = 0.0
    shares: tuple[tuple[str, float], ...] = ()
    hosts: tuple[str, ...] = ()
    host_shares: tuple[tuple[str, float], ...] = ()
    roots: tuple[str, ...] = ()
    capacity_bytes: int | None = None
    weights: tuple[tuple[float, int], ...] = PAPER.steps
    when_full: str | None = None
    room_low: float = ROOM_LOW
    room_normal: float = ROOM_NORMAL
    room_quiet_s: float = ROOM_QUIET_S

    def validate(self, node: str, reached: Set[str] | None) -> None:
        """Raises ConfigError at the first key that is wrong. `node`: the node's own name. `reached`: the nodes to which
        a way leads; None where a topology says that."""
        if self.rate is not None and not 1 <= self.rate <= BYTES_MAX:
            raise ConfigError(f"invalid value {self.rate} for pacing rate; expected 1 to {BYTES_MAX} bytes a second")
        low_s, high_s = PERIOD_S
        if not low_s <= self.period_s <= high_s:
            text = f"expected {written(low_s)} to {written(high_s)} seconds"
            raise ConfigError(f"invalid value {written(self.period_s)} for pacing period_s; {text}")
        try:
            policy_of(self.policy, lend=self.lend)
        except ConfigError as error:
            raise ConfigError(f"pacing: {error}") from None
        if self.rate is None and (self.period_s, self.policy, self.lend) != OF_ROOT:
            text = "pacing period_s, policy or lend without a rate; a root has them: give this one a rate"
            raise ConfigError(f"{text}, or leave them out")
        self._validate_shares(node)
        self._validate_hosts()
        if len(self.roots) > ROOTS_MAX:
            raise ConfigError(f"{len(self.roots)} nodes in pacing roots; expected at most {ROOTS_MAX}")
        for at, root in enumerate(self.roots):
            _check_other(root, "pacing roots", node)
            if reached is not None and root not in reached:
                expected = "the name of a [[neighbour]] or the destination of a [[route]]"
                raise ConfigError(f"invalid value {root!r} in pacing roots; expected {expected}")
            if root in self.roots[:at]:
                raise ConfigError(f"{root!r} is listed twice in pacing roots; list it once")
        if self.capacity_bytes is not None and not 1 <= self.capacity_bytes <= BYTES_MAX:
            text = f"invalid value {self.capacity_bytes} for pacing capacity_bytes; expected 1 to {BYTES_MAX}"
            raise ConfigError(text)
        if self.capacity_bytes is not None and not self.roots:
            raise ConfigError("pacing capacity_bytes without roots; name the roots, or leave it out")
        self._validate_burst()

    def _validate_shares(self, node: str) -> None:
        """Which clients of a root have a share of their own. One that is not there yet, or no longer, may have one: a
        client can be added and removed without a restart, which a share needs."""
        if len(self.shares) > SHARES_MAX:
            raise ConfigError(f"{len(self.shares)} clients in pacing shares; expected at most {SHARES_MAX}")
        low, high = SHARE
        for client, share in self.shares:
            _check_other(client, "pacing shares", node)
            if not low <= share <= high:
                within = f"{written(low)} to {written(high)}"
                raise ConfigError(f"invalid value {written(share)} for pacing shares of {client!r}; expected {within}")
        if self.shares and self.rate is None:
            raise ConfigError("pacing shares without a rate; give this root a rate, or leave the shares out")

    def groups(self) -> dict[str, float]:
        """The virtual hosts that are paced, and their shares of the rate."""
        return dict.fromkeys(("", *self.hosts), 1.0) | dict(self.host_shares)

    def _validate_hosts(self) -> None:
        """Which hosts are paced, and how a root divides its rate among them."""
        if len(self.hosts) > HOSTS_MAX:
            raise ConfigError(f"{len(self.hosts)} virtual hosts in pacing hosts; expected at most {HOSTS_MAX}")
        if len(set(self.hosts)) < len(self.hosts):
            twice = next(host for at, host in enumerate(self.hosts) if host in self.hosts[:at])
            raise ConfigError(f"{twice!r} is listed twice in pacing hosts; list it once")
        if self.hosts and self.rate is None and not self.roots:
            raise ConfigError("pacing hosts without a rate or roots; give one of them, or leave the hosts out")
        low, high = SHARE
        for host, share in self.host_shares:
            if host and host not in self.hosts:
                raise ConfigError(f'invalid value {host!r} in pacing host_shares; expected "" or one of pacing hosts')
            if not low <= share <= high:
                within = f"{written(low)} to {written(high)}"
                raise ConfigError(
                    f"invalid value {written(share)} for pacing host_shares of {host!r}; expected {within}"
                )
        if self.host_shares and self.rate is None:
            raise ConfigError("pacing host_shares without a rate; give this root a rate, or leave them out")
        least = min(self.groups().values()) / sum(self.groups().values())
        if self.rate is not None and self.rate * least < 1:
            raise ConfigError(f"pacing rate {self.rate} gives a virtual host less than 1 byte a second; raise it")
        if self.hosts and len(self.roots) * (1 + len(self.hosts)) > ROOTS_MAX:
            text = f"{len(self.roots)} pacing roots of {1 + len(self.hosts)} virtual hosts"
            raise ConfigError(f"{text}; expected at most {ROOTS_MAX} of both together")

    def _validate_burst(self) -> None:
        """What a client does when more is sent than the root takes."""
        try:
            Thresholds(self.weights)
        except ValueError as error:
            raise ConfigError(f"pacing weights: {error}") from None
        if self.weights != PAPER.steps and not self.roots:
            raise ConfigError("pacing weights without roots; name the roots, or leave them out")
        if self.when_full is not None:
            if self.when_full not in WHEN_FULL:
                expected = f"expected one of {', '.join(WHEN_FULL)}"
                raise ConfigError(f"invalid value {self.when_full!r} for pacing when_full; {expected}")
            if self.capacity_bytes is None:
                raise ConfigError("pacing when_full without capacity_bytes; give both, or none")
        elif (self.room_low, self.room_normal, self.room_quiet_s) != (ROOM_LOW, ROOM_NORMAL, ROOM_QUIET_S):
            raise ConfigError("pacing room_low, room_normal or room_quiet_s without when_full; give that, too")


def _check_other(name: str, where: str, node: str) -> None:
    """ConfigError where that is not the name of another node."""
    check_name(name)
    if name == node:
        raise ConfigError(f"invalid value {name!r} in {where}; expected another node's name")


NO_PACING: Final = PacingConfig()

OF_ROOT: Final = (NO_PACING.period_s, NO_PACING.policy, NO_PACING.lend)
"""What is a root's alone, where nothing is given."""
