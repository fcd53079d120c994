"""Defines a canary and plants it: one function of the code is replaced by a broken variant.

Rules of this file: the code knows nothing of canaries, so nothing here may outlive a change of it in silence: a
function that is gone, or takes or gives something else than its canary says, is an error wherever one looks at it.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from holdfast.errors import ConfigError
from holdfast_lab.canaries.seeds import CAUGHT_BY, WITHIN_MAX
from holdfast_lab.runs.swarm import SWARM

Broken = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Takes the function as it is, returns the defective one; called anew at each planting, so that it may keep state."""


class CanaryStale(Exception):
    """The code has changed and the canary has not: it would plant nothing, or another defect than it describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """A planted defect. `target`: `module:name` or `module:Class.name` of what it breaks, below `holdfast`.

    `signature` is the target's own, with its types; `expected` is a part of the line with which a run fails, `swarm`
    the one that is to find it.
    """

    name: str
    sentence: str
    target: str
    signature: str
    broken: Broken
    expected: str
    swarm: str = SWARM

    @property
    def seed(self) -> int:
        """One of the swarm's that fails with it and ends well without; 0 where none is known."""
        return CAUGHT_BY.get(self.name, (0, WITHIN_MAX))[0]

    @property
    def within(self) -> int:
        """A swarm from seed 1 finds it by that seed."""
        return CAUGHT_BY.get(self.name, (0, WITHIN_MAX))[1]

    def find(self) -> tuple[Any, str, Callable[..., Any]]:
        """(owner, attribute, function) of the target. Raises CanaryStale."""
        module, _, path = self.target.partition(":")
        *classes, attribute = path.split(".")
        try:
            owner: Any = import_module(f"holdfast.{module}")
            for name in classes:
                owner = vars(owner)[name]
            function = vars(owner)[attribute]
        except (ImportError, KeyError) as error:
            raise CanaryStale(f"canary {self.name!r}: there is no {self.target}: {error}") from None
        if not inspect.isfunction(function):
            raise CanaryStale(f"canary {self.name!r}: {self.target} is a {type(function).__name__}, not a function")
        found = str(inspect.signature(function))
        if found != self.signature:
            raise CanaryStale(f"canary {self.name!r}: {self.target} is {found}, its canary knows {self.signature}")
        return owner, attribute, function


def plant_for_good(canary: Canary) -> Callable[[], None]:
    """Plants the defect in this process; returns a function that removes it again. Raises CanaryStale."""
    owner, attribute, function = canary.find()
    setattr(owner, attribute, canary.broken(function))
    return lambda: setattr(owner, attribute, function)


@contextmanager
def planted(canary: Canary) -> Iterator[None]:
    """Plants the defect for the duration of the block."""
    take_out = plant_for_good(canary)
    try:
        yield
    finally:
        take_out()


def by_name(canaries: dict[str, Canary], name: str) -> Canary:
    """ConfigError where there is none of that name."""
    found = canaries.get(name)
    if found is None:
        raise ConfigError(f"invalid canary {name!r}; expected one of {', '.join(canaries)}")
    return found
