"""The control messages of federation: what is written is read, and whatever else a peer writes ends its session."""

import random
import sys
from typing import Any

import pytest

from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.federation.aliases import ALIASES_MAX, Heard, Malformed, Said
from holdfast.federation.messages import (
    BYTES_MAX,
    EDGES_MAX,
    LIST_MAX,
    PREDICATE_BYTES_MAX,
    ROWS_MAX,
    TRACE_MAX,
    Change,
    Claim,
    Compare,
    Federate,
    Follow,
    Message,
    PartsOf,
    Reset,
    RowsOf,
    Stored,
    read,
    write,
)
from holdfast.federation.modes import ASK_BYTES_MAX, PATTERNS_MAX, TOPICS_MAX, Ask
from holdfast.federation.rows import DIGEST_END, STAMP_END, WIDE, Row, Stamp
from holdfast.federation.sets import NOTHING, Edition, Key
from holdfast.federation.weight import held_bytes

KEY = Key("ewr", "flights")
OTHER = Key("jfk", "flights")
HAS = Edition(Stamp(1_000, 3), DIGEST_END - 1)
ROWS = (Row("a.*"), Row("b", "delay > 5"), Row("#", None, WIDE))
MESSAGES: list[Message] = [
    Federate((("flights", "dynamic"), ("news", "push"))),
    Follow(((KEY, HAS), (OTHER, NOTHING)), (Key("x", "news"),), True),
    Compare(7, 9),
    Compare(0, 0, again=True),
    Change(KEY, NOTHING, HAS, frozenset({"jfk", "hub"}), ROWS, (Row("c"),)),
    PartsOf(KEY, HAS, "", tuple(range(16)), frozenset({"hub"})),
    PartsOf(KEY, HAS, "0af", tuple(range(16))),
    RowsOf(KEY, HAS, "", ROWS, frozenset()),
    RowsOf(KEY, HAS, "0123456789abcdef", ROWS),
    Stored(KEY, HAS, True, (("jfk", Stamp(5, 6)), ("gone", None))),
    Claim(KEY, HAS, ("a", "b")),
    Reset(KEY, 77),
    Federate((), (Ask("flights", "dynamic"), Ask("news", "static", ("a.*", "#")))),
]


def over_the_wire(message: Message, said: Said, heard: Heard) -> Message:
    fields, _ = decode(encode(write(message, said)))
    return read(fields, heard)


def test_what_is_written_is_read() -> None:
    said, heard = Said(), Heard()
    for message in MESSAGES + MESSAGES:  # the second time by aliases alone
        assert over_the_wire(message, said, heard) == message


def test_a_name_is_written_once() -> None:
    said = Said()
    first, again = (len(encode(write(Reset(KEY, 1), said))) for _ in range(2))
    assert first - again >= len("ewr") + len("flights")


def test_past_the_bound_of_aliases_names_are_written() -> None:
    said, heard = Said(), Heard()
    for number in range(ALIASES_MAX + 2):
        assert heard.read("a node", said.write(f"n{number}")) == f"n{number}"
    assert said.write("one.more") == "one.more"


@pytest.mark.parametrize("value", [7, [0], [0, 5], [-1, "a"], [ALIASES_MAX, "a"], None, [True, "a"], "", "$a", b"a"])
def test_what_is_no_name(value: object) -> None:
    with pytest.raises(Malformed):
        Heard().read("a node", value)


def test_an_alias_keeps_its_name() -> None:
    heard = Heard()
    assert heard.read("a node", [0, "a"]) == heard.read("a node", 0) == heard.read("a node", [0, "a"]) == "a"
    with pytest.raises(Malformed, match="alias 0"):
        heard.read("a node", [0, "b"])


def fields_of(message: Message) -> dict[str, Any]:
    fields, _ = decode(encode(write(message, Said())))
    assert isinstance(fields, dict)
    return fields


