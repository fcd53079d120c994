"""A topic over nodes of which one has access lists: what it is sent is published under the neighbour's account
(docs/security.md)."""

import pytest

from holdfast.access.rules import AccessConfig, AccessRule
from holdfast.amqp.wire.performatives import Properties
from holdfast.federation.settings import Entry
from holdfast.settings.hosts import UserConfig
from support.rig import Rig
from support.routing import network


@pytest.mark.parametrize("account", ["a", "nobody"])
def test_what_comes_to_a_topic_is_published_under_the_neighbours_account(account: str) -> None:
    rig = Rig()
    rules = (
        AccessRule(name="ann", users=("ann",), addresses=("topic/flights",), allow=("receive", "create")),
        AccessRule(name="account", users=(account,), addresses=("topic/flights",), allow=("send", "create")),
    )
    users = tuple(UserConfig(name=name, password="x") for name in ("ann", "nobody"))
    network(rig, "b-a", b={"users": users, "access": AccessConfig(rules=rules)})
    a, b = rig.nodes["a"], rig.nodes["b"]
    rig.run(3)
    for here, there in ((a, "b"), (b, "a")):
        here.core.bindings.add(Entry("flights", there))
    rig.run(3)
    ann = rig.client(b, mechanism="PLAIN", user="ann", password="x")
    link = ann.receiver("topic/flights")
    rig.run(2)
    client = rig.client(a)
    sender = client.sender("topic/flights")
    rig.settle()
    client.send(sender, "delayed.jfk", properties=Properties(subject="delayed.jfk"))
    rig.run(2)
    may = account == "a"
    assert ann.bodies(link) == (["delayed.jfk"] if may else [])
    if not may:
        assert b.bodies("$dead-letters") == ["delayed.jfk"]
