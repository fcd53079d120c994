"""Nodes with virtual hosts whose messages cross between them."""

from dataclasses import replace
from typing import Any, Final

from holdfast.broker.entries.host_names import hosted
from holdfast.peers.neighbours import features
from holdfast.settings.hosts import VhostConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig
from support.rig import Client, Node, Rig

HOSTS: Final = ("", "acme", "globex")
EARLIER: Final = tuple(feature for feature in features.ALL if feature != features.HOSTS)
"""What a node of an earlier version offers."""


def crossing(config: NodeConfig, *hosts: str) -> NodeConfig:
    """The same with those virtual hosts, whose messages may cross to each neighbour."""
    return replace(
        config,
        vhosts=tuple(VhostConfig(name=host) for host in HOSTS if host),
        neighbours=tuple(replace(neighbour, hosts=hosts) for neighbour in config.neighbours),
    )


def line(*names: str, hosts: tuple[str, ...] = ("acme", "globex"), **fields: Any) -> tuple[Rig, list[Node]]:
    """Nodes in a row, with `fields` at the last, that are up."""
    rig = Rig()
    nodes = rig.line(*names, start=False, **({names[-1]: fields} if fields else {}))
    for node in nodes:
        node.config = crossing(node.config, *hosts)
        node.start()
    rig.run(2)
    return rig, nodes


def queues(*hosts: str, **fields: Any) -> tuple[QueueConfig, ...]:
    """`work` in each of them."""
    return tuple(QueueConfig(name="work", vhost=host, **fields) for host in hosts)


def restart(node: Node, *hosts: str) -> None:
    """Starts it anew where those may cross."""
    if node.core is not None:
        node.crash()
    node.config = crossing(node.config, *hosts)
    node.start()


def client_of(node: Node, host: str) -> Client:
    client = node.rig.client(node, hostname=f"vhost:{host}" if host else None)
    node.rig.settle()
    return client


def say(node: Node, host: str, *bodies: str, to: str, **parts: Any) -> Client:
    """A client of that host sends to an address."""
    client = client_of(node, host)
    link = client.sender(to)
    node.rig.settle()
    for body in bodies:
        client.send(link, body, **parts)
        node.rig.settle()
    return client


def bodies(node: Node, host: str, queue: str = "work") -> list[str]:
    """What is stored in that queue of the host; nothing where there is none."""
    assert node.core is not None
    return node.bodies(hosted(host, queue)) if hosted(host, queue) in node.core.catalog.queues else []


def refusal(client: Client) -> str:
    """Why its link was refused."""
    (error,) = [item.error for item in client.detached if item.error]
    return f"{error.condition}: {error.description}"
