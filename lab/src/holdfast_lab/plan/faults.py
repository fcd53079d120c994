"""What goes wrong in a run, as data: each fault says where, when and how long; `FaultBudget` draws some.

Rules of this file: faults are drawn beforehand or written in a scenario, so that a run can be replayed and shrunk; who
carries them out is `runs/sim_faults.py`, on real nodes `real/testbed_faults.py`. The budget keeps a run recoverable.
"""

from dataclasses import dataclass, fields
from random import Random
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast_lab.plan.moments import MOMENTS

LIES: Final = (
    "custody", "last-stored", "marks", "hop-number", "identity", "trace", "store", "tombstone", "receipt", "control",
    "disposition", "limits",
)  # fmt: skip
"""What a lying peer may lie about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`at` and `seconds` in virtual time since the run's start; `node` or `link` says where, `kind` what.

    `amount`: a factor for slow links and disks, seconds for clocks, bytes of room for a full disk, the share of bytes
    under way that still arrives for a cut, of records that are wrong for wrong tables, of frames in which a lying peer
    lies, of events in which a function may raise for a defect. `lie`: which of `runs/liar.py`, all of them where it is
    empty. `when`: it waits for that moment of its node, or of one of its link's (`moments.py`), AIM_S at most.
    """

    kind: str
    at: float
    node: str = ""
    link: tuple[str, str] = ("", "")
    seconds: float = 0.0
    amount: float = 0.0
    lie: str = ""
    when: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        """The nodes that it strikes."""
        return (self.node,) if self.node else self.link

    def describe(self) -> str:
        where = "-".join(self.places)
        aimed = f"as {self.when}" if self.when else ""
        return f"{self.kind} {where} for {self.seconds:.3f} s ({self.amount:g}) {self.lie}{aimed}".rstrip()


KINDS: Final = {
    "crash": "node",
    "power": "node",
    "stop": "node",
    "replace-disk": "node",
    "restore-backup": "node",
    "copied-disk": "node",
    "purge": "node",
    "full-disk": "node",
    "refusing-disk": "node",
    "slow-disk": "node",
    "stalled-disk": "node",
    "failed-sync": "node",
    "clock-step": "node",
    "lying-peer": "node",
    "wrong-tables": "node",
    "defect": "node",
    "cut-clients": "node",
    "refusing-links": "node",
    "forbid": "node",
    "earlier-version": "node",
    "ignores-rate": "node",
    "unsteady-pacing": "node",
    "reload": "node",
    "drain": "node",
    "change-rules": "node",
    "cut": "link",
    "silent-cut": "link",
    "partition": "link",
    "one-way": "link",
    "clog": "link",
    "slow-link": "link",
    "re-route": "link",
    "depart": "link",
    "remove-link": "link",
    "change-topology": "link",
}
"""What there is, and whether it strikes a node or a link."""

WEARING: Final = frozenset(
    {"full-disk", "refusing-disk", "slow-disk", "stalled-disk", "failed-sync", "lying-peer", "defect", "slow-link"}
)
"""Those under which nothing comes to rest before they are over."""


UP: Final = frozenset(
    {
        "full-disk", "refusing-disk", "slow-disk", "stalled-disk", "clock-step", "purge", "cut-clients",
        "refusing-links", "forbid", "ignores-rate", "reload", "drain", "unsteady-pacing",
        "change-rules",
    }
)  # fmt: skip
"""Those of nodes under which none goes down."""

PUT_BACK: Final = frozenset({"restore-backup", "copied-disk"})
"""Those after which a node has an older state of its own disk, or a copy of it as it is."""


def meeting_name(kind: str, moment: str) -> str:
    return f"{kind}, {moment}"


