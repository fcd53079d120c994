"""The settings of a node's log (docs/operations.md, `[log]`).

Rules of this file: settings alone; the log is written in process/log.py.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.settings.checks import one_of

LEVELS: Final = ("debug", "info", "warning", "error")
TEXT: Final = "text"
JSON: Final = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """`level`: lines below it are left out. `format`: of each line. `file`: where they go; None: standard error."""

    level: str = "info"
    format: str = TEXT
    file: Path | None = None

    def validate(self) -> None:
        """Raises ConfigError that names the key."""
        one_of("log level", self.level, LEVELS)
        one_of("log format", self.format, (TEXT, JSON))


DEFAULT_LOG: Final = LogSettings()
