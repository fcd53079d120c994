"""Lists of names, and patterns over a node's queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from pyspark_holdfast.addresses import Address, addresses_of, escaped, listed


@given(st.lists(st.text("ab,*\\/é ", min_size=1, max_size=6), min_size=1, max_size=4, unique=True))
def test_any_names_can_be_listed(names: list[str]) -> None:
    found = addresses_of(",".join(map(escaped, names)))
    assert [address.name for address in found] == names
    assert not any(address.is_pattern for address in found)
    for address, name in zip(found, names, strict=True):
        assert address.matching([*names, "other"]) == [name]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("*", ["a", "ab", "a*b", "a.b"]),
        ("a*b", ["ab", "a*b", "a.b"]),
        (r"a\*b", ["a*b"]),
        ("a.b", ["a.b"]),
        ("*c*", []),
        ("*" * 2_000 + "c", []),
    ],
)
def test_a_pattern(pattern: str, matched: list[str]) -> None:
    assert Address(pattern).matching(["a", "ab", "a*b", "a.b"]) == matched


@pytest.mark.parametrize("text", ["", ",", "a,,b", " , a"])
def test_an_empty_part_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="option 'address': invalid list"):
        addresses_of(text)


def test_lines_are_separated_too() -> None:
    assert listed("address", " a , \\ b\\ ") == ["a", "\\ b\\ "]
    assert listed("urlFile", "a\n\n b , c\n", ",\n") == ["a", "b", "c"]
