"""What the command line says of an option or a value that cannot be."""

import pytest

from holdfast import cli


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