@pytest.mark.parametrize(
    ("message", "key", "value"),
    [
        (MESSAGES[0], "rows", [["t", "dynamic"]] * 257),
        (MESSAGES[0], "rows", [["t", "other"]]),
        (MESSAGES[1], "rows", [["a", "t", 1, 1, 1]] * (LIST_MAX + 1)),
        (MESSAGES[1], "rows", [["a", "t", 1, 0, 1]]),
        (MESSAGES[1], "rows", [["a", "t", STAMP_END, 1, 1]]),
        (MESSAGES[1], "rows", [["a", "t", 1, 1, DIGEST_END]]),
        (MESSAGES[1], "whole", 1),
        (MESSAGES[2], "count", -1),
        (MESSAGES[4], "add", ["a"] * (ROWS_MAX + 1)),
        (MESSAGES[4], "add", ["a" * 200] * (BYTES_MAX // 200)),
        (MESSAGES[4], "add", ["a..b"]),
        (MESSAGES[4], "add", ["#.#"]),
        (MESSAGES[4], "add", [["a", "x" * (PREDICATE_BYTES_MAX + 1), 0]]),
        (MESSAGES[4], "add", [["a", None, 256]]),
        (MESSAGES[4], "add", [["a", None]]),
        (MESSAGES[4], "edges", ["a"] * (EDGES_MAX + 1)),
        (MESSAGES[4], "edges", None),
        (MESSAGES[5], "digests", [0] * 15),
        (MESSAGES[5], "prefix", "A"),
        (MESSAGES[5], "prefix", "0" * 16),
        (MESSAGES[8], "prefix", "0" * 17),
        (MESSAGES[9], "names", [["a", 1]]),
        (MESSAGES[9], "names", [["a", None]] * (LIST_MAX + 1)),
        (MESSAGES[10], "trace", ["a"] * (TRACE_MAX + 1)),
        (MESSAGES[11], "nonce", DIGEST_END),
        (MESSAGES[11], "kind", "other"),
        (MESSAGES[11], "kind", ["void"]),
    ],
)
def test_out_of_bounds(message: Message, key: str, value: object) -> None:
    heard = Heard()
    with pytest.raises(Malformed) as found:
        read(fields_of(message) | {key: value}, heard)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 300


HIGH = Edition(Stamp(STAMP_END - 1, STAMP_END - 1), DIGEST_END - 1)
MANY = tuple(Row(f"topic.{number}", f"delay > {number}", WIDE) for number in range(ROWS_MAX))
KEYS = tuple(Key(f"node{number}", f"topic{number}") for number in range(LIST_MAX))
FULL: list[Message] = [
    Federate(tuple((key.topic, "dynamic") for key in KEYS)),
    Follow(tuple((key, HIGH) for key in KEYS), KEYS, True),
    Change(KEY, NOTHING, HIGH, frozenset(key.origin for key in KEYS), MANY, MANY),
    PartsOf(KEY, HIGH, "", (DIGEST_END - 1,) * 16, frozenset(key.origin for key in KEYS)),
    RowsOf(KEY, HIGH, "", MANY, frozenset()),
    Stored(KEY, HIGH, True, tuple((key.origin, HIGH.stamp) for key in KEYS)),
    Claim(KEY, HIGH, tuple(key.origin for key in KEYS[:TRACE_MAX])),
]


def deep_size(value: object) -> int:
    """Of all but the names, which are the session's."""
    if isinstance(value, tuple | frozenset):
        return sys.getsizeof(value) + sum(map(deep_size, value))
    return 0 if isinstance(value, str) and value[:4] in ("node", "topi") and "." not in value else sys.getsizeof(value)


@pytest.mark.parametrize("message", FULL, ids=lambda message: type(message).__name__)
def test_what_is_counted_of_a_message_is_at_least_what_it_holds(message: Message) -> None:
    found = over_the_wire(message, Said(), Heard())
    assert found == message
    assert deep_size(found) <= held_bytes(found) < 100_000 + 3 * deep_size(found)


def test_at_the_bounds() -> None:
    rows = tuple(Row(f"r{number}") for number in range(ROWS_MAX))
    names = tuple((f"n{number}", None) for number in range(LIST_MAX))
    for message in (Change(KEY, HAS, HAS, frozenset(), rows), Stored(KEY, HAS, False, names)):
        assert over_the_wire(message, Said(), Heard()) == message


def test_fields_of_a_newer_version_are_passed_over() -> None:
    assert read(fields_of(MESSAGES[11]) | {"more": [1]}, Heard()) == MESSAGES[11]


def _garbage(rng: random.Random, depth: int = 0) -> object:
    kinds = ("", "a", "#", None, True, -1, 0, 1, 2**63, 2**64, b"x", 1.5, "a.b", [], {})
    if depth < 3 and rng.random() < 0.4:
        return [_garbage(rng, depth + 1) for _ in range(rng.randrange(6))]
    return rng.choice(kinds)


def test_garbage_is_malformed_and_nothing_else() -> None:
    rng, heard = random.Random(3), Heard()
    read_at_all = 0
    for _ in range(4_000):
        fields = fields_of(rng.choice(MESSAGES))
        for key in rng.sample(sorted(fields), rng.randint(1, len(fields))):
            if key != "kind" or rng.random() < 0.1:
                fields[key] = _garbage(rng)
        try:
            read(fields, heard)
            read_at_all += 1
        except Malformed:
            pass
    assert read_at_all


def test_a_node_of_an_earlier_version_asks_for_nothing() -> None:
    assert read({"kind": "federate", "rows": []}, Heard()) == Federate(())
    assert "asks" not in write(Federate((("flights", "push"),)), Said()), "so nothing changes for who asks for nothing"


LONG = "a" * 255


def test_asks_at_their_bounds() -> None:
    asks = [[f"t{number}", "push", []] for number in range(TOPICS_MAX)]
    asks[0] = ["t0", "static", ["a"] * PATTERNS_MAX]
    asks[1] = ["t1", "static", [LONG] * ((ASK_BYTES_MAX - PATTERNS_MAX) // 255)]
    message = read({"kind": "federate", "rows": [], "asks": asks}, Heard())
    assert isinstance(message, Federate) and len(message.asks) == TOPICS_MAX
    assert held_bytes(message) > sum(ask.size for ask in message.asks)


def test_patterns_that_are_asked_for_count_what_they_hold() -> None:
    short, long = (held_bytes(Federate((), (Ask("t", "static", (text,)),))) for text in ("a", LONG))
    assert long - short == len(LONG) - 1


@pytest.mark.parametrize(
    ("asks", "why"),
    [
        ({}, "invalid asks of federate; expected a list of at most 256"),
        ([["t", "push", []]] * (TOPICS_MAX + 1), "invalid asks of federate; expected a list of at most 256"),
        (["t"], "invalid ask of federate; expected a topic, one of dynamic, static, push, and patterns"),
        ([["t", "push"]], "invalid ask of federate"),
        ([["t", "pull", []]], "invalid ask of federate"),
        ([["t", ["push"], []]], "invalid ask of federate"),
        ([["$t", "push", []]], "invalid a topic '$t'"),
        ([["t", "push", ["a"]]], "expected 1 to 1000 with mode static, and none with another"),
        ([["t", "static", []]], "expected 1 to 1000 with mode static"),
        ([["t", "static", "a"]], "invalid patterns in an ask"),
        ([["t", "static", ["a"] * (PATTERNS_MAX + 1)]], "invalid patterns in an ask"),
        ([["t", "static", ["a..b"]]], "invalid pattern in an ask of federate; expected words joined by dots"),
        ([["t", "static", [7]]], "invalid pattern in an ask"),
        (
            [["t", "static", [LONG] * (ASK_BYTES_MAX // 255 + 1)]],
            f"{255 * (ASK_BYTES_MAX // 255 + 1)} bytes of patterns in asks of federate; expected at most 16384",
        ),
    ],
)
def test_what_is_no_ask(asks: object, why: str) -> None:
    with pytest.raises(Malformed) as caught:
        read({"kind": "federate", "rows": [], "asks": asks}, Heard())
    assert why in str(caught.value)
