"""Which entries a link takes: those that its selector matches and that have not passed the link.

Rules of this file: the answer only depends on the bytes of an entry.
"""

from holdfast.broker.cursors.entry_consumer import EntrySelector
from holdfast.broker.entries.annotate import LINK_ID_BYTES, links_passed


class LinkSelector(EntrySelector):
    """`text` is unique to the link, because two links may take different entries."""

    __slots__ = ("_link_id", "_selector", "text", "weight")

    def __init__(self, link_id: bytes, selector: EntrySelector | None) -> None:
        self.text = f"link {link_id.hex()}\0{'' if selector is None else selector.text}"
        self.weight = 1 if selector is None else selector.weight
        self._link_id = link_id
        self._selector = selector

    def matches(self, value: bytes) -> bool:
        passed = links_passed(value)
        if passed and self._link_id in [passed[at : at + LINK_ID_BYTES] for at in range(0, len(passed), LINK_ID_BYTES)]:
            return False
        return self._selector is None or self._selector.matches(value)
