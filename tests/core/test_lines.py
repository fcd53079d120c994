"""What a node logs is bounded, whatever its peers do."""

from holdfast.core import events
from support.limits import world
from support.rig import Rig


def test_log_lines_per_minute() -> None:
    """Of one cause; what is about one neighbour leaves others theirs, and the next line says what was left out."""
    rig, node = world(log_lines_per_minute=3)
    assert node.core is not None
    core = node.core

    def say(about: str = "") -> None:
        core.log("WARNING", "x" * 5_000, about=about)

    def written() -> list[str]:
        node.handle(events.TimerFired())
        lines, node.logs = [line for line in node.logs if line.startswith("xxx")], []
        return lines

    for _ in range(3):
        say()
    assert len(written()) == 3
    for _ in range(4):
        say()
    say("jfk")
    (only,) = written()
    assert len(only) == 1_001
    rig.run(20)
    say()
    (next_one,) = written()
    assert next_one.endswith("(4 lines like this one were left out before it)")
    assert core.lines.left_out_total == 4 and len(core.lines.causes) < 10


def test_a_neighbour_that_only_talks_nonsense_makes_few_lines() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    control = jfk.core.neighbours["hub"].control
    for _ in range(2_000):
        if control.link.credit:
            control.send(b"\x00\x53\x99nonsense")
            jfk.due = True
        rig.settle()
    assert len(hub.logs) < 100 and hub.core.lines.left_out_total > 1_500


def test_lines_come_at_their_rate_and_each_left_out_is_told_once() -> None:
    rig, node = world(log_lines_per_minute=3)
    assert node.core is not None
    node.logs = []
    for _ in range(60):
        node.core.log("WARNING", "again")
        node.handle(events.TimerFired())
        rig.run(1)
    lines = [line for line in node.logs if line.startswith("again")]
    assert len(lines) == 3 + 2
    told = [int(line.partition("(")[2].split(" ")[0]) for line in lines if "left out" in line]
    assert len(told) == 2 and all(15 <= count <= 20 for count in told)
