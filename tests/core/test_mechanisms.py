"""A node lists the mechanisms of SASL by which somebody may come in, and no others."""

from random import Random

import pytest

from amqp.joined import performatives
from holdfast.amqp.wire.frames import SASL_HEADER
from holdfast.amqp.wire.performatives import SaslMechanisms
from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast.settings.hosts import UserConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.storage.memory import MemoryStore

ANN = UserConfig(name="ann", password="a")
JFK = NeighbourConfig(name="jfk", user="jfk", password="j")


@pytest.mark.parametrize(
    ("fields", "loopback", "listed"),
    [
        ({}, True, ["ANONYMOUS", "PLAIN"]),
        ({"neighbours": (JFK,)}, True, ["ANONYMOUS", "PLAIN"]),
        ({}, False, ["PLAIN"]),
        ({"users": (ANN,)}, True, ["PLAIN"]),
        ({"users": (ANN,)}, False, ["PLAIN"]),
    ],
)
def test_what_would_be_refused_is_not_listed(fields: dict[str, object], loopback: bool, listed: list[str]) -> None:
    config = NodeConfig(name="hub", **fields)  # type: ignore[arg-type]
    core = NodeCore(config, MemoryStore(), rng=Random(1), wall_ms=1, now=0.0)
    core.handle(events.ConnectionOpened(connection=1, peer="10.0.0.9:5000", loopback=loopback), 0.0)
    core.handle(events.BytesReceived(connection=1, data=SASL_HEADER), 0.0)
    commands = core.handle(events.TurnEnded(wall_ms=1), 0.0)
    said = b"".join(b"".join(command.chunks) for command in commands if isinstance(command, events.SendBytes))
    told = [item for _, item, _ in performatives(said) if isinstance(item, SaslMechanisms)]
    assert [[str(name) for name in item.sasl_server_mechanisms] for item in told] == [listed]
