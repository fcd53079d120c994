"""A message of a transaction for a node that has become known goes to it, as one without a transaction does."""

import pytest

from holdfast.amqp.wire.performatives import Accepted
from support.hops import reroute
from support.rig import Rig
from support.transactions import Controller


@pytest.mark.parametrize("within", [False, True])
def test_a_link_that_is_older_than_the_route_sends_in_transactions_too(within: bool) -> None:
    rig = Rig()
    a, _, c = rig.graph("a-b", "b-c", routes={"b": {"a": "a"}}, a={"unknown_destination": "dead-letter"})
    rig.run(2)
    client = rig.client(a)
    controller = Controller(client)
    link = client.sender("work@c")  # to the dead letters, while nothing is known of c
    rig.settle()
    reroute(rig, a, c="b")
    if within:
        mine = controller.begin()
        assert controller.send(mine, link, "1") == Accepted()
        assert controller.commit(mine) == Accepted()
    else:
        client.send(link, "1")
    rig.run(2)
    assert not a.bodies("$dead-letters") and c.bodies("work") == ["1"]
