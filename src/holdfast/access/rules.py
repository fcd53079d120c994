"""The access rules of a node: rules, and the groups of users that they name (docs/security.md).

Rules of this file: data and its checks; TOML is read in `node/`.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from holdfast.access import patterns
from holdfast.access.actions import ACTIONS, NAMED_ONLY
from holdfast.broker.entries.host_names import DEFAULT_HOST, HostedName, InHost, hosted
from holdfast.errors import ConfigError

RULES_MAX: Final = 1_000
"""The maximum number of rules of a node."""

PATTERNS_MAX: Final = 1_000
"""Different patterns with `*` in the rules of one virtual host: a question that was not asked before looks at all."""

ADDRESSES_MAX: Final = 100
"""The maximum number of patterns in a rule."""

GROUPS_MAX: Final = 1_000
MEMBERS_MAX: Final = 10_000
"""The maximum number of users in a rule or group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(InHost):
    """`[[group]]`: users of one virtual host that rules name together."""

    name: str
    users: tuple[str, ...]
    vhost: str = DEFAULT_HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule(InHost):
    """`[[access]]`: what `users`, and those of `groups`, may do at `addresses` (`allow`), or may not (`deny`); without
    either it is about all users of its virtual host."""

    name: str
    addresses: tuple[str, ...]
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    vhost: str = DEFAULT_HOST

    def validate(self) -> None:
        """Raises ConfigError that names the rule and the key."""
        where = f"access {self.name!r}"
        for action in (*self.allow, *self.deny):
            if action not in ACTIONS:
                raise ConfigError(f"invalid value {action[:60]!r} in {where}; expected one of {', '.join(ACTIONS)}")
        both = [action for action in self.allow if action in self.deny]
        if both:
            raise ConfigError(f"{where} both allows and denies {both[0]}; expected one of the two")
        if not self.allow and not self.deny:
            raise ConfigError(f"{where} has neither allow nor deny; give one, or both")
        if not self.addresses or len(self.addresses) > ADDRESSES_MAX:
            text = f"{where} has {len(self.addresses)} addresses; expected 1 to {ADDRESSES_MAX}"
            raise ConfigError(f"{text}, as orders, orders.*, *@hub or *")
        for text in self.addresses:
            patterns.check(where, text)
        if not self.users and not self.groups:
            for action in NAMED_ONLY:
                if action in self.allow:
                    text = f"{where} allows {action} to all users of a virtual host"
                    raise ConfigError(f"{text}; name them: add users or groups")
        if max(len(self.users), len(self.groups)) > MEMBERS_MAX:
            raise ConfigError(f"{where} names more than {MEMBERS_MAX} users or groups; use [[group]], or several rules")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """All rules and groups of a node. Without a rule every user may do everything; with one, all that no rule allows is
    denied, in every virtual host."""

    rules: tuple[AccessRule, ...] = ()
    groups: tuple[GroupConfig, ...] = ()

    def keys_of(self, rule: AccessRule) -> list[HostedName]:
        """The keys of the groups that the rule names."""
        return [hosted(rule.vhost, name) for name in rule.groups]

    def validate(self, hosts: Container[str], users: Container[HostedName] | None) -> None:
        """Raises ConfigError at the first key that is wrong. `hosts`: the virtual hosts. `users`: who may log in, and
        as whom neighbours' messages are published; None if they change while the node runs."""
        for what, items, most in (("access", self.rules, RULES_MAX), ("group", self.groups, GROUPS_MAX)):
            if len(items) > most:
                raise ConfigError(f"there are {len(items)} [[{what}]]; the limit is {most}")
            seen: set[HostedName] = set()
            for item in items:
                where = f"{what} {item.name!r}"
                if item.key in seen:
                    raise ConfigError(f"{where} is listed twice; list it once")
                seen.add(item.key)
                if item.vhost and item.vhost not in hosts:
                    text = f"invalid value {item.vhost!r} for {where} vhost; expected the name of a [[vhost]]"
                    raise ConfigError(text)
                for user in item.users:
                    if users is not None and hosted(item.vhost, user) not in users:
                        expected = "expected the name of a user of its virtual host"
                        raise ConfigError(f"invalid value {user[:60]!r} for {where} users; {expected}")
        groups = {group.key for group in self.groups}
        for group in self.groups:
            if not group.users or len(group.users) > MEMBERS_MAX:
                text = f"group {group.name!r} has {len(group.users)} users; expected 1 to {MEMBERS_MAX}"
                raise ConfigError(text)
        patterns: dict[str, set[str]] = {}
        for rule in self.rules:
            rule.validate()
            mine = patterns.setdefault(rule.vhost, set())
            mine.update(text for text in rule.addresses if "*" in text)
            if len(mine) > PATTERNS_MAX:
                text = (
                    f"access {rule.name!r}: the rules of its virtual host have more than {PATTERNS_MAX} patterns with *"
                )
                raise ConfigError(f"{text}; use addresses, or fewer patterns")
            for name, key in zip(rule.groups, self.keys_of(rule), strict=True):
                if key not in groups:
                    expected = "expected the name of a [[group]] of its virtual host"
                    raise ConfigError(f"invalid value {name[:60]!r} for access {rule.name!r} groups; {expected}")


NO_ACCESS: Final = AccessConfig()
"""No rules: everything is allowed."""
