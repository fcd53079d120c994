"""A node in which one call raises, and clients that reach their goals all the same.

Rules of this file: the call is named by its number in a run of one stage; stages follow from nothing but their code.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import CO_GENERATOR
from random import Random
from types import CodeType, FrameType

from holdfast.core import turn_end
from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast.errors import HoldfastError
from holdfast.links.containment import Containment
from support.actors import World, in_order, names
from support.failure_stages import (
    anonymous,
    asked,
    cut,
    departed,
    expired,
    inward,
    large,
    local,
    managed,
    outward,
    rejected,
    resumed,
    routed,
    sized,
    skipped,
    subscribed,
)
from support.failure_stages_of_queues import delayed, limited, linked, selecting, sorting, transacted
from support.failure_stages_of_topics import federated
from support.packages import NODE
from support.rig import Node

PACKAGES = tuple(f"holdfast.{name}." for name in (*NODE, "queue_links", "steps", "federation"))
"""The node's own code: what a peer's event may run through (pyproject.toml, "imports go down only")."""
Site = tuple[CodeType, int, CodeType]
"""Who calls, in which line, and what."""


class Injected(Exception):
    """Raised where no code of the node's own would."""


class Injector:
    """Counts the calls that a node's core makes of its own functions; raises at the entry of the one numbered `at`."""

    def __init__(self, node: Node, at: int = 0) -> None:
        self.at = at
        self.calls = 0
        self.sites: dict[Site, list[int]] = {}
        """Each call site, and the numbers of the calls from there."""
        self.raised: Site | None = None
        self.why = ""
        self.ended: list[str] = []
        """The functions that were under way when the failure ended the node, the innermost last."""
        self.node = node
        core = node.core
        assert core is not None
        self._handle, self._next_deadline = core.handle, core.next_deadline
        core.handle = self._watched  # type: ignore[method-assign]
        core.next_deadline = self._asked  # type: ignore[method-assign]

    def _watched(self, event: events.Event, now: float) -> list[events.Command]:
        sys.setprofile(self._called if not self.raised else None)
        try:
            return self._handle(event, now)
        except (Injected, HoldfastError) as error:
            sys.setprofile(None)
            self.why = repr(error)
            trace = error.__traceback__ if isinstance(error, Injected) else (error.__cause__ or error).__traceback__
            while trace is not None:
                self.ended.append(trace.tb_frame.f_code.co_name)
                trace = trace.tb_next
            self.node.crash()  # as the driver does; a supervisor starts it again
            self.node.start()
            return []
        finally:
            sys.setprofile(None)

    def _asked(self) -> float | None:
        sys.setprofile(self._called if not self.raised else None)
        try:
            return self._next_deadline()
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, what: str, argument: object) -> None:
        if what != "call" or not _may_fail(frame):
            return
        caller = frame.f_back
        assert caller is not None
        if id(caller.f_code) in _DISPATCHER or caller.f_code.co_name in ("_watched", "_asked"):
            return
        self.calls += 1
        site = (caller.f_code, caller.f_lineno, frame.f_code)
        self.sites.setdefault(site, []).append(self.calls)
        if self.calls == self.at:
            self.raised = site
            raise Injected(f"call {self.at}")


_DISPATCHER = frozenset(
    id(function.__code__)
    for function in (
        NodeCore.handle, NodeCore._handle_rare, NodeCore._end_turn, NodeCore._committed, turn_end.completed,
        NodeCore._tick, turn_end.flush, turn_end.account, Containment.run,
    )
)  # fmt: skip
"""What surrounds the work, and calls it; a failure of its own ends the node. By identity: code of two modules may be
equal, and takes long to hash."""

_known: dict[int, tuple[CodeType, bool]] = {}
"""By identity, which the code keeps while it is here: whether a call of it may fail."""


def _may_fail(frame: FrameType) -> bool:
    """Whether the call is one of a function of the node's own."""
    code = frame.f_code
    known = _known.get(id(code))
    if known is None:
        own = str(frame.f_globals.get("__name__")).startswith(PACKAGES)
        known = _known[id(code)] = code, own and not code.co_flags & CO_GENERATOR and id(code) not in _DISPATCHER
    return known[1]


STAGES: dict[str, Callable[[World, Node, Callable[[], None]], None]] = {
    stage.__name__: stage
    for stage in (
        local,
        rejected,
        outward,
        inward,
        cut,
        large,
        subscribed,
        managed,
        anonymous,
        resumed,
        asked,
        skipped,
        expired,
        sized,
        selecting,
        sorting,
        linked,
        delayed,
        limited,
        transacted,
        departed,
        routed,
        federated,
    )
}
ROUTED = {"routed"}
"""Stages of a world whose nodes compute their routes."""


def run(name: str, at: int = 0) -> tuple[Injector, World]:
    """One stage, with a failure at the call numbered `at`; 0: none. Checks what must hold after any failure."""
    world = World(routed=name in ROUTED)
    injector = Injector(world.hub, at)
    bystander = world.actor(world.hub, "bystander")
    count = 0

    def calm() -> None:
        nonlocal count
        count += 1
        bystander.produce("calm", names("c", 3 * count))
        bystander.consume("calm", names("c", 3 * count))

    calm()
    STAGES[name](world, world.hub, calm)
    calm()
    in_order(bystander, "calm", names("c", 3 * count))
    world.rig.run(3)
    for node in (world.hub, world.jfk):
        assert node.core is not None
        node.core.validate()
    return injector, world


@dataclass(frozen=True)
class Measured:
    """The calls of a stage without a failure: how many, and their numbers by call site."""

    calls: int
    sites: dict[Site, list[int]]


@cache
def measure(name: str) -> Measured:
    """One stage's calls as they come again: what a process remembers for good, the first run has found. Kept: each
    test of a stage needs them."""
    run(name)
    injector, _ = run(name)
    return Measured(injector.calls, injector.sites)


def sample(sites: dict[Site, list[int]], random: Random, count: int) -> list[int]:
    """The first calls of so many call sites."""
    calls = sorted(numbers[0] for numbers in sites.values())
    return calls if len(calls) <= count else sorted(random.sample(calls, count))
