"""What Qpid Proton sends is in the Spark source's row whole: the row is the message again (docs/spark.md, ADR 0080)."""

from typing import Any

import pytest

pytest.importorskip("proton", reason="Qpid Proton (python-qpid-proton) is not installed")
pytest.importorskip("pyarrow")

import proton

from holdfast.client import Message
from interop.proton_peer import Client
from interop.test_proton_bodies import BARE, VALUES, decoded
from pyspark_holdfast.node_bus import NodeBus
from pyspark_holdfast.options import parse_options
from pyspark_holdfast.outgoing import message_of_row
from pyspark_holdfast.rows import record_batch
from support.process import NodeProcess

pytestmark = pytest.mark.interop


def rows_of(hub: NodeProcess, address: str, count: int) -> list[dict[str, Any]]:
    bus = NodeBus(parse_options({"url": hub.url, "address": address}))
    try:
        found: list[dict[str, Any]] = record_batch(address, bus.entries(1, count + 1, None)).to_pylist()
        return found
    finally:
        bus.close()


def test_every_type_of_a_body_is_told_whole(client: Client, hub: NodeProcess, address: str) -> None:
    sender = client.sender(address)
    sent = []
    for value in VALUES.values():
        message = proton.Message()
        message.body = value
        message.properties = {"p": value} if not isinstance(value, list | dict) else None
        sent.append(bytes(message.encode()))
        assert client.stream(sender, sent[-1]).remote_state == proton.Delivery.ACCEPTED
    for name, payload, row in zip(VALUES, sent, rows_of(hub, address, len(sent)), strict=True):
        kind = {"null": "none", "string": "string", "string-empty": "string"}.get(name, "value")
        assert row["body_kind"] == kind, name  # Proton sends no body for None
        assert row["body"] or row["body_value"] is not None or name in ("string-empty", "null"), name
        again = message_of_row(row)
        assert decoded(again.encode()) == decoded(payload), name
        before = Message.decode(payload)
        assert Message(application_properties=again.application_properties).encode() == (
            Message(application_properties=before.application_properties).encode()
        ), name


def test_every_shape_of_a_message_is_told_whole(client: Client, hub: NodeProcess, address: str) -> None:
    sender = client.sender(address)
    for payload in BARE.values():
        assert client.stream(sender, payload).remote_state == proton.Delivery.ACCEPTED
    for (name, payload), row in zip(BARE.items(), rows_of(hub, address, len(BARE)), strict=True):
        again, before = message_of_row(row), Message.decode(payload)
        assert (again.data, again.sequences, again.value, again.footer) == (
            before.data, before.sequences, before.value, before.footer,
        ), name  # fmt: skip
        assert (again.properties, again.application_properties) == (
            before.properties, before.application_properties,
        ), name  # fmt: skip
