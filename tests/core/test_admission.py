"""Who is refused at a full queue, counted within bounds, and by which priority a link is given credit."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.bands import PRIORITY_MOST
from holdfast.endpoints import admission
from holdfast.endpoints.admission import OTHERS, Admission, Offered


def refuse(told: Admission, client: str, queue: str = "work") -> None:
    full: Any = SimpleNamespace(host="", name=queue, bands=None, refused_total=0, refused_bytes=0)
    peer: Any = SimpleNamespace(amqp=SimpleNamespace(authenticated_user=client, remote_open=None))
    told.refuse(full, peer, 4, 10)


def test_clients_beyond_the_bound_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "ROWS_MAX", 2)
    nothing: Any = None
    told = Admission(nothing, nothing)
    for client in ("ann", "bob", "cleo", "dan", "ann"):
        refuse(told, client)
    assert {key.client: count for key, (count, _) in told.refused.items()} == {"ann": 2, "bob": 1, OTHERS: 2}
    refuse(told, "eve", "second")
    assert len(told.refused) == 4, "the others have a row for each queue"
    refuse(told, "eve", "third")
    assert len(told.refused) == 4, "and those are bounded too"


def test_a_link_is_given_credit_by_the_highest_of_its_last_messages() -> None:
    offered = Offered()
    assert offered.priority == PRIORITY_MOST, "until one has come"
    offered.came(7)
    offered.came(1, Offered.SPAN - 2)
    assert offered.priority == 7
    offered.came(1)
    offered.came(2, Offered.SPAN - 1)
    assert offered.priority == 7, "it is among the last 2 * SPAN"
    offered.came(1)
    assert offered.priority == 2
