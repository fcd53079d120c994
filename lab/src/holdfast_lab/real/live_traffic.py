"""The traffic paper's experiment on real processes: one root and its clients, at a hundredth of the time.

Rules of this file: nodes run as a user would start them, by the command line; what is measured comes from the answers
to clients and from the nodes' telemetry. The burst lasts a hundredth of the paper's time, and messages and rates come
ten times as fast, so that it is a tenth of the paper's burst, in queues of the paper's size: `scaled` says the same to
the model. Source: traffic-control §4; docs/mpls.md, "Live".
"""

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from holdfast.client import Accepted, Connection, Message, Outcome, connect
from holdfast.errors import HoldfastError
from holdfast_lab.base.processes import Children, cancel_on_signals, first_of
from holdfast_lab.vpn.arriving import times
from holdfast_lab.vpn.parameters import BURST_S, CLIENT_MESSAGES, ROOT_MESSAGES, SIZE, SPAN_S, Experiment

FASTER: Final = 10.0
"""How many times as fast as in the paper messages come and rates are computed."""
SHORTER: Final = 10.0
"""How much shorter the run is than the paper's, of its own time."""
BODY: Final = bytes(SIZE - 8)
"""A message counts SIZE bytes: its section has 8 more."""
BLOCK_S: Final = 1.0
"""The root's application takes a block each second of the paper's time (§4.2)."""
SAMPLE_S: Final = 0.1
QUEUE: Final = "readings"
ROOT: Final = "root"
READY_S: Final = 30.0
DRAIN_S: Final = 60.0
BEHIND_S: Final = 1.0
"""Where the machine lets messages be sent later than this the run says nothing."""


@dataclass(frozen=True, slots=True)
class Live:
    """One run. Lists are by client, in messages. `early`: overflows before the burst. `taken`: by the application.
    `weights`: the highest that telemetry told. `overflow_s`: the least time to overflow that it told, in the paper's
    seconds. `behind_s`: how late a message was sent at the most."""

    name: str
    seed: int
    generated: list[int]
    overflowed: list[int]
    early: int
    peaks: list[int]
    root_peak: int
    taken: int
    weights: list[int]
    overflow_s: float
    behind_s: float

    @property
    def lost(self) -> int:
        """Accepted, and never taken."""
        return sum(self.generated) - sum(self.overflowed) - self.taken


def scaled(experiment: Experiment) -> Experiment:
    """What a live run is, for the model: the paper's rates, and a tenth of its times."""
    begins, ends = BURST_S
    return replace(experiment, burst_s=(begins / SHORTER, ends / SHORTER), span_s=SPAN_S / SHORTER)


class _Producer:
    """One client's messages, at their times."""

    def __init__(self, number: int, experiment: Experiment) -> None:
        self.number = number
        self.generated = self.refused = self.early = 0
        self.behind_s = 0.0
        self._experiment = experiment
        self._outcomes: deque[tuple[float, asyncio.Future[Outcome]]] = deque()

    async def send(self, connection: Connection, began: float) -> None:
        loop = asyncio.get_running_loop()
        sender = await connection.sender(f"{QUEUE}@{ROOT}")
        for at in times(self._experiment, self.number):
            if at >= self._experiment.span_s:
                break
            due = began + at / FASTER
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            self.behind_s = max(self.behind_s, loop.time() - due)
            self._outcomes.append((at, await sender.submit(Message(data=[BODY]))))
            self.generated += 1
            while self._outcomes and self._outcomes[0][1].done():
                self._count(*self._outcomes.popleft())
        for at, outcome in self._outcomes:
            await outcome
            self._count(at, outcome)
        await sender.close()

    def _count(self, at: float, outcome: "asyncio.Future[Outcome]") -> None:
        if not isinstance(outcome.result(), Accepted):
            self.refused += 1
            self.early += at < self._experiment.burst_s[0]


def run_live(experiment: Experiment, directory: Path) -> Live:
    """One run, in a new directory. Raises HoldfastError where a node fails, or the machine is too busy for it."""
    directory.mkdir(parents=True)
    return asyncio.run(_run(scaled(experiment), directory))


