"""The room that a message which waits needs on the disk may come from the reserve that is kept for forwarding."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.custody.arrival.places import Needed, Places


@pytest.mark.parametrize("room", [99, 100])
def test_forwarding_may_use_its_part_of_the_reserve(room: int) -> None:
    catalog: Any = SimpleNamespace(delayed_room=lambda host: 0)
    disk: Any = SimpleNamespace(has=lambda size, *, forwarding=False: size <= (room if forwarding else 10))
    full: Any = None
    assert Places(catalog, disk, full).has_place(Needed("", (), 100)) is (room == 100)
