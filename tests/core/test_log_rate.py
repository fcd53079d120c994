"""What a node logs is bounded, whatever its peers do."""

import pytest

from holdfast.engine import events, log, strangers
from support.limits import world
from support.raw import Raw
from support.rig import Node, Rig


def about_headers(node: Node) -> list[str]:
    return [line for line in node.logs if "protocol header" in line]


def test_one_noisy_address_hides_no_other() -> None:
    """Lines about clients are bounded for each address; what was left out is told in the next, and nowhere else."""
    rig, node = world(log_lines_per_minute=3)
    for _ in range(100):
        Raw(rig, node, address="10.0.0.1").say(b"GET / HTTP/1.1\r\n")
    Raw(rig, node, address="10.0.0.2").say(b"GET / HTTP/1.1\r\n")
    said = about_headers(node)
    assert len(said) == 4 and said[-1].startswith("10.0.0.2:")
    assert len([line for line in node.logs if "10.0.0.1" in line]) == 3
    rig.run(21)
    Raw(rig, node, address="10.0.0.1").say(b"GET / HTTP/1.1\r\n")
    assert about_headers(node)[-1].endswith("(97 lines like this one were left out before it)")


@pytest.mark.parametrize(
    ("header", "who"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "a TLS client, and no TLS is spoken at this port"),
        (b"GET / HT", "an HTTP client"),
        (
            b"AMQP\x02\x01\x00\x00",
            "a client that wants TLS within AMQP; connect to a port where TLS is spoken from the start",
        ),
        (b"AMQP\x00\x00\x09\x01", "an AMQP 0-9-1 client; use AMQP 1.0"),
    ],
)
def test_who_takes_this_for_another_port_is_named(header: bytes, who: str) -> None:
    rig, node = world()
    Raw(rig, node, address="10.0.0.1").say(header)
    (line,) = about_headers(node)
    assert line.endswith(f"protocol header {header!r} is not supported; this is {who}")


def test_an_orderly_stop_of_a_neighbour_is_no_warning() -> None:
    """Its connection's end is one line, and the session's another: no link of it has its own."""
    rig = Rig()
    _, b, c = rig.line("a", "b", "c")
    rig.run(2)
    before = len(b.logs)
    c.handle(events.Stopping())
    rig.settle()
    said = [line for line in b.logs[before:] if "stopping" in line]
    assert len(said) == 2 and said[0].startswith("c@c: connection ended") and "Established -> Idle" in said[1]


def test_addresses_with_lines_of_their_own_are_bounded() -> None:
    """Past the bound all others are one cause, until one address had no line for a minute."""
    rig, node = world(log_lines_per_minute=1)
    for number in range(log.STRANGERS_MAX + 20):
        Raw(rig, node, address=f"10.0.1.{number}").say(b"GET / HTTP/1.1\r\n")
        assert len(about_headers(node)) == min(number + 1, log.STRANGERS_MAX + 1)
    rig.run(strangers.QUIET_S)
    for _ in range(2):
        Raw(rig, node, address="10.0.2.1").say(b"GET / HTTP/1.1\r\n")
    assert len(about_headers(node)) == log.STRANGERS_MAX + 2
    assert node.core is not None and len(node.core.log.strangers) == log.STRANGERS_MAX


def test_what_the_driver_says_again_and_again_is_bounded_too() -> None:
    """As of connections that come and go at their bound."""
    rig, node = world(log_lines_per_minute=3)
    for _ in range(100):
        for about in ("connections_max", "file descriptors"):
            node.handle(events.DriverWarned(about=about, text=f"{about}: none is left"))
    for about in ("connections_max", "file descriptors"):
        assert len([line for line in node.logs if line.startswith(about)]) == 3
    rig.run(21)
    node.handle(events.DriverWarned(about="connections_max", text="again"))
    assert node.logs[-1] == "again (97 lines like this one were left out before it)"


def test_log_lines_per_minute() -> None:
    """Of one cause; what is about one neighbour leaves others theirs, and the next line says what was left out."""
    rig, node = world(log_lines_per_minute=3)
    assert node.core is not None
    core = node.core

    def say(about: str = "") -> None:
        core.log.write("WARNING", "x" * 5_000, about=about)

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
    assert core.log.left_out_total == 4 and len(core.log.causes) < 10


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
    assert len(hub.logs) < 100 and hub.core.log.left_out_total > 1_500


def test_lines_come_at_their_rate_and_each_left_out_is_told_once() -> None:
    rig, node = world(log_lines_per_minute=3)
    assert node.core is not None
    node.logs = []
    for _ in range(60):
        node.core.log.write("WARNING", "again")
        node.handle(events.TimerFired())
        rig.run(1)
    lines = [line for line in node.logs if line.startswith("again")]
    assert len(lines) == 3 + 2
    told = [int(line.partition("(")[2].split(" ")[0]) for line in lines if "left out" in line]
    assert len(told) == 2 and all(15 <= count <= 20 for count in told)
