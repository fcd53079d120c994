"""The histogram of the turns' processor time: its buckets, its record, what status tells
(management/status/turn_times.py)."""

import pytest

from holdfast.engine import events
from holdfast.management.status.turn_times import BUCKETS, TurnTimes
from support.rig import Rig


@pytest.mark.parametrize(
    ("cpu_s", "bucket"),
    [
        (0.0, "to_0_1_ms"),
        (0.000_099, "to_0_1_ms"),
        (0.000_1, "to_0_2_ms"),
        (0.000_199, "to_0_2_ms"),
        (0.000_2, "to_0_4_ms"),
        (0.000_5, "to_0_8_ms"),
        (0.02, "to_25_6_ms"),
        (0.204_7, "to_204_8_ms"),
        (0.204_9, "longer"),
        (60.0, "longer"),
    ],
)
def test_a_turn_counts_in_the_bucket_of_its_time(cpu_s: float, bucket: str) -> None:
    times = TurnTimes()
    times.note(cpu_s, (), 0.0)
    assert {name for name, count in zip(BUCKETS, times.counts, strict=True) if count} == {bucket}


def test_the_longest_turn_is_told_with_its_events_in_status_and_in_each_interval() -> None:
    rig = Rig()
    node = rig.node("hub")

    def turn(cpu_s: float, *kinds: str) -> None:
        node.handle(events.TurnEnded(wall_ms=node.wall_ms, cpu_s=cpu_s, kinds=kinds))

    turn(0.0005, "BytesReceived")
    turn(0.0201, "BytesReceived", "TimerFired")
    turn(0.02, "Committed")
    rig.run(2)
    turn(0.001, "ConnectionLost")
    rig.run(2)
    assert node.core is not None
    told = [fields for kind, fields in node.records if kind == "turns"]
    assert [fields["longest_kinds"] for fields in told] == ["BytesReceived TimerFired", "ConnectionLost"]
    assert [fields["turns"] for fields in told] == [3, 1]
    assert [fields["longest_s"] for fields in told] == [0.0201, 0.001]
    assert sum(fields[name] for fields in told for name in BUCKETS) == 4
    status = rig.client(node).manage("STATUS", "node")[1]["turns"]
    assert (status["turns"], status["above_20_ms"], status["longest_kinds"]) == (4, 1, "BytesReceived TimerFired")
    assert status["histogram"]["to_25_6_ms"] == 2


def test_a_driver_that_measures_nothing_makes_no_records() -> None:
    rig = Rig()
    node = rig.node("hub")
    rig.run(3)
    assert not [kind for kind, _ in node.records if kind == "turns"]
