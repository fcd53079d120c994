"""The bounds of subscriptions that the node's file gives (docs/configuration.md, `[[subscription]]`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core.test_reloading import lines, read
from core.test_subscription_bounds import TOPIC, bound, check, made, numbered, waiting
from core.test_subscription_bounds import read as told_of
from core.test_topics import log, publisher
from holdfast.errors import ConfigError
from holdfast.settings.hosts import VhostConfig
from holdfast.settings.queues import QueueConfig
from holdfast.settings.subscriptions import SubscriptionConfig
from support.rig import Client, Node, Rig

DASHBOARDS = SubscriptionConfig(name="dash-*", topic="topic/*", messages_max=2, when_full="drop-oldest", idle_s=3_600)
AUDIT = SubscriptionConfig(name="audit", topic=TOPIC, bytes_max=10_000, when_full="dead-letter")
ALL = SubscriptionConfig(name="*", topic=TOPIC, idle_s=86_400)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def bounds(client: Client, name: str) -> tuple[Any, ...]:
    told = told_of(client, name)
    return tuple(told[key] for key in ("messages_max", "bytes_max", "when_full", "idle_s"))


NONE = (None, None, None, None)


def test_the_first_entry_that_matches_holds_for_a_new_subscription(rig: Rig) -> None:
    hub = rig.node("hub", subscriptions=(DASHBOARDS, AUDIT, ALL))
    made(rig, hub, "dash-1")
    made(rig, hub, "audit")
    client = made(rig, hub, "other")
    assert bounds(client, "dash-1") == (2, None, "drop-oldest", 3_600)
    assert bounds(client, "audit") == (8_192, 10_000, "dead-letter", None)
    assert bounds(client, "other") == (None, None, None, 86_400)
    numbered(rig, publisher(rig, hub), 0, 5)
    check(hub)
    assert waiting(rig, hub, "dash-1") == ["3", "4"]
    assert len(waiting(rig, hub, "other")) == 5


def again(rig: Rig, hub: Node, *entries: SubscriptionConfig) -> Client:
    """A start with that file."""
    hub.crash()
    hub.config = replace(hub.config, subscriptions=entries)
    hub.start()
    rig.run(1)
    check(hub)
    return rig.client(hub)


def reloaded(rig: Rig, hub: Node, *entries: SubscriptionConfig) -> Client:
    """That file, read while the node runs."""
    hub.config = replace(hub.config, subscriptions=entries)
    assert read(hub, subscriptions=entries).accepted
    rig.run(1)
    check(hub)
    return rig.client(hub)


@pytest.mark.parametrize("take_up", [again, reloaded])
def test_the_file_wins_where_it_has_changed(rig: Rig, take_up: Callable[..., Client]) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "dash-1")
    numbered(rig, publisher(rig, hub), 0, 5)
    client = take_up(rig, hub, DASHBOARDS)
    assert bounds(client, "dash-1") == (2, None, "drop-oldest", 3_600)
    assert log(hub).dropped_total == 3
    bound(client, "dash-1", messages_max=10)
    client = take_up(rig, hub, DASHBOARDS, AUDIT)
    assert bounds(client, "dash-1")[0] == 10, "the file says the same of it as before"
    client = take_up(rig, hub, replace(DASHBOARDS, messages_max=4))
    assert bounds(client, "dash-1") == (4, None, "drop-oldest", 3_600)
    client = take_up(rig, hub)
    assert bounds(client, "dash-1") == NONE


@pytest.mark.parametrize("take_up", [again, reloaded])
def test_bounds_by_hand_stay_while_the_file_says_nothing(rig: Rig, take_up: Callable[..., Client]) -> None:
    hub = rig.node("hub")
    made(rig, hub, "dash-1", messages_max=7, when_full="end")
    client = take_up(rig, hub, AUDIT)
    assert bounds(client, "dash-1") == (7, None, "end", None)


def test_what_is_taken_up_outlives_a_crash(rig: Rig) -> None:
    hub = rig.node("hub")
    made(rig, hub, "dash-1")
    reloaded(rig, hub, DASHBOARDS)
    assert "subscription 'dash-*' of 'topic/*' added" in lines(hub)
    client = again(rig, hub, DASHBOARDS)
    assert bounds(client, "dash-1")[0] == 2
    client = again(rig, hub)
    assert bounds(client, "dash-1") == NONE, "it was the file's, and the file has it no more"


def test_a_subscription_that_takes_the_place_of_another_has_the_file_s_bounds(rig: Rig) -> None:
    hub = rig.node("hub", subscriptions=(DASHBOARDS,))
    client = made(rig, hub, "dash-1", messages_max=9)
    made(rig, hub, "dash-1", "another.pattern")
    assert bounds(client, "dash-1")[0] == 2


def test_a_virtual_host_has_its_own(rig: Rig) -> None:
    acme = replace(DASHBOARDS, vhost="acme")
    hub = rig.node(
        "hub",
        vhosts=(VhostConfig(name="acme"),),
        queues=(QueueConfig(name=TOPIC, vhost="acme"),),
        subscriptions=(acme,),
    )
    client = made(rig, hub, "dash-1")
    assert bounds(client, "dash-1") == NONE
    mine = rig.client(hub, hostname="acme")
    mine.receiver(TOPIC, name="dash-1", source={"durable": 2, "expiry_policy": "never"})
    rig.settle()
    assert bounds(mine, "dash-1")[0] == 2


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (replace(ALL, idle_s=None), "subscription '*' of 'topic/flights' has no bound; add messages_max, bytes_max or "
         "idle_s, or remove it"),
        (replace(AUDIT, when_full=None), "subscription 'audit' of 'topic/flights': bytes_max needs when_full: "
         "drop-oldest, dead-letter or end"),
        (replace(AUDIT, bytes_max=None), "subscription 'audit' of 'topic/flights': when_full needs messages_max or "
         "bytes_max"),
        (replace(AUDIT, when_full="block"), "subscription 'audit' of 'topic/flights': invalid value 'block' for "
         "when_full; expected drop-oldest, dead-letter or end"),
        (replace(AUDIT, messages_max=8_193), "subscription 'audit' of 'topic/flights': invalid value 8193 for "
         "messages_max; expected 1 to 8192"),
        (replace(AUDIT, topic="orders"), "invalid value 'orders' for topic of subscription 'audit' of 'orders'; "
         "expected a topic or a pattern of topics, as topic/flights or topic/*"),
        (replace(AUDIT, topic="topic/a/b"), "invalid value 'topic/a/b' for topic of subscription 'audit' of "
         "'topic/a/b'; expected a topic or a pattern of topics, as topic/flights or topic/*"),
        (replace(AUDIT, name="a@b"), "invalid name 'a@b' of a subscription; expected at most 200 printable bytes "
         "without '@', as audit, dashboard-* or *"),
        (replace(AUDIT, vhost="x"), "invalid value 'x' for subscription 'audit' vhost; expected the name of a [[vhost]]"
         " (there is none)"),
    ],
)  # fmt: skip
def test_what_is_no_entry_is_refused(entry: SubscriptionConfig, text: str) -> None:
    hub = Rig().node("hub")
    with pytest.raises(ConfigError) as refused:
        replace(hub.config, subscriptions=(entry,)).validate()
    assert str(refused.value) == text


def test_an_entry_is_listed_once() -> None:
    hub = Rig().node("hub")
    with pytest.raises(ConfigError, match=r"^subscription 'audit' of 'topic/flights' is listed twice"):
        replace(hub.config, subscriptions=(AUDIT, AUDIT)).validate()
    replace(hub.config, subscriptions=(AUDIT, replace(AUDIT, topic="topic/b"))).validate()
