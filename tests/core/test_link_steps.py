"""Steps of links between queues, through the wire (docs/links.md, "Steps"; docs/adr/0068)."""

from typing import Any

from holdfast.settings import LinkConfig, QueueConfig
from holdfast.steps import parsing
from support.one_node import world
from support.rig import Client, Node, Rig


def stepped(*steps: dict[str, Any], queues: tuple[QueueConfig, ...] = (), **fields: Any) -> tuple[Rig, Node, Client]:
    link = LinkConfig(
        name="clean", source="raw", target=fields.pop("target", "clean"), mode=fields.pop("mode", "move"),
        steps=parsing.as_text(steps, "link 'clean'"),
    )  # fmt: skip
    return world(*queues, links=(link,), **fields)


REPEATS = {"drop_repeats": {"key": "tag", "within_s": 5}}


class Site:
    """Sends readings to `raw`: body, and properties."""

    def __init__(self, rig: Rig, client: Client) -> None:
        self.rig, self.client = rig, client
        self.link = client.sender("raw")
        rig.settle()

    def read(self, body: str, **properties: Any) -> None:
        self.client.send(self.link, body, application_properties=properties or None)
        self.rig.settle()


def test_repeats_are_dropped_until_their_window_is_over() -> None:
    rig, node, client = stepped(REPEATS)
    site = Site(rig, client)
    for body, tag in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "b")):
        site.read(body, tag=tag)
    site.read("5")
    rig.settle()
    assert node.bodies("clean") == ["1", "2", "5"] and node.bodies("raw") == []
    rig.run(6)
    site.read("6", tag="a")
    site.read("7", tag="a")
    assert node.bodies("clean") == ["1", "2", "5", "6"] and node.bodies("raw") == []
    assert node.core is not None
    told = node.core.queue_links.status()[0]
    assert (told["moved_total"], told["dropped_total"], told["windows"]) == (4, 3, 1)
    node.core.validate()


def test_windows_outlive_a_crash() -> None:
    rig, node, client = stepped(REPEATS)
    Site(rig, client).read("1", tag="a")
    node.crash()
    node.start()
    rig.settle()
    site = Site(rig, rig.client(node))
    site.read("2", tag="a")
    site.read("3", tag="b")
    assert node.bodies("clean") == ["1", "3"] and node.bodies("raw") == []
    rig.run(10)
    assert not list(node.store.table("windows"))
    node.core.validate()  # type: ignore[union-attr]
