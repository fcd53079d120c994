"""What clients of a run that say no name of a virtual host call their node: nodes with such hosts know it."""

from typing import Final

HARNESS: Final = "harness"
