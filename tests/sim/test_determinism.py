"""A seed is a run: the same history in another process, with another hash seed, at the other depth."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.sim


def run(name: str, seed: int, depth: str, hash_seed: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "holdfast", "sim", "run", name, "--seed", str(seed), "--depth", depth, "--json"]
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


@pytest.mark.parametrize(("name", "seed"), [("drawn-faults", 2), ("swarm", 4)])
def test_hash_seeds_and_depths_change_nothing(name: str, seed: int) -> None:
    """frames and bytes, each in a process with a hash seed of its own."""
    runs = [
        run(name, seed, depth, hash_seed)
        for depth, hash_seed in (("frames", "1"), ("frames", "2"), ("bytes", "1"), ("bytes", "2"))
    ]
    assert len({told["digest"] for told in runs}) == 1
    assert all(told["metrics"] == runs[0]["metrics"] and told["virtual_s"] == runs[0]["virtual_s"] for told in runs)


def test_another_seed_is_another_run() -> None:
    assert run("satellite", 1, "frames", "1")["digest"] != run("satellite", 2, "frames", "1")["digest"]
