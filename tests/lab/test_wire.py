"""What lies under simulated nodes: writes that come in pieces, and LMDB's store behind the one in memory."""

from dataclasses import replace
from itertools import chain, islice, repeat
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from holdfast.engine.port import Batch
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.storage.lmdb import LmdbStore
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import Link, LinkShape, Topology
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from holdfast_lab.sim import paged_store
from holdfast_lab.sim.cuts import cut_anywhere, cut_at_frames
from holdfast_lab.sim.node import SimNode
from holdfast_lab.sim.paged_store import PagedStore
from holdfast_lab.sim.world import World

SIZES = (5, 8, 1, 40, 3)
FRAMES = (b"AMQP\x00\x01\x00\x00", bytes([0, 0, 0, 60]) + bytes(56), bytes([0, 0, 0, 24]) + bytes(20))
"""A header, and two frames of 60 and 24 bytes."""


def plan_of(*faults: Fault, rate: float | None = None, size: int = 100, **fields: Any) -> Plan:
    """Two nodes; messages from one to a queue of the other's."""
    shape = LinkShape(rate=rate)
    return Plan(
        name="wire",
        topology=Topology(
            nodes=("ber", "fra"),
            links=(Link(one="ber", other="fra", there=shape),),
            queues={"fra": (QueueConfig(name="work"),)},
            limits=Limits(),
        ),
        workloads=(
            {"kind": "publish", "node": "ber", "address": "work@fra", "messages": 10, "size": size, "rate": 0.0},
            {"kind": "consume", "node": "fra", "queue": "work"},
        ),
        faults=faults,
        safety_s=10.0,
        **fields,
    )


def run(plan: Plan) -> Result:
    return execute(plan, 3, keep_notes=True)


# ---------------------------------------------------------------------------------------------------- pieces


def test_pieces_are_as_long_as_was_drawn() -> None:
    data = b"".join(FRAMES)
    pieces = cut_anywhere(data, chain(SIZES, repeat(1_000)).__next__)
    assert [*map(len, pieces)] == [*SIZES, 92 - sum(SIZES)] and b"".join(pieces) == data


@pytest.mark.parametrize(("most", "frames"), [(1, [1, 1, 1]), (8, [1, 1, 1]), (9, [2, 1]), (68, [2, 1]), (69, [3])])
def test_segments_are_of_whole_frames(most: int, frames: list[int]) -> None:
    left = iter(FRAMES)
    assert cut_at_frames(b"".join(FRAMES), most) == [b"".join(islice(left, count)) for count in frames]


@pytest.mark.parametrize("piece_bytes", [8, 700])
def test_a_run_in_pieces_is_another_run(piece_bytes: int) -> None:
    plan = plan_of(Fault(kind="cut", at=0.05, link=("ber", "fra")), rate=50_000.0, size=5_000, piece_bytes=piece_bytes)
    result = run(plan)
    assert result.ok, result.failure
    assert result.digest != run(replace(plan, piece_bytes=0)).digest


def test_a_frame_that_takes_longer_than_the_hold_time_ends_no_session() -> None:
    """Sixty kilobytes at eight a second are seven seconds; the hold time is one and a half."""
    in_pieces = run(plan_of(rate=8_000.0, size=60_000, piece_bytes=700))
    assert in_pieces.ok, in_pieces.failure
    assert not [note for note in in_pieces.notes if note.kind == "session" and "nothing heard" in note.text]


def test_whoever_gives_up_a_neighbour_that_it_hears_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    received = SimNode.received

    def deaf(self: SimNode, end: Any, data: bytes) -> None:
        """ControlHandlers nothing any more, though it comes."""
        if self.world.elapsed_s > 1.0 and end.peer == "ber" and self.name == "fra":
            self._came_at[end.number] = self.clock.monotonic(self.world.now)
        else:
            received(self, end, data)

    monkeypatch.setattr(SimNode, "received", deaf)
    assert "fra gave ber up" in run(replace(plan_of(), liveness_s=20.0)).failure


def test_output_is_measured_where_it_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[int, int]] = []
    measure = SimNode._measure

    def kept(self: SimNode, number: int) -> None:
        end = self._ends.get(number)
        if end is not None and self._measures:
            measured.append(end.connection.measured(end))
        measure(self, number)

    monkeypatch.setattr(SimNode, "_measure", kept)
    assert run(plan_of(rate=8_000.0, size=60_000, piece_bytes=700)).ok
    assert all(0 <= arrived <= written for arrived, written in measured)
    assert any(arrived < written for arrived, written in measured)


# ---------------------------------------------------------------------------------------------------- LMDB's store


def test_a_run_on_paged_stores_is_the_same_run() -> None:
    plan = plan_of(
        Fault(kind="crash", at=0.1, node="fra", seconds=0.2),
        Fault(kind="replace-disk", at=1.0, node="fra", seconds=0.2),
    )
    paged, plain = run(replace(plan, paged=True)), run(plan)
    assert paged.ok, paged.failure
    assert paged.digest == plain.digest


def test_nothing_is_left_of_a_paged_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paged_store, "IN_MEMORY", tmp_path)
    assert run(replace(plan_of(Fault(kind="replace-disk", at=0.1, node="fra", seconds=0.2)), paged=True)).ok
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_loses_an_entry_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = LmdbStore.commit

    def forgetful(self: LmdbStore, batch: Batch) -> None:
        commit(self, replace(batch, appends=batch.appends[1:]))

    monkeypatch.setattr(LmdbStore, "commit", forgetful)
    assert "LMDB's store differs in queue" in run(replace(plan_of(), paged=True)).failure


def test_a_row_that_is_wrong_is_found_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody read again meanwhile."""
    found = paged_store.check

    def wrong(path: Path) -> Any:
        checked = found(path)
        checked.find("a page is wrong")
        return checked

    monkeypatch.setattr(paged_store, "check", wrong)
    assert "a page is wrong" in run(replace(plan_of(), paged=True)).failure


def test_a_store_that_is_put_back_has_what_the_model_has(request: pytest.FixtureRequest) -> None:
    world = World(1)
    store = PagedStore(world, Random(1), uuid4, lambda batch: None)
    request.addfinalizer(store.take_away)
    store.commit(Batch(appends=[(1, 1, b"one")], pieces=[(7, 0, b"piece")], puts={("queues", b"work"): b"row"}))
    backup = store.snapshot()
    store.commit(Batch(appends=[(1, 2, b"two")], retires=[(1, 1)]))
    store.restore(backup)
    store.open_again()
    assert world.failure is None
    assert (store.get(1, 1), store.get(1, 2), store.piece(7, 0)) == (b"one", None, b"piece")


# ---------------------------------------------------------------------------------------------------- what is drawn


def test_wires_and_stores_are_drawn_for_a_share_of_seeds() -> None:
    plans = [draw_plan(seed) for seed in range(1, 200)]
    in_pieces = [plan for plan in plans if plan.piece_bytes]
    assert 20 < len(in_pieces) < 60
    assert 8 < sum(plan.paged for plan in plans) < 35
    assert sum(plan.topology.hold_time_s < 5.0 for plan in in_pieces) > len(in_pieces) // 2
    for plan in plans[:20]:
        assert from_json(plan.to_json()) == plan
