"""The command `holdfast`, from its first moment; `python -m holdfast` is the same.

Rules of this file: nothing is imported at its top that takes time. Ctrl-C meanwhile ends the process without a word.
"""

# Built in: `signal` loads half a dozen modules first, while which Ctrl-C would be a traceback.
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
