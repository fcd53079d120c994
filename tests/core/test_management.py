"""A request of `$management` is carried out only where its sender may ask for it (management/operations.py)."""

import pytest

from holdfast.settings import UserConfig
from support.rig import Rig


class Readers:
    """Everyone may read, and do nothing else."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, str, str]] = []

    def authorise(self, who: str | None, action: str, address: str) -> str | None:
        self.asked.append((who, action, address))
        return None if action.endswith(" READ") else f"{action} is for operators"


def test_a_request_is_carried_out_where_it_is_allowed_and_else_answered_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    node = rig.node("hub", users=(UserConfig(name="ann", password="x"),))
    assert node.core is not None
    client = rig.client(node, mechanism="PLAIN", user="ann", password="x")
    assert client.manage("CREATE", "queue", "work")[0] == 201
    readers = Readers()
    monkeypatch.setattr(node.core.management, "_authoriser", readers)
    assert client.manage("READ", "queue", "work")[0] == 200
    assert client.manage("DELETE", "queue", "work")[::2] == (403, "queue DELETE is for operators")
    assert client.manage("OPEN", "subscription", "sub", queue="work")[0] == 403
    assert client.manage("STATUS", "node")[0] == 403
    assert client.manage("NOSUCH", "queue", "work")[0] == 400, "what is no operation is nobody's to allow"
    assert readers.asked == [
        ("ann", "queue READ", "work"),
        ("ann", "queue DELETE", "work"),
        ("ann", "subscription OPEN", "work"),
        ("ann", "node STATUS", ""),
    ]
    assert "work" in node.core.catalog.queues and not node.queue("work").named
