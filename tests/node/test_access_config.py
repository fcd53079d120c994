"""`[[access]]` and `[[group]]` of a node's file, and what is refused at its start (node/access.py)."""

import re
from pathlib import Path
from typing import Final

import pytest

from holdfast.access.rules import AccessRule, GroupConfig
from holdfast.errors import ConfigError
from holdfast.node.config import load_settings

HEAD: Final = """
[node]
name = "hub"
[[user]]
name = "ann"
password_file = "{password}"
[[neighbour]]
name = "jfk"
[[group]]
name = "staff"
users = ["ann", "jfk"]
"""
RULE: Final = '[[access]]\nname = "a"\naddresses = ["q", "q.*"]\n'


def load(tmp_path: Path, text: str, *, head: str = HEAD) -> object:
    password = tmp_path / "ann.password"
    password.write_text("secret\n", encoding="utf-8")
    file = tmp_path / "hub.toml"
    file.write_text(head.replace("{password}", str(password)) + text, encoding="utf-8")
    return load_settings(file).core.access


def test_rules_and_groups_are_read(tmp_path: Path) -> None:
    found = load(tmp_path, RULE + 'groups = ["staff"]\nallow = ["send"]\ndeny = ["browse"]\n')
    expected = AccessRule(name="a", addresses=("q", "q.*"), groups=("staff",), allow=("send",), deny=("browse",))
    assert found.rules == (expected,) and found.groups == (GroupConfig(name="staff", users=("ann", "jfk")),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[access]]\nname = "a"\nallow = ["send"]\n', "access 'a' has 0 addresses; expected 1 to 100"),
        (RULE, "access 'a' has neither allow nor deny"),
        (RULE + 'allow = ["relay"]\n', "access 'a' allows relay to all users of a virtual host; name them"),
        (RULE + 'user = ["ann"]\n', "unknown key 'user' in access 'a'; expected one of name, users, groups"),
        (RULE + 'users = "ann"\n', "invalid value 'ann' for access 'a' users; expected a list of texts in quotes"),
        (RULE + 'users = ["eve"]\nallow = ["send"]\n', "invalid value 'eve' for access 'a' users; expected the name"),
        (RULE + 'vhost = "acme"\nallow = ["send"]\n', "invalid value 'acme' for access 'a' vhost; expected the name"),
        ('[[access]]\naddresses = ["q"]\n', "access number 1 has no name; expected text in quotes"),
        ('[[group]]\nname = "none"\n', "group 'none' has 0 users; expected 1 to 10000"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file_and_the_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "hub.toml")) and "\n" not in str(caught.value)


def test_rules_without_users_are_refused_because_anybody_could_come_as_anybody(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape("access 'a' is there without a [[user]]; add users")):
        load(tmp_path, RULE + 'users = ["ann"]\nallow = ["send"]\n', head='[node]\nname = "hub"\n')


def test_a_user_of_a_virtual_host_is_no_neighbours_account(tmp_path: Path) -> None:
    text = """
[[vhost]]
name = "acme"
[[user]]
name = "ewr"
vhost = "acme"
password_file = "{password}"
[[neighbour]]
name = "ewr"
hosts = ["acme"]
""".replace("{password}", str(tmp_path / "ann.password"))
    load(tmp_path, text)  # without rules it does not matter
    told = "user 'ewr' of a virtual host in hosts of neighbour 'ewr' has the name of the neighbour's account"
    with pytest.raises(ConfigError, match=re.escape(told)):
        load(tmp_path, text + RULE + 'allow = ["send"]\n')
