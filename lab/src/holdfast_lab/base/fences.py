"""Access lists of a run, drawn for the users of the workload `fenced`, and a second reading of them.

Rules of this file: `may` looks for the closest rule in the plainest way, with nothing of the node's own, so that the
two must agree.
"""

from fnmatch import fnmatchcase
from random import Random
from typing import Final

from holdfast.access.lists import AccessLists
from holdfast.access.rules import AccessConfig, AccessRule, GroupConfig

FENCED: Final = "fenced"
"""Before the names of the queues that the rules are about."""

QUEUES: Final = ("fenced-0", "fenced-1", "fenced-2")

ROOT: Final = "fenced-root"
USERS: Final = ("fenced-ann", "fenced-bob", "fenced-cleo")
GROUP: Final = ("fenced-ann", "fenced-bob")
ACTIONS: Final = ("send", "receive", "browse")
PATTERNS: Final = ("*", "fenced-*", "fenced-*", *QUEUES, "*-1", "f*2")
RULES: Final = (3, 12)


class Fences:
    """The rules for the fenced queues of one node."""

    def __init__(self, random: Random) -> None:
        self.rules = [self._rule(random, number) for number in range(random.randint(*RULES))]
        root = AccessRule(name="root", users=(ROOT,), addresses=QUEUES, allow=("administer",))
        groups = (GroupConfig(name="both", users=GROUP),)
        config = AccessConfig(rules=(*self.rules, root), groups=groups)
        config.validate((), None)
        self._lists = AccessLists(config)

    def _rule(self, random: Random, number: int) -> AccessRule:
        allow = tuple(action for action in ACTIONS if random.random() < 0.5)
        deny = tuple(action for action in ACTIONS if action not in allow and random.random() < 0.3)
        if not allow and not deny:
            allow = (random.choice(ACTIONS),)
        whose = random.choice(("user", "user", "group", "all"))
        return AccessRule(
            name=f"rule {number}",
            users=(random.choice(USERS),) if whose == "user" else (),
            groups=("both",) if whose == "group" else (),
            addresses=(random.choice(PATTERNS),),
            allow=allow,
            deny=deny,
        )

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
            if fnmatchcase(queue, pattern) and action in (*rule.allow, *rule.deny):
                found.append(("*" not in pattern, len(pattern.replace("*", "")), whose, action in rule.deny))
        return bool(found) and not max(found)[-1]
