"""The records of all operations of `$management` (management/operations/operation.py): none is left out of the log, and
each says what it reads of its request's body."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.entity_types import MANAGEMENT
from holdfast.management.operations.answers import Later, Refused
from holdfast.management.operations.operation import Operation
from holdfast.management.operations.rights import Rights
from support.one_node import world

READ_ONLY = {
    "org.amqp.management": {"QUERY", "GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-MGMT-NODES"},
    "holdfast:node": {"STATUS", "WHERE", "NETWORK"},
    "holdfast:queue": {"QUERY", "READ"},
    "holdfast:entry": {"QUERY", "READ"},
    "holdfast:subscription": {"READ", "PEEK", "GAPS", "ADVANCE", "QUERY"},
    "holdfast:link": {"QUERY"},
    "holdfast:service": {"QUERY", "READ"},
    "holdfast:federation": {"QUERY", "TREE"},
}
"""What an operator does not ask about later. A subscription's reader advances with each batch."""
ROOT = Path(__file__).parents[2]


class Watched(dict[str, Any]):
    """A request's body that notes which keys were looked for."""

    def __init__(self, **given: Any) -> None:
        super().__init__(given)
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:  # type: ignore[override]
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)


def operations() -> Iterator[tuple[str, str, Operation]]:
    _, node, _ = world()
    assert node.core is not None
    for (kind, name), operation in node.core.management.operations.items():
        yield kind, name, operation


def test_all_that_change_something_say_what_they_changed() -> None:
    silent: dict[str, set[str]] = {}
    for kind, name, operation in operations():
        if operation.changes is None:
            silent.setdefault(kind, set()).add(name)
    assert silent == READ_ONLY


def test_what_a_request_is_asked_for_is_among_its_arguments() -> None:
    for kind, name, operation in operations():
        if kind == MANAGEMENT:  # its arguments are outside the body
            continue
        told = {"queue": "x", "queue_uuid": "x", "address": "y", "from": "a", "to": "b"}
        given = Watched(**{key: value for key, value in told.items() if key in operation.arguments})
        try:
            answer = operation.carry_out("", "x@y", given)
        except Refused:
            pass
        else:
            assert isinstance(answer, Later) or answer.status < 300
        assert given.read <= set(operation.arguments), (kind, name)


@pytest.mark.parametrize("page", ["management.md"])
def test_all_are_in_the_table(page: str) -> None:
    """`| `holdfast:queue` | `READ` |`, and without a type where it is that of the row above."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    told, kinds = set(), [""]
    for types, names in re.findall(r"^\| ((?:`[a-z]+:[a-z]+`(?:, )?)*) ?\| ((?:`[A-Z-]+`(?:, )?)+) \|", text, re.M):
        kinds = re.findall(r"`(.*?)`", types) or kinds
        told |= {(kind, name) for kind in kinds for name in re.findall(r"`(.*?)`", names)}
    assert told == {(kind, name) for kind, name, _ in operations() if kind != MANAGEMENT}


def test_the_table_of_permissions_names_all_that_others_than_administrators_may_ask() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    table = text[text.index("| request | needs |") :].partition("\n\n")[0]
    told: set[tuple[str, str]] = set()
    for row in re.findall(r"^\| (?!request|---|all others)([^|]+) \|", table, re.M):
        kind = MANAGEMENT
        for part in row.split(";"):
            named = re.match(r"\s*([a-z]+) [A-Z]", part)
            kind = f"holdfast:{named[1]}" if named else kind
            told |= {(kind, name) for name in re.findall(r"\b[A-Z]+(?:-[A-Z]+)*\b", part)}
    free = {(kind, name) for kind, name, operation in operations() if operation.needs is not Rights.of_administrator}
    assert told == free | {("holdfast:queue", "QUERY")}
