"""A broker, a connection and a node for each test; nothing outlives it."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from client.fake_broker import FakeBroker
from holdfast.client import Connection, connect
from support.process import NodeProcess


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        yield broker


@pytest.fixture
async def connection(broker: FakeBroker) -> AsyncIterator[Connection]:
    connection = await connect(broker.url, retry_s=10, rng=Random(1))
    yield connection
    await connection.abort()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[NodeProcess]:
    async with await NodeProcess.start(tmp_path / "data", name="t") as node:
        yield node
