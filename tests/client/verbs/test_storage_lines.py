"""What plain `status` says of a node's store."""

from typing import Any

import pytest

from holdfast.client.verbs.storage_lines import storage_lines

SHOWS = "`holdfast dead-letters list` shows them"
LETTERS = {"messages": 3, "bytes": 2_000, "dropped": 0, "dropped_bytes": 0}


@pytest.mark.parametrize(
    ("told", "lines"),
    [
        ({}, []),
        ({"disk": {"state": "ok", "commit_s": 0.0}}, []),
        (
            {"disk": {"state": "stalled", "commit_s": 7.2}},
            ["disk: no answer to a commit for 7 s; nothing is taken until it answers"],
        ),
        ({"dead_letters": {**LETTERS, "messages": 0}}, []),
        ({"dead_letters": LETTERS}, [f"dead letters: 3, 2.0 KiB; {SHOWS}"]),
        (
            {"dead_letters": {**LETTERS, "dropped": 7, "dropped_bytes": 9_000}},
            ["dead letters: 3, 2.0 KiB; 7 of the oldest were dropped since the node's start (8.8 KiB); " + SHOWS],
        ),
        (
            {"dead_letters": {**LETTERS, "messages": 0, "bytes": 0, "dropped": 7, "dropped_bytes": 9_000}},
            ["dead letters: 0, 0 B; 7 of the oldest were dropped since the node's start (8.8 KiB)"],
        ),
    ],
)
def test_lines(told: dict[str, Any], lines: list[str]) -> None:
    assert storage_lines(told) == lines
