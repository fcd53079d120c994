"""Drives the raw load's processes: starts senders and receivers, gives them phases, gathers what they say."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from _peers import HERE, Peer, end_process, read_line

ATTACH_S_MAX = 60.0


class LoadFailed(Exception):
    """A load process ended or said nothing; the text holds its own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseResult:
    """One phase over all connections: seconds, monotonic and wall; CPU seconds of the load's processes."""

    messages: int
    seconds: float
    """From the first write of any sender to the last settlement at a sender or arrival at a receiver."""
    settle_seconds: float
    wall_first: float
    wall_last: float
    load_cpu_s: float
    read_bytes: int
    """What the peer sent to the load: its socket writes."""

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds


class _Process:
    def __init__(self, role: str, peer: Peer, queue: str, size: int, credit: int, errors: Path) -> None:
        login = [peer.user, peer.password] if peer.user is not None and peer.password is not None else []
        words = [role, peer.protocol, peer.host, str(peer.port), peer.address(queue), str(size), str(credit)]
        self.role, self.errors = role, errors
        with errors.open("w") as stream:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "_load.py"), *words, *login],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream, text=True, bufsize=1,
            )  # fmt: skip

    def answer(self, timeout_s: float) -> dict[str, float]:
        assert self.process.stdout is not None
        try:
            line = read_line(self.process.stdout, timeout_s)
        except TimeoutError as late:
            raise LoadFailed(f"raw load {self.role}: {late}") from late
        if not line:
            raise LoadFailed(self.errors.read_text().strip()[-2000:] or f"raw load {self.role}: ended")
        answer: dict[str, float] = json.loads(line)
        return answer

    def order(self, messages: int, rate: float | None) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"messages": messages, "rate": rate}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as gone:
            raise LoadFailed(self.errors.read_text().strip()[-2000:]) from gone

    def finish(self) -> None:
        """End of input: it closes its connection in order; killed where it does not."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(15.0)
        except subprocess.TimeoutExpired:
            pass
        end_process(self.process)


class Load:
    """`connections` pairs of a sender and a receiver, each pair with its own queue. A context manager."""

    def __init__(
        self, peer: Peer, queue: str, directory: Path, *, size: int, credit: int, connections: int = 1
    ) -> None:
        self.directory, self.connections = directory, connections
        self.receivers: list[_Process] = []
        self.senders: list[_Process] = []
        try:
            for index in range(connections):
                name = f"{queue}-{index}"
                for role, group in (("receive", self.receivers), ("send", self.senders)):
                    errors = directory / f"load-{peer.name}-{name}-{role}"
                    group.append(_Process(role, peer, name, size, credit, errors))
                    group[-1].answer(ATTACH_S_MAX)
        except BaseException:
            self.finish()
            raise

    def run(self, messages: int, *, rate: float | None = None, timeout_s: float = 600.0) -> PhaseResult:
        """Send `messages` in all (rounded down to the connections), at `rate` a second in all."""
        each = max(1, messages // self.connections)
        for receiver in self.receivers:
            receiver.order(each, None)
        for sender in self.senders:
            sender.order(each, None if rate is None else rate / self.connections)
        sent = [sender.answer(timeout_s) for sender in self.senders]
        received = [receiver.answer(timeout_s) for receiver in self.receivers]
        first = min(one["first"] for one in sent)
        settled = max(one["last"] for one in sent)
        last = max(one["last"] for one in sent + received)
        return PhaseResult(
            messages=each * self.connections,
            seconds=last - first,
            settle_seconds=settled - first,
            wall_first=min(one["wall_first"] for one in sent),
            wall_last=max(one["wall_last"] for one in sent + received),
            load_cpu_s=sum(one["cpu_s"] for one in sent + received),
            read_bytes=int(sum(one["read_bytes"] for one in sent + received)),
        )

    def finish(self) -> None:
        for process in self.senders + self.receivers:
            process.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