async def _run(experiment: Experiment, directory: Path) -> Live:
    cancel_on_signals()
    names = [f"client{number + 1}" for number in range(experiment.clients)]
    producers = [_Producer(number, experiment) for number in range(experiment.clients)]
    async with Children(directory / "logs") as children:
        _write(directory, ROOT, _root(experiment, names))
        root, address = await children.node(ROOT, directory / f"{ROOT}.toml")
        nodes = [root]
        urls = []
        for name in names:
            _write(directory, name, _client(name, address))
            child, at = await children.node(name, directory / f"{name}.toml")
            nodes.append(child)
            urls.append(f"amqp://{at}")
        async with await connect(f"amqp://{address}") as application:
            await _until_paced(application, len(names))
            taken = await _carry_out(application, urls, producers, experiment)
        for child in nodes:
            await child.stop()
    behind_s = max(producer.behind_s for producer in producers)
    if behind_s > BEHIND_S:
        raise HoldfastError(f"this machine is too busy: messages were sent up to {behind_s:.1f} s late; run it alone")
    told = [_told(directory / f"{name}.ndjson", "paced") for name in names]
    root_told = _told(directory / f"{ROOT}.ndjson", "queue")
    overflows = [row["overflow_s"] for row in _told(directory / f"{ROOT}.ndjson", "pacing")]
    return Live(
        experiment.name, experiment.seed, [producer.generated for producer in producers],
        [producer.refused for producer in producers], sum(producer.early for producer in producers),
        [max(row["used"] for row in rows) // SIZE for rows in told],
        max((row["messages"] for row in root_told if row["name"] == QUEUE), default=0), taken,
        [max(row["weight"] for row in rows) for rows in told],
        min(overflows) * FASTER, behind_s,
    )  # fmt: skip


async def _until_paced(application: Connection, clients: int) -> None:
    """The root has heard of all its clients, and told each its rate."""
    try:
        async with asyncio.timeout(READY_S):
            while True:
                told = await application.manage("STATUS", "holdfast:node")
                if sum(row["rate"] > 0 for row in told["paces"]) == clients:
                    return
                await asyncio.sleep(SAMPLE_S)
    except TimeoutError:
        raise HoldfastError(
            f"after {READY_S:g} s the root has not given a rate to each of its {clients} clients"
        ) from None


async def _carry_out(
    application: Connection, urls: Sequence[str], producers: Sequence[_Producer], experiment: Experiment
) -> int:
    """All messages are sent, and all that were accepted are taken; how many those are."""
    began = asyncio.get_running_loop().time() + 0.5
    connections = [await connect(url) for url in urls]
    takes = asyncio.create_task(_take(application, began, round(experiment.rate * BLOCK_S), producers))
    try:
        async with asyncio.TaskGroup() as group:
            for connection, producer in zip(connections, producers, strict=True):
                group.create_task(producer.send(connection, began))
        accepted = sum(producer.generated - producer.refused for producer in producers)
        return await asyncio.wait_for(takes, DRAIN_S) if accepted else 0
    except BaseExceptionGroup as errors:
        raise first_of(errors) from None
    except TimeoutError:
        raise HoldfastError(
            f"{DRAIN_S:g} s after the last message the root's application has not all of them"
        ) from None
    finally:
        takes.cancel()
        for connection in connections:
            await connection.close()


async def _take(application: Connection, began: float, block: int, producers: Sequence[_Producer]) -> int:
    """The application: a block of messages at its times, until it has all."""
    loop = asyncio.get_running_loop()
    taken, blocks = 0, 0
    receiver = await application.receiver(QUEUE, credit=4 * block)
    while True:
        blocks += 1
        await asyncio.sleep(max(0.0, began + blocks * BLOCK_S / FASTER - loop.time()))
        left = block
        while left and (found := await receiver.batch(count_max=left, timeout_s=0.0)):
            for delivery in found:
                delivery.accept()
            left -= len(found)
            taken += len(found)
        all_sent = loop.time() > began + SPAN_S / SHORTER / FASTER
        if all_sent and taken >= sum(producer.generated - producer.refused for producer in producers):
            await receiver.close()
            return taken


def _told(file: Path, kind: str) -> list[dict[str, Any]]:
    """Records of a kind in a telemetry file; the last line of a node may be incomplete."""
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.endswith("}") and (row := json.loads(line))["kind"] == kind:
            rows.append(row)
    if not rows:
        raise HoldfastError(f"{file} has no record {kind!r}")
    return rows


def _write(directory: Path, name: str, lines: Sequence[str]) -> None:
    head = [
        "[node]", f'name = "{name}"', f"data = {json.dumps(str(directory / f'{name}.holdfast'))}",
        'listen = ["127.0.0.1:0"]', "", "[telemetry]", f"file = {json.dumps(str(directory / f'{name}.ndjson'))}",
        f"interval_s = {SAMPLE_S}",
    ]  # fmt: skip
    (directory / f"{name}.toml").write_text("\n".join([*head, *lines, ""]), encoding="utf-8")


def _root(experiment: Experiment, clients: Sequence[str]) -> list[str]:
    lines = [
        "", "[pacing]", f"rate = {round(experiment.rate * SIZE * FASTER)}", f'policy = "{experiment.policy}"',
        f"period_s = {experiment.period_s / FASTER}", f"lend = {experiment.lend:.3f}", "", "[[queue]]",
        f'name = "{QUEUE}"', f"bytes_max = {ROOT_MESSAGES * SIZE}", 'order = "none"',
    ]  # fmt: skip
    for name in clients:
        lines += ["", "[[neighbour]]", f'name = "{name}"']
    return lines


def _client(name: str, root: str) -> list[str]:
    return [
        "", "[pacing]", f'roots = ["{ROOT}"]', f"capacity_bytes = {CLIENT_MESSAGES * SIZE}", 'when_full = "refuse"',
        "room_low = 1.0", "room_normal = 1.0", "", "[[neighbour]]", f'name = "{ROOT}"', f'remote = "{root}"',
    ]  # fmt: skip
