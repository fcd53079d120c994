"""What `dir()` of the client's objects shows: the names that a program uses.

Rules of this file: what the parts of the client call of each other has names without an underscore, too; `hidden` says
which these are. Special methods stay.
"""

from collections.abc import Iterable
from typing import ClassVar


class Listed:
    """Base of what programs hold. `dir()` shows neither names with an underscore nor those in `HIDDEN`."""

    __slots__ = ()

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"HIDDEN"})

    def __dir__(self) -> Iterable[str]:
        names = object.__dir__(self)
        return [name for name in names if name not in self.HIDDEN and (name[0] != "_" or name.endswith("__"))]


def hidden(*sources: type | str, shown: Iterable[str] = ()) -> frozenset[str]:
    """The names of these classes, and these names, but for those that are shown."""
    names = {"HIDDEN"}
    for source in sources:
        names.update([source] if isinstance(source, str) else (name for name in vars(source) if name[0] != "_"))
    return frozenset(names - {*shown})
