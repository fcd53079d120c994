"""The link to a node that cannot be reached, closed by another thread."""

import contextlib
import threading
import time

import pytest

pytest.importorskip("pyspark")

from holdfast.errors import HoldfastError
from pyspark_holdfast.node_bus import NodeLink
from pyspark_holdfast.options import parse_options

LIMIT_S = 30.0


def test_a_link_that_is_closed_ends_the_call_of_another_thread_and_is_not_made_anew() -> None:
    link = NodeLink(parse_options({"url": "amqp://127.0.0.1:1", "address": "q"}), retry_s=2 * LIMIT_S)
    ended = threading.Event()

    def call() -> None:
        with contextlib.suppress(BaseException):
            link.name()
        ended.set()

    threading.Thread(target=call, daemon=True).start()
    until = time.monotonic() + LIMIT_S
    while not ended.wait(0.05):
        link.close()
        assert time.monotonic() < until, "the node is still tried"
    with pytest.raises(HoldfastError, match="the connection was closed"):
        link.name()
