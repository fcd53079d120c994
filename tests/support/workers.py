"""What a swarm's worker may be made to do, by name in another process: die, or never come back.

Rules of this file: a worker is spawned and imports what it is to run, so these stand here and in no test.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

from holdfast_lab.runs import swarm


def _instead(execute: Callable[..., Any]) -> None:
    vars(swarm)["execute"] = execute


def die() -> None:
    """The worker ends at its first seed, with exit code 3."""
    _instead(lambda *args, **options: os._exit(3))


def hang() -> None:
    """The worker never ends its first seed."""
    _instead(lambda *args, **options: threading.Event().wait())
