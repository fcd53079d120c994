"""Drives the raw load's processes: starts senders and receivers, gives them phases, gathers their answers."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from _connection import SENDER_SPAN
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


def side_of(peer: Peer, queue: str, size: int, credit: int, **more: int | bool) -> dict[str, object]:
    """The fields of a Side (_connection.py) for that queue of the peer."""
    where = {"host": peer.host, "port": peer.port, "address": peer.address(queue), "ca_file": peer.ca_file}
    return {**where, "size": size, "credit": credit, "user": peer.user, "password": peer.password, **more}


class LoadProcess:
    """A program of the load (`_load.py` or `_paced.py`): what it is `told` first, its orders and answers, one line of
    JSON each."""

    def __init__(self, program: str, role: str, told: dict[str, object], errors: Path) -> None:
        self.role, self.errors = role, errors
        with errors.open("w") as stream:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / program), role],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream, text=True, bufsize=1,
            )  # fmt: skip
        self.order(told)

    def answer(self, timeout_s: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        try:
            line = read_line(self.process.stdout, timeout_s)
        except TimeoutError as late:
            raise LoadFailed(f"raw load {self.role}: {late}") from late
        if not line:
            raise LoadFailed(self.errors.read_text().strip()[-2000:] or f"raw load {self.role}: ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def order(self, told: dict[str, object]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(told) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as gone:
            raise LoadFailed(self.errors.read_text().strip()[-2000:]) from gone

    def finish(self) -> None:
        """End of input: it closes its connection in order; killed where it does not."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(15.0)
        except subprocess.TimeoutExpired:
            pass
        end_process(self.process)


class Load:
    """`connections` pairs of a sender and a receiver; all senders in one process, all receivers in another.

    Each pair has its own queue, or all have one (`shared`). `receives` and `sends` False leave that half out.
    `exact`: what a phase does not await stays in the queue. `priorities`: of what is sent are drawn. `unordered`: the
    queue sorts. `first_number`: of the first message that is sent; `first_awaited`: of the first that is received,
    where it lies in the queue from before. A context manager.
    """

    def __init__(
        self,
        peer: Peer,
        queue: str,
        directory: Path,
        *,
        size: int,
        credit: int,
        connections: int = 1,
        shared: bool = False,
        sends: bool = True,
        receives: bool = True,
        exact: bool = False,
        priorities: bool = False,
        unordered: bool = False,
        first_number: int = 0,
        first_awaited: int = 0,
    ) -> None:
        names = [queue if shared else f"{queue}-{index}" for index in range(connections)]
        self.processes: dict[str, LoadProcess] = {}
        try:
            for role, wanted, first in (("receive", receives, first_awaited), ("send", sends, first_number)):
                if not wanted:
                    continue
                sides = [
                    side_of(peer, name, size, credit, shared=shared, exact=exact, priorities=priorities,
                            unordered=unordered, first_number=index * SENDER_SPAN if shared else first)
                    for index, name in enumerate(names)
                ]  # fmt: skip
                told: dict[str, object] = {"protocol": peer.protocol, "sides": sides}
                errors = directory / f"load-{peer.name}-{queue}-{role}"
                self.processes[role] = LoadProcess("_load.py", role, told, errors)
                self.processes[role].answer(ATTACH_S_MAX)
        except BaseException:
            self.finish()
            raise
        self.connections = connections

    def run(self, messages: int, *, rate: float | None = None, timeout_s: float = 600.0) -> PhaseResult:
        """Send `messages` in all (rounded down to the connections), at `rate` a second in all."""
        messages = max(1, messages // self.connections) * self.connections
        for process in self.processes.values():
            process.order({"messages": messages, "rate": rate})
        answers = {role: process.answer(timeout_s) for role, process in self.processes.items()}
        every = list(answers.values())
        first = min(one["first"] for one in every)
        last = max(one["last"] for one in every)
        return PhaseResult(
            messages=messages,
            seconds=last - first,
            settle_seconds=answers["send"]["last"] - first if "send" in answers else 0.0,
            wall_first=min(one["wall_first"] for one in every),
            wall_last=max(one["wall_last"] for one in every),
            load_cpu_s=sum(one["cpu_s"] for one in every),
            read_bytes=int(sum(one["read_bytes"] for one in every)),
        )

    def finish(self) -> None:
        for process in reversed(self.processes.values()):
            process.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()


class PacedLoad:
    """A sender and a receiver for each of `queues`, all in one process (_paced.py). A context manager."""

    def __init__(
        self, peer: Peer, queues: Sequence[str], directory: Path, *, size: int, credit: int, buffer_bytes: int = 1 << 20
    ) -> None:
        pairs = [side_of(peer, queue, size, credit, batch_max=1, buffer_bytes=buffer_bytes) for queue in queues]
        told: dict[str, object] = {"protocol": peer.protocol, "pairs": pairs}
        self.process = LoadProcess("_paced.py", "paced", told, directory / f"load-{peer.name}-{queues[0]}-paced")
        try:
            self.attach_s = float(self.process.answer(ATTACH_S_MAX + len(queues))["seconds"])
        except BaseException:
            self.process.finish()
            raise

    def run(self, messages: int, rate: float, *, timeout_s: float = 600.0) -> dict[str, Any]:
        """As `Paced.run` tells it, and `cpu_s` of the load."""
        self.process.order({"messages": messages, "rate": rate})
        return self.process.answer(messages / rate + timeout_s)

    def finish(self) -> None:
        self.process.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()
