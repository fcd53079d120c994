"""What plain `holdfast status` prints of a node's store, beside the tables.

Rules of this file: pure; a line only where there is something to know or to do. An older node tells less.
"""

from typing import Any

from holdfast.columns import size


def storage_lines(told: dict[str, Any]) -> list[str]:
    """Lines of the status `told`, as `render.plain` makes it."""
    lines = []
    disk = told.get("disk")
    if isinstance(disk, dict) and disk.get("state") == "stalled":
        seconds = disk.get("commit_s") or 0.0
        lines.append(f"disk: no answer to a commit for {seconds:.0f} s; nothing is taken until it answers")
    elif isinstance(disk, dict) and disk.get("state") == "full":
        lines.append("disk: full; producers get no credit until there is room")
    letters = told.get("dead_letters")
    if isinstance(letters, dict) and (letters.get("messages") or letters.get("dropped")):
        line = f"dead letters: {letters.get('messages')}, {size(letters.get('bytes'))}"
        if letters.get("dropped"):
            line += f"; {letters['dropped']} of the oldest were dropped ({size(letters.get('dropped_bytes'))})"
        lines.append(line)
    return lines
