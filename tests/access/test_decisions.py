"""Who may do what where: a table of users, addresses and actions (access/lists.py, docs/adr/0085-access-lists.md)."""

from fnmatch import fnmatchcase
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.access.actions import ACTIONS
from holdfast.access.lists import REMEMBERED_MAX, AccessLists
from holdfast.access.rules import AccessConfig, AccessRule, GroupConfig

CONFIG: Final = AccessConfig(
    groups=(
        GroupConfig(name="staff", users=("ann", "bob")),
        GroupConfig(name="night", users=("bob", "cleo")),
        GroupConfig(name="staff", users=("ann",), vhost="acme"),
    ),
    rules=(
        AccessRule(name="all may browse", addresses=("public.*",), allow=("browse",)),
        AccessRule(name="staff", groups=("staff",), addresses=("orders.*",), allow=("send", "receive", "browse")),
        AccessRule(name="no secrets", groups=("staff",), addresses=("orders.secret.*",), deny=("receive", "browse")),
        AccessRule(name="ann's", users=("ann",), addresses=("orders.secret.ann",), allow=("receive",)),
        AccessRule(name="by night", groups=("night",), addresses=("orders.*",), deny=("send",)),
        AccessRule(name="bob sends", users=("bob",), addresses=("orders.*",), allow=("send",)),
        AccessRule(name="maker", users=("cleo",), addresses=("cleo.*", "$temporary/*"), allow=("create", "delete")),
        AccessRule(name="links", users=("cleo",), addresses=("raw",), allow=("link-from",)),
        AccessRule(name="links to", users=("cleo",), addresses=("clean", "clean@hub"), allow=("link-to",)),
        AccessRule(name="relays", users=("dan",), addresses=("*@hub",), allow=("relay",)),
        AccessRule(name="not these", users=("dan",), addresses=("pay@hub",), deny=("relay",)),
        AccessRule(name="topics", users=("dan",), addresses=("topic/news",), allow=("send", "receive")),
        AccessRule(name="sends all", users=("dan",), addresses=("*",), allow=("send",)),
        AccessRule(name="root", users=("root",), addresses=("*",), allow=("administer",)),
        AccessRule(name="not even root", users=("root",), addresses=("vault",), deny=("receive", "browse")),
        AccessRule(name="sub", users=("sub",), addresses=("orders.*",), allow=("administer",)),
        AccessRule(name="acme", groups=("staff",), addresses=("*",), allow=("send",), vhost="acme"),
        AccessRule(name="everybody of acme", addresses=("board",), allow=("send", "receive"), vhost="acme"),
    ),
)

ALL: Final = " ".join(ACTIONS)
TABLE: Final = (
    # user, virtual host, address, what he may do there
    ("ann", "", "orders.new", "send receive browse"),
    ("ann", "", "orders.secret.x", "send"),
    ("ann", "", "orders.secret.ann", "send receive"),
    ("ann", "", "public.board", "browse"),
    ("ann", "", "other", ""),
    ("ann", "", "raw", ""),
    ("ann", "", "orders.new@hub", ""),
    ("ann", "", "$dead-letters", ""),
    ("ann", "", "@hub", ""),
    ("ann", "", "$management", "send receive"),
    ("bob", "", "orders.new", "send receive browse"),
    ("bob", "", "orders.secret.x", "send"),
    ("bob", "", "orders.secret.ann", "send"),
    ("bob", "", "public.board", "browse"),
    ("bob", "", "$dead-letters", ""),
    ("cleo", "", "orders.new", ""),
    ("cleo", "", "cleo.1", "create delete"),
    ("cleo", "", "cleo", ""),
    ("cleo", "", "raw", "link-from"),
    ("cleo", "", "clean", "link-to"),
    ("cleo", "", "clean@hub", "link-to"),
    ("cleo", "", "$temporary/0a1b", "create"),
    ("cleo", "", "", ALL),  # a dynamic node is created, whatever for
    ("ann", "", "", ""),
    ("dan", "", "x@hub", "send relay"),
    ("dan", "", "pay@hub", "send"),
    ("dan", "", "x@other", "send"),
    ("dan", "", "topic/news", "send receive"),
    ("dan", "", "topic/news/world.#", "send receive"),
    ("dan", "", "topic/other/news", "send"),
    ("dan", "", "$temporary/0a1b", "send"),
    ("dan", "", "$dead-letters", ""),
    ("dan", "", "@hub", ""),
    ("root", "", "orders.new", ALL),
    ("root", "", "vault", ALL.replace("receive browse ", "")),
    ("root", "", "$dead-letters", ALL),
    ("root", "", "@hub", ALL),
    ("root", "", "$temporary/0a1b", ALL),
    ("root", "", "x@hub", ALL),
    ("root", "", "$management", ALL),
    ("sub", "", "orders.new", ALL),
    ("sub", "", "vault", ""),
    ("sub", "", "$dead-letters", ""),
    ("sub", "", "$management", "send receive"),
    ("eve", "", "orders.new", ""),
    ("eve", "", "public.board", "browse"),
    ("eve", "", "$management", "send receive"),
    (None, "", "public.board", ""),
    (None, "", "$management", ""),
    ("ann", "acme", "orders.new", "send"),
    ("ann", "acme", "board", "send receive"),
    ("bob", "acme", "orders.new", ""),
    ("bob", "acme", "board", "send receive"),
    ("root", "acme", "orders.new", ""),
    ("root", "globex", "orders.new", ""),
    ("ann", "globex", "orders.new", ""),
)
ROWS: Final = [
    (user, host, address, action, action in allowed.split())
    for user, host, address, allowed in TABLE
    for action in ACTIONS
]


