"""A node starts with every selector that it took."""

from holdfast.amqp.wire.types import Described, Symbol
from support.one_node import world

SELECTOR = Symbol("apache.org:selector-filter:string")


def test_a_subscription_whose_selector_is_longer_in_canonical_form_survives_a_restart() -> None:
    """3,986 bytes are taken; the canonical text, which is stored, has 5,126, and is refused at the start."""
    rig, node, client = world()
    text = " OR ".join(["a=1"] * 570)
    source = {
        "durable": 2,
        "expiry_policy": Symbol("never"),
        "filter": {Symbol("s"): Described(SELECTOR, text)},
    }
    link = client.receiver("topic/news", name="s", source=source)
    rig.settle()
    assert len(text) <= 4_096 and link.error is None
    node.crash()
    node.start()
    assert list(node.queue("topic/news").named) == ["s"]
