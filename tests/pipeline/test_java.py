"""Finding a Java: order of the candidates, versions, and the one line where there is none."""

from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from pyspark_holdfast.java import find_java_home, own_java_home, suits


def java(home: Path, version: str = "17.0.15", code: int = 0) -> Path:
    """A `bin/java` that says `version`, and refuses the vector module where `code` is not 0."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "code", "good"),
    [("17.0.15", 0, True), ("21", 0, True), ("11.0.2", 0, False), ("1.8.0_392", 0, False), ("17.0.9", 1, False)],
)
def test_suits(tmp_path: Path, version: str, code: int, good: bool) -> None:
    assert suits(java(tmp_path, version, code)) is good


def test_what_is_no_java_does_not_suit(tmp_path: Path) -> None:
    assert not suits(tmp_path / "nothing")


def test_java_home_comes_before_the_path_and_ours_last(tmp_path: Path) -> None:
    named, on_path, own = tmp_path / "named", tmp_path / "path", own_java_home(tmp_path / "venv")
    for home in (named, on_path, own):
        java(home)
    both = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert find_java_home(both, tmp_path / "venv") == named
    assert find_java_home({"PATH": str(on_path / "bin")}, tmp_path / "venv") == on_path
    assert find_java_home({"PATH": ""}, tmp_path / "venv") == own


def test_an_unsuitable_java_home_is_passed_over(tmp_path: Path) -> None:
    old, good = tmp_path / "old", tmp_path / "good"
    java(old, "11.0.1")
    java(good)
    assert find_java_home({"JAVA_HOME": str(old), "PATH": str(good / "bin")}, tmp_path / "venv") == good


def test_none_is_one_line_that_names_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        find_java_home({"JAVA_HOME": str(tmp_path / "gone"), "PATH": ""}, tmp_path / "venv")
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "gone" / "bin" / "java") in str(caught.value)
    assert "make setup" in str(caught.value)
