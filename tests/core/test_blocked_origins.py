"""Origins of which a number was not taken, as their sender tries them again (custody/hop/sender.py)."""

from holdfast.custody.hop.blocked import Blocked
from holdfast.custody.hop.sender import CustodySender
from holdfast.settings.limits import Limits
from support.hops import send
from support.rig import Node, Rig


def blocked(in_doubt_max: int, *names: str) -> tuple[Rig, CustodySender, Node, Node]:
    """jfk has one message of each of `names` for hub, and knows that hub had no place for it; hub's next commit
    waits."""
    rig = Rig()
    fields = {name: {"queues": ()} for name in names} | {"jfk": {"limits": Limits(hop_in_doubt_max=in_doubt_max)}}
    routes = {name: {"hub": "jfk"} for name in names}
    jfk, hub, *origins = rig.graph("jfk-hub", *(f"jfk-{name}" for name in names), routes=routes, **fields)
    rig.run(2)
    hub.crash()
    for node in origins:
        send(rig, node, node.name, to="hub")
    rig.run(1)
    assert jfk.core is not None and jfk.queue("@hub").messages == len(names)
    sender = jfk.core.next_hops["hub"].senders["hub"]
    for node in origins:
        sender.blocked[node.store.uuid] = Blocked(rig.now, 1, rig.now)
    sender.schedule()
    hub.start()
    for _ in range(2_000):
        if sender.open:
            break
        if not rig.move():
            rig.pass_time(0.01)
    assert sender.open
    hub.hold_commits = True
    return rig, sender, jfk, hub


def test_they_are_no_more_in_doubt_than_others() -> None:
    """All of them together keep the bound; who finds no place is next as soon as there is one."""
    rig, sender, jfk, hub = blocked(1, "a", "b", "c")
    found = set()
    for _ in range(30):
        rig.run(0.1)
        found.add(len(sender.in_doubt))
    assert max(found) == 1
    hub.hold_commits = False
    rig.settle()
    assert sorted(hub.bodies("work")) == ["a", "b", "c"] and jfk.queue("@hub").messages == 0


def test_as_many_as_there_are_places_go_at_once() -> None:
    rig, sender, _, hub = blocked(2, "a", "b", "c")
    rig.run(0.1)
    assert len(sender.in_doubt) == 2
    hub.hold_commits = False
    rig.settle()
    assert sorted(hub.bodies("work")) == ["a", "b", "c"]
