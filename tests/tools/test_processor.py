"""What a test takes of a processor is counted in its children too, whether they have ended or live."""

import subprocess
import sys

from support.processor import processor_s

BUSY = """\
import os, subprocess, sys, time
if sys.argv[1:]:
    while sum(os.times()[:2]) < 0.3:
        pass
    print("done", flush=True)
    sys.stdin.read()
else:
    subprocess.run([sys.executable, "-c", sys.orig_argv[2], "child"])
"""


def test_what_children_take_counts_while_they_live_and_once() -> None:
    before_s = processor_s()
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "done\n"
        living_s = processor_s()
    ended_s = processor_s()
    assert living_s - before_s >= 0.28, "the child of the child"
    assert 0.0 <= ended_s - living_s < 0.25, "once"
