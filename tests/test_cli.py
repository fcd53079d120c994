"""The command line's grammar: help with an example for every verb, mistakes are exit 2 and one line."""

import argparse
import re
import subprocess
import sys

import pytest

from holdfast import cli
from holdfast.cli import messages
from holdfast.errors import ConfigError, HoldfastError

VERBS = [
    ["node"], ["send"], ["receive"], ["status"], ["queue"], ["queue", "list"], ["queue", "create"], ["queue", "delete"],
    ["queue", "purge"], ["queue", "skip"], ["subscription"], ["subscription", "list"], ["subscription", "delete"],
    ["store"], ["store", "check"], ["store", "compact"], ["store", "backup"], ["store", "restore"],
    ["pipeline"], ["pipeline", "ingest"], ["demo"],
    ["topology"], ["topology", "check"], ["topology", "routes"], ["topology", "forget"],
    ["fleet"], ["fleet", "up"], ["fleet", "down"], ["fleet", "status"], ["fleet", "cut"], ["fleet", "heal"],
    ["fleet", "stop"], ["fleet", "start"],
    ["sim"], ["sim", "run"], ["sim", "swarm"], ["sim", "list"], ["sim", "replay"],
]  # fmt: skip


def exit_code(*argv: str) -> int:
    try:
        return cli.main(list(argv))
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        return ended.code


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_has_help_with_an_example(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*verb, "--help") == 0
    text = capsys.readouterr().out
    assert "example:" in text and f"holdfast {verb[0]}" in text.split("example:")[1]
    for hidden in ("--crash-point", "--points-file", "--selector", "--canary", "supervise"):
        assert hidden not in text


def test_the_examples_are_grammatical(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        assert exit_code(*verb, "--help") == 0
        for line in capsys.readouterr().out.split("example:")[1].splitlines():
            if line.strip():
                cli.parser().parse_args(line.split()[1:])


@pytest.mark.parametrize(
    "line",
    [
        "", "nonsense", "send", "receive", "queue", "queue nonsense", "queue create", "pipeline", "pipeline ingest q",
        "receive q --selector x", "receive q --count 0", "receive q --count x", "receive q --from-sequence 0",
        "receive q --idle-timeout 0", "receive q --cou 1", "receive q --subscription s --browse",
        "send q f --count 3", "send q --size 3", "send q --count 3 --format csv", "send q f --format xml",
        "send q f --subject a --subject-from b --format csv", "send q f --subject-from b", "send q --property novalue",
        "send q --rate 0", "send q --priority 256", "send q --resume", "send q --retry -1", "send q --ttl 0",
        "queue create q --when-full drop-oldest", "queue create q --order some", "node --listen 5672",
        "node --listen host:70000", "demo --flights 0", "sim", "sim run", "sim replay", "sim run x --seed -1",
        "sim run x --depth packets", "sim swarm --seeds 0", "sim swarm --jobs 0", "sim swarm --depth bytes",
        "store", "store check", "store compact", "store backup d", "store restore d", "store backup d e f",
        "fleet", "fleet up", "fleet cut a", "fleet heal a b c", "fleet stop", "fleet start", "fleet down x",
        "topology", "topology check", "topology routes x", "topology check x", "topology forget", "route list",
        "perf", "console",
    ],
)  # fmt: skip
def test_a_mistake_is_exit_2_and_said_in_a_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*line.split()) == 2
    captured = capsys.readouterr()
    assert not captured.out and "Traceback" not in captured.err
    assert re.search(r"(error: |accepted is )", captured.err.splitlines()[-1])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("send q --url http://x", "found scheme 'http'"),
        ("status --url amqp://h/queue", "found more behind the port"),
        ("send q --url amqp://ann@127.0.0.1", "found a user without a password"),
        ("send q /does/not/exist", "/does/not/exist: No such file"),
        ("status --password-file /does/not/exist", "--password-file: found without a user"),
        ("status --url amqp://ann@127.0.0.1 --password-file /does/not/exist", "/does/not/exist: No such file"),
    ],
)
def test_a_value_that_cannot_be_is_exit_2(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*line.split()) == 2
    error = capsys.readouterr().err
    assert (
        said in error and len(error.splitlines()) == 1 and error.startswith(f"holdfast {line.split(maxsplit=1)[0]}: ")
    )


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (HoldfastError("it broke"), 1, "holdfast status: it broke\n"),
        (ConfigError("it is wrong"), 2, "holdfast status: it is wrong\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_exit_codes(
    raised: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(args: argparse.Namespace) -> int:
        raise raised

    monkeypatch.setattr(messages, "_run_status", run)
    assert exit_code("status") == code
    assert capsys.readouterr().err == said


def test_what_the_node_is_given() -> None:
    args = cli.parser().parse_args(
        [
            "node",
            "c.toml",
            "--name",
            "n",
            "--listen",
            "h:1",
            "--data",
            "d",
            "--crash-point",
            "append:3",
            "--points-file",
            "p",
        ]
    )
    assert (args.config, args.name, args.listen, args.data) == ("c.toml", "n", "h:1", "d")
    assert (args.crash_point, args.points_file) == ("append:3", "p")


def test_a_verb_is_imported_when_it_runs() -> None:
    loaded = (
        "import sys, holdfast.cli; holdfast.cli.parser(); "
        "print([name for name in sys.modules if name.startswith('holdfast.')])"
    )
    told = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=30)
    rooms = {name.split(".")[1] for name in eval(told.stdout)}
    assert rooms == {"cli", "errors"}
