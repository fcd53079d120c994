"""A condition that an operator can act on."""

from typing import NamedTuple


class Condition(NamedTuple):
    """`key` identifies it as long as it lasts; `text` is its line in `status`. `logged_by_source`: whether the part
    that it is about logs it itself, at once."""

    key: str
    text: str
    logged_by_source: bool = False
