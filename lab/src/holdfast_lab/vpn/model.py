"""The paper's network on direct links: clients with bounded queues, a root that is emptied in blocks, control messages
that are late or lost.

Rules of this file: discrete events in virtual time; one experiment gives one history. The pacing is the nodes' own code
(holdfast.pacing): nothing of it is modelled here. Data takes no time, and is sent only where the root has space, as a
link's credit allows; control takes `delay_s` and may be lost. Source: traffic-control §4.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from holdfast.pacing.choosing import policy_of
from holdfast.pacing.messages import Pace, Report, read_pace, read_report
from holdfast.pacing.origin import Origin
from holdfast.pacing.shaper import Shaper
from holdfast.pacing.table import Pacing, Table
from holdfast_lab.mpls.clock import NEVER, Clock
from holdfast_lab.vpn.arriving import times
from holdfast_lab.vpn.parameters import CLIENT_MESSAGES, SIZE, Experiment

BLOCK_S: Final = 1.0
"""A block of messages leaves the root each second (§4.2)."""

SAMPLE_S: Final = 1.0
TOLD_S: Final = 60.0
"""Progress is told each minute of virtual time."""

ROOT: Final = "root"


class Sample(NamedTuple):
    """At one second: clients' queues, the root's, its mean over the second before, since it is emptied in blocks, the
    clients' rates in messages a second, and what they generated so far."""

    queues: tuple[int, ...]
    root: float
    rates: tuple[float, ...]
    generated: tuple[int, ...]


class Client:
    """A client's node: its queue, in messages, its part of the pacing, and what is counted of it."""

    __slots__ = (
        "arrivals", "generated", "in_burst", "number", "on_the_way", "origin", "overflowed", "peak", "queue",
        "send_at", "shaper", "waiting", "wake_at",
    )  # fmt: skip

    def __init__(self, number: int, origin: Origin, experiment: Experiment) -> None:
        self.number = number
        self.origin = origin
        self.shaper = Shaper(0.0)
        self.arrivals = times(experiment, number)
        self.queue = 0
        self.peak = 0
        self.generated = 0
        self.in_burst = 0
        """Generated since the burst began."""
        self.overflowed = 0
        self.on_the_way = 0
        """Of the queue: sent, and not acknowledged by the root. On direct links that takes no time."""
        self.send_at = NEVER
        self.wake_at = NEVER
        self.waiting = False
        """For space at the root."""


