"""`holdfast completion`: what makes a shell complete verbs, options and files (docs/client.md, "Completion").

Rules of this file: the script is made from the grammar, so it knows the verbs of the distributions that are installed.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.cli.arguments import Verbs, add_verb
from holdfast.lines import say

SHELLS: Final = ("bash", "zsh")
DIRECTORIES: Final = ("DIR", "DIRECTORY")
FILES: Final = ("FILE", "PATH", "TABLE", ".toml")
"""What stands in the names of arguments that are directories, or files."""


def add(verbs: "Verbs[argparse.ArgumentParser]", grammar: Callable[[], argparse.ArgumentParser]) -> None:
    """`grammar`: the whole of the command line."""
    parser = add_verb(
        verbs,
        "completion",
        "prints a script with which a shell completes verbs, options and files",
        "holdfast completion bash",
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")
    parser.set_defaults(run=_run, grammar=grammar)


def _run(args: argparse.Namespace) -> int:
    import shtab

    parser = args.grammar()
    for action in _actions(parser):
        name = action.metavar if isinstance(action.metavar, str) else ""
        if any(word in name for word in DIRECTORIES):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]  # where shtab looks for it
        elif any(word in name for word in FILES):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    say(*shtab.complete(parser, args.shell).splitlines())
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                yield from _actions(choice)
