"""Coverage of runs: transitions of both state tables, events and commands of the core, faults, outcomes of commits.

Rules of this file: looks on from outside; the tables are watched where they are read, and the core is not changed.
What is not reached has its reason in `REASONS`, or is a hole in the swarm.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from holdfast.amqp import lifecycle, states
from holdfast.broker.stored.origins import Origin, Verdict
from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast.peering import sessions
from holdfast.peers.neighbours import session_states
from holdfast_lab import hostile
from holdfast_lab.draws.drawn_aims import AIMED
from holdfast_lab.plan import faults
from holdfast_lab.plan.moments import MOMENTS
from holdfast_lab.sim.node import SimNode
from holdfast_lab.sim.store import Fate

SESSIONS: Final = "session transitions"
STEPS: Final = "AMQP steps"
FAULTS: Final = "faults"
FATES: Final = "fates of commits"
EVENTS: Final = "events"
COMMANDS: Final = "commands"
VERDICTS: Final = "verdicts at destinations"
ACTS: Final = "acts of hostile clients"
MEETINGS: Final = "what faults met"


def session_name(key: tuple[session_states.State, session_states.SessionEvent]) -> str:
    return f"{key[0].value}, {key[1].value} -> {session_states.TRANSITIONS[key].value}"


def step_name(key: tuple[states.State, states.Step]) -> str:
    return f"{key[0].value}, {key[1].value} -> {states.TRANSITIONS[key].value}"


MET: Final = {faults.meeting_name(kind, moment): None for kind in AIMED for moment in MOMENTS}
"""What may meet: the faults that are aimed, and the moments."""


def everything() -> dict[str, list[str]]:
    """Everything that can be reached, by kind, in the order of the tables."""
    return {
        SESSIONS: [session_name(key) for key in session_states.TRANSITIONS],
        STEPS: [step_name(key) for key in states.TRANSITIONS],
        FAULTS: list(faults.KINDS),
        FATES: [fate.value for fate in Fate if fate is not Fate.NONE],
        EVENTS: [kind.__name__ for kind in get_args(events.Event)],
        COMMANDS: [kind.__name__ for kind in get_args(events.Command)],
        VERDICTS: [verdict.value for verdict in Verdict],
        ACTS: list(hostile.ACTS),
        MEETINGS: list(MET),
    }


_PIPELINED: Final = "whoever dials sends header and open in one flight"
_AT_ONCE: Final = "the answer is written in the call that read the question: nothing comes between"
_EARLY_CLOSE: Final = "a close before the open was answered: needs a node told to stop within that round trip"

REASONS: Final[dict[str, dict[str, str]]] = {
    SESSIONS: {},
    STEPS: {
        "HDR SENT, R:HDR -> HDR EXCH": _PIPELINED,
        "HDR SENT, FAIL -> END": _PIPELINED,
        "HDR EXCH, S:OPEN -> OPEN SENT": "an open of ours to a peer that failed before its own: only strangers do",
        "HDR EXCH, FAIL -> END": "header and open come in one segment: only strangers send them apart",
        "HDR RCVD, FAIL -> END": _AT_ONCE,
        "OPEN RCVD, FAIL -> END": _AT_ONCE,
        "CLOSE RCVD, FAIL -> END": _AT_ONCE,
        "OC PIPE, R:HDR -> CLOSE PIPE": _EARLY_CLOSE,
        "OC PIPE, FAIL -> END": _EARLY_CLOSE,
        "OPEN SENT, S:CLOSE -> CLOSE PIPE": _EARLY_CLOSE,
        "CLOSE PIPE, R:OPEN -> CLOSE SENT": _EARLY_CLOSE,
        "CLOSE PIPE, FAIL -> END": _EARLY_CLOSE,
    },
    FAULTS: {
        "lying-peer": "scenarios and tests of their own judge it: much is excused in a run with a liar",
    },
    FATES: {},
    EVENTS: {
        "DriverWarned": "the driver's word; tests of it give it",
        "DriverFailed": "the driver's word; tests of it give it",
        "NetworkChanged": "a system's word; tests of sessions give it",
        "DescriptorsMeasured": "a process's own; the runtime's tests have it",
        "CertificateRead": "a process's own; its tests have it",
        "CommandEnded": "a process's own; tests of triggers give it",
        "StatusAsked": "the admin port's; its tests give it",
        "Secured": "TLS is the runtime's; tests of nodes with certificates have it",
        "SecuringFailed": "TLS is the runtime's; tests of nodes with certificates have it",
        "UsersChanged": "the users' file is the runtime's; tests of users give it",
    },
    COMMANDS: {
        "RunCommand": "a process's own; tests of triggers run them",
        "ReadConfig": "a request's; tests of reloading make it",
        "StatusTold": "the admin port's; its tests hear it",
        "Audit": "for a file that no simulated node has; tests of the audit log read it",
    },
    VERDICTS: {},
    ACTS: {},
    MEETINGS: {},
}
"""Why the swarm does not reach a thing: by kind and name."""


@dataclass(slots=True)
class Coverage:
    """Counts by kind and name; adds up over runs and worker processes."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, kind: str, counts: Mapping[str, int]) -> None:
        self.counts.setdefault(kind, Counter()).update(counts)

    def merge(self, other: "Coverage") -> None:
        for kind, counts in other.counts.items():
            self.add(kind, counts)

    def unreached(self) -> dict[str, list[str]]:
        """What was not reached and has no reason, by kind; a kind with nothing of that is left out."""
        found = {}
        for kind, names in everything().items():
            counts, reasons = self.counts.get(kind, Counter()), REASONS[kind]
            if missing := [name for name in names if not counts.get(name) and name not in reasons]:
                found[kind] = missing
        return found

    def lines(self) -> list[str]:
        """For a person: each kind, each name with its count, or why it is not reached."""
        found = []
        for kind, names in everything().items():
            counts = self.counts.get(kind, Counter())
            reached = sum(bool(counts.get(name)) for name in names)
            found.append(f"{kind}: {reached} of {len(names)}")
            for name in names:
                count = counts.get(name, 0)
                told = f"{count:>10,}" if count else "not reached"
                why = REASONS[kind].get(name, "")
                found.append(f"  {told:>11}  {name}" + (f" ({why})" if why and not count else ""))
        return found


