"""A seed is a run: the same history in another process, with another hash seed."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from support import today

pytestmark = pytest.mark.sim

RUNS = [("drawn-faults", 2), *(("swarm", seed) for seed in (9, 16, 46, 63, 69))]
"""Small networks with many faults: a run takes seconds, and is made twice."""


def run(name: str, seed: int, hash_seed: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "holdfast", "sim", "run", name, "--seed", str(seed), "--json"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize(("name", "seed"), today.some(RUNS, 1))
def test_hash_seeds_change_nothing(name: str, seed: int) -> None:
    one, two = run(name, seed, "1"), run(name, seed, "2")
    assert all(one[what] == two[what] for what in ("digest", "metrics", "virtual_s"))


def test_another_seed_is_another_run() -> None:
    assert run("satellite", 1, "1")["digest"] != run("satellite", 2, "1")["digest"]
