"""What plain `holdfast status` prints of a node's store, beside the tables.

Rules of this file: pure; a line only where there is something to know or to do. An older node has fewer fields. A disk
that is full, and a store whose file is gone, are among the node's warnings.
"""

from typing import Any, Final

from holdfast.columns import counted, size

HOW_TO_READ: Final = "`holdfast dead-letters list`"


def storage_lines(told: dict[str, Any]) -> list[str]:
    """Lines of the status `told`, as `render.plain` makes it."""
    lines = []
    if told.get("former_store"):
        lines.append(f"store: new UUID since this start: {told.get('store')}, formerly {told['former_store']}")
    disk = told.get("disk")
    if isinstance(disk, dict) and disk.get("state") == "stalled":
        seconds = disk.get("commit_s") or 0.0
        lines.append(f"disk: no answer to a commit for {seconds:.0f} s; nothing is taken until it answers")
    letters = told.get("dead_letters")
    counts = ("messages", "dropped", "dropped_total")
    if isinstance(letters, dict) and any(letters.get(count) for count in counts):
        line = f"dead letters: {letters.get('messages')}, {size(letters.get('bytes'))}"
        if letters.get("dropped_total", letters.get("dropped")):
            count, dropped = letters.get("dropped"), size(letters.get("dropped_bytes"))
            line += f"; {count} of the oldest were dropped since the node's start ({dropped})"
        if letters.get("dropped_total"):
            line += (
                f", {letters['dropped_total']} since the store was made ({size(letters.get('dropped_bytes_total'))})"
            )
        lines.append(f"{line}; {HOW_TO_READ} shows them" if letters.get("messages") else line)
    lost = told.get("losses_total")
    if isinstance(lost, dict) and lost.get("ranges"):
        numbers, ranges = counted(lost.get("numbers", 0), "number"), counted(lost["ranges"], "range")
        line = f"lost: {numbers} in {ranges} since {lost.get('since')}"
        lines.append(f"{line}; the latest are below, under losses")
    return lines
