"""What the command line says of an option or a value that cannot be."""

import argparse
import re
from collections.abc import Iterator

import pytest

from holdfast import cli
from holdfast.cli.arguments import some_path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("queue update q --room-low 1.5", "invalid value '1.5' for --room-low; expected a part of the limits, {}1"),
        ("queue update q --room-low 0", "invalid value '0' for --room-low; expected a part of the limits, {}1"),
        ("queue create q --room-low nan", "invalid value 'nan' for --room-low; expected a part of the limits, {}1"),
        ("queue create q --room-quiet 0", "invalid value '0' for --room-quiet; expected seconds, {}31536000"),
        ("send q --rate 0", "invalid value '0' for --rate; expected messages a second, {}1000000000"),
    ],
)  # fmt: skip
def test_a_number_that_must_be_above_zero(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(line, capsys) == said.format("above 0 and up to ")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("queue create q --durable", "unknown option --durable; expected one that --help lists"),
        ("send q --cuont 3", "unknown option --cuont; expected one that --help lists; did you mean --count?"),
        (
            "subscription update s --idle-s 3",
            "unknown option --idle-s; expected one that --help lists; did you mean --idle?",
        ),
    ],
)
def test_an_option_is_suggested_only_if_it_is_alike(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(line, capsys) == said


def told(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said of the mistake, without the verb."""
    with pytest.raises(SystemExit) as ended:
        cli.main(line.split())
    assert ended.value.code == 2
    verb, _, said = capsys.readouterr().err.removesuffix("\n").partition(": ")
    assert line.startswith(verb.removeprefix("holdfast "))
    return said


PATH = re.compile(r"(FILE|DIR|DIRECTORY|PATH|DEVICE|REQUEST|CONFIG)(\.[a-z]+)?")


def arguments_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Each argument of the verb and of those within it, with the verb."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                yield from arguments_of(choice)
        else:
            yield parser.prog, action


PATHS = [(verb, action) for verb, action in arguments_of(cli.parser()) if PATH.fullmatch(str(action.metavar))]


@pytest.mark.parametrize(("verb", "action"), PATHS, ids=[f"{verb} {action.dest}" for verb, action in PATHS])
def test_each_argument_that_is_a_path_has_the_type_of_paths(verb: str, action: argparse.Action) -> None:
    assert action.type is some_path, verb


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["node", "--data", ""], "holdfast node: invalid value '' for --data; expected a path"),
        (["node", ""], "holdfast node: invalid value '' for CONFIG.toml; expected a path"),
        (["store", "check", ""], "holdfast store check: invalid value '' for DIR; expected a path"),
        (["receive", "q", "--to", ""], "holdfast receive: invalid value '' for --to; expected a path"),
    ],
)
def test_an_empty_path_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be the current directory."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert (ended.value.code, capsys.readouterr().err) == (2, f"{said}\n")
