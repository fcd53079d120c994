"""What is said of a text file that cannot be read, in words of the file (text_files.py)."""

from pathlib import Path

import pytest

from holdfast.errors import ConfigError
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
    ],
)
def test_a_key_or_table_that_is_there_twice_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        toml_of(text, "f.toml")
    assert str(caught.value).startswith(f"f.toml: {said}") and "sesame" not in str(caught.value)


def test_a_byte_that_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "steps.toml"
    file.write_bytes("a = 'ü'\n".encode() + b"b = '\xc3\n\xbc'\n")
    with pytest.raises(ConfigError) as caught:
        read_text("--steps-file", str(file), 1_000)
    assert str(caught.value) == f"line 2 of --steps-file {str(file)!r} is not in UTF-8; write the file in UTF-8"
    with pytest.raises(ConfigError, match=r"^line 2 is not in UTF-8; write the file in UTF-8"):
        read_toml(file)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_bytes(b"\xef\xbb\xbf[node]\nname = 'ewr'\n")
    assert read_toml(file) == {"node": {"name": "ewr"}}
