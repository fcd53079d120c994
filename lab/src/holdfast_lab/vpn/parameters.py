"""The paper's experiment as data: queues, rates, patterns of arrivals, and what the control messages suffer.

Rules of this file: values, checked once. Amounts are messages, as the paper counts; SIZE turns them into the bytes of
the pacing code. Source: traffic-control §4.2 and §4.3.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.errors import ConfigError
from holdfast.pacing.choosing import policy_of
from holdfast.pacing.policy import PAPER, Thresholds
from holdfast.units import written

SIZE: Final = 5_000
"""Bytes of a message (§4.2)."""

RATE: Final = 25.0
"""Messages a second that the root hands to its application, 1 Mbit/s, in blocks of one second (§4.2)."""

CLIENT_MESSAGES: Final = 200
ROOT_MESSAGES: Final = 800
CLIENTS: Final = 3
PERIOD_S: Final = 2.0
SPAN_S: Final = 6_000.0
BURST_S: Final = (2_400.0, 4_200.0)
MEANS_S: Final = (0.24, 0.24, 0.2)
"""Mean interval between messages outside the burst, of patterns 1, 2 and 3 (§4.3)."""
BURST_MEAN_S: Final = 0.075
CONTROL_DELAY_S: Final = 0.05
"""One way. The paper does not say; any wide area network's."""

CLIENTS_MAX: Final = 3_000

SERIES_S_MAX: Final = 600.0

SIZING_FROM_S: Final = 60.0
SIZING_SPAN_S: Final = 3_000.0
"""Where a burst's size is sought: it begins when queues and estimates are in their steady state, and never ends."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run. Clients take the three patterns in turn; the root's rate and space grow with their number. `bursting`:
    the patterns, 1 to 3, whose clients burst at `burst` messages a second from the first to the second of `burst_s`.
    `until_overflow`: the run ends with the first overflow. `series_s`: queues and rates are told at such intervals; 0
    for not at all.

    `rates`: instead of `burst`, messages a second in it by pattern; 0: as outside it. `priorities`: messages have some,
    and queues room for each (priorities.py); `whole_capacity`: reports tell the whole queue as capacity, and not the
    room for the lowest.

    `network`: a file with the provider's network, instead of direct links; `fail`, a router or `one-other`, a link of
    it, is down from `fail_at_s` to `repair_at_s`; `fast_reroute` None: as the file says.
    """

    policy: str = "weights"
    lend: float = 0.0
    seed: int = 1
    clients: int = CLIENTS
    period_s: float = PERIOD_S
    span_s: float = SPAN_S
    burst_s: tuple[float, float] = BURST_S
    burst: float = 1 / BURST_MEAN_S
    bursting: tuple[int, ...] = (2,)
    delay_s: float = CONTROL_DELAY_S
    loss: float = 0.0
    thresholds: Thresholds = field(default=PAPER)
    until_overflow: bool = False
    series_s: int = 0
    rates: tuple[float, ...] = ()
    priorities: bool = False
    whole_capacity: bool = False
    network: str = ""
    fail: str = ""
    fail_at_s: float = 3_000.0
    repair_at_s: float = 3_300.0
    fast_reroute: bool | None = None

    def __post_init__(self) -> None:
        policy_of(self.policy, lend=self.lend)
        _within("clients", self.clients, 1, CLIENTS_MAX)
        _within("period_s", self.period_s, 0.1, 59)
        _within("span", self.span_s, 1, 1e6)
        _within("delay", self.delay_s, 0, 60)
        _within("loss", self.loss, 0, 0.99)
        _within("burst", self.burst, 0.001, 10_000)
        _within("series_s", self.series_s, 0, SERIES_S_MAX)
        _within("fail_at_s", self.fail_at_s, 0, 1e6)
        _within("repair_at_s", self.repair_at_s, self.fail_at_s, 1e6)
        if self.rates and len(self.rates) != len(MEANS_S):
            raise ConfigError(f"invalid value {len(self.rates)} rates; expected one for each of 3 patterns")
        for rate in self.rates:
            _within("rates", rate, 0, 10_000)
        if self.whole_capacity and not self.priorities:
            raise ConfigError("whole_capacity needs priorities; set priorities=true")
        if self.priorities and self.network:
            raise ConfigError("priorities are simulated on direct links; leave out network")
        if not self.burst_s[0] < self.burst_s[1]:
            raise ConfigError(f"invalid value {self.burst_s[1]:g} for burst_to_s; expected more than burst_from_s")
        if (self.fail or self.fast_reroute is not None) and not self.network:
            raise ConfigError("fail and fast_reroute need a network; give its file with network")
        if not self.bursting or not set(self.bursting) <= {1, 2, 3}:
            raise ConfigError(f"invalid value {self.bursting} for bursting; expected patterns of 1, 2 and 3")

    @property
    def scale(self) -> float:
        """How many times the paper's root this one is."""
        return self.clients / CLIENTS

    @property
    def rate(self) -> float:
        return RATE * self.scale

    @property
    def root_messages(self) -> int:
        return round(ROOT_MESSAGES * self.scale)

    @property
    def name(self) -> str:
        return f"level {self.lend:g}" if self.policy == "level" else self.policy

    def pattern(self, client: int) -> int:
        """1, 2 or 3, of the client with this number, from 0."""
        return client % 3 + 1

    def bursts(self, client: int) -> bool:
        if self.rates:
            return self.rates[self.pattern(client) - 1] > 0
        return self.pattern(client) in self.bursting

    def burst_of(self, client: int) -> float:
        """Messages a second that a client which bursts generates in the burst."""
        return self.rates[self.pattern(client) - 1] if self.rates else self.burst


def sizing(experiment: Experiment, burst: float) -> Experiment:
    """The same network in a search for the size of a burst of `burst` messages a second."""
    return replace(
        experiment, burst=burst, burst_s=(SIZING_FROM_S, 1e9), span_s=SIZING_SPAN_S, until_overflow=True
    )  # fmt: skip


def _within(key: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"invalid value {value:g} for {key}; expected {written(low)} to {written(high)}")
