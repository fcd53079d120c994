"""What access lists allow and refuse, as Qpid Proton and rhea find it (docs/security.md)."""

from pathlib import Path
from typing import Any

import pytest

from interop.access import PASSWORD, ROWS, guarded_node
from interop.nodes import Nodes
from interop.rhea_peer import Rhea

pytestmark = pytest.mark.interop

UNAUTHORIZED = "amqp:unauthorized-access"


def test_proton_finds_the_table_true(nodes: Nodes, tmp_path: Path) -> None:
    proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")
    from proton.utils import LinkDetached, SendException

    from interop.proton_peer import Client

    def tried(client: Any, how: str, address: str) -> str:
        try:
            if how == "message":
                client.sender(None).send(proton.Message(address=address, body="x"))
            elif how == "send":
                client.sender(address)
            else:
                client.receiver(address, *([proton.reactor.Copy()] if how == "browse" else []))
        except SendException as refused:
            assert refused.state == proton.Delivery.REJECTED
            return UNAUTHORIZED
        except LinkDetached as refused:
            return str(refused.condition)
        return ""

    node = guarded_node(nodes, tmp_path)
    for user in ("ann", "root"):
        with Client(node.port, user=user, password=PASSWORD, allowed_mechs="PLAIN") as client:
            rows = [row for row in ROWS if row[0] == user]
            seen = [(*row[:3], tried(client, *row[1:3])) for row in rows]
            assert seen == [(*row[:3], "" if row[3] else UNAUTHORIZED) for row in rows]


def test_rhea_finds_the_table_true(nodes: Nodes, tmp_path: Path, rhea: type[Rhea]) -> None:
    node = guarded_node(nodes, tmp_path)
    for user in ("ann", "root"):
        rows = [row for row in ROWS if row[0] == user]
        login = {"username": user, "password": PASSWORD}
        result = rhea("access", node.port, connect=login, tries=[row[1:3] for row in rows]).done()
        assert result["seen"] == ["" if row[3] else UNAUTHORIZED for row in rows]
