"""Everything here runs on uvloop, which a node uses, or on asyncio's own loop, which it can do with: half of the tests
on each, the other half the next day; all on both with `--long`.
"""

import asyncio
import zlib
from collections.abc import Callable, Mapping

import pytest
import uvloop

from support import today


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    loops = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
    half = zlib.crc32(item.name.encode()) % 2
    return {name: make for place, (name, make) in enumerate(loops.items()) if today.has_turn(place + half, 2)}
