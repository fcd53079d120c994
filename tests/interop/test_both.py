"""Qpid Proton and rhea talk to each other through a node."""

import pytest

proton = pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")

from proton import Message, int32  # noqa: E402

from interop.proton_peer import Client  # noqa: E402
from interop.rhea_peer import Rhea  # noqa: E402
from support.process import NodeProcess  # noqa: E402

pytestmark = pytest.mark.interop


def test_proton_to_rhea(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    with Client(hub.port) as client:
        for number in range(20):
            properties = {"number": int32(number)}
            client.send(address, Message(id=f"m{number}", body=f"é {number}", subject="s", properties=properties))
    found = rhea("receive", hub.port, address=address, count=20).done()["messages"]
    assert [(item["id"], item["body"], item["subject"], item["properties"]) for item in found] == [
        (f"m{number}", f"é {number}", "s", {"number": number}) for number in range(20)
    ]
    assert all("x-opt-sequence-number" in item["annotations"] for item in found)


def test_rhea_to_proton(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    bodies = ["text", True, None, "é" * 10_000]
    rhea("send", hub.port, address=address, bodies=bodies).done()
    with Client(hub.port) as client:
        found = client.receiver(address).flow(4).take(4)
        assert [item.body for item in found] == bodies
        assert all(item.message.properties == {"from": "rhea"} for item in found)


def test_large_messages_cross(hub: NodeProcess, address: str, rhea: type[Rhea]) -> None:
    with Client(hub.port) as client:
        client.send(address, Message(body="x" * 10_000_000))
        (found,) = rhea("receive", hub.port, address=address, count=1).done()["messages"]
        assert found["body"] == "x" * 10_000_000
