"""What a fuzzer found: findings by signature, and the CPU time of turns. Reports of several processes add up."""

from collections import Counter
from dataclasses import dataclass, field

EDGES_S = (0.001, 0.005, 0.020, 0.100, 1.0)


@dataclass
class Finding:
    """`signature` is the same for the same defect; `replay` runs the batch again."""

    signature: str
    replay: str
    said: list[str]
    trace: str = ""


@dataclass
class Report:
    streams: int = 0
    turns: int = 0
    deaths: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    longest: str = ""
    histogram: Counter[str] = field(default_factory=Counter)

    def merge(self, other: "Report") -> None:
        self.streams += other.streams
        self.turns += other.turns
        self.deaths += other.deaths
        self.findings = {**other.findings, **self.findings}
        for mine, theirs in ((self.counts, other.counts), (self.acts, other.acts), (self.histogram, other.histogram)):
            mine.update(theirs)
        if other.longest_s > self.longest_s:
            self.longest_s, self.longest = other.longest_s, other.longest

    def found(self, finding: Finding) -> None:
        self.counts[finding.signature] += 1
        self.findings.setdefault(finding.signature, finding)

    def timed(self, took_s: float, what: str) -> None:
        """The CPU time of one turn."""
        self.turns += 1
        edge = next((edge for edge in EDGES_S if took_s < edge), None)
        self.histogram[f"< {edge * 1000:g} ms" if edge is not None else "more"] += 1
        if took_s > self.longest_s:
            self.longest_s, self.longest = took_s, what
