"""The paths of this checkout, and the modules that are measured."""

import os
import sys
from pathlib import Path
from typing import Final

TOOLS: Final = Path(__file__).resolve().parents[1]
ROOT: Final = TOOLS.parent
SOURCES: Final = ROOT / "src" / "holdfast"
PACKAGES: Final = (
    "access", "broker", "core", "custody", "endpoints", "engine", "federation", "links", "management", "pacing",
    "peering", "peers", "queue_links", "routing", "selectors", "state", "steps", "storage",
)  # fmt: skip
LEFT_OUT: Final = {"storage/commands.py"}
"""A command's texts and arguments."""

if str(TOOLS) not in sys.path:
    sys.path.insert(0, str(TOOLS))
from stages import STAGES  # noqa: E402, found by the line above

MARKS: Final = str(next(stage for stage in STAGES if stage.name == "unit").marks)


def python_path(*first: Path) -> str:
    """PYTHONPATH of a process below: these, the tools, then what is given, where a second checkout in one environment
    has its own packages.
    """
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.pathsep.join((*map(str, first), str(TOOLS), *given))
