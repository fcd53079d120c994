"""The command line's grammar: help with an example for every verb, mistakes are exit 2 and one line."""

import argparse
import errno
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from holdfast import __version__, cli
from holdfast.cli import distributions, process, status
from holdfast.errors import ConfigError, HoldfastError


def verbs_of(parser: argparse.ArgumentParser, *path: str) -> Iterator[list[str]]:
    """Every verb that help lists, each before its actions."""
    for group in parser._actions:
        if isinstance(group, argparse._SubParsersAction):
            for choice in group._choices_actions:
                yield [*path, choice.dest]
                yield from verbs_of(group.choices[choice.dest], *path, choice.dest)


VERBS = list(verbs_of(cli.parser()))
GROUPS = [list(path) for path in sorted({tuple(verb[:-1]) for verb in VERBS})]


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
    for hidden in ("--crash-point", "--points-file", "--canary", "supervise"):
        assert hidden not in text


COMPLETED = {
    "sen": "send",
    "queue cr": "create",
    "send q --prio": "--priority",
    "sim swa": "swarm",
    "queue create q --when-full dro": "drop-oldest",
    "completion z": "zsh",
}


def test_bash_completes_verbs_actions_options_and_values(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert exit_code("completion", "bash") == 0
    script = tmp_path / "completion"
    asks = "\n".join(
        f"COMP_WORDS=(holdfast {line}) COMPREPLY=(); COMP_CWORD={len(line.split())}; _shtab_holdfast; "
        'echo "${COMPREPLY[@]}"'
        for line in COMPLETED
    )
    script.write_text(f"{capsys.readouterr().out}\n{asks}\n")
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and [line.split() for line in done.stdout.splitlines()] == [
        [word] for word in COMPLETED.values()
    ], done


def test_zsh_gets_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("completion", "zsh") == 0
    text = capsys.readouterr().out
    assert "holdfast" in text and "--selector" in text


def test_the_manual_page_has_every_verb(tmp_path: Path) -> None:
    page = tmp_path / "holdfast.1"
    words = ["--module", "holdfast.cli", "--function", "parser", "--prog", "holdfast", "--project-name", "holdfast"]
    command = [
        Path(sys.prefix, "bin", "argparse-manpage"),
        *words,
        "--format",
        "single-commands-section",
        "--output",
        page,
    ]
    subprocess.run(command, check=True, timeout=60)
    text = page.read_text(encoding="utf-8").replace("\\-", "-")
    assert [verb for verb in VERBS if f"holdfast {' '.join(verb)}" not in text] == []


def test_every_argument_of_every_verb_says_what_it_is() -> None:
    whole = cli.parser()

    def parser_of(verb: list[str]) -> argparse.ArgumentParser:
        parser = whole
        for name in verb:
            (group,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
            parser = group.choices[name]
        return parser

    silent = [
        f"{' '.join(verb)} {action.dest}"
        for verb in VERBS
        for action in parser_of(verb)._actions
        if not isinstance(action, argparse._SubParsersAction) and not action.help
    ]
    assert silent == []


def test_the_examples_are_grammatical(capsys: pytest.CaptureFixture[str]) -> None:
    parser = cli.parser()
    for verb in VERBS:
        assert exit_code(*verb, "--help") == 0
        for line in capsys.readouterr().out.split("example:")[1].splitlines():
            if line.strip():
                parser.parse_args(shlex.split(line)[1:])


@pytest.mark.parametrize(
    "line",
    [
        "nonsense", "send", "receive", "queue nonsense", "queue create", "pipeline ingest q",
        "pipeline swarm --out d --first-seed x", "pipeline swarm --out d --first-seed -1",
        "receive q --count 0", "receive q --count x", "receive q --from-sequence 0",
        "receive q --idle-timeout 0", "receive q --cou 1", "receive q --subscription s --browse",
        "send q f --count 3", "send q --size 3", "send q --count 3 --format csv", "send q f --format xml",
        "send q f --subject a --subject-from b --format csv", "send q f --subject-from b", "send q --property novalue",
        "send q --rate 0", "send q --priority 256", "send q --resume", "send q --retry -1", "send q --ttl 0",
        "queue create q --when-full drop-newest", "queue create q --order some", "node --listen 5672",
        "node --listen host:70000", "demo --flights 0", "sim run", "sim replay", "sim run x --seed -1",
        "sim swarm --seeds 0", "sim swarm --jobs 0",
        "store check", "store compact", "store backup d", "store restore d", "store backup d e f",
        "fleet up", "fleet cut a", "fleet heal a b c", "fleet stop", "fleet start", "fleet down x",
        "topology check", "topology routes x", "topology check x", "topology forget", "route list",
        "perf", "console",
    ],
)  # fmt: skip
def test_a_mistake_is_exit_2_and_said_in_a_line(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*line.split()) == 2
    captured = capsys.readouterr()
    assert not captured.out and captured.err.count("\n") == 1
    assert captured.err.startswith("holdfast") and re.search(r"(; |are required: )", captured.err)


@pytest.mark.parametrize("verb", GROUPS, ids=" ".join)
def test_a_verb_that_lacks_its_action_shows_its_help(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, and exit 2: a script that lost its arguments is no success."""
    assert exit_code(*verb) == 2
    shown = capsys.readouterr()
    assert exit_code(*verb, "--help") == 0
    assert shown == ("", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "send q --retyr 3",
            "holdfast send: unknown option --retyr; expected one that --help lists; did you mean --retry?",
        ),
        ("send q --cuont=3", "holdfast send: unknown option --cuont; .*; did you mean --count?"),
        ("queue create q --qqqq", "holdfast queue create: unknown option --qqqq; expected one that --help lists$"),
        ("node --crash-pont x", "holdfast node: unknown option --crash-pont; expected one that --help lists$"),
        ("sned q", "holdfast: invalid value 'sned' for VERB; expected one of node, send, .*demo; did you mean send?"),
        (
            "queue craete q",
            "holdfast queue: invalid value 'craete' for ACTION; expected one of list, .*; did you mean create?",
        ),
        (
            "fleet bad",
            r"holdfast fleet: invalid value 'bad' for ACTION; expected one of init, .*, stop, start$",
        ),
        ("send q f g", "holdfast send: unexpected argument 'g'; remove it"),
        ("send q f --format csv g", "holdfast send: unexpected argument 'g'; remove it"),
        ("send q --format csv f g", "holdfast send: unexpected argument 'g'; remove it"),
        ("send q --format csv f --retyr 3", "holdfast send: unknown option --retyr; .*; did you mean --retry?"),
        ("send q --format cvs", "holdfast send: invalid value 'cvs' for --format; expected .*; did you mean csv?"),
        ("send q --count 1 --size -1", "invalid value '-1' for --size; expected a number of bytes, 0 to 67108864"),
        ("queue create q --order-wait -1", "invalid value '-1' for --order-wait; expected seconds, 0 to 31536000$"),
        ("send", "holdfast send: the following arguments are required: ADDRESS"),
        ("help", "holdfast: invalid value 'help' for VERB; expected one of node, .*; did you mean --help?$"),
        ("--versoin", "holdfast: unknown option --versoin; .* behind it; did you mean --version?$"),
        ("--json status", "holdfast: unknown option --json; options of a command stand behind it$"),
        ("queue --url=x list", "holdfast queue: unknown option --url; options of a command stand behind it$"),
        ("queue list --json=5", "holdfast queue list: --json takes no value; remove '5'$"),
    ],
)
def test_a_mistake_is_told_by_the_verb_in_which_it_is(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*line.split()) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and re.search(said.replace("?", r"\?"), error), error


@pytest.mark.parametrize("line", ["queue skip", "queue purge", "queue delete", "subscription delete", "receive"])
def test_an_empty_name_is_none_and_not_all(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*line.split(), "") == 2
    assert "; expected a name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("send q --url http://x", "with scheme 'http'; expected amqp://"),
        ("status --url amqp://h/a/b", "with more after the port than a virtual host; expected amqp://"),
        ("send q --url amqp://ann@127.0.0.1", "the user of amqp://127.0.0.1:5672 has no password; give one"),
        ("send q /does/not/exist", "/does/not/exist cannot be read (No such file"),
        ("status --password-file /does/not/exist", "--password-file needs a user in --url"),
        ("send q\udcff --count 1", "invalid value 'q\\udcff' for address; expected text in UTF-8"),
        ("send q --count 1 --property k=\udcff", "invalid value '\\udcff' for property; expected text in UTF-8"),
        ("receive q --subscription \udcff", "invalid value '\\udcff' for subscription; expected text in UTF-8"),
        ("node --name \udcff", "invalid value '\\udcff' for name; expected text in UTF-8"),
        (
            "status --url amqp://ann@127.0.0.1 --password-file /does/not/exist",
            "/does/not/exist cannot be read (No such file",
        ),
        (
            "status --url amqp://ann@127.0.0.1 --password-file /dev/null",
            "/dev/null has no password in its first line; give a file with the password",
        ),
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
        (MemoryError(), 1, "holdfast status: no memory is left for this process, or no thread (ulimit -v, -u)\n"),
        (
            RuntimeError("can't start new thread"),
            1,
            "holdfast status: no memory is left for this process, or no thread (ulimit -v, -u)\n",
        ),
        (OSError(errno.EMFILE, "Too many open files"), 1, "holdfast status: Too many open files\n"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/d/x"),
            1,
            "holdfast status: /d/x: No space left on device\n",
        ),
    ],
)
def test_errors_become_exit_codes(
    raised: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(args: argparse.Namespace) -> int:
        raise raised

    monkeypatch.setattr(process, "drop_output", lambda: None)  # the tests' own standard output
    monkeypatch.setattr(status, "_run_status", run)
    assert exit_code("status") == code
    assert capsys.readouterr().err == said


def test_what_the_node_is_given() -> None:
    args = cli.parser().parse_args(["node", "c.toml", "--name", "n", "--listen", "h:1", "--data", "d"])
    assert (args.config, args.name, args.listen, args.data) == ("c.toml", "n", "h:1", "d")


def test_a_verb_is_imported_when_it_runs() -> None:
    loaded = (
        "import atexit, sys, holdfast.cli\n"
        "atexit.register(lambda: print([name for name in sys.modules if name.startswith('holdfast.')]))\n"
        "holdfast.cli.main(['--version'])"
    )
    told = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=30)
    version, loaded_names = told.stdout.splitlines()
    assert version == f"holdfast {__version__}"
    assert {name.split(".")[1] for name in eval(loaded_names)} == {"cli", "errors", "lines"}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["send", ""], "invalid value '' for ADDRESS; expected a name"),
        (["send", "q", "--producer", ""], "invalid value '' for --producer; expected a name"),
        (["receive", "q", "--subscription", ""], "invalid value '' for --subscription; expected a name"),
        (
            ["send", "q", "--ttl", "4294968"],
            "invalid value '4294968' for --ttl; expected seconds, above 0 and up to 4294967",
        ),
        (["queue", "skip", "q", "--origin", "x"], "invalid value 'x' for --origin; expected a UUID"),
    ],
)
def test_a_value_that_would_be_taken_for_another_is_refused(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*argv) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            "[node]\nlisten = ['192.0.2.1:0']\n[[user]]\nname = 'u'\npassword_file = 'p'\n",
            "invalid value 192.0.2.1:0 for node listen",
        ),
        (
            "[telemetry]\nfile = 'none/t'\n[node]\nlisten = ['127.0.0.1:0']\n",
            "telemetry file 'none/t' cannot be opened (No such file",
        ),
    ],
)
def test_what_is_found_wrong_in_use_names_the_file_too(document: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "n.toml").write_text(document)
    (tmp_path / "p").write_text("secret\n")
    found = shell(f"cd {tmp_path}; exec timeout 60 $H node n.toml")
    assert found.returncode == 2
    lines = found.stderr.splitlines()
    assert lines[-1].startswith(f"holdfast node: n.toml: {said}"), found.stderr


@pytest.mark.parametrize(
    "line",
    [
        "send q f --format csv", "send q --format csv f", "send --format csv q f", "send --format csv -- q f",
        "send q --format csv -- f",
    ],
)  # fmt: skip
def test_options_may_stand_between_the_arguments(line: str) -> None:
    args = cli.parser().parse_args(line.split())
    assert (args.address, args.file, args.format) == ("q", "f", "csv")


def test_an_argument_behind_an_option_may_be_a_dash_or_look_like_an_option() -> None:
    parse = cli.parser().parse_args
    assert parse(["send", "q", "--format", "csv", "-"]).file == "-"
    assert parse(["send", "q", "--format", "csv", "--", "-f"]).file == "-f"
    assert parse(["send", "q", "--format", "csv"]).file is None


def test_the_longest_time_to_live_is_taken() -> None:
    assert cli.parser().parse_args(["send", "q", "--ttl", "4294967"]).ttl == 4_294_967


def shell(line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`line` by a shell, where `$H` is the command."""
    environment = {
        "H": f"{sys.executable} -m holdfast",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join(sys.path),
        **variables,
    }
    return subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("verb", ["status", "node --listen 127.0.0.1:0", "sim list", "store check x"])
def test_too_few_open_files_are_one_line(verb: str, tmp_path: Path) -> None:
    found = shell(f"cd {tmp_path}; ulimit -n {process.FILES_MIN - 1}; exec $H {verb}")
    name = verb.removesuffix(" x").partition(" --")[0]
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == f"holdfast {name}: the limit of open files is 31; raise it to at least 32 (ulimit -n)\n"


def test_the_fewest_open_files_are_enough() -> None:
    found = shell(f"ulimit -n {process.FILES_MIN}; exec $H status --url amqp://127.0.0.1:1")
    assert found.stderr == "holdfast status: amqp://127.0.0.1:1: cannot connect: Connection refused\n"


def test_too_few_open_files_for_spark_are_one_line(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    found = shell(f"ulimit -n 1023; exec $H pipeline swarm --seeds 1 --out {tmp_path / 'table'}", TMPDIR=str(tmp_path))
    text = "the limit of open files is 1023; raise it to at least 1024 (ulimit -n)"
    assert (found.returncode, found.stderr) == (2, f"holdfast pipeline swarm: {text}\n")
    assert not list(tmp_path.iterdir()), "nothing was begun"


def test_a_soft_limit_is_raised() -> None:
    found = shell("ulimit -Sn 12; exec $H status --url amqp://127.0.0.1:1")
    assert found.stderr == "holdfast status: amqp://127.0.0.1:1: cannot connect: Connection refused\n"


@pytest.mark.parametrize("limit_kib", [90_000, 200_000])
def test_too_little_memory_is_one_line(limit_kib: int, tmp_path: Path) -> None:
    found = shell(f"cd {tmp_path}; ulimit -v {limit_kib}; exec timeout 60 $H node --listen 127.0.0.1:0 --data store")
    assert found.returncode == 1
    assert found.stderr.startswith("holdfast node: ") and found.stderr.count("\n") == 1, found.stderr
    assert "ulimit -v" in found.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("where", [">/dev/full", ">&-"])
@pytest.mark.parametrize(
    ("line", "verb"), [("sim list", " sim list"), ("--help", ""), ("--version", ""), ("queue list --help", "")]
)
def test_output_that_is_not_taken_is_one_line(line: str, verb: str, where: str, unbuffered: str) -> None:
    found = shell(f"exec $H {line} {where}", PYTHONUNBUFFERED=unbuffered)
    assert found.returncode == 1
    assert len(found.stderr.splitlines()) == 1
    assert found.stderr.startswith(f"holdfast{verb}: standard output: ")


def test_help_that_nobody_reads_is_quiet() -> None:
    found = shell("($H --help; echo $? >&2) | true", PYTHONUNBUFFERED="1")
    assert found.stderr in ("0\n", "1\n")


@pytest.mark.parametrize("where", [">/dev/full 2>&1", "2>&-", "2>/dev/full"])
def test_a_mistake_of_which_the_line_is_not_taken_keeps_its_exit_code(where: str) -> None:
    assert shell(f"exec $H {where}").returncode == 2
    assert shell(f"exec $H nonsense {where}").returncode == 2


def test_a_closed_descriptor_is_not_given_to_a_store(tmp_path: Path) -> None:
    """Else what is printed would go into the store's file."""
    open_files = "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in range(3)), file=open('said', 'w'))"
    program = f"from holdfast.cli import process; process.open_standard_files(); {open_files}"
    found = shell(f'cd {tmp_path}; exec {sys.executable} -c "{program}" <&- >&- 2>&-')
    assert found.returncode == 0
    assert (tmp_path / "said").read_text().split() == ["/dev/null"] * 3


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("status --url amqp://ann@127.0.0.1:1", "the user of amqp://127.0.0.1:1 has no password"),
        ("user add ann --file users.json", "there is no terminal to ask for the password"),
        ("user add ann --file users.json --password-file -", "invalid first line of 0 bytes in standard input"),
    ],
)
def test_a_closed_standard_input_is_an_empty_one(tmp_path: Path, command: str, told: str) -> None:
    closed, empty = (shell(f"cd {tmp_path}; exec $H {command} {end}") for end in ("<&-", "</dev/null"))
    assert (closed.returncode, closed.stderr) == (empty.returncode, empty.stderr)
    assert told in closed.stderr and closed.returncode == 2


@pytest.mark.parametrize(
    "module", ["holdfast.cli", "argparse", "holdfast.cli.status", "holdfast.client.verbs.manage", "uvloop"]
)
def test_ctrl_c_while_it_is_loading_says_nothing(module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
    )
    found = shell("exec $H status --url amqp://127.0.0.1:1", PYTHONPATH=str(tmp_path))
    assert found.returncode in (-signal.SIGINT, cli.EXIT_INTERRUPTED)
    assert (found.stdout, found.stderr) == ("", "")


def test_nothing_is_loaded_before_ctrl_c_has_its_meaning() -> None:
    source = Path(cli.__file__).parents[2]
    program = (
        f"import sys; sys.path.insert(0, {str(source)!r}); before = set(sys.modules)\n"
        "import holdfast.__main__; print(*sorted(set(sys.modules) - before))"
    )
    found = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert set(found.stdout.split()) <= {"_signal", "holdfast", "holdfast.__main__"}


@pytest.mark.parametrize(
    ("line", "source"),
    [
        ("pipeline ingest q --out {}", "./spark"),
        ("pipeline swarm --out {}", "./spark"),
        ("demo --out {}", "./spark './lab[demo]'"),
    ],
)
def test_a_package_that_is_missing_is_told_with_what_installs_it(
    line: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("pyspark_holdfast")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("matplotlib", "pyspark", "pyspark.errors", "pyspark.sql", "pyspark.sql.datasource", "py4j.protocol"):
        monkeypatch.setitem(sys.modules, name, None)
    assert exit_code(*line.format(tmp_path / "table").split()) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"pip install {source}` in the directory of Holdfast's source" in told


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """The entry points that the command line finds: none, until a test adds some."""
    points: list[EntryPoint] = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    return points


@pytest.mark.parametrize(
    ("line", "distribution"),
    [
        ("sim list", "holdfast-lab"),
        ("fleet up x", "holdfast-lab"),
        ("demo", "holdfast-lab"),
        ("pipeline report traffic d", "pyspark-holdfast"),
        ("pipeline ingest q --out d", "pyspark-holdfast"),
        ("sim --help", "holdfast-lab"),
    ],
)
def test_a_verb_whose_distribution_is_missing_says_what_to_install(
    line: str, distribution: str, installed: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*line.split()) == 2
    told = capsys.readouterr().err
    assert told.startswith(
        f"holdfast {line.split(maxsplit=1)[0]}: distribution '{distribution}' is not installed; install it by"
    )
    assert told.count("\n") == 1


def test_without_other_distributions_help_has_our_own_verbs(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("--help") == 0
    text = capsys.readouterr().out
    assert "topology" in text and not any(verb in text for verb in ("sim ", "demo", "pipeline"))
    assert exit_code("fleet", "--help") == 0
    text = capsys.readouterr().out
    assert "enrol" in text and "this machine: " not in text
    assert exit_code("nonsense") == 2 and "expected one of node, send" in capsys.readouterr().err


def test_a_distribution_that_cannot_be_loaded_is_one_line(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    installed.append(EntryPoint(name="sim", value="holdfast_lab.no_such_module:add", group=distributions.GROUP))
    assert exit_code("sim", "list") == 1
    assert "its verb 'sim' cannot be loaded (No module named" in capsys.readouterr().err


def test_a_verb_of_another_distribution_joins_ours(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint(name="zebra", value="holdfast.cli.serving:add_store", group=distributions.GROUP))
    installed.append(EntryPoint(name="node", value="holdfast_lab.no_such_module:add", group=distributions.GROUP))
    verbs = argparse.ArgumentParser().add_subparsers()
    verbs.add_parser("node")
    distributions.add_installed(verbs, ["zebra", "check"])
    assert "store" in verbs.choices and "node" in verbs.choices
