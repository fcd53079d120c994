"""Lines stay, the bar is for terminals."""

import io

from holdfast_lab.base.progress import Progress
from support.screen import Screen


def test_no_bar_in_a_pipe() -> None:
    lines, bar = io.StringIO(), io.StringIO()
    with Progress(lines, bar) as progress:
        progress.say("began")
        progress.show(1, 2, "half")
    assert (lines.getvalue(), bar.getvalue()) == ("began\n", "")


def test_a_bar_on_a_terminal_is_drawn_anew_and_cleared() -> None:
    lines, bar = io.StringIO(), Screen()
    with Progress(lines, bar) as progress:
        progress.show(1, 2, "half")
        progress.say("a line")
        progress.show(3, 2, "more than all")
        progress.show(0, 0, "nothing to do")
    text = bar.getvalue()
    assert f"[{'#' * 12}{'.' * 12}] half" in text and f"[{'#' * 24}] more than all" in text
    assert text.endswith("\r\x1b[K") and lines.getvalue() == "a line\n"
