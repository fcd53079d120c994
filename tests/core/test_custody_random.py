"""Traffic both ways between two nodes while everything breaks: nothing lost, doubled or reordered (CUSTODY)."""

import pytest

from holdfast.amqp.message.message import Message
from support import today
from support.hops import toggle
from support.rig import Client, Node, Rig

MESSAGES = 25


class Source:
    """A named producer's program: sends 1, 2, 3 … and goes on from what its node says it has stored."""

    def __init__(self, rig: Rig, node: Node, address: str) -> None:
        self.rig, self.node, self.address = rig, node, address
        self.client: Client | None = None
        self.link = None
        self.sent = 0
        self.done = False

    def act(self) -> None:
        if self.node.core is None or self.done:
            return
        if self.client is None or self.client.over or (self.link is not None and self.link.detached):
            self.client = self.rig.client(self.node)
            self.link = self.client.sender(self.address, properties={"holdfast:producer": "p"})
            self.sent = -1
            return
        if not self.link.attached:
            return
        told = {str(key): value for key, value in (self.link.remote_attach.properties or {}).items()}
        if self.sent < 0:
            missing = told["holdfast:missing"]
            self.sent = missing[0][0] - 1 if missing else told["holdfast:last-number"]
        if any(type(state).__name__ != "Accepted" for _, state in self.client.outcomes):
            self.client.close_transport()  # refused: begin again from what is stored
            return
        self.client.outcomes.clear()
        if self.sent < MESSAGES and self.link.sendable:
            self.sent += 1
            self.client.send(self.link, f"{self.node.name}-{self.sent}", number=self.sent)
        elif self.sent >= MESSAGES and not self.link.unsettled:
            self.done = True


def wanted(name: str) -> list[str]:
    return [f"{name}-{number}" for number in range(1, MESSAGES + 1)]


@pytest.mark.parametrize("order", ["strict", "bounded", "none"])
@pytest.mark.parametrize("seed", today.some(range(12), 4))
def test_nothing_is_lost_doubled_or_reordered(seed: int, order: str) -> None:
    from holdfast.settings.queues import QueueConfig

    rig = Rig(seed * 7 + len(order))
    queues = (QueueConfig(name="work", order=order),)
    nodes = list(rig.pair(start=False, jfk={"queues": queues}, queues=queues))
    rig.random.shuffle(nodes)
    nodes[0].start()
    sources = [Source(rig, rig.nodes["jfk"], "work@hub"), Source(rig, rig.nodes["hub"], "work@jfk")]
    random = rig.random
    for _ in range(1500):
        dice = random.random()
        node = random.choice(nodes)
        if dice < 0.005:
            toggle(node)
        elif dice < 0.01 and rig.between("jfk", "hub"):
            random.choice(rig.between("jfk", "hub")).cut(silent=random.random() < 0.5)
        elif dice < 0.015:
            node.refuse = 1
        elif dice < 0.06:
            rig.pass_time(random.choice((0.05, 0.5, 4.0)))
        elif dice < 0.3:
            random.choice(sources).act()
        else:
            rig.step()
    for node in nodes:
        node.refuse = 0
        if node.core is None:
            node.start()
    for _ in range(400):
        rig.run(0.3)
        for source in sources:
            source.act()
        if all(source.done for source in sources) and all(
            len(rig.nodes[name].bodies("work")) >= MESSAGES for name in ("jfk", "hub")
        ):
            break
    rig.run(5)
    for name, other in (("jfk", "hub"), ("hub", "jfk")):
        # A number that a full disk refused may be stored after a later one: the order is the origin's own.
        given = rig.nodes[name].given
        in_order = [Message.decode(given[number]).body_bytes().decode() for number in sorted(given)]
        assert sorted(in_order) == sorted(wanted(name))
        assert rig.nodes[other].bodies("work") == in_order
        assert rig.nodes[name].queue(f"@{other}").messages == 0
        assert not rig.nodes[name].core.losses