class _Watched(dict[Any, Any]):
    """A transition table that counts what is looked up in it and found."""

    def __init__(self, table: Mapping[Any, Any]) -> None:
        super().__init__(table)
        self.seen: Counter[Any] = Counter()

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self.seen[key] += 1
        return found

    def get(self, key: Any, default: Any = None) -> Any:
        if key in self:
            self.seen[key] += 1
            return super().__getitem__(key)
        return default


@contextmanager
def watched(coverage: Coverage) -> Iterator[None]:
    """While it lasts, everything that runs in this process is counted; added to `coverage` at the end."""
    before: list[tuple[Any, str, Any]] = []

    def put(place: Any, name: str, value: Any) -> None:
        before.append((place, name, getattr(place, name)))
        setattr(place, name, value)

    session_table, step_table = _Watched(session_states.TRANSITIONS), _Watched(states.TRANSITIONS)
    commands: Counter[type[Any]] = Counter()
    happened: Counter[type[Any]] = Counter()
    verdicts: Counter[str] = Counter()
    put(sessions, "TRANSITIONS", session_table)
    put(lifecycle, "TRANSITIONS", step_table)
    put(SimNode, "_do", _counting_commands(SimNode._do, commands))
    put(Origin, "decide", _counting_verdicts(Origin.decide, verdicts))
    put(NodeCore, "handle", _counting_events(NodeCore.handle, happened))
    try:
        yield
    finally:
        for place, name, value in reversed(before):
            setattr(place, name, value)
        coverage.add(SESSIONS, {session_name(key): count for key, count in session_table.seen.items()})
        coverage.add(STEPS, {step_name(key): count for key, count in step_table.seen.items()})
        coverage.add(COMMANDS, {kind.__name__: count for kind, count in commands.items()})
        coverage.add(EVENTS, {kind.__name__: count for kind, count in happened.items()})
        coverage.add(VERDICTS, verdicts)


def _counting_commands(call: Callable[..., None], counts: Counter[type[Any]]) -> Callable[..., None]:
    def do(self: SimNode, commands: list[events.Command]) -> None:
        for command in commands:
            counts[type(command)] += 1
        call(self, commands)

    return do


def _counting_verdicts(call: Callable[..., Verdict], counts: Counter[str]) -> Callable[..., Verdict]:
    def decide(self: Origin, number: int, order: str, **told: Any) -> Verdict:
        verdict = call(self, number, order, **told)
        counts[verdict.value] += 1
        return verdict

    return decide


def _counting_events(
    call: Callable[..., list[events.Command]], counts: Counter[type[Any]]
) -> Callable[..., list[events.Command]]:
    def handle(self: Any, event: events.Event, now: float) -> list[events.Command]:
        counts[type(event)] += 1
        return call(self, event, now)

    return handle
