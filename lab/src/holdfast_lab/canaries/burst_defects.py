"""Canaries in what nodes do when more is sent than is taken (docs/adr/0077-room-by-priority.md).

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.links.incoming import Intake
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _for_all_the_same(original: Function) -> Function:
    """Every priority may fill the whole queue."""

    def bounds(self: Any, priority: int = 9) -> tuple[int | None, int | None]:
        return self.config.messages_max, self.config.bytes_max

    return bounds


def _low_for_all(original: Function) -> Function:
    """Every priority is held to the part of the lowest."""

    def part(self: Any, priority: int, now: float) -> float:
        return float(original(self, 0, now))

    return part


def _refused_ones_close_it(original: Function) -> Function:
    """A message that is refused counts as one of the highest priority: as long as low ones are offered, the room of
    higher ones stays closed to them."""

    def refuse(self: Any, queue: Any, peer: Any, priority: int, size: int) -> None:
        original(self, queue, peer, priority, size)
        if queue.bands is not None:
            queue.bands.came(9, self._clock.now)

    return refuse


def _open_and_nobody_told(original: Function) -> Function:
    """The whole queue is open to a priority, and the messages of it that wait are not looked at."""

    def tick(self: Any, now: float) -> None:
        for waiting in list(self.waiting):
            queue, priority, _ = waiting
            if queue.bands is None or now >= queue.bands.opens_at(priority):
                del self.waiting[waiting]

    return tick


def _credit_as_ever(original: Function) -> Function:
    """A neighbour that ignores its rate has as much credit as any other."""

    def computed(self: Any, now: float) -> None:
        original(self, now)
        self.cut.clear()

    return computed


def _obedient_as_ever(original: Function) -> Function:
    """Whoever sent too much is judged as if it had not."""

    def end_period(self: Any, over_s: float, has: float) -> None:
        original(self, over_s, has)
        self.over = self.cut_periods = 0

    return end_period


def _first_come_first_served(original: Function) -> Function:
    """Of a link's messages that wait none is taken before the first."""

    def take_parked(self: Any) -> None:
        Intake.take_parked(self)

    return take_parked


BURST_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="room-for-all-alike",
        sentence="A message of low priority fills the room that is kept for higher ones.",
        target="broker.queue:Queue.bounds",
        signature="(self, priority: int = 9) -> tuple[int | None, int | None]",
        broken=_for_all_the_same,
        expected="fills it up to",
    ),
    Canary(
        name="refused-as-if-low",
        sentence="A message of high priority is refused while only what low ones may fill is full.",
        target="broker.bands:Bands.part",
        signature="(self, priority: int, now: float) -> float",
        broken=_low_for_all,
        expected="was refused with",
    ),
    Canary(
        name="quiet-never-ends",
        sentence="Low messages that are refused keep the room of higher ones closed for ever.",
        target="endpoints.admission:Admission.refuse",
        signature="(self, queue: holdfast.broker.queue.Queue, peer: holdfast.peers.peer.Peer, priority: int, "
        "size: int) -> None",
        broken=_refused_ones_close_it,
        expected="was refused with",
    ),
    Canary(
        name="opened-untold",
        sentence="A message that waits for the room of higher ones is not taken when that is open to it.",
        target="endpoints.admission:Admission.tick",
        signature="(self, now: float) -> None",
        broken=_open_and_nobody_told,
        expected="waits, and has had room for",
    ),
    Canary(
        name="never-cut",
        sentence="A root does not hold a neighbour to its rate that ignores it.",
        target="pacing.root_credit:RootCredit.computed",
        signature="(self, now: float) -> None",
        broken=_credit_as_ever,
        expected="its link is not held to it",
    ),
    Canary(
        name="never-judged",
        sentence="A root finds nobody who ignores its rate.",
        target="pacing.obedience:Obedience.end_period",
        signature="(self, over_s: float, has: float) -> None",
        broken=_obedient_as_ever,
        expected="its link is not held to it",
    ),
    Canary(
        name="urgent-behind-low",
        sentence="An urgent message waits behind a low one of its link that has no room.",
        target="endpoints.overtaking:OvertakingIntake.take_parked",
        signature="(self) -> None",
        broken=_first_come_first_served,
        expected="waits, and has had room for",
    ),
)
