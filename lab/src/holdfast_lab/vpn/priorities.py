"""All at once, with priorities: what is refused, of whom and of which priority, where more is generated than the root
takes (docs/adr/0077-room-by-priority.md).

Rules of this file: the network of model.py; a queue takes messages by the nodes' own bands (holdfast.broker.bands), and
a report tells the lowest of them as its capacity. Priorities are drawn beside the times of messages, so that all
policies meet the same. Source: traffic-control §5, which leaves this open.
"""

from random import Random
from typing import Any, Final

from holdfast.broker.bands import QUIET_S, Bands, limit
from holdfast.pacing.settings import ROOM_LOW, ROOM_NORMAL
from holdfast_lab.vpn.model import Client, Network
from holdfast_lab.vpn.parameters import CLIENT_MESSAGES, SIZE, Experiment

CLASSES: Final = ("low", "normal", "high")
PRIORITIES: Final = (1, 4, 8)
SHARES: Final = (0.6, 0.3, 0.1)
"""Of the messages, by class."""


class BandedNetwork(Network):
    """Clients whose queues take messages by priority, and what was offered and refused in the burst, by class."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment)
        self.bands: list[Bands] = []
        self._draws: list[Random] = []
        self.offered: list[list[int]] = []
        self.refused: list[list[int]] = []
        lowest = limit(CLIENT_MESSAGES, ROOM_LOW)
        assert lowest is not None
        for client in self.clients:
            self.bands.append(Bands(ROOM_LOW, ROOM_NORMAL, QUIET_S, 0.0))
            self._draws.append(Random(f"vpn {experiment.seed} {client.number} priorities"))
            self.offered.append([0, 0, 0])
            self.refused.append([0, 0, 0])
            if not experiment.whole_capacity:
                client.origin.capacity = lowest * SIZE

    def _arrive(self, client: Client) -> None:
        now, number = self.clock.now, client.number
        which = _class_of(self._draws[number].random())
        priority, bands = PRIORITIES[which], self.bands[number]
        in_burst = self.experiment.burst_s[0] <= now < self.experiment.burst_s[1]
        client.generated += 1
        client.in_burst += in_burst
        self.offered[number][which] += in_burst
        client.origin.arrived(now, SIZE)
        bands.came(priority, now)
        most = limit(CLIENT_MESSAGES, bands.part(priority, now))
        assert most is not None
        if client.queue >= most:
            self.refused[number][which] += in_burst
            client.overflowed += 1
            self.overflow_times.append((now, number))
        else:
            client.queue += 1
            client.peak = max(client.peak, client.queue)
        self.clock.at(next(client.arrivals), self._arrive, client)
        if client.queue == 1 and not client.waiting:
            self._send(now, client)
        else:
            self._report(now, client)

    def counted(self) -> dict[str, Any]:
        """Messages in the burst, offered and refused, by client and in it by class."""
        return {
            "priorities": {
                what: {
                    f"client{number}": dict(zip(CLASSES, of_classes, strict=True))
                    for number, of_classes in enumerate(counts, 1)
                }
                for what, counts in (("offered", self.offered), ("refused", self.refused))
            }
        }


def _class_of(drawn: float) -> int:
    return 0 if drawn < SHARES[0] else 1 if drawn < SHARES[0] + SHARES[1] else 2
