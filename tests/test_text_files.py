"""What is said of a text file that cannot be read, in words of the file (text_files.py)."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.node import toml, users_file
from holdfast.node.config import load_settings
from holdfast.node.network.certificates import Certificates
from holdfast.node.tls import TlsFiles
from holdfast.node.toml import read_toml
from holdfast.text_files import read_text, toml_of


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[[user]]\nname = 'u'\npassword = 'a'\npassword = 'sesame'",
            "line 4: password is there already; write it once",
        ),
        (
            "[[queue]]\nname = 'q'\n[[queue.x]]\n[queue]\n",
            "line 4: [queue] is there already; put its keys together, or write",
        ),
        (
            "[node]\nname = 'a'\n[[queue]]\nname = 'q'\n[node]\nlisten = []\n",
            "line 5: [node] is there already; put its keys together, or write [[node]] where there may be several",
        ),
        ("x = { b = 1, b = 2 }\n", "line 1: b is there already; write it once"),
        ("[a.b]\n[a]\nb = 1", "line 3: b is there already; write it once"),
        ("[a.b]\n[a.b]\n", "line 2: [a.b] is there already; "),
        (
            'listen = [\n "a",\n]\nx = 1\n\nlisten = [ # [\n "sesame" ]',
            "line 6: listen is there already; write it once",
        ),
        ('p = """\na"""\np = """\nx = "\\"\n\n[a]\n#sesame"""\n', "line 3: p is there already; write it once"),
        ("p = '''\na'''\r\np = '''\r\nq = sesame'''", "line 3: p is there already; write it once"),
        ('"x=y" = 1\n"x=y" = 2', 'line 2: "x=y" is there already; write it once'),
        ("a = 1\n\n[a]\n", "line 3: a is there already; write it once"),
        ("x = 1\nx.y = 'sesame'\n", "line 2: x.y is there already; write it once"),
        ("[[s]]\nx = [\n{a = 1},\n{b = 'x,[', b.c = 'sesame'}]\n", "line 4: b.c is there already; write it once"),
        ("x = {b = '''\n''', b = '''\nsesame'''}\n", "line 2: b is there already; write it once"),
        (f"{'k' * 90} = 1\n{'k' * 90} = 2", f"line 2: {'k' * 60} is there already; write it once"),
    ],
)
def test_a_key_or_table_that_is_there_twice_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        toml_of(text, "f.toml")
    assert str(caught.value).startswith(f"f.toml: {said}") and "sesame" not in str(caught.value)


def test_a_file_may_have_as_many_bytes_as_are_allowed(tmp_path: Path) -> None:
    file = tmp_path / "steps.toml"
    file.write_text("a = 1\n")
    assert read_text("--steps-file", str(file), 6) == "a = 1\n"
    with pytest.raises(ConfigError, match="has more than 5 bytes; give a smaller file"):
        read_text("--steps-file", str(file), 5)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    """As editors of Windows put it in front."""
    file = tmp_path / "steps.toml"
    file.write_bytes("\ufeffa = 1\n".encode())
    assert read_text("--steps-file", str(file), 1_000) == "a = 1\n"


def test_a_byte_that_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "steps.toml"
    file.write_bytes("a = 'ü'\n".encode() + b"b = '\xc3\n\xbc'\n")
    with pytest.raises(ConfigError) as caught:
        read_text("--steps-file", str(file), 1_000)
    assert str(caught.value) == f"line 2 of --steps-file {str(file)!r} is not in UTF-8; write the file in UTF-8"
    with pytest.raises(ConfigError, match=r"^line 2 of the file is not in UTF-8; write the file in UTF-8"):
        read_toml(file)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_bytes(b"\xef\xbb\xbf[node]\nname = 'ewr'\n")
    assert read_toml(file) == {"node": {"name": "ewr"}}


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Whoever opens it waits for a writer."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@contextmanager
def written(pipe: Path, data: bytes) -> Iterator[None]:
    def write() -> None:
        try:
            pipe.write_bytes(data)
        except BrokenPipeError:
            pass  # the reader has enough

    thread = threading.Thread(target=write)
    thread.start()
    yield
    thread.join()


def test_a_pipe_holds_up_no_node(tmp_path: Path, pipe: Path) -> None:
    """At a reload it would be read again, and its thread would wait for ever."""
    with pytest.raises(ConfigError, match=r"pipe' cannot be read \(no regular file\); give a readable file"):
        read_text("a file", str(pipe), 1_000)
    with pytest.raises(ConfigError, match=r"pipe: the file cannot be read \(no regular file\); give a TOML file"):
        load_settings(pipe)
    file = tmp_path / "node.toml"
    for more in (
        f"""topology = {{ file = "{pipe}" }}""",
        f"""[[queue]]\nname = "a"\n[[link]]\nname = "l"\nfrom = "a"\nto = "b"
        steps = [ {{ lookup = {{ key = "tag", file = "{pipe}", value = "pallet" }} }} ]""",
    ):
        file.write_text(f"""{more}\n[node]\nname = "n"\n""")
        with pytest.raises(ConfigError, match=r"cannot be read \(no regular file\)"):
            load_settings(file)


def test_a_command_reads_a_pipe_that_was_named_to_it_to_its_end(pipe: Path) -> None:
    """As `<(COMMAND)` is one; no more of it than of a file."""
    with written(pipe, b"x = 1\n"):
        assert read_text("--steps-file", str(pipe), 1_000, allow_pipe=True) == "x = 1\n"
    with written(pipe, b"x = 1\n"):
        assert read_toml(pipe, allow_pipe=True) == {"x": 1}
    with written(pipe, b"#" * 1_000_000), pytest.raises(ConfigError, match="has more than 1000 bytes"):
        read_text("--steps-file", str(pipe), 1_000, allow_pipe=True)


def test_a_file_of_toml_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toml, "FILE_BYTES_MAX", 8)
    (tmp_path / "f").write_text("x = 1000")
    assert read_toml(tmp_path / "f") == {"x": 1000}
    (tmp_path / "f").write_text("x = 10000")
    with pytest.raises(ConfigError, match="the file has more than 8 bytes; give a smaller file"):
        read_toml(tmp_path / "f")


def test_a_name_with_a_null_character_is_a_mistake_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('topology = { file = "x\\u0000y" }\n[node]\nname = "n"\n')
    with pytest.raises(ConfigError, match="for topology file; expected text in quotes, not empty; it has a NUL"):
        load_settings(tmp_path / "node.toml")
    with pytest.raises(ConfigError, match=r"the file cannot be read \(embedded null byte\); give a TOML file"):
        read_toml(Path("x\0y"))
    with pytest.raises(ConfigError, match=r"users_file 'x\\x00y' cannot be read \(embedded null byte\)"):
        users_file.read(Path("x\0y"))
    with pytest.raises(ConfigError, match=r"tls certificate_file x\0y cannot be used \(embedded null byte\)"):
        Certificates(TlsFiles(certificate=Path("x\0y")), serves=True, dials=False)
    for allow_pipe in (False, True):
        with pytest.raises(ConfigError, match=r"^a file 'x\\x00y' cannot be read \(embedded null byte\)"):
            read_text("a file", "x\0y", 1_000, allow_pipe=allow_pipe)
