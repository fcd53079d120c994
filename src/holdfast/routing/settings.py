"""The settings for computing routes.

Rules of this file: data and its checks; TOML is read in `node/config.py`.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.errors import ConfigError
from holdfast.units import written

COSTS: Final = ("given", "measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingConfig:
    """How a node with a topology computes its routes (docs/routing.md). All nodes of a network are to have the same
    `heartbeat_s`: a super node expects others' as often as its own.
    """

    heartbeat_s: float = 1.0
    registration_s: float = 1.0
    """How long a node that starts waits for its links' first states before it says them."""
    cost: str = "given"
    """`given`: as the topology file has them; `measured`: with what the links' probes find."""
    records_max: int = 1_000
    """Nodes that are known; the topology file's always have their place, others come by what they say themselves."""
    neighbours_max: int = 256
    """Links of one node's record."""
    refresh_s: float = 30.0
    """How often a node compares its table with its neighbours': whatever went wrong in one is right again then."""
    forget_s: float = 86_400.0
    """How long a node that the topology file does not name may be gone before it is forgotten."""

    def validate(self) -> None:
        """Raises ConfigError that names the key."""
        if self.cost not in COSTS:
            raise ConfigError(f"invalid value {self.cost!r} for routing cost; expected one of {', '.join(COSTS)}")
        for key, (low, high) in ROUTING_WITHIN.items():
            value = getattr(self, key)
            if not low <= value <= high:
                raise ConfigError(
                    f"invalid value {value!r} for routing {key}; expected {written(low)} to {written(high)}"
                )


ROUTING_WITHIN: Final[dict[str, tuple[float, float]]] = {
    "heartbeat_s": (0.05, 3_600),
    "registration_s": (0, 3_600),
    "records_max": (1, 100_000),
    "refresh_s": (0.1, 3_600),
    "forget_s": (1, 86_400 * 3_650),
    "neighbours_max": (1, 4_096),
}

DEFAULT_ROUTING: Final = RoutingConfig()
