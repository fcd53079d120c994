"""What collects all tests first: it keeps what pytest makes of their files, and says what cannot be collected."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import collected


def test_what_pytest_makes_of_a_file_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    (tmp_path / "test_one.py").write_text("def test_one():\n    assert True\n")
    assert collected.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("1 test collected")
    assert list(tmp_path.glob("__pycache__/test_one.*pytest*.pyc"))


def test_what_cannot_be_collected_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_two.py").write_text("def test_two(:\n")
    assert collected.main([str(tmp_path)]) == 1
    assert "test_two.py" in capsys.readouterr().out
