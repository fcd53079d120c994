"""JSON that others wrote: only what RFC 8259 calls JSON. Python's own parser also takes NaN and Infinity.

Rules of this file: pure.
"""

import json
from typing import Any


def parse(text: str | bytes) -> Any:
    """Raises ValueError, or RecursionError where it is nested too deep."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")
