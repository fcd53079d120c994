"""Patterns of addresses, and what is wrong with a rule (access/patterns.py, access/rules.py)."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.access import rules
from holdfast.access.patterns import PATTERN_BYTES_MAX, Pattern, check
from holdfast.access.rules import AccessConfig, AccessRule, GroupConfig
from holdfast.errors import ConfigError


@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=8))
def test_a_pattern_matches_as_the_regular_expression_does(pattern: str, address: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), address) is not None
    assert Pattern(pattern).matches(address) is expected


def test_a_pattern_without_a_node_is_about_this_one() -> None:
    found = [
        text for text in ("orders*", "*", "*@hub", "*@*", "orders@hub", "@*") if Pattern(text).matches("orders@hub")
    ]
    assert found == ["*", "*@hub", "*@*", "orders@hub"]
    assert [text for text in ("*", "*@hub", "@*", "*hub") if Pattern(text).matches("@hub")] == ["*", "*@hub", "@*"]


def test_an_address_is_closer_than_patterns_and_of_these_the_one_that_says_more() -> None:
    closeness = [Pattern(text).closeness for text in ("*", "a*", "*b*", "a.b*", "a.b.c*", "a")]
    assert closeness == sorted(closeness) and len(set(closeness)) == len(closeness) - 1  # a* and *b* say as much


def test_many_stars_cost_no_more() -> None:
    pattern = Pattern("*a" * (PATTERN_BYTES_MAX // 2 - 1) + "*")
    assert not pattern.matches("a" * 200) and pattern.matches("a" * 300)


@pytest.mark.parametrize("text", ["", "a\nb", "x" * (PATTERN_BYTES_MAX + 1), "topic/news/world", "topic/news/*"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"invalid address .* in access 'a'; expected"):
        check("access 'a'", text)
    check("access 'a'", "x" * PATTERN_BYTES_MAX)


def rule(**told: Any) -> AccessRule:
    return AccessRule(**{"name": "a", "addresses": ("q",), "users": ("ann",), "allow": ("send",), **told})


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"allow": ("fly",)}, "invalid value 'fly' in access 'a'; expected one of send, receive, browse, create"),
        ({"deny": ("send",)}, "access 'a' both allows and denies send; expected one of the two"),
        ({"allow": ()}, "access 'a' has neither allow nor deny; give one, or both"),
        ({"addresses": ()}, "access 'a' has 0 addresses; expected 1 to 100"),
        ({"addresses": ("q",) * 101}, "access 'a' has 101 addresses; expected 1 to 100"),
        ({"users": (), "allow": ("relay",)}, "access 'a' allows relay to all users of a virtual host; name them"),
        ({"users": (), "allow": ("administer",)}, "access 'a' allows administer to all users of a virtual host"),
        ({"users": ("bob",)}, "invalid value 'bob' for access 'a' users; expected the name of a user"),
        ({"vhost": "nowhere"}, "invalid value 'nowhere' for access 'a' vhost; expected the name of a [[vhost]]"),
        ({"vhost": "acme"}, "invalid value 'ann' for access 'a' users; expected the name of a user"),
        ({"groups": ("staff",)}, "invalid value 'staff' for access 'a' groups; expected the name of a [[group]]"),
    ],
)
def test_a_wrong_rule_is_refused_in_one_line(told: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)) as caught:
        AccessConfig(rules=(rule(**told),)).validate({"acme"}, {rules.hosted("", "ann")})
    assert "\n" not in str(caught.value)


def test_denying_needs_no_names_and_unknown_users_pass_where_users_change() -> None:
    AccessConfig(rules=(rule(users=(), allow=(), deny=("relay", "administer")), rule(name="b"))).validate((), None)
    AccessConfig(rules=(rule(addresses=("q",) * 100),)).validate((), None)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (AccessConfig(rules=(rule(), rule())), "access 'a' is listed twice; list it once"),
        (AccessConfig(groups=(GroupConfig(name="g", users=()),)), "group 'g' has 0 users; expected 1 to 10000"),
        (
            AccessConfig(rules=tuple(rule(name=str(number)) for number in range(rules.RULES_MAX + 1))),
            "there are 1001 [[access]]; the limit is 1000",
        ),
    ],
)
def test_wrong_lists_are_refused(config: AccessConfig, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        config.validate((), None)


def test_a_name_may_be_used_again_in_another_virtual_host() -> None:
    AccessConfig(rules=(rule(), rule(vhost="acme"))).validate({"acme"}, None)


def test_patterns_of_a_virtual_host_are_bounded_and_addresses_are_not() -> None:
    def rules_with(count: int, form: str) -> AccessConfig:
        texts = [form.format(number) for number in range(count)]
        parts = [tuple(texts[at : at + 100]) for at in range(0, count, 100)]
        return AccessConfig(rules=tuple(rule(name=str(at), addresses=part) for at, part in enumerate(parts)))

    rules_with(rules.PATTERNS_MAX, "q{}.*").validate((), None)
    rules_with(20 * rules.PATTERNS_MAX, "q{}").validate((), None)
    with pytest.raises(ConfigError, match="have more than 1000 patterns with"):
        rules_with(rules.PATTERNS_MAX + 1, "q{}.*").validate((), None)
