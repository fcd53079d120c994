"""File descriptors of the node's process: how many are left, and whether that is too few.

Rules of this file: the driver measures; this file decides whether they are too few, and logs that once each time. The
system drops a connection beyond the last descriptor before the node sees it, so only the operator can be told.
"""

from typing import Any, Final

from holdfast.engine.events import DescriptorsMeasured
from holdfast.engine.log import Log

FEW: Final = 16
"""With so few left they are short, and until there are more than twice as many."""


class Descriptors:
    """Warns while there are few file descriptors. `left` and `most`: as last measured; None before that."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.left: int | None = None
        self.most: int | None = None
        self.short = False
        self._of_system = False

    def measured(self, event: DescriptorsMeasured) -> None:
        """The driver has counted them."""
        self.left, self.most = event.left, event.most
        few = 2 * FEW if self.short else FEW
        short = event.of_system or event.left <= few
        self._of_system = event.of_system
        if short and not self.short:
            self._log.write("WARNING", self._text())
        elif self.short and not short:
            self._log.write("INFO", f"file descriptors: {self.left} of {self.most} are left again")
        self.short = short

    def condition(self) -> str | None:
        """The line of `status`; None while there are enough."""
        return self._text() if self.short else None

    def _text(self) -> str:
        if self._of_system:
            return (
                "file descriptors: the system has none left, and drops new connections: end what holds them, "
                "or raise fs.file-max"
            )
        return (
            f"file descriptors: {self.left} of {self.most} are left, and connections past them are dropped without an "
            "answer: raise the hard limit (ulimit -Hn) and restart the node, or lower connections_max"
        )

    def status(self) -> dict[str, Any]:
        return {"left": self.left, "max": self.most, "short": self.short}
