"""Collects all tests, once, before many processes do. pytest rewrites the assertions of each file that it imports,
which takes most of that time, and keeps what comes of it for whoever imports the file next.

    .venv/bin/python tools/collected.py

Prints how many there are, or what cannot be collected; exit code 1 then.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode:
        print(done.stdout + done.stderr)
        return 1
    print(next(line for line in reversed(lines) if " collected" in line))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
