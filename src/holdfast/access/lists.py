"""The decision: whether a user may do something at an address (docs/adr/0085-access-lists.md).

Rules of this file: a decision depends on the rules and on what is asked alone, so that it can be remembered. The
closest rule decides: that whose pattern is closest to the address, of those the one that names the user, then a group
of his, then all users of the virtual host; where such rules disagree, denying does. Nothing said is denied.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.access.actions import ADMINISTER, NODE, needed
from holdfast.access.patterns import Closeness, Pattern
from holdfast.access.rules import AccessConfig, AccessRule

REMEMBERED_MAX: Final = 4_096
"""The maximum number of cached decisions; beyond it the cache is cleared, because strangers may ask about any
address."""

OF_HOST: Final = 0
OF_GROUP: Final = 1
OF_USER: Final = 2
"""How specifically a rule names a user."""


class Decision(NamedTuple):
    """`rule`: the name of the rule that decided; "" if none did."""

    allowed: bool
    rule: str = ""


class _Rule(NamedTuple):
    rule: AccessRule
    users: frozenset[str]
    members: frozenset[str]
    """The members of its groups."""
    allows: frozenset[str] | None
    """None: everything, as for an administrator."""
    denies: frozenset[str]

    def says(self, user: str | None, action: str) -> tuple[int, bool] | None:
        """How specifically the rule names the user, and whether it denies the action; None if it does not apply to
        both."""
        denies = action in self.denies
        if user is None or not (denies or self.allows is None or action in self.allows):
            return None
        closeness = self.closeness(user)
        return None if closeness is None else (closeness, denies)

    def closeness(self, user: str) -> int | None:
        """How specifically the rule names the user; None if it does not apply to the user."""
        if user in self.users:
            return OF_USER
        if user in self.members:
            return OF_GROUP
        return None if self.users or self.rule.groups else OF_HOST


class _Host:
    """The rules of one virtual host: by address those that have it as it is, and those with each pattern."""

    def __init__(self) -> None:
        self.by_address: dict[str, list[_Rule]] = {}
        self.patterns: list[tuple[Pattern, list[_Rule]]] = []

    def add(self, rule: _Rule) -> None:
        known = {pattern.text: rules for pattern, rules in self.patterns}
        for text in dict.fromkeys(rule.rule.addresses):
            if "*" not in text:
                self.by_address.setdefault(text, []).append(rule)
            elif text in known:
                known[text].append(rule)
            else:
                self.patterns.append((Pattern(text), [rule]))

    def sort(self) -> None:
        """Sorts the patterns, the closest first, after all rules were added."""
        self.patterns.sort(key=lambda item: item[0].closeness, reverse=True)


class AccessLists:
    """Answers by rules what a client may do; an `Authoriser` (peers/authorise.py)."""

    def __init__(self, config: AccessConfig) -> None:
        """A valid `config`, with a rule at least."""
        members = {group.key: frozenset(group.users) for group in config.groups}
        self._hosts: dict[str, _Host] = {}
        for rule in config.rules:
            groups = [members[key] for key in config.keys_of(rule)]
            compiled = _Rule(
                rule,
                frozenset(rule.users),
                frozenset[str]().union(*groups),
                None if ADMINISTER in rule.allow else frozenset(rule.allow),
                frozenset(rule.deny),
            )
            self._hosts.setdefault(rule.vhost, _Host()).add(compiled)
        for host in self._hosts.values():
            host.sort()
        self._remembered: dict[tuple[str | None, str, str, str], Decision] = {}

    def decide(self, user: str | None, action: str, address: str, host: str) -> Decision:
        """Whether that user of that virtual host may do that there. `address` in the node's own form; "" for a dynamic
        node that is to be created."""
        wanted = needed(action, address)
        if wanted is None:
            return Decision(user is not None)
        action, address = wanted
        rules = self._hosts.get(host)
        if rules is None:
            return Decision(False)
        found = _closest(rules.by_address.get(address, ()), user, action)
        closeness: Closeness | None = None
        best: tuple[tuple[int, bool], Decision] | None = None
        if found is not None:
            return found[1]
        for pattern, those in rules.patterns:
            if closeness is not None and pattern.closeness < closeness:
                break
            found = _closest(those, user, action) if pattern.matches(address) else None
            if found is not None and (best is None or found[0] > best[0]):
                best, closeness = found, pattern.closeness
        return Decision(False) if best is None else best[1]

    def about(self, user: str | None, host: str) -> frozenset[object]:
        """Everything that the rules say about the user; two lists that say the same give equal sets."""
        found = self._hosts.get(host)
        if found is None or user is None:
            return frozenset()
        rules = [*found.by_address.values(), *(those for _, those in found.patterns)]
        return frozenset(
            (rule.rule.addresses, rule.allows, rule.denies, closeness)
            for those in rules
            for rule in those
            if (closeness := rule.closeness(user)) is not None
        )

    def authorise(self, who: str | None, action: str, address: str, *, host: str) -> str | None:
        """Why not, for a person; None if it is allowed. It does not reveal which queues exist."""
        key = who, action, address, host
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            found = self._remembered[key] = self.decide(who, action, address, host)
        if found.allowed:
            return None
        text = f"no permission to {action} this node" if address == NODE else f"no permission to {action} there"
        return f"{text}; ask the administrator of this node"


def _closest(rules: Iterable[_Rule], user: str | None, action: str) -> tuple[tuple[int, bool], Decision] | None:
    """What the closest of rules with one pattern says, and how close it is; None where none says anything."""
    best: tuple[tuple[int, bool], Decision] | None = None
    for rule in rules:
        said = rule.says(user, action)
        if said is not None and (best is None or said > best[0]):
            best = said, Decision(not said[1], rule.rule.name)
    return best
