"""The watch of links without a producer name: what was in doubt on one may come again once its node was free to forget
it, and no sooner."""

from typing import Any

import pytest

from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.client_history import History
from holdfast_lab.runs.resumed_watch import ResumedWatch
from holdfast_lab.workloads.publish import ProducerLog, Publish
from support.resuming import HOLD_S, Producer
from support.rig import Rig

STEP_S = 0.5


class Watched:
    """A node, a producer whose log has one message in doubt, and the watch."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.node: Any = self.rig.node(
            "hub", queues=(QueueConfig(name="work"),), limits=Limits(resume_s_max=float(HOLD_S))
        )
        history = History()
        workload = Publish(node="hub", address="work", named=False)
        log = ProducerLog(history, "p", "work@hub", 12, named=False)
        workload.logs.append(log)
        self.key = log.key(log.take())
        self.may_repeat = history.may_repeat
        self.watch = ResumedWatch(history.may_repeat, [workload])
        self.producer = Producer(self.rig, self.node, durable=2)
        self.producer.send("a")
        self.run(STEP_S)

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds / STEP_S)):
            self.rig.run(STEP_S)
            self.watch.turned(self.node)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_what_was_in_doubt_may_come_again_once_the_link_was_away_for_long(watched: Watched) -> None:
    watched.producer.lose()
    watched.run(HOLD_S - STEP_S)
    assert not watched.may_repeat
    watched.run(2 * STEP_S)
    assert watched.may_repeat == {watched.key} and watched.watch.forgotten == 1


def test_the_time_counts_anew_from_a_start_of_the_node(watched: Watched) -> None:
    watched.producer.lose()
    watched.run(HOLD_S / 2)
    watched.node.crash()
    watched.run(HOLD_S / 2)
    watched.node.start()
    watched.run(HOLD_S - STEP_S)
    assert not watched.may_repeat
    watched.run(2 * STEP_S)
    assert watched.may_repeat == {watched.key}


def test_a_link_that_came_back_in_time_is_told_everything(watched: Watched) -> None:
    for _ in range(3):
        watched.producer.lose()
        watched.run(HOLD_S / 2)
        assert watched.producer.come_back() is not None
    assert not watched.may_repeat


def test_a_node_that_forgets_too_early_is_not_excused(watched: Watched) -> None:
    watched.producer.lose()
    watched.run(HOLD_S / 2)
    (record,) = watched.node.core.resume.incoming.values()
    watched.node.core.resume._forget(record)
    watched.run(HOLD_S)
    assert not watched.may_repeat and not watched.watch.forgotten
