"""Addresses: `queue`, `queue@node`, and what is none."""

import pytest

from holdfast.broker.address import NAME_BYTES_MAX, Address, parse
from holdfast.errors import ConfigError


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
    "text", ["", "@hub", "$work", "$work@hub", "a@b@hub", "work@$x", "a\nb", "a\x00", "x" * (NAME_BYTES_MAX + 1)]
)
def test_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="accepted is 1 to 200 bytes"):
        parse(text, own_name="jfk")
