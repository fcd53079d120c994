"""A configuration is taken up as a whole or not at all; where a part fails, the node says so and tries again
(core/reloading.py, docs/adr/0087)."""

from typing import Any, Final

import pytest

from holdfast.federation.modes import TOPICS_MAX
from holdfast.federation.settings import Entry
from holdfast.settings.hosts import UserConfig, VhostConfig
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import LinkConfig, QueueConfig
from holdfast.settings.remotes import RemoteConfig
from support.reloads import lines, read
from support.rig import Node, Rig

QUEUES: Final = (QueueConfig(name="raw"), QueueConfig(name="other"))


def copy(name: str, source: str = "raw", target: str = "to", **told: Any) -> LinkConfig:
    return LinkConfig(name=name, source=source, target=target, mode="copy", **told)


def refused(node: Node, text: str, **fields: Any) -> None:
    """The node refuses them, with that line, and is as it was."""
    assert node.core is not None
    core = node.core
    before = list(core.catalog.queues), list(core.queue_links.by_name), list(core.users.by_name), core.bindings.entries
    assert not read(node, **fields).accepted
    assert lines(node)[-1].startswith("nothing has changed: ") and text in lines(node)[-1]
    assert core.reloading.config == node.config
    after = list(core.catalog.queues), list(core.queue_links.by_name), list(core.users.by_name), core.bindings.entries
    assert after == before


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (Limits(queue_subscriptions_max=1), "link 'b' cannot be made; queue 'raw' has 1 subscriptions, the most"),
        (Limits(subscriptions_max=1), "link 'b' cannot be made; 1 subscriptions are here, the most there may be"),
    ],
)
def test_links_that_begin_together_are_counted_together(limits: Limits, text: str) -> None:
    node = Rig().node("hub", queues=QUEUES, limits=limits)
    new = {"users": (UserConfig(name="ann", password="one"),), "queues": (*QUEUES, QueueConfig(name="new"))}
    refused(node, text, links=(copy("a"), copy("b")), **new)
    assert read(node, links=(copy("a"),), **new).accepted
    refused_again = read(node, links=(copy("a"), copy("b")), **new)
    assert not refused_again.accepted and len(node.core.queue_links.by_name) == 1


def test_each_queue_has_its_own_room_for_subscriptions() -> None:
    node = Rig().node("hub", queues=QUEUES, limits=Limits(queue_subscriptions_max=1))
    assert read(node, links=(copy("a"), copy("b", "other"))).accepted
    assert len(node.core.queue_links.by_name) == 2


def test_queues_that_a_refused_link_was_to_use_are_not_left() -> None:
    """Also those that the node has made on demand for another link, and those of a remote."""
    away = RemoteConfig(name="far", remote="127.0.0.1:1")
    node = Rig().node("hub", queues=QUEUES, remotes=(away,))
    bad = copy("z", selector="(")
    refused(node, "invalid selector of link 'z'", links=(copy("a", "new", "newer"), copy("b", "raw", "to@far"), bad))
    assert read(node, links=(copy("a", "new", "newer"), copy("b", "raw", "to@far"))).accepted
    assert {"new", "newer", "to@far"} <= set(node.core.catalog.queues)


def test_a_link_leads_where_messages_may_go_from_then_on() -> None:
    acme = {"vhosts": (VhostConfig(name="acme"),)}
    queues = (QueueConfig(name="raw", vhost="acme"),)
    may, may_not = NeighbourConfig(name="jfk", hosts=("acme",)), NeighbourConfig(name="jfk")
    link = copy("a", target="to@jfk", vhost="acme")
    node = Rig().node("hub", queues=queues, neighbours=(may,), **acme)
    refused(node, "messages of virtual host 'acme' do not leave this node", neighbours=(may_not,), links=(link,))
    node = Rig().node("hub", queues=queues, neighbours=(may_not,), **acme)
    assert read(node, neighbours=(may,), links=(link,)).accepted
    assert len(node.core.queue_links.by_name) == 1


def test_entries_of_the_file_and_of_requests_are_counted_together() -> None:
    node = Rig().node("hub", queues=QUEUES, neighbours=(NeighbourConfig(name="jfk"),))
    client = node.rig.client(node)
    assert client.manage("CREATE", "federation", "made@jfk")[0] == 201
    most = tuple(Entry(f"t{number}", "jfk") for number in range(TOPICS_MAX))
    refused(node, f"{TOPICS_MAX + 1} topics in federation; expected at most {TOPICS_MAX}", federation=most)
    assert read(node, federation=most[1:]).accepted and len(node.core.bindings.entries) == TOPICS_MAX


# ------------------------------------------------------------------------------------------------ a part that fails


class Defect(Exception):
    """Raised where nothing is wrong."""


def test_what_a_part_could_not_take_up_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Rig().node("hub", queues=QUEUES)
    core = node.core
    take_up, failures = core.queue_links.take_up, 2

    def fails(*given: Any) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise Defect("a defect")
        take_up(*given)

    monkeypatch.setattr(core.queue_links, "take_up", fails)
    ann = UserConfig(name="ann", password="one")
    decided = read(node, users=(ann,), links=(copy("a"),), queues=(*QUEUES, QueueConfig(name="new")))
    assert decided.accepted and core.reloading.config.links == (copy("a"),)
    told = lines(node)
    assert told[-1] == (
        "the new configuration is in force, except for: links; a failure of the node, see its log; it is tried again"
    )
    assert not any("nothing has changed" in line for line in told) and "user 'ann' added" in told[0]
    assert "ann" in core.users.by_name and "new" in core.catalog.queues and not core.queue_links.by_name
    node.rig.run(10)
    assert list(core.queue_links.by_name) == ["a"] and lines(node)[-1] == "links: in force now"
    core.validate()


def test_a_reload_takes_up_what_an_earlier_one_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is tried again of the earlier one changes nothing of it."""
    node = Rig().node("hub", queues=QUEUES)
    core = node.core
    with monkeypatch.context() as patch:

        def fails(*given: Any) -> None:
            raise Defect("a defect")

        patch.setattr(core.reloading._neighbours, "take_up", fails)
        assert read(node, neighbours=(NeighbourConfig(name="jfk"), NeighbourConfig(name="ord"))).accepted
        assert not core.neighbours and "except for: neighbours;" in lines(node)[-1]
    assert read(node, neighbours=(NeighbourConfig(name="jfk"),)).accepted
    assert list(core.neighbours) == ["jfk"] and lines(node)[-1] == "neighbour 'ord' removed"
    node.rig.run(100)
    assert list(core.neighbours) == ["jfk"]


def test_a_failure_while_it_is_checked_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Rig().node("hub", queues=QUEUES)

    def fails(*given: Any) -> None:
        raise Defect("a defect")

    monkeypatch.setattr(node.core.queue_links, "check", fails)
    refused(node, "a failure of the node, see its log", queues=(*QUEUES, QueueConfig(name="new")))
