"""The mail for a node that is forgotten: told, made dead letters of or moved, in every virtual host (ADR 0104)."""

from typing import Any

import pytest

from holdfast.broker.entries.host_names import destination_of
from holdfast.custody import dead_lettering
from holdfast.engine import events
from support.crossing import HOSTS, bodies, client_of, line, say
from support.hops import reroute
from support.rig import Node, Rig

DEAD = "$dead-letters"
FIRST = [f"{number}" for number in range(1, 6)]


def left() -> tuple[Rig, Node, Node]:
    """jfk and via; the hub behind them is gone from the configuration, with mail for it at jfk in each virtual host."""
    rig, (jfk, via, hub) = line("jfk", "via", "hub")
    rig.refuse_dials = True
    for one, two in (("jfk", "via"), ("via", "hub")):
        for wire in rig.between(one, two):
            wire.cut()
    hub.crash()
    for host in HOSTS:
        say(jfk, host, *FIRST, to="work@hub")
    reroute(rig, jfk)
    return rig, jfk, via


def waiting(node: Node, host: str) -> list[str]:
    """What waits for the hub."""
    assert node.core is not None
    return node.bodies(node.core.catalog.transit[destination_of(host, "hub")].key)


def forget(node: Node, **arguments: Any) -> tuple[int, dict[str, Any], str]:
    return client_of(node, "").manage("FORGET", "node", "hub", **arguments)


def test_by_default_it_is_told_and_stays() -> None:
    _, jfk, _ = left()
    assert forget(jfk)[:2] == (200, {"node": "hub", "waiting": len(FIRST) * len(HOSTS)})
    for host in HOSTS:
        assert waiting(jfk, host) == FIRST


def test_in_each_host_it_becomes_dead_letters_there() -> None:
    rig, jfk, _ = left()
    status, body, _ = forget(jfk, mail="dead-letter")
    assert (status, body["dead_lettered"], body["waiting"]) == (200, len(FIRST) * len(HOSTS), 0)
    for host in HOSTS:
        assert bodies(jfk, host, DEAD) == FIRST
    jfk.crash()
    jfk.start()
    rig.run(1)
    assert forget(jfk)[:2] == (200, {"node": "hub", "waiting": 0})


def test_in_each_host_it_goes_to_another_node_in_order_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_lettering, "MOVED_COUNT", 2)
    rig, jfk, via = left()
    status, body, text = forget(jfk, mail="move", to="via")
    assert (status, body.get("moved"), body.get("waiting")) == (200, len(FIRST) * len(HOSTS), 0), text
    rig.refuse_dials = False
    rig.run(10)
    for host in HOSTS:
        assert bodies(via, host) == FIRST
        assert not bodies(via, host, DEAD)


def test_a_large_message_goes_whole() -> None:
    rig, jfk, via = left()
    assert jfk.core is not None
    large = "large " * 300_000
    jfk.handle(events.ForwardingChanged(table={"hub": "via"}))
    say(jfk, "", large, to="work@hub")
    reroute(rig, jfk)
    status, body, text = forget(jfk, mail="move", to="via")
    assert (status, body.get("waiting")) == (200, 0), text
    jfk.core.validate()
    rig.refuse_dials = False
    rig.run(10)
    assert bodies(via, "") == [*FIRST, large]


def test_a_full_disk_and_a_crash_move_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_lettering, "MOVED_COUNT", 2)
    rig, jfk, via = left()
    assert jfk.core is not None
    told: list[tuple[int, int]] = []
    for host in HOSTS:
        queue = jfk.core.catalog.transit[destination_of(host, "hub")]
        jfk.core.departures.begin(queue, lambda *ended: told.append(ended), with_tombstones=False, to="via")
    jfk.refuse = 2
    jfk.due = True
    rig.run(0.5)
    jfk.crash()
    jfk.start()
    rig.run(1)
    status, body, _ = forget(jfk, mail="move", to="via")
    assert status == 200 and body["waiting"] == 0
    rig.refuse_dials = False
    rig.run(10)
    for host in HOSTS:
        assert bodies(via, host) == FIRST


def test_new_mail_for_it_is_refused_with_the_reason() -> None:
    rig, jfk, _ = left()
    forget(jfk, mail="dead-letter")
    for host in HOSTS:
        client = client_of(jfk, host)
        link = client.sender("work@hub")
        rig.settle()
        assert link.detached and "no route to 'hub'" in str(client.detached[-1].error)


@pytest.mark.parametrize("arguments", [
    {"mail": "purge"}, {"mail": 7}, {"mail": "move"}, {"mail": "move", "to": "nobody"}, {"mail": "move", "to": "jfk"},
    {"mail": "move", "to": "hub"}, {"mail": "move", "to": 7},
])  # fmt: skip
def test_invalid_arguments_change_nothing(arguments: dict[str, Any]) -> None:
    _, jfk, _ = left()
    assert forget(jfk, **arguments)[0] == 400
    for host in HOSTS:
        assert waiting(jfk, host) == FIRST


def test_a_node_that_is_known_keeps_its_mail() -> None:
    _, (jfk, _, _) = line("jfk", "via", "hub")
    for name in ("via", "hub"):
        assert client_of(jfk, "").manage("FORGET", "node", name, mail="dead-letter")[0] == 409
