"""What hostile clients may send as selectors and as messages. Work is counted in calls of functions, not in seconds."""

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.message.message import Message
from holdfast.selectors import like, parsing
from holdfast.selectors.errors import SelectorError
from holdfast.selectors.grammar import LEVELS_MAX
from holdfast.selectors.parsing import SELECTOR_BYTES_MAX, STEPWISE_MAX
from holdfast.selectors.predicate import Predicate, compile_selector
from holdfast.selectors.sections import PAIRS_MAX, UNDECODABLE, Sections

CALLS_PER_CHARACTER = 200
CALLS_AT_LEAST = 2_000

parsing.load_parser()


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions `work` calls, those of Python and those of C."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def tried(text: str) -> Predicate | SelectorError:
    """What becomes of a text. Fails the test where that is neither of the two, or takes more work than it may."""
    outcome: list[Predicate | SelectorError] = []

    def work() -> None:
        try:
            outcome.append(compile_selector(text))
        except SelectorError as error:
            outcome.append(error)

    calls = calls_of(work)
    assert calls <= CALLS_AT_LEAST + CALLS_PER_CHARACTER * min(len(text), SELECTOR_BYTES_MAX), f"{calls}: {text[:80]!r}"
    (result,) = outcome
    if isinstance(result, SelectorError):
        assert 1 <= result.column <= len(text) + 1
        assert str(result).isprintable() and len(str(result)) < 600
    return result


WORDS = (
    "a", "b.c", '"x y"', "'s'", "''", "1", "0x1F", "1.5", "1e3", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE",
    "IN", "IS", "NULL", "ESCAPE", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "(", ")", ",", "JMSType",
    "amqp.subject", "amqp.annotation.x-a", "'%_'", "'!'", "\u00e9", "'", '"', ".", "#",
)  # fmt: skip


@given(st.text())
def test_any_text_is_a_selector_or_an_error(text: str) -> None:
    tried(text)