class Network:
    """One run. `run` ends at the experiment's span, or at the first overflow if that is what it is for."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.policy = policy_of(experiment.policy, lend=experiment.lend, thresholds=experiment.thresholds)
        pacing = Pacing(experiment.rate * SIZE, self.policy, experiment.period_s)
        self.table = Table(ROOT, "", pacing, process=1, now=0.0)
        self.clients = [
            Client(
                number,
                Origin(ROOT, f"c{number + 1}", "", self.policy.weight, CLIENT_MESSAGES * SIZE, process=1, now=0.0),
                experiment,
            )
            for number in range(experiment.clients)
        ]
        self._by_name = {client.origin.name: client for client in self.clients}
        self.root_queue = 0
        self.root_peak = 0
        self.root_messages = experiment.root_messages
        self.block = round(experiment.rate * BLOCK_S)
        self.clock = Clock()
        self.first_overflow_at: float | None = None
        self.overflow_times: list[tuple[float, int]] = []
        """When each overflowing message came, and to which client."""
        self.samples: list[Sample] = []
        """Each second."""
        self.faults: list[tuple[float, str]] = []
        """When something of the network failed or was repaired: of direct links nothing does."""
        self.tell: Callable[[float], None] | None = None
        self.delivered = 0
        """Messages, to the root."""
        self.changes_in_burst = 0
        """Of clients' rates, as they are obeyed."""
        self.loads = 0
        self.paces = 0
        self._root_area = 0.0
        self._root_at = 0.0
        """Message seconds in the root since the last sample, up to this time."""
        self._waiting: deque[Client] = deque()
        self._compute_at = NEVER
        self._loss = Random(f"vpn {experiment.seed} control")

    def run(self) -> None:
        at = self.clock.at
        for client in self.clients:
            at(next(client.arrivals), self._arrive, client)
            client.wake_at = 0.0
            at(0.0, self._wake, client)
        at(BLOCK_S, self._remove_block)
        at(0.0, self._sample)
        self._plan_computing()
        self.clock.run(self.experiment.span_s)

    # ------------------------------------------------------------------------------------------------- data

    def _arrive(self, client: Client) -> None:
        now = self.clock.now
        client.generated += 1
        if self.experiment.burst_s[0] <= now < self.experiment.burst_s[1]:
            client.in_burst += 1
        client.origin.arrived(now, SIZE)
        if client.queue >= CLIENT_MESSAGES:
            client.overflowed += 1
            self.overflow_times.append((now, client.number))
            if self.first_overflow_at is None:
                self.first_overflow_at = now
                if self.experiment.until_overflow:
                    self.clock.stop()
        else:
            client.queue += 1
            client.peak = max(client.peak, client.queue)
        self.clock.at(next(client.arrivals), self._arrive, client)
        if client.queue - client.on_the_way == 1 and not client.waiting:
            self._send(now, client)
        else:
            self._report(now, client)

    def _due(self, client: Client) -> None:
        if client.send_at == self.clock.now:
            self._send(self.clock.now, client)

    def _send(self, now: float, client: Client) -> None:
        """Sends what the rate and the root's space allow."""
        client.send_at = NEVER
        self._count_root(now)
        shaper, table, origin = client.shaper, self.table, client.origin
        while client.queue and shaper.ready(now):
            if self.root_queue >= self.root_messages:
                if not client.waiting:
                    client.waiting = True
                    self._waiting.append(client)
                break
            client.queue -= 1
            self.root_queue += 1
            self.delivered += 1
            shaper.sent(now, SIZE)
            table.took(origin.name, SIZE)
        self.root_peak = max(self.root_peak, self.root_queue)
        if client.queue and not client.waiting:
            client.send_at = max(now, shaper.ready_at())
            self.clock.at(client.send_at, self._due, client)
        self._report(now, client)

    def _count_root(self, now: float) -> None:
        """To be called before its queue changes."""
        self._root_area += (now - self._root_at) * self.root_queue
        self._root_at = now

    def _remove_block(self, _: None) -> None:
        now = self.clock.now
        self._count_root(now)
        self.root_queue -= min(self.block, self.root_queue)
        self.clock.at(now + BLOCK_S, self._remove_block)
        waiting, self._waiting = self._waiting, deque()
        for client in waiting:
            client.waiting = False
            self._send(now, client)

    # ------------------------------------------------------------------------------------------------- control

    def _report(self, now: float, client: Client) -> None:
        report = client.origin.report(now, client.queue * SIZE)
        if report is not None:
            self.loads += 1
            self._carry(now, report)
            self._plan_waking(now, client)

    def _plan_waking(self, now: float, client: Client) -> None:
        at = client.origin.next_deadline(now)
        if at != client.wake_at:
            client.wake_at = at
            self.clock.at(at, self._wake, client)

    def _wake(self, client: Client) -> None:
        now = self.clock.now
        if client.wake_at != now:
            return
        client.wake_at = NEVER
        self._obey(now, client)
        self._report(now, client)
        self._plan_waking(now, client)

    def _carry(self, now: float, message: Report | Pace) -> None:
        """As it goes over the wire, late, or not at all."""
        if not self.experiment.loss or self._loss.random() >= self.experiment.loss:
            self.clock.at(now + self.experiment.delay_s, self._receive, message.fields())

    def _receive(self, fields: dict[str, object]) -> None:
        now = self.clock.now
        if fields["kind"] == "load":
            report = read_report(fields)
            assert report is not None
            self.table.receive(now, report)
            self._plan_computing()
        else:
            pace = read_pace(fields)
            assert pace is not None
            client = self._by_name[pace.to]
            if client.origin.receive(now, pace):
                self._obey(now, client)
                self._plan_waking(now, client)

    def _obey(self, now: float, client: Client) -> None:
        rate = client.origin.rate(now)
        if rate == client.shaper.rate:
            return
        client.shaper.set_rate(now, rate)
        if self.experiment.burst_s[0] <= now < self.experiment.burst_s[1]:
            self.changes_in_burst += 1
        if client.queue > client.on_the_way and not client.waiting:
            client.send_at = max(now, client.shaper.ready_at())
            self.clock.at(client.send_at, self._due, client)

    def _plan_computing(self) -> None:
        at = self.table.next_deadline()
        if at != self._compute_at:
            self._compute_at = max(at, self.clock.now)
            self.clock.at(self._compute_at, self._compute)

    def _compute(self, _: None) -> None:
        now = self.clock.now
        if self._compute_at != now:
            return
        self._compute_at = NEVER
        self.table.tick(now, self.root_messages * SIZE, self.root_queue * SIZE)
        for pace in self.table.take(now, len(self.clients)):
            self.paces += 1
            self._carry(now, pace)
        self._plan_computing()

    # ------------------------------------------------------------------------------------------------- watching

    def _sample(self, _: None) -> None:
        now = self.clock.now
        self.clock.at(now + SAMPLE_S, self._sample)
        if self.tell is not None and now % TOLD_S == 0:
            self.tell(now)
        if self.experiment.until_overflow:
            return
        self._count_root(now)
        root, self._root_area = self._root_area / SAMPLE_S, 0.0
        rates = tuple((client.shaper.rate or 0.0) / SIZE for client in self.clients)
        queues = tuple(client.queue for client in self.clients)
        self.samples.append(Sample(queues, root, rates, tuple(client.generated for client in self.clients)))

    def counted(self) -> dict[str, Any]:
        """What is measured besides, by name; direct links count nothing."""
        return {}
