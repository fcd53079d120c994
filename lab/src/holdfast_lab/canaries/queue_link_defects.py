"""Canaries in links between queues.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]

FEW: Final = 1
"""A test of one message does not find it."""


def _untied(original: Function) -> Function:
    """Of many messages that one turn moves, all but the first few leave their queue though the commit is refused."""

    def hand_over(self: Any, link: Any) -> None:
        original(self, link)
        tied = self._parts.turns.gathered.tied
        for sequence in link.moving.left[FEW:]:
            tied.pop((link.cursor.queue.queue_id, sequence), None)

    return hand_over


def _nameless(original: Function) -> Function:
    """A link gets a new id at each start of its node, and does not recognise the messages that it has passed on."""

    def _add(self: Any, plan: Any, link_id: bytes | None, *, is_created: bool) -> Any:
        return original(self, plan, None, is_created=is_created)

    return _add


KEPT: Final = 4
"""Windows of a step that a test has."""


def _few_windows(original: Function) -> Function:
    """After a start a step knows only some of its windows."""

    def load(self: Any, number: int, rows: Any) -> None:
        original(self, number, dict(sorted(rows.items())[:KEPT]))

    return load


def _counted_all_the_same(original: Function) -> Function:
    """Changes of windows by many messages of one turn are kept though the commit is refused."""

    def decided(self: Any, effect: Any, *, stored: bool) -> bool:
        gathered = effect.moving.gathered if effect.link.moving is effect.moving else None
        if gathered is not None and not stored and len(gathered.changes) > FEW:
            effect.link.windows.apply(gathered.changes)
        return bool(original(self, effect, stored=stored))

    return decided


QUEUE_LINK_CANARIES: Final[tuple[Canary, ...]] = (
    Canary(
        name="link-untied-beyond-few",
        sentence="Of many messages that a link moves, some leave their queue though the disk refuses the copies.",
        target="queue_links.handing:Handing.hand_over",
        signature="(self, link: holdfast.queue_links.link.QueueLink) -> None",
        broken=_untied,
        expected="its last copy is gone",
    ),
    Canary(
        name="link-id-of-one-life",
        sentence="A link takes what it has passed on before its node was started again.",
        target="queue_links.links:QueueLinks._add",
        signature=(
            "(self, plan: holdfast.queue_links.ends.Plan, link_id: bytes | None, *, is_created: bool) "
            "-> holdfast.queue_links.link.QueueLink"
        ),
        broken=_nameless,
        expected="was appended twice to linked",
    ),
    Canary(
        name="windows-of-a-few-keys",
        sentence="A node that starts forgets windows of a step that has many.",
        target="steps.windows:Windows.load",
        signature="(self, number: int, rows: collections.abc.Mapping[bytes, bytes]) -> None",
        broken=_few_windows,
        expected="steps-link ",
    ),
    Canary(
        name="windows-of-a-refused-commit",
        sentence="What many messages change of windows counts though the disk refuses their commit.",
        target="queue_links.handing:Handing.decided",
        signature="(self, effect: holdfast.queue_links.handing.Handed, *, stored: bool) -> bool",
        broken=_counted_all_the_same,
        expected="steps-link ",
    ),
)