def make_fault(told: dict[str, Any], where: str) -> Fault:
    """The fault of a scenario's `[[fault]]` table. Raises ConfigError that names `where` and the key."""
    known = {item.name for item in fields(Fault)}
    for key in told:
        if key not in known:
            raise ConfigError(f"unknown key {key!r} in {where}; expected one of {', '.join(sorted(known))}")
    kind = told.get("kind")
    if kind not in KINDS:
        raise ConfigError(f"invalid value {kind!r} for {where} kind; expected one of {', '.join(KINDS)}")
    values = dict(told)
    if "link" in values:
        link = values["link"]
        if not isinstance(link, (list, tuple)) or len(link) != 2:
            raise ConfigError(f"invalid value {link!r} for {where} link; expected two names of nodes")
        values["link"] = (str(link[0]), str(link[1]))
    for key in ("at", "seconds", "amount"):
        if key in values and (not isinstance(values[key], (int, float)) or isinstance(values[key], bool)):
            raise ConfigError(f"invalid value {values[key]!r} for {where} {key}; expected a number")
    fault = Fault(**{"at": 0.0, **values})
    if fault.when not in ("", *MOMENTS):
        raise ConfigError(f"invalid value {fault.when!r} for {where} when; expected one of {', '.join(MOMENTS)}")
    if fault.lie not in ("", *LIES):
        raise ConfigError(f"invalid value {fault.lie!r} for {where} lie; expected one of {', '.join(LIES)}")
    if not (fault.node if KINDS[fault.kind] == "node" else all(fault.link)):
        raise ConfigError(f"{where}: {fault.kind} needs a {KINDS[fault.kind]}")
    return fault


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultBudget:
    """The limits of a drawn run, so that it can still end well: nodes that are down at once, disks that are lost in
    all."""

    faults_max: int = 12
    down_max: int = 1
    disks_max: int = 1

    def draw(
        self, random: Random, kinds: list[str], nodes: list[str], links: list[tuple[str, str]], span_s: float
    ) -> list[Fault]:
        """Faults within the budget, ascending by time."""
        found: list[Fault] = []
        disks = 0
        for _ in range(random.randint(0, self.faults_max)):
            kind = random.choice(kinds)
            at = random.uniform(0.0, span_s)
            seconds = random.choice((0.0, 0.05, 0.5, 2.0, 6.0)) * random.uniform(0.5, 1.5)
            if kind == "replace-disk" or kind in PUT_BACK:
                if disks >= self.disks_max:
                    continue
                disks += 1
            if kind == "clog":
                found += self._swizzle(random, links, at, seconds)
                continue
            fault = Fault(
                kind=kind,
                at=round(at, 6),
                node=random.choice(nodes) if KINDS[kind] == "node" else "",
                link=random.choice(links) if KINDS[kind] == "link" else ("", ""),
                seconds=round(seconds, 6),
                amount=round(_amount(random, kind), 6),
            )
            if KINDS[kind] == "node" and kind not in UP:
                down = sum(_downs(item) and _overlap(item, fault) and item.node != fault.node for item in found)
                if down >= self.down_max:
                    continue
            found.append(fault)
        return sorted(found, key=lambda item: item.at)

    def _swizzle(self, random: Random, links: list[tuple[str, str]], at: float, seconds: float) -> list[Fault]:
        """Links clogged one after the other and freed in another order (FoundationDB's swizzle-clogging)."""
        chosen = random.sample(links, random.randint(1, len(links)))
        ends = [at + seconds * random.uniform(0.5, 1.5) for _ in chosen]
        return [
            Fault(kind="clog", at=round(at + index * 0.1, 6), link=link, seconds=round(max(end - at, 0.01), 6))
            for index, (link, end) in enumerate(zip(chosen, ends, strict=True))
        ]


def _amount(random: Random, kind: str) -> float:
    if kind in ("slow-link", "slow-disk"):
        return random.choice((2.0, 10.0, 100.0))
    if kind == "full-disk":
        return random.choice((0.0, 4_096.0, 65_536.0))
    if kind == "clock-step":
        return random.choice((-86_400.0, -5.0, 5.0, 86_400.0))
    if kind in PUT_BACK:
        return random.uniform(0.0, 5.0)
    return 0.0


def _downs(fault: Fault) -> bool:
    downs = ("crash", "power", "stop", "replace-disk", "failed-sync", "earlier-version")
    return fault.kind in downs or fault.kind in PUT_BACK


def _overlap(one: Fault, other: Fault) -> bool:
    return one.at < other.at + other.seconds and other.at < one.at + one.seconds
