"""The benchmarks are scripts, not a package: they and their helper modules are found where they lie."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS / "macro"), str(BENCHMARKS)]
