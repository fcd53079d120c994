"""Access lists of a run, drawn for the users of the workload `fenced`, and a second reading of them.

Rules of this file: `may` looks for the closest rule in the plainest way, with nothing of the node's own, so that the
two must agree. Of most nodes the run itself decides by such rules, about fenced queues alone; some have them in their
own configuration (`access_of`), with users that log in.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from math import inf
from random import Random
from typing import Final

from holdfast.access.actions import CREATE, RELAY
from holdfast.access.lists import AccessLists
from holdfast.access.rules import AccessConfig, AccessRule, GroupConfig

FENCED: Final = "fenced"
"""Before the names of the queues that the rules are about."""

QUEUES: Final = ("fenced-0", "fenced-1", "fenced-2")

MADE: Final = "fenced-made"
"""Nothing but its first message makes it, where rules are a node's own."""
AWAY: Final = "fenced-away"
"""A queue of a neighbour, where rules are a node's own."""

ROOT: Final = "fenced-root"
USERS: Final = ("fenced-ann", "fenced-bob", "fenced-cleo")
GROUP: Final = ("fenced-ann", "fenced-bob")
ACTIONS: Final = ("send", "receive", "browse")
PATTERNS: Final = ("*", "fenced-*", "fenced-*", *QUEUES, "*-1", "f*2")
RULES: Final = (3, 12)
TURN_MAX_S: Final = 0.05
"""A turn that takes changed rules begins within this time, more than the longest that any draw has."""
LAB: Final = "lab"
"""The user as whom all other clients log in at a node with rules of its own."""


ROOTS: Final = AccessRule(name="root", users=(ROOT,), addresses=(*QUEUES, MADE), allow=("administer",))
BOTH: Final = GroupConfig(name="both", users=GROUP)


def _rule(random: Random, number: int, actions: Sequence[str], addresses: Sequence[str]) -> AccessRule:
    allow = tuple(action for action in actions if random.random() < 0.5)
    deny = tuple(action for action in actions if action not in allow and random.random() < 0.3)
    if not allow and not deny:
        allow = (random.choice(actions),)
    whose = random.choice(("user", "user", "group", "all"))
    if whose == "all":  # nothing is relayed for everybody
        allow = tuple(action for action in allow if action != RELAY)
        deny = deny or (() if allow else (RELAY,))
    return AccessRule(
        name=f"rule {number}",
        users=(random.choice(USERS),) if whose == "user" else (),
        groups=("both",) if whose == "group" else (),
        addresses=(random.choice(addresses),),
        allow=allow,
        deny=deny,
    )


def access_of(random: Random, others: Iterable[str], away: str) -> AccessConfig:
    """Rules of a node's own: for the users of `fenced`, and for all other clients and `others`, who may do everything.
    `away`: a neighbour."""
    theirs = f"{AWAY}@{away}"
    actions, addresses = (*ACTIONS, CREATE, RELAY), (*PATTERNS, MADE, MADE, theirs, theirs, theirs, f"*@{away}")
    rules = [_rule(random, number, actions, addresses) for number in range(random.randint(*RULES))]
    everywhere = tuple(dict.fromkeys((*PATTERNS, f"*@{away}")))  # a rule that names a user is closer than one for all
    free = AccessRule(name=LAB, users=(LAB, *others), addresses=everywhere, allow=("administer",))
    return AccessConfig(rules=(*rules, free, ROOTS), groups=(BOTH,))


def redrawn(random: Random, access: AccessConfig) -> AccessConfig:
    """Other rules for the users of `fenced`, beside those that hold for all other clients."""
    (free,) = (rule for rule in access.rules if rule.name == LAB)
    away = free.addresses[-1].removeprefix("*@")
    drawn = access_of(random, (), away)
    return AccessConfig(rules=(*(rule for rule in drawn.rules if rule.name != LAB), free), groups=access.groups)


class Fences:
    """The rules for the fenced queues of one node."""

    def __init__(self, rules: Iterable[AccessRule], *, is_own: bool = False) -> None:
        """`is_own`: the node has these rules itself; then they are about making queues and about other nodes too."""
        self.rules = [*rules]
        self.is_own = is_own
        self._changed_s = -inf
        self._lists = AccessLists(AccessConfig(rules=(*self.rules, ROOTS), groups=(BOTH,)))

    @classmethod
    def of(cls, access: AccessConfig) -> "Fences":
        """Those of a node's own."""
        return cls([rule for rule in access.rules if rule.name not in (LAB, ROOTS.name)], is_own=True)

    def change(self, access: AccessConfig, now: float) -> None:
        """These are the node's own from now on."""
        self.rules = Fences.of(access).rules
        self._changed_s = now

    def changed_since(self, then: float) -> bool:
        """Whether the rules have changed after that moment, or so shortly before it that others may have held then."""
        return self._changed_s > then - TURN_MAX_S

    @classmethod
    def drawn(cls, random: Random) -> "Fences":
        """Rules about the queues that are there."""
        return cls([_rule(random, number, ACTIONS, PATTERNS) for number in range(random.randint(*RULES))])

    def why_not(self, who: str | None, action: str, address: str, host: str) -> str | None:
        """As `Authoriser.authorise`."""
        return self._lists.authorise(who, action, address, host=host)

    def may(self, who: str, action: str, queue: str) -> bool:
        """What a reader of the rules expects."""
        if who == ROOT:
            return True
        found = []
        for rule in self.rules:
            (pattern,) = rule.addresses
            whose = 2 if who in rule.users else 1 if rule.groups and who in GROUP else 0
            if (rule.users or rule.groups) and not whose:
                continue
            here = pattern == "*" or ("@" in pattern) is ("@" in queue)  # a pattern without @ is about this node
            if here and fnmatchcase(queue, pattern) and action in (*rule.allow, *rule.deny):
                found.append(("*" not in pattern, len(pattern.replace("*", "")), whose, action in rule.deny))
        return bool(found) and not max(found)[-1]
