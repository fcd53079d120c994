"""What a node's file says of its log (docs/operations.md, `[log]`).

Rules of this file: settings alone; the log is written in process/log.py.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.settings.checks import one_of

LEVELS: Final = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """`level`: lines below it are left out."""

    level: str = "info"

    def validate(self) -> None:
        """Raises ConfigError that names the key."""
        one_of("log level", self.level, LEVELS)


DEFAULT_LOG: Final = LogSettings()
