"""A burst of readings at one airport, which the hub's pacing absorbs: the others lend it their part of the hub's
rate, and most of what waits meanwhile waits at the airport (docs/demo.md).

Rules of this file: all is done by the command line; rates and what waited are what the airports' telemetry says.
"""

import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from holdfast.telemetry.records import wall_ms
from holdfast_lab.base.processes import Children, holdfast_command

SITE: Final = "lga"
QUEUE: Final = "readings"
SIZE: Final = 1_000
FLIGHT_BYTES: Final = 1_600
"""Of the hub's rate, for each flight a second: more than a flight counts, so that there is something to lend."""
RATE_LEAST: Final = 60_000
TIMES: Final = 1.5
"""So many times the hub's whole rate is offered in the burst, beside the flights."""
BURST_S: Final = 4.0
CAPACITY_S: Final = 16.0
"""The hub's rate for so long fills the queue of the airport that bursts."""
OTHERS_S: Final = 0.8
"""The same of the others: as full as that one is, theirs hold flights of a second or so."""
INTERVAL_S: Final = 0.25
LIMIT_S: Final = 90.0

Samples = dict[str, list[tuple[float, int]]]
"""By airport: at so many seconds, a number."""


def rate_of(flights: int, send_s: float) -> int:
    """Bytes a second that the hub takes of all airports."""
    return max(RATE_LEAST, round(flights / send_s * FLIGHT_BYTES))


@dataclass(frozen=True, slots=True)
class Absorbed:
    """`sent`, `arrived`: readings. `waited_most`: bytes that waited at the airport at once. `share`, `rate_most`: an
    equal share of the hub's rate, and the most that the airport was given, in bytes a second. `capacity`: bytes of its
    queue."""

    sent: int
    arrived: int
    waited_most: int
    share: int
    rate_most: int
    capacity: int = 0

    @property
    def ok(self) -> bool:
        return self.sent == self.arrived and self.waited_most < self.capacity

    def line(self) -> str:
        return (
            f"burst of {self.sent:,} readings at {SITE}: {self.arrived:,} came to the hub; at most "
            f"{self.waited_most / 1_000:,.0f} kB waited there, at up to {self.rate_most / 1_000:,.0f} kB/s of the "
            f"hub's rate (an equal share is {self.share / 1_000:,.0f} kB/s)"
        )


class SiteBurst:
    """`rate`: the hub's. `sites`: its clients."""

    def __init__(
        self, children: Children, work: Path, url: Callable[[str], str], hub: str, sites: Sequence[str], rate: int
    ) -> None:
        self._children = children
        self._work = work
        self._url = url
        self._hub = hub
        self._sites = sites
        self._rate = rate
        self._count = round(TIMES * rate * BURST_S / SIZE)
        self.waits: Samples = {}
        self.rates: Samples = {}

    async def prepare(self) -> None:
        make = holdfast_command("queue", "create", QUEUE, "--url", self._url(self._hub))
        await (await self._children.start("readings", make)).success(LIMIT_S)

    async def send(self) -> Callable[[], Coroutine[object, object, None]]:
        """Begins to send; what it returns waits for the end of that."""
        command = holdfast_command(
            "send", f"{QUEUE}@{self._hub}", "--count", self._count, "--size", SIZE, "--rate",
            f"{self._count / BURST_S:.1f}", "--url", self._url(SITE),
        )  # fmt: skip
        sender = await self._children.start("send-burst", command)
        return sender.success

    async def result(self) -> Absorbed:
        """What came to the hub; called when all is sent."""
        command = holdfast_command(
            "receive", QUEUE, "--count", self._count, "--idle-timeout", "20", "--url", self._url(self._hub)
        )  # fmt: skip
        child = await self._children.start("receive-burst", command)
        await child.wait(LIMIT_S)
        told = child.summary() or {}
        share, capacity = self._rate // len(self._sites), capacity_of(SITE, self._rate)
        return Absorbed(self._count, int(told.get("received", 0)), 0, share, 0, capacity)

    def told(self, found: Absorbed, began_wall: float) -> Absorbed:
        """With what the airports' telemetry says, once the nodes have stopped. `began_wall`: when sending began."""
        for site in self._sites:
            rows = [(wall_ms(row["t"]) / 1_000 - began_wall, row) for row in _paced(telemetry(self._work, site))]
            rows = [(at_s, row) for at_s, row in rows if at_s >= 0]
            self.waits[site.upper()] = [(at_s, row["used"]) for at_s, row in rows]
            self.rates[site.upper()] = [(at_s, row["rate"]) for at_s, row in rows if row["rate"] is not None]
        most, highest = (
            max((value for _, value in samples[SITE.upper()]), default=0) for samples in (self.waits, self.rates)
        )
        return replace(found, waited_most=most, rate_most=highest)


def telemetry(work: Path, site: str) -> Path:
    return work / f"{site}.ndjson"


def _paced(file: Path) -> list[dict[str, Any]]:
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.endswith("}") and (row := json.loads(line))["kind"] == "paced":
            rows.append(row)
    return rows


def capacity_of(site: str, rate: int) -> int:
    return round(rate * (CAPACITY_S if site == SITE else OTHERS_S))


def configs(work: Path, hub: str, sites: Sequence[str], rate: int) -> dict[str, str]:
    """What the nodes' files have for it, by node."""
    found = {hub: f'\n[pacing]\nrate = {rate}\npolicy = "level"\nperiod_s = 1.0\n'}
    for site in sites:
        file = json.dumps(str(telemetry(work, site)))
        found[site] = (
            f'\n[pacing]\nroots = ["{hub}"]\ncapacity_bytes = {capacity_of(site, rate)}\n'
            f"\n[telemetry]\nfile = {file}\ninterval_s = {INTERVAL_S}\n"
        )
    return found
