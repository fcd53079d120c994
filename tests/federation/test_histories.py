"""Histories of bindings that must end well, each with the nodes' own code over a model of the network."""

import pytest

from holdfast_lab.bindings.histories import HISTORIES


@pytest.mark.parametrize("name", HISTORIES)
def test_history(name: str) -> None:
    HISTORIES[name]()
