"""Finds the subscriptions of a topic that match a message, without evaluating each of them.

Rules of this file: pure; gives the same answer as asking each subscription's selector. The cost of matching a subject
is bounded by the words of all patterns, for each word of the subject.
"""

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from holdfast.amqp.effort import STEP_WEIGHT
from holdfast.broker.cursors.entry_consumer import SubjectSelector
from holdfast.broker.subjects import ANY, ONE, SUBJECT_CHARACTERS_MAX, Pattern

LOOKS_FOR_ONE: Final = 4
"""Nodes of a tree of patterns that cost about as much as asking one selector."""

Owner = TypeVar("Owner", bound=Hashable)


class _Node:
    """A node of the tree: the first words of some patterns; `is_any`: the last of them is `#`. `ends`: the patterns
    that end here."""

    __slots__ = ("any", "ends", "is_any", "one", "words")

    def __init__(self, *, is_any: bool = False) -> None:
        self.is_any = is_any
        self.words: dict[str, _Node] = {}
        self.one: _Node | None = None
        self.any: _Node | None = None
        self.ends: list[str] = []


class PatternTree:
    """A tree of patterns: patterns that begin with the same words share these."""

    __slots__ = ("_exact", "_root", "looks")

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        """`patterns`: of different texts."""
        self._root = _Node()
        self._exact: set[str] = set()
        self.looks = 0
        """Nodes at which the last subject was looked for."""
        for pattern in patterns:
            self.add(pattern)

    def add(self, pattern: Pattern) -> None:
        """Adds a pattern that is not in the tree."""
        if pattern.is_exact:
            self._exact.add(pattern.text)
            return
        node = self._root
        for word in pattern.text.split("."):
            if word == ANY:
                node.any = node = node.any or _Node(is_any=True)
            elif word == ONE:
                node.one = node = node.one or _Node()
            else:
                node = node.words.setdefault(word, _Node())
        node.ends.append(pattern.text)

    def remove(self, text: str) -> None:
        """Removes the pattern, if it is in the tree, with the nodes that only it had."""
        if text in self._exact:
            self._exact.discard(text)
            return
        passed: list[tuple[_Node, str]] = []
        node = self._root
        for word in text.split("."):
            passed.append((node, word))
            after = node.any if word == ANY else node.one if word == ONE else node.words.get(word)
            if after is None:
                return
            node = after
        if text in node.ends:
            node.ends.remove(text)
        for before, word in reversed(passed):
            if node.ends or node.words or node.one is not None or node.any is not None:
                return
            if word == ANY:
                before.any = None
            elif word == ONE:
                before.one = None
            else:
                del before.words[word]
            node = before

    def matching(self, subject: str) -> list[str]:
        """The texts of the patterns that match a subject ("" for none), in no order."""
        found = [subject] if subject in self._exact else []
        self.looks = 0
        if len(subject) > SUBJECT_CHARACTERS_MAX:
            return found if self._root.any is None else found + self._root.any.ends
        at = _reached([self._root])
        for word in subject.split(".") if subject else ():
            self.looks += len(at)
            after = [node for node in at if node.is_any]  # it takes one word more
            for node in at:
                if node.one is not None:
                    after.append(node.one)
                if word in node.words:
                    after.append(node.words[word])
            at = _reached(after)
        for node in at:
            found += node.ends
        return found


def _reached(nodes: list[_Node]) -> dict[_Node, None]:
    """These nodes, and those after a `#` that matches no word."""
    reached = dict.fromkeys(nodes)
    for node in nodes:
        while node.any is not None:
            node = node.any
            reached[node] = None
    return reached


class Interests(Generic[Owner]):
    """The selectors of some owners; None: everything. The cost of a change does not depend on how many there are."""

    __slots__ = (
        "_asking",
        "_by_pattern",
        "_everything",
        "_others",
        "_reader",
        "_told",
        "_tree",
        "effort",
        "is_changing",
        "owners",
    )

    def __init__(self, wanted: Iterable[tuple[Owner, SubjectSelector | None]]) -> None:
        self.owners: dict[Owner, SubjectSelector | None] = {}
        self._everything: dict[Owner, None] = {}
        self._others: dict[Owner, SubjectSelector] = {}
        """Owners whose selector has no pattern of subjects."""
        self._by_pattern: dict[str, dict[Owner, SubjectSelector]] = {}
        self._tree = PatternTree(())
        self._reader: SubjectSelector | None = None
        """Reads a message's subject."""
        self._told = 0
        """Owners of the patterns that the last message matched."""
        self._asking = 0
        """Selectors that depend on the publisher of a message."""
        self.effort = 0
        """What asking costs beyond one look at each selector: `EntrySelector.weight` in units of STEP_WEIGHT."""
        self.is_changing = False
        """If no change is under way: one failed half-way, and they are to be made anew."""
        for owner, selector in wanted:
            self.add(owner, selector)

    @property
    def asked(self) -> int:
        """The cost of matching a message like the last one, in selectors that are asked or owners that are found."""
        return len(self._everything) + len(self._others) + self._told + self._tree.looks // LOOKS_FOR_ONE

    @property
    def asks_publishers(self) -> bool:
        """Whether a selector depends on the publisher of a message."""
        return self._asking > 0

    def add(self, owner: Owner, selector: SubjectSelector | None) -> None:
        """Adds an owner; one that is there has that selector from now on."""
        self.discard(owner)
        if self.is_changing:
            return
        self.is_changing = True
        self.owners[owner] = selector
        if selector is None:
            self._everything[owner] = None
        elif selector.pattern is None:
            self._others[owner] = selector
        else:
            text = selector.pattern.text
            if text not in self._by_pattern:
                self._by_pattern[text] = {}
                self._tree.add(selector.pattern)
            self._by_pattern[text][owner] = selector
            self._reader = selector
        self._count(selector, 1)
        self.is_changing = False

    def discard(self, owner: Owner) -> None:
        """Removes the owner, if it is there."""
        if owner not in self.owners or self.is_changing:
            return
        self.is_changing = True
        selector = self.owners.pop(owner)
        if selector is None:
            del self._everything[owner]
        elif selector.pattern is None:
            del self._others[owner]
        else:
            text = selector.pattern.text
            del self._by_pattern[text][owner]
            if not self._by_pattern[text]:
                del self._by_pattern[text]
                self._tree.remove(text)
        self._count(selector, -1)
        self.is_changing = False

    def _count(self, selector: SubjectSelector | None, step: int) -> None:
        if selector is not None:
            self._asking += step if selector.not_from else 0
            self.effort += step * (selector.weight // STEP_WEIGHT)

    def wanting(self, value: bytes) -> dict[Owner, None]:
        """The owners whose selectors match the entry, in an order that does not depend on chance."""
        found = self._everything.copy()
        for owner, selector in self._others.items():
            if selector.matches(value):
                found[owner] = None
        if self._by_pattern and self._reader is not None:
            self._told = 0
            for text in self._tree.matching(self._reader.subject(value)):
                self._told += len(self._by_pattern[text])
                for owner, selector in self._by_pattern[text].items():
                    if selector.matches_beside(value):
                        found[owner] = None
        return found
