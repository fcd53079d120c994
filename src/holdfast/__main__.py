"""The entry point of the command `holdfast`, and of `python -m holdfast`.

Rules of this file: it imports nothing at its top that takes time. Until a verb runs, Ctrl-C ends the process without
output.
"""

# Built in: `signal` first loads half a dozen modules, during which Ctrl-C would print a traceback.
import _signal  # type: ignore[import-not-found]
import sys


def main() -> int:
    """What `holdfast.cli.main` returns. Ctrl-C is KeyboardInterrupt again once a verb runs."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else our parent ignores it
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from holdfast.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