@given(st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_random_bytes_are_a_selector_or_an_error(text: str) -> None:
    tried(text)


@given(st.lists(st.sampled_from(WORDS), max_size=40), st.sampled_from(["", " ", "\n"]))
def test_any_words_are_a_selector_or_an_error(words: list[str], blank: str) -> None:
    result = tried(blank.join(words))
    if isinstance(result, Predicate):
        assert result.value(Sections(b"")) in (True, False, None)


def test_seeded_words_meet_selectors_often_enough() -> None:
    chance = random.Random(7)
    found = [tried(" ".join(chance.choices(WORDS, k=chance.randint(1, 7)))) for _ in range(2_000)]
    assert sum(isinstance(result, Predicate) for result in found) >= 20


LONG = [
    "a" * 4_096,
    "(" * 4_096,
    ")" * 4_096,
    "-" * 4_096,
    "NOT " * 1_024,
    "a+" * 2_047 + "a=1",
    "a*" * 2_046 + "a=1",
    "a OR " * 819 + "a",
    "a AND " * 682 + "a",
    "NOT a AND " * 409 + "a",
    "'" * 4_096,
    '"' * 4_096,
    "'" + "''" * 2_047 + "x",
    '"' + '""' * 2_047 + "x",
    "a='" + "''" * 2_046 + "'",
    "1" * 4_096,
    "a = " + "9" * 4_092,
    "a = 0x" + "f" * 4_090,
    "a = " + "0" * 4_091 + "1",
    "a = ." + "0" * 4_000 + "1",
    "a = 1e" + "9" * 4_090,
    "." * 4_096,
    "a." * 2_048,
    "a.b" * 1_365,
    " " * 4_096,
    "a IN (" + "'x'," * 1_021 + "'x')",
    "a IN (" + "'x'," * 1_021,
    "a LIKE '" + "%" * 4_087 + "'",
    "a LIKE '" + "_" * 4_087 + "'",
    "a LIKE '" + "%a" * 2_043 + "'",
    "a LIKE '" + "!%" * 2_030 + "' ESCAPE '!'",
    "a LIKE '" + "".join(map(chr, range(0x400, 0x400 + 2_000))) + "'",
    "a BETWEEN " * 409,
    "amqp.annotation." + "-" * 4_000,
    "\u00e9" * 2_048,
    "1.5" * 1_365,
    "0x" * 2_048,
    "< " * 2_048,
]


@pytest.mark.parametrize("text", LONG, ids=lambda text: text[:12])
def test_long_texts_take_work_by_their_length(text: str) -> None:
    tried(text)


# ------------------------------------------------------------------------------------------ bounds


def test_a_text_may_have_4096_bytes() -> None:
    longest = "a = '" + "x" * (SELECTOR_BYTES_MAX - 6) + "'"
    assert len(longest.encode()) == SELECTOR_BYTES_MAX
    compile_selector(longest)
    with pytest.raises(SelectorError, match="4097 bytes; the limit is 4096, at column 1"):
        compile_selector(longest + " ")
    with pytest.raises(SelectorError, match="4098 bytes"):
        compile_selector("a = '" + "é" * ((SELECTOR_BYTES_MAX - 4) // 2) + "'")


@pytest.mark.parametrize(
    ("before", "middle", "after"),
    [
        ("(", "a", ")"),
        ("NOT ", "a", ""),
        ("(", "a = 1", ")"),
        ("a OR (", "b", ")"),
        ("a AND (b OR ", "c", ")"),
    ],
)
def test_a_selector_may_have_64_levels(before: str, middle: str, after: str) -> None:
    compile_selector(before * LEVELS_MAX + middle + after * LEVELS_MAX).value(Sections(b""))
    text = before * (LEVELS_MAX + 1) + middle + after * (LEVELS_MAX + 1)
    with pytest.raises(SelectorError, match="more than 64 levels") as caught:
        compile_selector(text)
    opener = before.rstrip()[-1] if "(" in before else "NOT"
    at = [index for index in range(len(text)) if text.startswith("(" if opener != "NOT" else "NOT", index)]
    assert caught.value.column == at[LEVELS_MAX] + 1


def test_signs_and_parentheses_count_together() -> None:
    compile_selector("a = " + "-(" * 32 + "b" + ")" * 32).value(Sections(b""))
    with pytest.raises(SelectorError, match="more than 64 levels"):
        compile_selector("a = " + "-(" * 32 + "-b" + ")" * 32)


def test_levels_are_counted_inside_each_other_alone() -> None:
    compile_selector(" AND ".join(["NOT (a = -(1))"] * 200))
    compile_selector("a = " + " - ".join(["-1"] * 200))
    compile_selector("(a) NOT BETWEEN -(1) AND -1 AND " * 100 + "a NOT IN ('x') AND a IS NOT NULL")


def test_the_deepest_selector_leaves_most_of_the_stack() -> None:
    """Evaluation nests by levels, two or three functions each."""
    text = "NOT (a IS NULL AND (b OR " * 20 + "-(c + 2 * (d - 1)) > 1" + "))" * 20
    predicate = compile_selector(text)
    assert predicate.text.count("NOT") == 20
    depth = most = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal depth, most
        depth += {"call": 1, "return": -1}.get(event, 0)
        most = max(most, depth)

    sys.setprofile(counted)
    try:
        predicate.value(Sections(b""))
    finally:
        sys.setprofile(None)
    assert most < 3 * LEVELS_MAX


def test_a_selector_may_have_16_stepwise_patterns() -> None:
    test = "a LIKE '%x_y%'"
    compile_selector(" OR ".join([test] * STEPWISE_MAX) + " OR a LIKE 'x_%' OR a LIKE '%x%y%'")
    with pytest.raises(SelectorError, match="more than 16 patterns") as caught:
        compile_selector(" OR ".join([test] * (STEPWISE_MAX + 1)))
    assert caught.value.column == STEPWISE_MAX * (len(test) + 4) + 8


def value_of(pattern: str, text: str) -> bool | None:
    return compile_selector(f"a LIKE '{pattern}'").value(Sections(Message(application_properties={"a": text}).encode()))


def test_a_longer_text_than_65536_characters_is_unknown_to_a_pattern() -> None:
    assert value_of("%x%", "x" * like.TEXT_MAX) is True
    assert value_of("%x%", "x" * (like.TEXT_MAX + 1)) is None
    assert value_of("%x_x%", "x" * like.STEPS_MAX) is True
    assert value_of("%x_x%", "x" * (like.STEPS_MAX + 1)) is None


@pytest.mark.parametrize(
    "pattern", ["%a%a%a%a%a%a%a%b", "%a_a%a_a%a_a%b", "%" + "a_" * 400 + "b%", "%_%_%_%b", "a%" * 100 + "b"]
)
def test_patterns_take_work_by_the_length_of_the_text(pattern: str) -> None:
    """No backtracking: the number of steps is at most the length of the text, whatever the pattern."""
    matcher = like.Pattern(pattern, "")
    text = "a" * like.STEPS_MAX
    assert matcher.matches(text) is False
    assert calls_of(lambda: matcher.matches(text)) <= len(text) + 3 * len(pattern) + 20


# ------------------------------------------------------------------------------------------ messages

EVERYTHING = compile_selector(
    "JMSMessageID = 'x' OR JMSXUserID = 'x' OR JMSType = 'x' OR JMSPriority > 200 OR JMSDeliveryMode = 'x' OR "
    "a = 1 AND a LIKE '%x_%' OR a + 1 > 2 OR amqp.annotation.x = 1 OR amqp.group_sequence BETWEEN 1 AND 2 OR NOT a"
)
WHOLE = Message(
    message_annotations={"x": 1, "y": [1, {"z": 2}]},
    application_properties={"a": 1, "b": "text", "c": [1, 2]},
    data=[b"body"],
).encode()


@given(st.binary(max_size=200))
def test_any_payload_has_a_result(payload: bytes) -> None:
    assert EVERYTHING.value(Sections(payload)) in (True, False, None)


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.integers(0, len(WHOLE)))
def test_a_payload_with_another_byte_or_a_cut_has_a_result(at: int, byte: int, end: int) -> None:
    payload = bytearray(WHOLE)
    payload[at] = byte
    assert EVERYTHING.value(Sections(bytes(payload[:end]))) in (True, False, None)
    assert EVERYTHING.value(Sections(payload[:end])) in (True, False, None)


@given(st.binary(max_size=40), st.sampled_from([0x70, 0x72, 0x73, 0x74]), st.sampled_from([0xC0, 0xC1, 0xD0, 0xD1]))
def test_any_section_has_a_result(inside: bytes, code: int, form: int) -> None:
    size = bytes((len(inside),)) if form < 0xD0 else len(inside).to_bytes(4, "big")
    payload = bytes((0, 0x53, code, form)) + size + inside
    assert EVERYTHING.value(Sections(payload)) in (True, False, None)


def application(count: int, items: bytes) -> Sections:
    size = (len(items) + 4).to_bytes(4, "big")
    return Sections(b"\x00\x53\x74\xd1" + size + count.to_bytes(4, "big") + items + b"\x00\x53\x77\x40")


def test_a_map_may_have_16384_pairs() -> None:
    def items(pairs: int) -> bytes:
        return b"".join(b"\xa1\x05%05d\x40" % number for number in range(pairs - 1)) + b"\xa1\x01a\x41"

    assert application(2 * PAIRS_MAX, items(PAIRS_MAX)).application_property("a") is True
    assert application(2 * PAIRS_MAX + 2, items(PAIRS_MAX + 1)).application_property("a") is UNDECODABLE


def test_counts_that_lie_take_no_work() -> None:
    message = application(2 * PAIRS_MAX, b"\xa1\x01a\x41")
    assert calls_of(lambda: message.application_property("a")) < 60
    assert message.application_property("a") is UNDECODABLE


def test_a_value_that_is_nested_a_thousand_times_is_skipped() -> None:
    described = b"\x00" * 1_000 + b"\x40" * 1_001
    message = application(4, b"\xa1\x01b" + described + b"\xa1\x01a\x41")
    assert calls_of(lambda: message.application_property("a")) < 60
    assert message.application_property("a") is True


def test_keys_of_one_hash_are_not_compared() -> None:
    """UUIDs can be made alike to a dict by the thousand; keys that are no names are passed over."""
    items = b"".join(b"\x98" + (number * (2**61 - 1)).to_bytes(16, "big") + b"\x40" for number in range(16_000))
    message = application(2 * 16_001, items + b"\xa1\x01a\x41")
    assert message.application_property("a") is True


def test_a_key_twice_makes_a_map_undecodable() -> None:
    assert application(4, b"\xa1\x01a\x41" * 2).application_property("a") is UNDECODABLE
