"""The command `holdfast`: parsing only, each verb is imported when it runs (docs/client.md).

Rules of this package: it does no verb's work; there are no options without an effect. Exit 0 done, 1 failed
(HoldfastError, one line), 2 usage or configuration (ConfigError, one line; a verb that lacks its action shows its help
instead), 130 for Ctrl-C. A verb's function takes the Namespace that its parser fills, and returns the exit code.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final

from holdfast import __version__
from holdfast.cli import process, serving
from holdfast.cli.arguments import Parser, not_utf8
from holdfast.errors import ConfigError, HoldfastError, Stopped

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The grammar of the command line: the whole of it, or what `words` need.

    Verbs of other distributions are in it if those are installed (`distributions.add_installed`).
    """
    top: argparse.ArgumentParser = Parser(
        prog="holdfast",
        description="A store-and-forward message bus for sites joined by slow or unreliable links.",
        epilog="example:\n  holdfast node --name ewr\n  holdfast VERB --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"holdfast {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    serving.add_node(verbs)
    if words and words[0] in verbs.choices:
        return top
    # A node, which runs for long, does without the others.
    from holdfast.cli import (
        completion,
        connections,
        distributions,
        federation,
        feeding,
        links,
        messages,
        network,
        queues,
        receiving,
        sending,
        services,
        status,
        subscriptions,
        users,
    )

    sending.add(verbs)
    receiving.add(verbs)
    status.add(verbs)
    subscriptions.add(verbs)
    feeding.add(verbs)
    queues.add(verbs)
    messages.add(verbs)
    links.add(verbs)
    services.add(verbs)
    federation.add(verbs)
    connections.add(verbs)
    serving.add_reload(verbs)
    serving.add_store(verbs)
    users.add(verbs)
    network.add(verbs)
    completion.add(verbs, parser)
    distributions.add_installed(verbs, words)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns its exit code; argparse itself exits 2 for usage and 0 for help."""
    process.open_standard_files()
    try:
        return _run(argv)
    finally:
        process.flush_errors()


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """As argparse does, which ends with SystemExit for usage and help: once help is printed."""
    try:
        words = sys.argv[1:] if argv is None else argv
        return parser(words).parse_args(words)
    except SystemExit as ended:
        if ended.code == 0:
            process.flush_output()
        raise


def _run(argv: Sequence[str] | None) -> int:
    name = "holdfast"
    try:
        args = _parsed(argv)
        action = getattr(args, "action", None)
        name = f"holdfast {args.verb}" if action is None else f"holdfast {args.verb} {action}"
        check: Callable[[argparse.Namespace], str | None] | None = getattr(args, "check", None)
        complaint = not_utf8(args) or (check(args) if check is not None else None)
        if complaint is not None:
            process.complain(f"{name}: {complaint}")
            return EXIT_USAGE
        run: Callable[[argparse.Namespace], int] = args.run
        process.prepare()
        code = run(args)
        process.flush_output()
        return code
    except ConfigError as error:
        process.complain(f"{name}: {error}")
        return EXIT_USAGE
    except HoldfastError as error:
        process.complain(f"{name}: {error}")
        return error.code if isinstance(error, Stopped) else EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone: messages that were not printed were not accepted.
        process.drop_output()
        return EXIT_FAILED
    except (MemoryError, RuntimeError, ImportError) as error:
        if not process.is_starved(error):
            raise
        process.drop_output()
        process.complain(f"{name}: no memory is left for this process, or no thread (ulimit -v, -u)")
        return EXIT_FAILED
    except OSError as error:
        # Errors of the machine: a full disk, no free descriptor, a closed terminal.
        process.drop_output()
        place = "" if error.filename is None else f"{error.filename}: "
        process.complain(f"{name}: {place}{error.strerror or error}")
        return EXIT_FAILED