def test_the_table_has_as_many_rows_as_promised() -> None:
    assert len(ROWS) >= 300 and len({row[:4] for row in ROWS}) == len(ROWS)
    CONFIG.validate({"acme"}, None)


@pytest.mark.parametrize(("user", "host", "address", "action", "allowed"), ROWS)
def test_who_may_do_what_where(user: str | None, host: str, address: str, action: str, allowed: bool) -> None:
    lists = AccessLists(CONFIG)
    found = lists.decide(user, action, address, host)
    assert found.allowed is allowed, f"by rule {found.rule!r}"
    for _ in range(2):  # the second answer is a remembered one
        told = lists.authorise(user, action, address, host=host)
        assert (told is None) is allowed


def test_the_order_of_rules_does_not_matter() -> None:
    backwards = AccessLists(AccessConfig(groups=CONFIG.groups[::-1], rules=CONFIG.rules[::-1]))
    for user, host, address, action, allowed in ROWS:
        assert backwards.decide(user, action, address, host).allowed is allowed, (user, host, address, action)


def test_what_is_denied_says_nothing_of_what_there_is() -> None:
    """Nor of rules: who may not do it at one address hears the same at any other."""
    lists = AccessLists(CONFIG)
    told = {
        lists.authorise("eve", "receive", address, host=host)
        for address in ("orders.new", "nothing.there", "$dead-letters", "@hub", "x@hub", "public.board")
        for host in ("", "acme", "nowhere")
    }
    assert told == {"no permission to receive there; ask the administrator of this node"}


def test_what_concerns_the_node_is_refused_for_the_node() -> None:
    told = AccessLists(CONFIG).authorise("eve", "administer", "$management", host="")
    assert told == "no permission to administer this node; ask the administrator of this node"


def test_what_is_remembered_is_bounded() -> None:
    lists = AccessLists(CONFIG)
    for number in range(REMEMBERED_MAX + 1):
        lists.authorise("eve", "send", f"q{number}", host="")
    assert len(lists._remembered) == 1
    for number in range(REMEMBERED_MAX - 1):
        lists.authorise("eve", "send", f"q{number}", host="")
    assert len(lists._remembered) == REMEMBERED_MAX


def plainly(user: str, action: str, address: str, rules: tuple[AccessRule, ...], groups: dict[str, set[str]]) -> bool:
    """The decision by its definition alone: all rules that say something, the closest last."""
    said = []
    for each in rules:
        whose = 2 if user in each.users else 1 if any(user in groups[name] for name in each.groups) else 0
        if (each.users or each.groups) and not whose:
            continue
        denies = action in each.deny
        if not denies and action not in each.allow and "administer" not in each.allow:
            continue
        for text in each.addresses:
            if fnmatchcase(address, text):
                said.append(("*" not in text, len(text.replace("*", "")), whose, denies))
    return bool(said) and not max(said)[-1]


NAMES_OF = st.sampled_from(("ann", "bob", "cleo"))
DRAWN = st.builds(
    lambda users, groups, addresses, allow, deny: {
        "users": tuple(users), "groups": tuple(groups), "addresses": tuple(addresses), "allow": tuple(allow),
        "deny": tuple(deny - allow),
    },
    st.sets(NAMES_OF, max_size=2),
    st.sets(st.sampled_from(("g", "h")), max_size=1),
    st.sets(st.sampled_from(("*", "a*", "*b", "ab", "a", "b*", "*a*", "abb", "a*b")), min_size=1, max_size=3),
    st.sets(st.sampled_from(("send", "receive", "administer")), max_size=2),
    st.sets(st.sampled_from(("send", "receive")), max_size=2),
)  # fmt: skip


@given(st.lists(DRAWN, min_size=1, max_size=6), NAMES_OF, st.sampled_from(("send", "receive", "browse")))
def test_drawn_rules_are_read_as_they_are_meant(drawn: list[dict[str, Any]], user: str, action: str) -> None:
    rules = tuple(AccessRule(name=str(number), **told) for number, told in enumerate(drawn))
    groups = (GroupConfig(name="g", users=("ann", "bob")), GroupConfig(name="h", users=("cleo",)))
    lists = AccessLists(AccessConfig(rules=rules, groups=groups))
    members = {group.name: set(group.users) for group in groups}
    for address in ("a", "ab", "abb", "b", "ba", "c"):
        expected = plainly(user, action, address, rules, members)
        assert lists.decide(user, action, address, "").allowed is expected, address
