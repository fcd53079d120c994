"""A sender and a receiver that keep their unsettled maps, and a node, while connections are cut at any byte, disks
refuse and the node is killed: nothing is lost, nothing doubled, only what is in doubt goes again (AMQP 1.0 §2.6.13).
"""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.connection import Delivery, Receiver, Sender
from holdfast.amqp.links.resuming import ResumeAction, compare
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Released
from holdfast.client.resume import ReceivingState
from holdfast.settings.queues import QueueConfig
from support import today
from support.rig import Client, Node, Rig

MESSAGES = 30
TARGET = {"timeout": 60, "durable": 2}
"""The node may be killed, and still says what it stored."""


class Producer:
    """Sends 1, 2, 3 …, each until it was accepted, by the specification's rules alone."""

    def __init__(self, rig: Rig, node: Node) -> None:
        self.rig, self.node = rig, node
        self.client: Client | None = None
        self.link: Sender | None = None
        self.next_tag = 0
        self.doubt: dict[bytes, str] = {}
        self.todo = [str(number) for number in range(1, MESSAGES + 1)]
        self.resumed = False
        self.sent = 0

    @property
    def done(self) -> bool:
        return not self.todo and not self.doubt and self.link is not None and not self.link.unsettled

    def act(self) -> None:
        client, link = self.client, self.link
        if client is None or client.over or link is None or link.detached:
            if self.node.core is not None:
                self._connect()
            return
        if not link.attached:
            return
        if not self.resumed:
            self._resume(link)
        for body, state in client.outcomes:
            if not isinstance(state, Accepted):
                self.todo.append(body)
        client.outcomes.clear()
        if self.todo and link.sendable:
            client.send(link, self.todo.pop(0))
            self.sent += 1

    def _connect(self) -> None:
        first = self.link is None
        if self.link is not None:
            for body, state in self.client.outcomes if self.client is not None else ():
                if not isinstance(state, Accepted):
                    self.todo.append(body)
            self.doubt |= self.link.suspended if self.link.over else self.link.unsettled_tags()
            self.next_tag = self.link.next_tag
        self.client = self.rig.client(self.node)
        offset = self.client.session.tag_offset(self.next_tag)
        self.link = self.client.sender(
            "work", name="p", target=dict(TARGET), properties={"holdfast:tag-offset": offset},
            unsettled=None if first else dict.fromkeys(self.doubt),
        )  # fmt: skip
        self.link.use_tags(offset)
        self.resumed = False

    def _resume(self, link: Sender) -> None:
        self.resumed = True
        assert link.remote_attach is not None
        theirs = link.remote_attach.unsettled
        if theirs is None:  # nothing was ever stored on this link, or the node would know it
            theirs = {}
        doubt, self.doubt = self.doubt, {}
        for step in compare(role=False, mine=dict.fromkeys(doubt), theirs=theirs):
            if step.act is ResumeAction.RESEND or not isinstance(step.state, Accepted):
                self.todo.append(doubt[step.tag])


class Consumer:
    """Takes what comes, settles it as the dice say, with the client library's own memory of it."""

    def __init__(self, rig: Rig, node: Node) -> None:
        self.rig, self.node = rig, node
        self.client: Client | None = None
        self.link: Receiver | None = None
        self.state: ReceivingState[Delivery] = ReceivingState()
        self.answered = False
        self.hands: list[Delivery] = []
        self.accepted: Counter[str] = Counter()
        self.came: Counter[str] = Counter()

    def act(self) -> None:
        client, link = self.client, self.link
        if client is None or client.over or link is None or link.detached:
            if self.node.core is not None:
                self.state.suspend()
                self.client = self.rig.client(self.node)
                self.link = self.client.receiver(
                    "work", name="c", credit=8, source={"timeout": 60}, unsettled=self.state.map(lambda it: it.payload)
                )
                self.answered = False
            return
        if not link.attached:
            return
        if not self.answered:
            self.answered = True
            if not self.state.answered(link):
                self.hands.clear()  # the node offers them again
        deliveries, client.deliveries = client.deliveries, []
        for delivery in deliveries:
            self._take(delivery)
        if self.hands and self.rig.random.random() < 0.7:
            self._settle(self.hands.pop(self.rig.random.randrange(len(self.hands))), link)
        if link.credit < 4:
            self.state.granting(link)
            link.grant(8)

    def _take(self, delivery: Delivery) -> None:
        if not delivery.resume:
            self.state.took(delivery.tag, delivery)
            self.hands.append(delivery)
            self.came[body(delivery)] += 1
            return
        held, outcome = self.state.resumed(delivery.tag, settled=delivery.settled)
        if held is not None:
            self.hands = [item if item.tag != held.tag else held._replace(
                link=delivery.link, delivery_id=delivery.delivery_id
            ) for item in self.hands]  # fmt: skip
        elif outcome is not None:
            delivery.link.settle(delivery.delivery_id, delivery.delivery_id, outcome)

    def _settle(self, delivery: Delivery, link: Receiver) -> None:
        outcome: Any = Released() if self.rig.random.random() < 0.2 else Accepted()
        if isinstance(outcome, Accepted):
            self.accepted[body(delivery)] += 1
        self.state.settled(delivery.tag, outcome)
        if delivery.link is link:
            link.settle(delivery.delivery_id, delivery.delivery_id, outcome)


def body(delivery: Delivery) -> str:
    return Message.decode(delivery.payload).body_bytes().decode()


@today.examples(40)
@given(st.integers(0, 2**32), st.booleans())
def test_nothing_is_lost_or_doubled_where_both_sides_keep_their_maps(seed: int, kills: bool) -> None:
    rig = Rig(seed)
    node = rig.node("hub", queues=(QueueConfig(name="work"),))
    producer = Producer(rig, node)
    consumer = None if kills else Consumer(rig, node)  # what it held, a killed node shows again
    random = rig.random
    for _ in range(900):
        dice = random.random()
        if dice < 0.01 and rig.wires:
            random.choice(rig.wires).cut(silent=random.random() < 0.3)
        elif dice < 0.015:
            node.refuse = 1
        elif dice < 0.02 and kills:
            node.crash() if node.core is not None else node.start()
        elif dice < 0.03:
            rig.pass_time(random.choice((0.05, 0.5)))
        elif dice < 0.3:
            producer.act()
        elif dice < 0.5 and consumer is not None:
            consumer.act()
        else:
            rig.step()
    node.refuse = 0
    if node.core is None:
        node.start()
    for wire in rig.wires:
        if wire.silent and not wire.dead:
            wire.cut()
    wanted = [str(number) for number in range(1, MESSAGES + 1)]
    for _ in range(600):
        rig.settle()
        producer.act()
        if consumer is not None:
            consumer.act()
            if producer.done and sorted(consumer.accepted, key=int) == wanted and not node.queue("work").messages:
                break
        elif producer.done:
            break
    rig.settle()
    if consumer is None:
        assert sorted(node.bodies("work"), key=int) == wanted
    else:
        assert consumer.accepted == Counter(wanted)
        assert node.queue("work").messages == 0
