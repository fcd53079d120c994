"""The picture: paths beyond the colours are one, and that a PNG comes of it."""

import struct
from pathlib import Path

import pytest

from holdfast_lab.demo.flight_paths import Event
from holdfast_lab.demo.picture import draw, folded, label

EVENTS = [Event(8.0, "cut", ("pit", "cmh")), Event(16.0, "kill", ("buf",)), Event(20.0, "heal", ("pit", "cmh"))]


def test_paths_beyond_the_colours_are_one() -> None:
    bars = {f"path {number}": {0.0: 10 - number, 1.0: 1} for number in range(9)}
    shown = folded(bars)
    assert list(shown) == [*(f"path {number}" for number in range(7)), "2 other paths"]
    assert shown["2 other paths"] == {0.0: 5, 1.0: 2}
    assert folded({"path 0": {0.0: 1}}) == {"path 0": {0.0: 1}}


def test_events_are_named() -> None:
    assert [label(event) for event in [*EVENTS, Event(30.0, "start", ("buf",))]] == [
        "pit-cmh cut", "buf killed", "pit-cmh healed", "buf back",
    ]  # fmt: skip


def test_draws_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    straight = {float(at_s): 15 for at_s in range(8)}
    arrived = {
        "EWR": {"ewr phl pit cmh ind hub": straight, "ewr phl alb buf cle chi hub": {8.0: 3, 9.0: 15}},
        "JFK": {"jfk alb buf cle chi hub": straight},
        "LGA": {},
    }
    waiting = {"EWR": [(0.0, 0), (8.0, 12), (9.0, 1)], "JFK": [(0.0, 0), (9.0, 2)]}
    path = tmp_path / "out" / "paths.png"
    draw(path, arrived, waiting, EVENTS, title="Paths", end_s=40)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width == 1690 and height > 1000
