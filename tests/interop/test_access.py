"""What access lists allow and refuse, as Qpid Proton and rhea find it (docs/security.md)."""

from pathlib import Path
from typing import Any

import pytest

from interop.access import PASSWORD, ROWS, USERS, guarded_node
from interop.nodes import Nodes
from interop.rhea_peer import Rhea

pytestmark = pytest.mark.interop

UNAUTHORIZED = "amqp:unauthorized-access"


def test_the_table_has_as_many_rows_as_promised() -> None:
    assert len({row[:3] for row in ROWS}) == len(ROWS) >= 300
    assert min(sum(row[3] for row in ROWS), sum(not row[3] for row in ROWS)) >= 80


def test_proton_finds_the_table_true(nodes: Nodes, tmp_path: Path) -> None:
    proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")
    from proton.utils import LinkDetached

    from interop.proton_peer import Client

    class Me(proton.reactor.LinkOption):  # type: ignore[misc]
        """The node's answers are for this name."""

        def apply(self, link: Any) -> None:
            link.target.address = "me"

    def said(client: Any, anywhere: Any, requests: Any, answers: Any, how: str, address: str) -> str:
        """The condition of what is refused."""
        if how == "purge":
            asked = {"operation": "PURGE", "type": "holdfast:queue", "name": address}
            requests.send(proton.Message(properties=asked, reply_to="me"))
            return UNAUTHORIZED if answers.one().message.properties["statusCode"] == 403 else ""
        if how == "message":
            delivery = anywhere.link.send(proton.Message(address=address, body="x"))
            client.wait(lambda: delivery.settled)
            return delivery.remote.condition.name if delivery.remote.condition else ""
        copies = [proton.reactor.Copy()] if how == "browse" else []
        try:
            link = client.sender(address) if how == "send" else client.receiver(address, *copies)
        except LinkDetached as refused:
            return str(refused.condition)
        link.close()
        return ""

    node = guarded_node(nodes, tmp_path)
    for user in USERS:
        with Client(node.port, user=user, password=PASSWORD, allowed_mechs="PLAIN") as client:
            links = client.sender(None), client.sender("$management"), client.receiver("$management", Me())
            rows = [row for row in ROWS if row[0] == user]
            seen = [(*row[:3], said(client, *links, *row[1:3]) != UNAUTHORIZED) for row in rows]
            assert seen == rows


def test_rhea_finds_the_table_true(nodes: Nodes, tmp_path: Path, rhea: type[Rhea]) -> None:
    node = guarded_node(nodes, tmp_path)
    for user in USERS:
        rows = [row for row in ROWS if row[0] == user]
        login = {"username": user, "password": PASSWORD}
        result = rhea("access", node.port, connect=login, tries=[row[1:3] for row in rows]).done()
        seen = [(*row[:3], told != UNAUTHORIZED) for row, told in zip(rows, result["seen"], strict=True)]
        assert seen == rows
