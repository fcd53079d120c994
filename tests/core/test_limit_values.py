"""Which values a limit may have, and that what is told at one names its key."""

import ast
import re
from collections import defaultdict
from dataclasses import fields, replace
from pathlib import Path

import pytest

import holdfast
from holdfast.amqp.wire.performatives import Source, Target
from holdfast.errors import ConfigError
from holdfast.settings.limits import LIMITS_WITHIN, Limits
from holdfast.settings.node import NodeConfig
from support.rig import Rig

KEYS = {field.name for field in fields(Limits)}

EXCEPT = {"disk.py, tick: commit_stall_s": "a warning about the disk, not a bound that somebody meets"}
"""Functions that may leave out a key, and why."""


def unnamed(path: Path) -> set[str]:
    """Limits of which a function of that module puts the value, or what it compares with it, into a text, and the key
    into none."""
    found = set()
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef):
            parts = [part for line in _without_docstring(function) for part in ast.walk(line)]
            words = " ".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
            names = _names_of_limits(parts)
            told = set()
            for part in parts:
                if isinstance(part, ast.FormattedValue):
                    told |= _limits_in(part.value) | names.get(ast.unparse(part.value), set())
            found |= {f"{path.name}, {function.name}: {key}" for key in told if not re.search(rf"\b{key}\b", words)}
    return found


def _without_docstring(function: ast.FunctionDef) -> list[ast.stmt]:
    return function.body[ast.get_docstring(function) is not None :]


def _names_of_limits(parts: list[ast.AST]) -> dict[str, set[str]]:
    """Names to which a function assigns a limit, or a choice between several, and names that it compares with one."""
    names: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
            chosen = [part.value.body, part.value.orelse] if isinstance(part.value, ast.IfExp) else [part.value]
            names[part.targets[0].id] |= set().union(*(_limits_in(value) for value in chosen))
        elif isinstance(part, ast.Compare):
            values = [part.left, *part.comparators]
            for value in values:
                if isinstance(value, ast.Name):
                    names[value.id] |= set().union(*(_limits_in(other) for other in values))
    return names


def _limits_in(value: ast.expr) -> set[str]:
    """The key, if the expression is a limit."""
    return {value.attr} if isinstance(value, ast.Attribute) and _is_limit(value) else set()


def _is_limit(value: ast.Attribute) -> bool:
    return value.attr in KEYS and ast.unparse(value.value).endswith(("limits", "settings"))


def test_who_tells_the_value_of_a_limit_names_its_key() -> None:
    package = Path(holdfast.__file__).parent
    assert {told for path in package.rglob("*.py") for told in unnamed(path)} == set(EXCEPT)


@pytest.mark.parametrize(("what", "key", "text"), [
    ("node", "dynamic_nodes_max", "the connection has too many dynamic nodes; the limit is 1"),
    ("node", "queues_max", "the node has too many queues; the limit is 1"),
    ("subscription", "dynamic_nodes_max",
     "the connection has too many subscriptions that are not durable; the limit is 1"),
    ("subscription", "queues_max", "the node has too many queues; the limit is 2"),
    ("subscription", "queue_subscriptions_max",
     "topic 'topic/t' has 1 subscriptions that are not durable, the most that it may have"),
])  # fmt: skip
def test_one_attach_too_many_is_told_the_key_of_its_bound(what: str, key: str, text: str) -> None:
    rig = Rig()
    least = 2 if key == "queues_max" and what == "subscription" else 1  # the topic is one
    client = rig.client(rig.node("hub", limits=replace(Limits(), **{key: least})))
    for number in range(2):
        if what == "node":
            client.session.attach_receiver(f"n{number}", Source(dynamic=True), Target())
        else:
            client.receiver("topic/t", name=f"n{number}")
    rig.settle()
    assert client.detached[-1].error is not None
    assert str(client.detached[-1].error.description) == f"{text} ({key})"


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
