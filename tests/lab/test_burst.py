"""`holdfast sim burst`: what is measured of an event log, the six lines and the picture."""

import struct
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast_lab.base.notes import Note
from holdfast_lab.demo import burst
from holdfast_lab.demo.burst import BURSTS, ROOT, SITE_HOLDS, SITES, WAYS, Measured, lines_of, measured, plan_of
from holdfast_lab.demo.burst_picture import draw, fullest


def test_ages_are_by_the_order_of_the_hubs_queue() -> None:
    quiet = SITES[0]
    notes = [
        Note(1.0, BURSTS, "append", "000-1 to @hub"), Note(1.0, BURSTS, "holds", "1 messages"),
        Note(2.0, quiet, "append", "001-1 to @hub"), Note(2.5, "south", "append", "000-1 to @hub"),
        Note(2.5, "south", "holds", "1 messages"), Note(3.0, ROOT, "append", "000-1 to readings"),
        Note(3.0, ROOT, "holds", "1 messages"), Note(4.0, ROOT, "append", "001-1 to readings"),
        Note(4.0, ROOT, "holds", "1 messages"), Note(9.0, ROOT, "holds", "0 messages"),
    ]  # fmt: skip
    found = measured(notes)
    assert found.ages == {BURSTS: [3.0], quiet: [7.0]}
    assert found.quiet() == [7.0] and found.done_s == 9.0
    assert found.most([ROOT]) == 1 and found.most(["south", "north"]) == 1 and found.most(["nobody"]) == 0


def test_six_lines_say_what_was_too_many() -> None:
    run = Measured(True, "", {BURSTS: [(1.0, SITE_HOLDS + 1)], ROOT: [(2.0, 7)]}, {SITES[0]: [1.0, 3.0]}, 9.0)
    head, *lines = lines_of(dict.fromkeys(WAYS, run))
    assert len(lines) == 6 and all(way in head for way in WAYS)
    assert f"{SITE_HOLDS + 1} (too many)" in lines[0] and "2.0, 3.0" in lines[4]
    assert len({len(line) for line in lines}) == 1


def test_only_the_policy_tells_the_runs_apart() -> None:
    plain, equal, level = (plan_of(policy) for policy in WAYS.values())
    assert not plain.topology.pacing
    assert plain.workloads == equal.workloads == level.workloads
    assert {told.policy for told in level.topology.pacing.values() if told.rate} == {"level"}
    assert {name for name, told in equal.topology.pacing.items() if told.roots} == set(SITES)


def test_draws_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    samples = {"a": [(1.0, 2), (3.0, 0)], "b": [(2.0, 5)]}
    assert fullest(samples, ["a", "b", "c"]) == [(1.0, 2), (2.0, 5), (3.0, 5)]
    path = tmp_path / "new" / "burst.png"
    draw(path, dict.fromkeys(WAYS, samples), {"both": ["a", "b"], "one": ["a"]}, holds={"both": 4})
    head = path.read_bytes()[:24]
    assert head[1:4] == b"PNG" and min(struct.unpack(">II", head[16:])) > 300


def test_a_run_that_fails_is_said_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = dict.fromkeys(WAYS, Measured(False, "Violation: lost"))
    monkeypatch.setattr(burst, "run_all", lambda seed: failed)
    assert main(["sim", "burst", "--picture", str(tmp_path / "burst.png"), "--seed", "7"]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and "'without pacing' with seed 7 failed: Violation: lost" in said.err
    assert not said.out and not list(tmp_path.iterdir())


@pytest.mark.sim
def test_pacing_keeps_a_burst_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shorter one: without pacing it fills the hub and the region; with it, neither."""
    monkeypatch.setattr(burst, "BURST_MESSAGES", 100)
    monkeypatch.setattr(burst, "QUIET_MESSAGES", 20)
    plain, level = (burst._run((policy, 1)) for policy in (None, "level"))
    assert plain.ok and level.ok, plain.failure + level.failure
    assert plain.most([ROOT]) >= burst.ROOT_HOLDS > level.most([ROOT])
    assert plain.most(burst.REGIONS) > 3 * level.most(burst.REGIONS)
    assert level.most([BURSTS]) > 5 * plain.most([BURSTS])
    assert sum(map(len, level.ages.values())) == 100 + 6 * 20
