"""What the command line says of an option or a value that cannot be."""

import argparse
import re
from collections.abc import Iterator

import pytest

from holdfast import cli
from holdfast.broker.stored.bounds import MOST
from holdfast.cli import arguments
from holdfast.cli.arguments import some_path
from holdfast.schema import WHOLE_MAX


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
        ("send q --count 9223372036854775808", "expected a whole number, at most 9223372036854775807"),
        ("send q --count 0", "expected a whole number, at least 1"),
        ("send q --count x", "expected a whole number, at least 1"),
        ("queue create q --bytes-max 9223372036854775808", "expected a number of bytes, at most 9223372036854775807"),
        (
            "queue update q --messages-max 9223372036854775808",
            "expected a whole number, at most 9223372036854775807, or none",
        ),
        ("messages show q 18446744073709551616", "expected a sequence, at most 18446744073709551615"),
        ("subscription update s --messages-max 8193", "expected a number of messages, 1 to 8192, or none"),
        ("subscription update s --bytes-max 0", "expected a number of bytes, 1 to 1125899906842624, or none"),
        ("subscription update s --idle 31622401", "expected a number of seconds, 1 to 31622400, or none"),
    ],
)
def test_a_number_out_of_bounds_is_told_the_bound_that_it_passes(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(line, capsys).endswith(said)


def test_the_command_takes_the_greatest_number_that_the_file_takes() -> None:
    args = cli.parser().parse_args(["queue", "create", "q", "--messages-max", str(WHOLE_MAX), "--bytes-max", "3"])
    assert args.messages_max == WHOLE_MAX == arguments.WHOLE_MAX


def test_the_command_takes_the_bounds_of_a_subscription_that_the_node_takes() -> None:
    for option, most in (
        ("messages-max", MOST["messages_max"]),
        ("bytes-max", MOST["bytes_max"]),
        ("idle", MOST["idle_s"]),
    ):
        args = cli.parser().parse_args(["subscription", "update", "s", f"--{option}", str(most)])
        assert getattr(args, option.replace("-", "_")) == most
        with pytest.raises(SystemExit):
            cli.parser().parse_args(["subscription", "update", "s", f"--{option}", str(most + 1)])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("receive q --selector", "invalid value '' for --selector; expected a selector"),
        ("messages delete q --selector", "invalid value '' for --selector; expected a selector"),
        ("dead-letters export --selector", "invalid value '' for --selector; expected a selector"),
        ("where", "invalid value '' for MESSAGE-ID; expected a message-id"),
        ("topology forget", "invalid value '' for NAME; expected a name"),
    ],
)
def test_an_empty_value_is_told_what_it_should_be(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*line.split(), ""])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"{said}\n")


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


PATH = re.compile(r"(FILE|DIR|DIRECTORY|PATH|DEVICE|REQUEST|CONFIG|JOB|TABLE|TO|FROM)(\.[a-z]+)?")


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
        (["store", "restore", "", "x"], "holdfast store restore: invalid value '' for FROM; expected a path"),
        (["pipeline", "compact", ""], "holdfast pipeline compact: invalid value '' for TABLE; expected a path"),
    ],
)
def test_an_empty_path_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be the current directory."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert (ended.value.code, capsys.readouterr().err) == (2, f"{said}\n")
