"""Consumers with selectors that share a queue, under any order of steps: each message is one's, in order, and none is
passed over (docs/adr/0063)."""

from random import Random

import pytest

from holdfast.broker.cursors import exclusions, halting, matches, selections
from holdfast.core import offering
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support import today
from support.competing import Competing
from support.rig import Rig
from support.selecting import OTHERS, THIRDS, consume, fill

SELECTORS = (None, THIRDS, OTHERS, "JMSPriority > 4", "JMSPriority = 3", "TRUE", "FALSE", "JMSType = 'third' AND TRUE")
SIZES = (1, 500, 1_500)
TAKES = (600, 1_800, None, None, None)


class Steps(Competing):
    """Random steps of consumers with selectors."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch) -> None:
        random = Random(seed)
        patch.setattr(matches, "HITS_MAX", random.choice((1, 2, 5, 4_096)))
        patch.setattr(exclusions, "ASIDE_MAX", random.choice((1, 2, 5, 16_384)))
        patch.setattr(offering, "PUMP_LIMIT", random.choice((1, 5, 256)))
        patch.setattr(selections, "SCAN_BYTES", random.choice((1, 2_000, 2**22)))
        more = Random(f"{seed} more")
        patch.setattr(halting, "GIVEN_BACK_MIN", more.choice((1, 3)))
        patch.setattr(matches, "HITS_MIN", more.choice((1, 2)))
        most = more.choice((None, None, 3))
        rig, queue = Rig(seed), QueueConfig(name="work", durable=random.random() < 0.8, deliveries_max=most)
        hub = rig.node("hub", queues=(queue,), limits=Limits(unsettled_max=random.choice((3, 100))))
        super().__init__(random, rig, hub, queue)
        self.sizes = random.choice((SIZES, SIZES[:1]))
        self.memory = more.choice((0, 2**30))
        self.bound_memory(self.memory)

    def bound_memory(self, most: int) -> None:
        """So much for what came back, and for what waits for consumers."""
        assert self.hub.core is not None
        withheld = self.hub.core.memory.withheld
        withheld.given_back.held_max = withheld.aside.held_max = most

    def crash(self) -> None:
        super().crash()
        self.bound_memory(self.memory)

    def send(self) -> None:
        count = self.random.randrange(1, 12)
        self.stored.update(fill(self.rig, self.hub, count, first=self.sent, size=self.random.choice(self.sizes)))
        self.sent += count

    def attach(self) -> None:
        client, selector = self.rig.client(self.hub), self.random.choice(SELECTORS)
        takes = self.random.choice(TAKES) if len(self.sizes) > 1 else None
        options = {} if takes is None else {"max_message_size": takes}
        link = consume(self.rig, client, selector, credit=self.random.choice((0, 1, 9)), **options)
        self.clients.append((client, link))

    def step(self) -> None:
        random, act = self.random, self.random.random()
        self.clients = [(client, link) for client, link in self.clients if not link.detached]
        if act < 0.25:
            self.send()
        elif act < 0.4 and len(self.clients) < 6:
            self.attach()
        elif act < 0.5 and self.clients:
            self.leave()
        elif act < 0.55:
            self.hub.refuse, self.hub.refuse_all = random.choice((0, 1)), True
        elif act < 0.6 and self.queue.durable:
            self.crash()
        elif self.clients:
            self.settle_some(6)
        if random.random() < 0.7:
            self.rig.settle()

    def rest(self) -> list[int]:
        """All that is left, in the order in which one consumer is given it."""
        self.bound_memory(2**30)
        self.rig.run(2)
        for client, _ in self.clients:
            client.close_transport()
        self.hub.refuse = 0
        self.rig.run(2)
        client = self.rig.client(self.hub)
        link = consume(self.rig, client, "JMSPriority >= 0", credit=0)
        given: list[int] = []
        while True:
            link.grant(10)
            self.rig.run(1)
            if not client.deliveries:
                return given
            given.extend(map(int, client.accept()))
            self.rig.run(1)


@pytest.mark.parametrize("seed", today.some(range(24), 5))
def test_whatever_consumers_do_each_message_is_one_s_and_none_is_passed_over(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All invariants are checked on the way; in the end who matches all is given what is left, in order. In some seeds
    there is no memory for what comes back."""
    steps = Steps(seed, monkeypatch)
    for _ in range(150):
        steps.step()
    rest = steps.rest()
    assert steps.hub.queue("work").messages == 0
    assert steps.stored <= {*steps.accepted, *rest, *steps.dead()}
    assert rest == sorted(rest) or steps.queue.deliveries_max is not None, "what must be stored as shown first is later"
    assert len(rest) == len(set(rest))
