"""Actions that follow when a turn was stored or undone, as data: a record for each action, and a handler for each kind
of record.

Rules of this file: a record names what it concerns by number or name, and the event that caused it, so that a turn can
be printed; objects that its handler also needs are not printed. Source of the idea: dask's worker state machine, whose
instructions carry the id of their stimulus.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

DESCRIBED_MAX: Final = 20
DESCRIBED_CHARACTERS_MAX: Final = 200
"""Of the effects of a turn that are described, and of one of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Effect:
    """An action for when everything taken before it is on disk, or was refused. `cause`: the number of the event that
    caused it, from 1."""

    cause: int


@dataclass(frozen=True, slots=True, eq=False)
class LinkEffect(Effect):
    """An effect on one link. `connection`: the number of its connection; `name`: the link's."""

    connection: int
    name: str


EffectT = TypeVar("EffectT", bound=Effect)


class Effects:
    """The handlers, one for each kind of effect. A handler of `on` runs once everything accepted before is on disk or
    was refused; a handler of `on_decided` gets whether the turn is on disk (True) or was undone (False)."""

    __slots__ = ("_after", "_decided")

    def __init__(self) -> None:
        self._after: dict[type[Effect], Callable[[Any], None]] = {}
        self._decided: dict[type[Effect], Callable[[Any, bool], None]] = {}

    def on(self, kind: type[EffectT], handler: Callable[[EffectT], None]) -> None:
        """`handler` carries out effects of that kind in `Turn.then`."""
        assert kind not in self._after and kind not in self._decided, kind
        self._after[kind] = handler

    def on_decided(self, kind: type[EffectT], handler: Callable[[EffectT, bool], None]) -> None:
        """Registers `handler` for effects of that kind in `Turn.decided`; its argument says whether the turn was
        stored."""
        assert kind not in self._after and kind not in self._decided, kind
        self._decided[kind] = handler

    def after(self, effect: Effect) -> Callable[[], None]:
        """Carries out an effect of `Turn.then`."""
        return partial(self._after[type(effect)], effect)

    def decided(self, effect: Effect, *, stored: bool) -> Callable[[], None]:
        """Carries out an effect of `Turn.decided`."""
        return partial(self._decided[type(effect)], effect, stored)


def effect_of(step: object) -> Effect | None:
    """The effect of this step; None if `Effects` did not create it."""
    if isinstance(step, partial) and step.args and isinstance(step.args[0], Effect):
        return step.args[0]
    return None


def described(effects: Iterable[Effect]) -> str:
    """The effects in order, as text of bounded length."""
    found = [repr(effect)[:DESCRIBED_CHARACTERS_MAX] for effect in islice(effects, DESCRIBED_MAX + 1)]
    if len(found) > DESCRIBED_MAX:
        found[-1] = "…"
    return ", ".join(found)
