"""A queue that is to have other settings: what an operator is told, and what the node's file does to it."""

import pytest

from holdfast.errors import ConfigError
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig
from support.hops import names
from support.reloads import lines, read
from support.rig import Rig


def test_create_says_which_settings_differ() -> None:
    rig = Rig()
    client = rig.client(rig.node("hub"))
    settings = {"bytes_max": 100, "when_full": "refuse"}
    assert client.manage("CREATE", "queue", "q", **settings)[0] == 201
    assert client.manage("CREATE", "queue", "q", **settings)[0] == 200
    code, _, text = client.manage("CREATE", "queue", "q", bytes_max=200, when_full="refuse", messages_max=5)
    wanted = "queue 'q' is there with other settings: bytes_max 100, asked for 200; messages_max none, asked for 5"
    assert (code, text) == (409, wanted)
    code, _, text = client.manage("CREATE", "queue", "q", durable=False, order_wait_s=1.5)
    wanted = "queue 'q' is there with other settings: durable true, asked for false; order_wait_s 30.0, asked for 1.5"
    assert (code, text) == (409, wanted)
    assert client.manage("CREATE", "queue", "q", bytes_max=None)[2].endswith(": bytes_max 100, asked for none")


def test_what_is_read_of_a_queue_are_all_its_settings() -> None:
    rig = Rig()
    client = rig.client(rig.node("hub"))
    settings = {"bytes_max": 7, "messages_max": 8, "when_full": "refuse", "order": "strict", "order_wait_s": 9.0}
    client.manage("CREATE", "queue", "q", **settings, durable=False)
    told = client.manage("READ", "queue", "q")[1]
    assert {key: told[key] for key in (*settings, "durable")} == settings | {"durable": False}


def test_the_nodes_file_changes_a_queue_that_was_made_by_hand() -> None:
    """docs/management.md, "Changing a queue": whole, at the next start, and for good; its messages stay."""
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    client.manage("CREATE", "queue", "q", bytes_max=1_000, when_full="refuse")
    link = client.sender("q")
    rig.settle()
    for name in names(1, 3):
        client.send(link, name)
    rig.settle()
    hub.crash()
    hub.config = NodeConfig(name="hub", create_queues=True, queues=(QueueConfig(name="q", bytes_max=2_000),))
    hub.start()
    rig.run(1)
    hub.crash()
    hub.config = NodeConfig(name="hub", create_queues=True)
    hub.start()
    rig.run(1)
    told = rig.client(hub).manage("READ", "queue", "q")[1]
    assert (told["bytes_max"], told["when_full"]) == (2_000, "block") and hub.bodies("q") == names(1, 3)


def test_a_file_that_would_hide_what_is_stored_is_refused() -> None:
    """A queue in memory does not show what is on disk: it was accepted, and stays."""
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    link = client.sender("q")
    rig.settle()
    client.send(link, "1")
    rig.settle()
    hub.crash()
    in_memory = NodeConfig(name="hub", create_queues=True, queues=(QueueConfig(name="q", durable=False),))
    durable, hub.config = hub.config, in_memory
    with pytest.raises(
        ConfigError, match="invalid value false for queue 'q' durable; expected true while 1 messages of it are"
    ):
        hub.start()
    hub.config = durable
    hub.start()
    reader = rig.client(hub)
    reader.receiver("q")
    rig.settle()
    assert reader.accept() == ["1"]
    rig.run(1)
    hub.crash()
    hub.config = in_memory
    hub.start()
    assert not hub.queue("q").config.durable


def test_bounds_that_go_back_to_those_of_the_file_are_told_and_so_is_what_does_not_change() -> None:
    node = Rig().node("hub", queues=(QueueConfig(name="work", messages_max=5),))
    client = node.rig.client(node)
    assert client.manage("UPDATE", "queue", "work", messages_max=7, when_full="refuse")[0] == 200
    assert read(node, queues=(QueueConfig(name="work", messages_max=7, bytes_max=900),)).accepted
    assert read(node, queues=(QueueConfig(name="work"),)).accepted
    assert client.manage("UPDATE", "queue", "work", messages_max=9)[0] == 200
    assert read(node, queues=(QueueConfig(name="work", messages_max=9),)).accepted
    assert lines(node) == [
        "queue 'work' changed: bytes_max 900, when_full block",
        "queue 'work' changed: bytes_max none, messages_max none",
        "nothing has changed",
    ]
