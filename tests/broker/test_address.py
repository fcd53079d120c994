"""Addresses: `queue`, `queue@node`, and what is none."""

import pytest

from holdfast.broker.entries.address import Address, parse, without_alias
from holdfast.errors import ConfigError
from holdfast.names import NAME_BYTES_MAX
from holdfast.settings.queues import QueueConfig


@pytest.mark.parametrize(
    ("text", "queue", "node"),
    [
        ("work", "work", None),
        ("work@hub", "work", "hub"),
        ("work@jfk", "work", None),
        ("work@localhost", "work", None),
        ("work@", "work", None),
        ("a/b c", "a/b c", None),
        ("ü" * (NAME_BYTES_MAX // 2), "ü" * (NAME_BYTES_MAX // 2), None),
    ],
)
def test_parse(text: str, queue: str, node: str | None) -> None:
    assert parse(text, own_name="jfk") == Address(queue, node)


@pytest.mark.parametrize(
    "text", ["", "$work", "$work@hub", "a@b@hub", "work@$x", "a\nb", "a\x00", "x" * (NAME_BYTES_MAX + 1)]
)
def test_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected 1 to 200 bytes"):
        parse(text, own_name="jfk")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("work", "work"),
        ("work@hub", "work@hub"),
        ("100%", "100%"),
        ("/queue/work", "/queue/work"),
        ("x/queues/work", "x/queues/work"),
        ("http://host/work", "http://host/work"),
        ("/queues/work", "work"),
        ("/queues/a%2fb", "a/b"),
        ("/queues//queues/x", "/queues/x"),
        ("amqp://host/work", "work"),
        ("amqps://[::1]:5671/a/b", "a/b"),
    ],
)
def test_an_alias_is_taken_off_once(text: str, name: str) -> None:
    assert without_alias(text) == name


@pytest.mark.parametrize("text", ["/queues/a%2", "/queues/%G0", "/queues/%C3", "amqp://host", "amqps://host/"])
def test_an_alias_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        without_alias(text)


@pytest.mark.parametrize("name", ["/queues/x", "amqp://host/x", "AMQPS://host"])
def test_no_queue_is_configured_under_an_alias(name: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        QueueConfig(name=name).validate()


def test_a_node_alone_is_no_address() -> None:
    with pytest.raises(ConfigError, match="invalid address '@hub'; expected QUEUE@NODE"):
        parse("@hub", own_name="ewr")
