"""What is read from the hub's status."""

from typing import Any

from holdfast_lab.demo.hub_watch import View


def status(*, synchronised: bool = True, state: str = "up", queues: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    nodes = [{"name": "hub", "state": "up"}, {"name": "buf", "state": state}]
    return {
        "routing": {"acting_super": "buf", "synchronised": synchronised, "nodes": nodes},
        "queues": list(queues),
    }


def test_the_network_is_whole_where_all_are_up_and_synchronised() -> None:
    assert View.of(status(), "flights") == View(acting_super="buf", whole=True)
    assert not View.of(status(state="unreachable"), "flights").whole
    assert not View.of(status(synchronised=False), "flights").whole


def test_the_queue_s_own_counts() -> None:
    queue = {"name": "flights", "next_sequence": 8, "messages": 3, "subscriptions": ["pipeline-table"]}
    other = {"name": "$waiting", "next_sequence": 1, "messages": 0, "subscriptions": []}
    view = View.of(status(queues=(other, queue)), "flights")
    assert (view.taken, view.messages, view.readers) == (7, 3, ("pipeline-table",))
