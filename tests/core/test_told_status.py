"""Every field that a node's status has stands in docs/management.md, and none that it does not have."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.broker.entries.host_names import hosted
from holdfast.pacing.settings import PacingConfig
from holdfast.settings.hosts import UserConfig, VhostConfig
from support.hops import replaced_disk
from support.remotes import world as remote_world
from support.rig import Node, Rig
from support.routing import network
from support.standing import federating

TEXT = (Path(__file__).parents[2] / "docs" / "management.md").read_text(encoding="utf-8")
SECTION = TEXT.partition("## The answer to `STATUS`")[2].partition("\n## ")[0]
CELLS = re.findall(r"^\| (`[^|]*`) \|", SECTION, re.MULTILINE)
DOCUMENTED = {name for cell in CELLS for name in re.findall(r"`([\w.]+)`", cell)}

NAMED_BY_RULE = {"turns.histogram"}
"""Maps whose keys are numbers in words: the document says how they are made."""


def fields_of(value: Any, path: str = "") -> Iterator[str]:
    """Dotted names of all that has a value: leaves, lists of plain values, and lists of maps."""
    if isinstance(value, dict) and path not in NAMED_BY_RULE:
        for key, inner in value.items():
            yield from fields_of(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from fields_of(inner, path)
    else:
        yield path


def told(node: Node) -> set[str]:
    assert node.core is not None
    return set(fields_of(node.core.report.status("")))


def reported() -> set[str]:
    """What two nodes tell, each of which has something to say in parts where the other has not."""
    rig = Rig()
    a, *_ = network(rig, "a-b", "b-c", supers=("a",))
    rig.run(90)
    client = rig.client(a)
    link = client.sender("work")
    rig.settle()
    client.send(link, "1")
    rig.settle()
    client.manage("CREATE", "queue", "other")
    client.manage("CREATE", "queue", "full", messages_max=1, when_full="refuse")
    link = client.sender("full")
    rig.settle()
    for body in ("1", "2"):
        client.send(link, body)
    rig.settle()
    client.manage("CREATE", "link", "work-other", **{"from": "work", "to": "other"})
    assert a.core is not None
    a.core.logins.has_failed("10.0.0.1", b"", None)
    a.core.node_drain.begin()
    found = told(a)
    users = (UserConfig(name="u", password="p", vhost="acme"),)
    guest = Rig().node("guest", vhosts=(VhostConfig(name="acme"),), users=users)
    assert guest.core is not None
    guest.core.logins.has_failed("10.0.0.1", "u", hosted("acme", "u"))
    found |= told(guest)
    both = PacingConfig(rate=1_000, roots=("mid",)), PacingConfig(roots=("hub",))
    paced, *_ = (rig := Rig()).line("hub", "mid", hub={"pacing": both[0]}, mid={"pacing": both[1]})
    rig.run(3)
    found |= told(paced)
    found |= told(federating().node)
    remote_rig, node, *_ = remote_world()
    remote_rig.run(1)
    found |= told(node)
    _, _, hub = replaced_disk()
    return found | told(hub)


def test_every_field_of_a_status_is_documented_and_no_other() -> None:
    found = reported()
    for part in ("queues.name", "sessions.state", "routing.heartbeats.path", "origins.gaps", "losses.at",
                 "logins.latest.user", "users.kind", "routes.path",
                 "paces.rate", "paced.rate", "federation.bindings.pattern", "federated_by.sets",
                 "remotes.state"):  # fmt: skip
        assert part in found, f"the worlds of this test tell nothing of {part}"
    assert sorted(found - DOCUMENTED) == []
    above = {name.rpartition(".")[0] for name in found}
    assert sorted(DOCUMENTED - found - above) == []


def test_the_room_counts_what_the_store_may_grow_by_wherever_it_is_told() -> None:
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    node.store.growth_bytes = lambda: 10**9  # type: ignore[method-assign]
    assert node.core is not None
    wanted = node.core.room.bytes + 10**9
    assert client.manage("STATUS", "node")[1]["room_bytes"] == wanted
    (row,) = client.manage("NETWORK", "node")[1]["nodes"]
    assert row["room_bytes"] == wanted
