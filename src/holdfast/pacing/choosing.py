"""Policies by name, as a configuration chooses them.

Rules of this file: the registry; nothing is computed here.
"""

from collections.abc import Callable, Mapping
from typing import Final

from holdfast.errors import ConfigError
from holdfast.pacing.level import Level
from holdfast.pacing.policies import Backlog, Fixed, Overflow, Weights
from holdfast.pacing.policy import PAPER, Policy, Thresholds

POLICIES: Final[Mapping[str, Callable[[Thresholds], Policy]]] = {
    "fixed": Fixed,
    "weights": Weights,
    "backlog": Backlog,
    "overflow": Overflow,
}
"""Those that lend nothing; `level` is built with what it lends."""

NAMES: Final = (*POLICIES, "level")


def policy_of(name: str, *, lend: float = 0.0, thresholds: Thresholds = PAPER) -> Policy:
    """Raises ConfigError for a name that there is not, and where a policy that lends nothing is to lend."""
    if name not in NAMES:
        raise ConfigError(f"invalid policy {name!r}; expected one of {', '.join(NAMES)}")
    if name == "level":
        if not 0 <= lend <= 1:
            raise ConfigError(f"invalid value {lend} for lend; expected 0 to 1")
        return Level(lend, thresholds)
    if lend:
        raise ConfigError(f"invalid value {lend} for lend; expected 0, since {name!r} does not lend the root's space")
    return POLICIES[name](thresholds)
