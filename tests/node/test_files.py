"""Descriptors that run out are said once, before connections are dropped."""

import resource
from pathlib import Path

import pytest

from holdfast.core.events import ConnectionOpened
from holdfast.node import runtime
from node.fakes import FakeCore, Running, settings


async def test_few_descriptors_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = FakeCore()
    async with Running(core, settings(tmp_path)) as running:
        held = [await running.connect()]
        await core.until(ConnectionOpened, 1)
        assert not [record for record in caplog.records if "descriptors" in record.getMessage()]
        monkeypatch.setattr(runtime, "FILES_LEFT", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        held += [await running.connect() for _ in range(3)]
        await core.until(ConnectionOpened, 4)
        for _, writer in held:
            writer.close()
    (line,) = [record.getMessage() for record in caplog.records if "descriptors" in record.getMessage()]
    assert "file descriptors are left" in line and "ulimit -n" in line
