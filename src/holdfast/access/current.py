"""The rules of a node as they are now: they may change while it runs (docs/adr/0087-reload.md).

Rules of this file: one object is used for the node's whole life, so that no part keeps outdated rules.
"""

from holdfast.access.lists import AccessLists
from holdfast.access.rules import AccessConfig


class CurrentAccess:
    """Decides by the current rules what a client may do; an `Authoriser` (peers/authorise.py). Without rules everybody
    who can log in may do everything."""

    def __init__(self, config: AccessConfig) -> None:
        self._lists = _lists(config)

    @property
    def has_rules(self) -> bool:
        """Whether anything is forbidden."""
        return self._lists is not None

    def authorise(self, who: str | None, action: str, address: str, *, host: str) -> str | None:
        """As `AccessLists`."""
        return None if self._lists is None else self._lists.authorise(who, action, address, host=host)

    def change(self, config: AccessConfig) -> "Differs":
        """Sets the rules, which are valid. Returns a test for the users for whom they differ from the previous
        rules."""
        before, self._lists = self._lists, _lists(config)
        return Differs(before, self._lists)


class Differs:
    """Whether two lists of rules differ for a user."""

    def __init__(self, before: AccessLists | None, after: AccessLists | None) -> None:
        self._before = before
        self._after = after

    def __call__(self, user: str | None, host: str) -> bool:
        before, after = self._before, self._after
        if before is None or after is None:
            return before is not after
        return before.about(user, host) != after.about(user, host)


def _lists(config: AccessConfig) -> AccessLists | None:
    return AccessLists(config) if config.rules else None
