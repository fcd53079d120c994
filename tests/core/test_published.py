"""What subscriptions of a topic want is noted, and not what they do not want (docs/adr/0108)."""

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Released
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker.interests import PatternTree
from holdfast.broker.subjects import Pattern
from holdfast.endpoints.attaching.filters import EntrySelector
from support import today
from support.one_node import done, world
from support.rig import Client

SELECTOR = Symbol("apache.org:selector-filter:string")
DURABLE: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}


def subscribe(client: Client, name: str, pattern: str = "", *, selector: str = "", credit: int = 1_000) -> Receiver:
    source: dict[str, Any] = {**DURABLE}
    if selector:
        source["filter"] = {Symbol("s"): Described(SELECTOR, selector)}
    address = f"topic/news/{pattern}" if pattern else "topic/news"
    link = client.receiver(address, name=name, source=source, credit=credit)
    assert isinstance(link, Receiver)
    return link


def publish(client: Client, link: Any, subject: str, body: str = "x") -> None:
    client.send(link, body, header=Header(durable=True), properties=Properties(subject=subject))


def calls(run: Callable[[], None]) -> int:
    """How many functions of the node `run` called."""
    count = 0

    def called(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and "/src/holdfast/" in frame.f_code.co_filename

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def work(subscriptions: int, messages: int) -> int:
    """Calls for messages of which each is for one subscription, one and the same, among so many."""
    rig, node, client = world()
    node.checks = False
    for number in range(subscriptions):
        subscribe(client, f"s{number}", f"*.{number}")
    rig.settle()
    link = client.sender("topic/news")
    rig.settle()

    def run() -> None:
        for _ in range(messages):
            publish(client, link, "a.0")
        rig.settle()
        client.accept()
        rig.settle()

    run()
    return calls(run)


def test_a_publication_is_work_for_those_who_want_it() -> None:
    """A hundred more subscriptions, and forty messages that they do not want: 4,000 times nothing."""
    few, many = work(5, 40), work(105, 40)
    assert many - few < 100 * 40 // 2


def test_the_record_of_a_subscription_is_stored_when_it_was_given_something() -> None:
    rig, node, client = world()
    for number in range(5):
        subscribe(client, f"s{number}", f"*.{number}")
    link = client.sender("topic/news")
    rig.settle()
    stored: list[bytes] = []
    commit = node.store.commit

    def watched(batch: Any) -> None:
        stored.extend(key for table, key in batch.puts if table == "subscriptions")
        commit(batch)

    node.store.commit = watched
    for _ in range(3):
        publish(client, link, "a.3")
        rig.settle()
        client.accept()
        rig.run(1)
    assert stored and all(key.endswith(b"s3") for key in stored)


def test_an_attach_adds_its_pattern_alone_to_those_of_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[str] = []
    add = PatternTree.add

    def counted(self: PatternTree, pattern: Pattern) -> None:
        added.append(pattern.text)
        add(self, pattern)

    rig, _, client = world()
    link = client.sender("topic/news")
    monkeypatch.setattr(PatternTree, "add", counted)
    for number in range(20):
        subscribe(client, f"s{number}", f"*.{number}")
        rig.settle()
        publish(client, link, f"a.{number}")
        rig.settle()
    assert len(client.deliveries) == 20
    assert len(added) <= 2 * 20, added


def test_an_attach_that_fails_half_way_leaves_the_others_what_they_want(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client = world()
    link = client.sender("topic/news")
    subscribe(client, "s", "a.*")
    rig.settle()
    publish(client, link, "a.x")
    rig.settle()

    def fails(self: PatternTree, pattern: Pattern) -> None:
        raise RuntimeError("told to")

    other = rig.client(node)
    with monkeypatch.context() as patch:
        patch.setattr(PatternTree, "add", fails)
        subscribe(other, "t", "b.*")
        rig.settle()
    other = rig.client(node)
    subscribe(other, "t", "b.*")
    rig.settle()
    publish(client, link, "a.x")
    publish(client, link, "b.x")
    rig.settle()
    assert len(client.deliveries) == 2 and len(other.deliveries) == 1
    assert node.core is not None
    node.core.validate()


def test_a_message_is_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [0]
    beside = EntrySelector.matches_beside
    matches = EntrySelector.matches

    def counting(original: Any) -> Any:
        def counted(self: EntrySelector, value: bytes) -> bool:
            asked[0] += 1
            return bool(original(self, value))

        return counted

    rig, node, client = world()
    node.checks = False
    subscribe(client, "s", "a.*")
    link = client.sender("topic/news")
    rig.settle()
    monkeypatch.setattr(EntrySelector, "matches_beside", counting(beside))
    monkeypatch.setattr(EntrySelector, "matches", counting(matches))
    for _ in range(10):
        publish(client, link, "a.b")
        publish(client, link, "b.b")
    rig.settle()
    assert len(client.deliveries) == 10 and asked[0] == 10


def test_what_is_for_one_subscription_alone_is_not_read_from_the_store() -> None:
    rig, node, client = world()
    node.checks = False
    subscribe(client, "s", "a")
    subscribe(client, "t", "b")
    link = client.sender("topic/news")
    rig.settle()
    reads = [0]
    read = node.store.read

    def counted(*arguments: Any, **options: Any) -> Any:
        found = read(*arguments, **options)
        reads[0] += len(found)
        return found

    node.store.read = counted
    for _ in range(10):
        publish(client, link, "a")
        publish(client, link, "b")
    rig.settle()
    assert len(client.deliveries) == 20 and reads[0] == 0
    client.accept()
    rig.run(2)
    topic = node.queue("topic/news")
    assert topic.messages == 0 and not topic.cache and topic.cached.held == 0


def test_a_run_that_many_want_is_published_over_several_turns() -> None:
    """Also if what was published before was for nobody."""
    rig, node, client = world()
    takers = [rig.client(node) for _ in range(100)]
    for taker in takers:
        taker.receiver("topic/news/hot.#", credit=1_000)
    link = client.sender("topic/news")
    rig.settle()
    publish(client, link, "cold")
    rig.settle()
    turns = node.turns
    for number in range(500):
        publish(client, link, "hot.x", f"{number}")
    rig.settle()
    assert node.turns - turns > 8, "100 subscriptions and 500 messages are 50,000 copies; a turn has 5,000"
    assert all(taker.bodies() == [f"{number}" for number in range(500)] for taker in takers)


WANTS = {
    "all": ("", ""),
    "a": ("a.#", ""),
    "one": ("*.1", ""),
    "a again": ("a.#", ""),
    "short": ("b.*", "JMSPriority = 4"),
    "selected": ("", "JMSType = 'c.0'"),
    "bounded": ("*.0", ""),
}
MATCHES: dict[str, Callable[[str], bool]] = {
    "all": lambda subject: True,
    "a": lambda subject: subject[0] == "a",
    "one": lambda subject: subject[2:] == "1",
    "a again": lambda subject: subject[0] == "a",
    "short": lambda subject: subject[0] == "b",
    "selected": lambda subject: subject == "c.0",
    "bounded": lambda subject: subject[2:] == "0",
}


@pytest.mark.parametrize("seed", today.some(range(12), 3))
def test_each_gets_what_it_wants_whatever_happens_to_commits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused and slow commits, crashes, links that come and go, messages that are given back; and few ranges, so that
    subscriptions ask their selectors themselves."""
    draw = random.Random(seed)
    for name in ("MARKED_MAX", "MARKED_MIN"):
        monkeypatch.setattr(f"holdfast.broker.topic.{name}", draw.choice([0, 1, 3, 1_000]))
    rig, node, client = world()
    names = draw.sample(sorted(WANTS), draw.randint(2, len(WANTS)))
    links: dict[str, tuple[Client, Receiver]] = {}
    got: dict[str, set[str]] = {name: set() for name in names}
    accepted: list[str] = []

    def attach(name: str) -> None:
        taker = rig.client(node)
        pattern, selector = WANTS[name]
        links[name] = taker, subscribe(taker, name, pattern, selector=selector, credit=draw.choice([1, 3, 50]))
        settle()

    def settle() -> None:
        rig.settle()
        accepted.extend(str(context) for context, state in client.outcomes if state == Accepted())
        client.outcomes.clear()

    for name in names:
        attach(name)
    if "bounded" in names:
        done(client, "UPDATE", "subscription", "bounded", queue="topic/news", messages_max=8_192, when_full="end")
    sender = client.sender("topic/news")
    settle()
    for number in range(150):
        act, name = draw.random(), draw.choice(names)
        if act < 0.35:
            subjects = [f"{draw.choice('abc')}.{draw.randrange(2)}" for _ in range(draw.randint(1, 4))]
            for place, subject in enumerate(subjects):
                publish(client, sender, subject, f"{subject} {number} {place}")
            node.hold_commits = draw.random() < 0.2
            settle()
        elif act < 0.42:
            node.refuse = 1
        elif act < 0.46:
            node.hold_commits = False
            node.crash()
            links.clear()
            node.start()
            client = rig.client(node)
            sender = client.sender("topic/news")
            settle()
        elif act < 0.6:
            if name in links:
                taker, link = links.pop(name)
                link.detach(closed=False) if draw.random() < 0.5 else taker.close_transport()
                settle()
            else:
                attach(name)
        elif name in links:
            taker, link = links[name]
            gives_back = draw.random() < 0.3
            bodies = taker.accept(Released() if gives_back else None, count=draw.randint(1, 3))
            got[name].update(() if gives_back else bodies)
            if link.credit < 5:
                link.grant(5)
            settle()
        if draw.random() < 0.3:
            node.hold_commits = False
            settle()
    node.hold_commits, node.refuse = False, 0
    settle()
    for name in names:
        if name not in links:
            attach(name)
        taker, link = links[name]
        link.grant(10_000)
        rig.run(1)
        got[name].update(taker.accept())
    rig.run(3)
    for name in names:
        wanted = {body for body in accepted if MATCHES[name](body.split()[0])}
        assert wanted <= got[name], (name, sorted(wanted - got[name]))
        assert all(MATCHES[name](body.split()[0]) for body in got[name])
    node.core.validate() if node.core is not None else None
    assert node.queue("topic/news").messages == 0
