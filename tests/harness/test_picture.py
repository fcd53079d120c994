"""The picture: when a site has caught up, and that a PNG comes of it."""

import struct
from pathlib import Path

import pytest

from holdfast.harness.picture import Fault, Sample, draw, with_catch_up


def ramp() -> list[Sample]:
    """Quiet, then a hill from 10 s to 22 s, then quiet; a sample each half second."""
    samples = []
    for step in range(80):
        at_s = step / 2
        hill = max(0, min(at_s - 10, (22 - at_s) * 2)) if 10 <= at_s <= 22 else 0
        samples.append(Sample(at_s, 3, int(hill * 400)))
    return samples


def test_catch_up_is_the_first_usual_sample_after_the_fault() -> None:
    fault = with_catch_up(Fault("jfk", "cut", 10.0, 18.0), ramp(), usual=20)
    assert fault.caught_up_s == 22.0, "3,200 had heaped up: 400 are too many half a second before"
    assert with_catch_up(fault, ramp()[:30], usual=20) == fault
    assert with_catch_up(Fault("jfk", "cut", 10.0, 18.0), ramp()[:30], usual=20).caught_up_s is None


def test_draws_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lga = [sample for sample in ramp() if not 24 < sample.at_s < 28]
    faults = [Fault("jfk", "cut", 10, 18, 22), Fault("lga", "crash", 24, 27.8)]
    path = tmp_path / "out" / "backlog.png"
    draw(path, {"ewr": [], "jfk": ramp(), "lga": lga}, faults, title="Backlogs", end_s=40)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width == 1600 and height > 1000
