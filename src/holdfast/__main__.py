"""The command `holdfast`, from its first moment; `python -m holdfast` is the same.

Rules of this file: nothing is imported at its top that takes time. Ctrl-C meanwhile ends the process without a word.
"""

import signal
import sys


def main() -> int:
    """What `holdfast.cli.main` returns. Ctrl-C is KeyboardInterrupt again once a verb runs."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else our parent ignores it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from holdfast.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
