"""Which values a limit may have."""

import pytest

from holdfast.errors import ConfigError
from holdfast.settings.limits import LIMITS_WITHIN, Limits
from holdfast.settings.node import NodeConfig


@pytest.mark.parametrize("key", sorted(LIMITS_WITHIN))
def test_values_out_of_range_are_refused(key: str) -> None:
    low, high = LIMITS_WITHIN[key]
    for value in (low, high):
        NodeConfig(name="n", limits=Limits(**{key: type(getattr(Limits(), key))(value)})).validate()
    for value in (low / 2, high * 2):
        with pytest.raises(ConfigError, match=f"invalid value .* for limits {key}; expected"):
            NodeConfig(name="n", limits=Limits(**{key: value})).validate()


def test_unfinished_deliveries_have_room_for_one_message() -> None:
    NodeConfig(name="n", limits=Limits(message_bytes_max=5, partial_bytes_max=5)).validate()
    with pytest.raises(ConfigError, match="invalid value 4 for limits partial_bytes_max; expected at least 5"):
        NodeConfig(name="n", limits=Limits(message_bytes_max=5, partial_bytes_max=4)).validate()
