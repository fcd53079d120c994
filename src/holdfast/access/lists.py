"""The decision: whether a user may do something at an address (docs/adr/0085-access-lists.md).

Rules of this file: a decision depends on the rules and on what is asked alone, so that it can be remembered. The
closest rule decides: that whose pattern is closest to the address, of those the one that names the user, then a group
of his, then all users of the virtual host; where such rules disagree, denying does. Nothing said is denied.
"""

from typing import Final, NamedTuple

from holdfast.access.actions import ADMINISTER, needed
from holdfast.access.patterns import Closeness, Pattern
from holdfast.access.rules import AccessConfig, AccessRule

REMEMBERED_MAX: Final = 4_096
"""Decisions that are remembered; past it all are forgotten, because strangers may ask about any address."""

OF_HOST: Final = 0
OF_GROUP: Final = 1
OF_USER: Final = 2
"""How closely a rule is about a user."""


class Decision(NamedTuple):
    """`rule`: the name of the rule that decided; "" if none did."""

    allowed: bool
    rule: str = ""


class _Rule(NamedTuple):
    rule: AccessRule
    patterns: tuple[Pattern, ...]
    users: frozenset[str]
    members: frozenset[str]
    """Of its groups."""
    allows: frozenset[str] | None
    """None: everything, as an administrator may do."""
    denies: frozenset[str]

    def closeness(self, user: str | None, address: str) -> tuple[Closeness, int] | None:
        """How close it is to that user at that address; None: it is about others."""
        if user is not None and user in self.users:
            whose = OF_USER
        elif user is not None and user in self.members:
            whose = OF_GROUP
        elif user is None or self.users or self.rule.groups:
            return None
        else:
            whose = OF_HOST
        found = [pattern.closeness for pattern in self.patterns if pattern.matches(address)]
        return (max(found), whose) if found else None


class AccessLists:
    """Answers by rules what a client may do; an `Authoriser` (peers/authorise.py)."""

    def __init__(self, config: AccessConfig) -> None:
        """A valid `config`, with a rule at least."""
        members = {group.key: frozenset(group.users) for group in config.groups}
        self._rules: dict[str, list[_Rule]] = {}
        for rule in config.rules:
            groups = [members[key] for key in config.keys_of(rule)]
            compiled = _Rule(
                rule,
                tuple(map(Pattern, rule.addresses)),
                frozenset(rule.users),
                frozenset[str]().union(*groups),
                None if ADMINISTER in rule.allow else frozenset(rule.allow),
                frozenset(rule.deny),
            )
            self._rules.setdefault(rule.vhost, []).append(compiled)
        self._remembered: dict[tuple[str | None, str, str, str], Decision] = {}

    def decide(self, user: str | None, action: str, address: str, host: str) -> Decision:
        """Whether that user of that virtual host may do that there. `address` in the node's own form; "" for a dynamic
        node that is to be created."""
        wanted = needed(action, address)
        if wanted is None:
            return Decision(user is not None)
        action, address = wanted
        best: tuple[tuple[Closeness, int], bool] | None = None
        decision = Decision(False)
        for rule in self._rules.get(host, ()):
            denies = action in rule.denies
            if not denies and not (rule.allows is None or action in rule.allows):
                continue
            closeness = rule.closeness(user, address)
            if closeness is not None and (best is None or (closeness, denies) > best):
                best = closeness, denies
                decision = Decision(not denies, rule.rule.name)
        return decision

    def authorise(self, who: str | None, action: str, address: str, *, host: str) -> str | None:
        """Why not, for a person; None if it is allowed. It tells nothing of what there is."""
        key = who, action, address, host
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            found = self._remembered[key] = self.decide(who, action, address, host)
        return None if found.allowed else f"no permission to {action} there; ask the administrator of this node"
