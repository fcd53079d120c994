"""Requests to `$management` whose parts have wrong types: each is refused, and does nothing (docs/management.md)."""

from typing import Any

import pytest

from core.test_dynamic_nodes import dynamic_source
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties, Rejected
from holdfast.amqp.wire.types import MISSING, Described, Symbol, Ulong
from support.one_node import fill, world
from support.rig import Client

CREATE = {"operation": "CREATE", "type": "holdfast:queue", "name": "made"}


def ask(client: Client, told: dict[str, Any], body: Any = MISSING, **bodies: Any) -> tuple[int, str]:
    """(statusCode, statusDescription) of a request with these application properties and this body."""
    if client._management is None:
        client.manage("QUERY", "queue")
    assert client._management is not None
    request = Message(
        properties=Properties(message_id="m", reply_to="replies"), application_properties=told, value=body, **bodies
    )
    client._management[0].send(request.encode(), context=None, settled=True)
    client.rig.settle()
    told_back = Message.decode(client.deliveries.pop().payload).application_properties or {}
    return int(told_back["statusCode"]), str(told_back["statusDescription"])


@pytest.mark.parametrize(
    "body",
    [
        {"value": [1]}, {"value": "durable"}, {"value": True}, {"value": 7}, {"value": b"{}"},
        {"value": Described(Symbol("x"), {})}, {"data": [b'{"messages_max": 5}']},
        {"sequences": [[1]]},
    ],
)  # fmt: skip
def test_a_body_that_is_no_map_is_refused(body: dict[str, Any]) -> None:
    _, node, client = world()
    status, text = ask(client, CREATE, body.pop("value", MISSING), **body)
    assert status == 400, text
    assert client.manage("READ", "queue", "made")[0] == 404
    assert node.core is not None
    node.core.validate()


@pytest.mark.parametrize("body", [{"value": None}, {"value": {}}, {"value": ""}, {"data": [b""]}, {}])
def test_an_empty_body_has_no_arguments(body: dict[str, Any]) -> None:
    _, _, client = world()
    assert ask(client, CREATE, body.pop("value", MISSING), **body)[0] == 201


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_request_whose_answer_has_no_way_is_rejected_with_what_is_missing(dynamic: bool) -> None:
    """A client that awaits the answer at a dynamic node, or at any other queue, would wait for ever."""
    rig, _, client = world()
    address = "nowhere"
    if dynamic:
        _, address = dynamic_source(client)
    asking = client.sender("$management")
    rig.settle()
    request = Message(properties=Properties(message_id="m", reply_to=address), application_properties=CREATE)
    asking.send(request.encode(), context="asked")
    rig.settle()
    (outcome,) = [outcome for context, outcome in client.outcomes if context == "asked"]
    assert isinstance(outcome, Rejected) and outcome.error is not None
    assert outcome.error.condition == "amqp:not-found"
    text = f"no receiver of this connection has source $management and target {address!r}, for the answer"
    assert outcome.error.description == f"{text}; attach one first"
    assert client.manage("READ", "queue", "made")[0] == 404, "it was not carried out"


@pytest.mark.parametrize("key", ["operation", "type", "name", "identity"])
@pytest.mark.parametrize("value", [7, Ulong(7), True, b"x"])
def test_a_name_that_is_no_string_is_refused(key: str, value: object) -> None:
    rig, node, client = world()
    fill(rig, client, 3, "7")
    told = {"operation": "PURGE", "type": "holdfast:queue", "name": "7", key: value}
    status, text = ask(client, told)
    assert (status, text) == (400, f"invalid {key} of a request; expected a string")
    assert len(node.bodies("7")) == 3


def test_an_identity_names_an_entity_too() -> None:
    rig, node, client = world()
    fill(rig, client, 3)
    assert ask(client, {"operation": "PURGE", "type": "holdfast:queue", "identity": "work"})[0] == 200
    assert node.bodies("work") == []
