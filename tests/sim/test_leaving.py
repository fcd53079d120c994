"""What is demanded of subscriptions that come and go, and of receivers with a small window, can fail."""

from unittest.mock import patch

import pytest

from holdfast.amqp.session.session_endpoint import SessionEndpoint
from holdfast.broker.queue import Queue
from holdfast_lab.base.client_history import Violation, make_key
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute
from holdfast_lab.sim.sim_bed import SimBed
from holdfast_lab.workloads import Leaving

pytestmark = pytest.mark.sim

SENDS = {"kind": "publish", "node": "lhr", "address": "flights", "messages": 60, "rate": 50.0}
TAKES = {"kind": "consume", "node": "lhr", "queue": "flights"}
LEAVES = {"kind": "leaving", "node": "lhr", "queue": "flights", "messages": 60, "stays": 10, "rounds": 2}


def run(*workloads: dict[str, object]) -> Result:
    return execute(Plan(name="leaving", topology=line("lhr jfk"), workloads=workloads, liveness_s=30.0), 1)


def test_subscriptions_come_and_go_and_leave_nothing() -> None:
    result = run(SENDS, TAKES, LEAVES)
    assert result.ok, result.failure
    assert result.metrics["leaving-3.left"] == 4 and result.metrics["leaving-3.shown"] > 0


def test_what_a_deleted_subscription_leaves_behind_is_told() -> None:
    with patch.object(Queue, "reclaim_some", lambda _: None):
        result = run(SENDS, TAKES, LEAVES)
    assert "not done" in result.failure


@pytest.mark.parametrize(("shown", "told"), [((3, 4, 5), False), ((3, 5), True), ((), False)])
def test_what_a_subscription_was_not_shown_is_told(shown: tuple[int, ...], told: bool) -> None:
    workload = Leaving(node="lhr", queue="flights", messages=5)
    with SimBed(line("lhr jfk"), 1) as bed:
        bed.history.kept[workload.place] = dict.fromkeys(range(1, 7), b"")
        places = {sequence: make_key(0, sequence) for sequence in shown}
        if not told:
            workload._check_whole(bed, "reader", places)
            return
        with pytest.raises(Violation, match="sequence 4"):
            workload._check_whole(bed, "reader", places)


def test_a_window_that_does_not_open_again_is_told() -> None:
    """The client's own, which must be topped up whenever half of it is used."""
    with patch.object(SessionEndpoint, "_open_window", lambda _: None):
        result = run(SENDS, {"kind": "thin", "node": "lhr", "queue": "flights", "life_s": 1e6})
    assert "not done" in result.failure
