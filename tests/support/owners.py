"""Files of several users, for tests that run as one: what `replaceable` sees of owners is told here."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast import replaceable

ORDINARY_USER: int = 1000
"""A user who is not root, as whom a test runs."""


def owned(monkeypatch: pytest.MonkeyPatch, owners: Mapping[Path, int], *, me: int) -> list[tuple[int, int]]:
    """Who runs is `me`; the files are of these users, and all others root's. A user's group has its number. Returns
    whom files were given to."""
    given: list[tuple[int, int]] = []

    def found(opened: int) -> os.stat_result:
        seen = os.fstat(opened)
        owner = owners.get(Path(os.readlink(f"/proc/self/fd/{opened}")), 0)
        return os.stat_result((*seen[:4], owner, owner, *seen[6:10]))

    monkeypatch.setattr(replaceable, "_stat_of", found)
    monkeypatch.setattr(os, "geteuid", lambda: me)
    monkeypatch.setattr(os, "fchown", lambda opened, *owner: given.append(owner))
    return given
