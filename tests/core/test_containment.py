"""An exception in what one peer's bytes set off ends that peer, and nothing else (docs/adr/0019-containment.md)."""

import ast
import gc
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from random import Random
from types import CodeType
from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Accepted, Rejected, Released
from holdfast.broker.cursors.exclusions import Exclusions
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.endpoints import producer
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.endpoints.producer import ProducerLink
from holdfast.engine import events
from holdfast.engine.effects import Effect
from holdfast.errors import BrokenInvariant, StorageError
from holdfast.state.room import Room
from support import failing, today
from support.limits import world
from support.rig import Client, Node, Rig

MAY_END = {"refuse", "_complete"}
"""Work on the node's own behalf with which memory and disk would contradict each other, were it left half done: the
undoing of a refused commit, and what memory makes of one that is on disk."""


class Defect(Exception):
    """Raised where nothing is wrong."""


def raising(error: Exception) -> Any:
    def call(*args: object, **options: object) -> Any:
        raise type(error)(*error.args)

    return call


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def node(rig: Rig) -> Node:
    return rig.node("hub")


def core_of(node: Node) -> Any:
    assert node.core is not None
    return node.core


# ------------------------------------------------------------------------------------------------- at every call site


@pytest.fixture
def collector() -> Iterator[None]:
    """The garbage collector looks at what the test makes alone. A world waits for it, in a circle; and the more a
    process has from before, the longer it lets them wait (`gc.set_threshold`, the oldest generation)."""
    gc.freeze()
    gc.collect()
    yield
    gc.unfreeze()


def check(stage: str, calls: list[int]) -> None:
    for call in calls:
        injector, world = failing.run(stage, call)
        assert injector.raised, f"{stage}: call {call} never came"
        where = f"{stage}: call {call}"
        if injector.ended:
            assert MAY_END & set(injector.ended), f"{where}: {injector.why} ended the node, under {injector.ended}"
        else:
            assert world.reconnects() <= 1, f"{where} cost {world.reconnects()} clients their connection"


@pytest.mark.parametrize("stage", today.some([*failing.STAGES], len(failing.STAGES) // 2 + 1))
def test_a_failure_at_some_call_sites_costs_one_connection(stage: str, day: int) -> None:
    """Another sample each day, of half the stages; `test_a_failure_at_any_call_site_costs_one_connection` takes all."""
    measured = failing.measure(stage)
    check(stage, failing.sample(measured.sites, Random(day), 3))


@pytest.mark.slow
@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("stage", failing.STAGES)
def test_a_failure_at_any_call_site_costs_one_connection(stage: str) -> None:
    """The first call from each site, and as many calls again at random: by then other state is there."""
    measured = failing.measure(stage)
    random = Random(stage)
    further = [random.randint(1, measured.calls) for _ in measured.sites]
    check(stage, sorted({*(numbers[0] for numbers in measured.sites.values()), *further}))


@pytest.mark.parametrize(
    ("stage", "caller", "called"),
    [
        ("local", "Holdings.requeue", "Holdings._back"),
        ("local", "Disk.answered", "Containment.finish"),
        ("rejected", "Settlements._add", "Settlements.step"),
        ("rejected", "DeadLettering._move_to_dead_letters", "DeadLettering.dead_letter"),
        ("cut", "begin", "Destination.before_commit"),
        ("large", "begin", "Blobs.before_commit"),
        ("subscribed", "ConsumerLink.__init__", "Sender.message_bytes_max"),
        ("managed", "BackgroundJobs.purge", "__create_fn__.<locals>.__init__"),
        ("managed", "BackgroundJobs.step", "BackgroundJobs._over"),
        ("managed", "BackgroundJobs.step", "BackgroundJobs.offer_again"),
        ("managed", "BackgroundJobs._over", "QueueOperations.purge.<locals>.ended"),
        ("managed", "Memory.measure_changed", "Bounds.session_count"),
        ("managed", "Catalog.delete", "forget_entries"),
        ("managed", "Parts.delete_queue", "part"),
        ("asked", "WhereQuestions._goes_on", "WhereQuestions._looked"),
        ("asked", "WhereQuestions._end", "NodeOperations.where.<locals>.told"),
        ("asked", "WhereQuestions._on_answer", "WhereQuestions._end"),
        ("skipped", "QueueOperations.skip", "Destination.skip"),
        ("expired", "Expiry._look", "Queue.drop_expired_all"),
        ("expired", "Expiry._look", "Expiry._look.<locals>.<listcomp>"),
        ("sized", "Cursor._pump_unfiltered", "Exclusions.set_aside"),
        ("sized", "Exclusions.set_aside", "Exclusions._count"),
        ("sized", "Exclusions.left", "Exclusions._offer_anew"),
        ("local", "Cursor.release", "EntryLog.consumers_changed"),
        ("selecting", "Cursor.release", "EntryLog.consumers_changed"),
        ("selecting", "FreeEntries.hand", "Shown.is_exhausted"),
        ("sorting", "FreeEntries.hand", "Shown.is_exhausted"),
        ("sorting", "Holdings._finish", "Holdings._gone_ahead"),
        ("sorting", "Priorities._run", "Ready.skip"),
        ("selecting", "Selections._hand_run", "Holdings.hold_run"),
        ("linked", "Handing.hand_over", "QueueLink.name"),
        ("linked", "QueueLink.take_all", "QueueLinks._took"),
        ("delayed", "Catalog._add", "_is_made"),
        ("delayed", "Containment.finish", "Delays._decided"),
        ("federated", "Topic.remove_cursor", "Queue.remove_cursor"),
        ("federated", "Topic.select", "Interests.add"),
        ("federated", "Topic.add_cursor", "Interests.add"),
        ("transacted", "Commits._decided", "Commits._follow"),
        ("transacted", "Commits._follow", "Commits._answer"),
        ("anonymous", "Cursor.release", "Exclusions.left"),
        ("anonymous", "DynamicNodes._sweep_one", "DynamicNodes._end"),
        ("anonymous", "ConsumerLink.gone", "DynamicNodes.left"),
        ("departed", "_complete", "Blobs.committed"),
    ],
)
def test_a_failure_between_two_steps_that_belong_together(stage: str, caller: str, called: str, day: int) -> None:
    """At the first call, and at another one that the day draws."""
    sites = failing.measure(stage).sites
    names = {site: (site[0].co_qualname, site[2].co_qualname) for site in sites}
    calls = [call for site, numbers in sites.items() if names[site] == (caller, called) for call in numbers]
    assert calls, f"{stage}: {caller} calls no {called}"
    first, *more = calls
    check(stage, [first, *Random(day).sample(more, min(1, len(more)))])


def test_calls_of_all_the_nodes_own_packages_are_counted() -> None:
    """What is not counted is never failed, and no other test here would tell."""
    called = {
        site[2].co_filename for stage in ("rejected", "linked", "federated") for site in failing.measure(stage).sites
    }
    assert [name for name in failing.PACKAGES if not any(f"/{name.replace('.', '/')}" in path for path in called)] == []


CLAIM = "from here on nothing is called that could fail"


@pytest.mark.parametrize("stage", failing.STAGES)
def test_where_nothing_is_called_that_could_fail_nothing_is(stage: str) -> None:
    """Functions that say so call none of the node's own from there on, except at their end, where all is done."""
    measured = failing.measure(stage)
    wrong = [
        f"{caller.co_qualname}, line {line}: {called.co_qualname}"
        for caller, line, called in measured.sites
        if line in claimed(caller)
    ]
    assert not wrong


@cache
def claimed(caller: CodeType) -> range:
    """The lines behind the claim, but for a call that ends the function; empty where it claims nothing."""
    if not caller.co_filename.endswith(".py"):
        return range(0)
    lines, first = inspect.getsourcelines(caller)
    found = [number for number, line in enumerate(lines, first) if CLAIM in line]
    if not found:
        return range(0)
    (function,) = ast.parse(textwrap.dedent("".join(lines))).body
    assert isinstance(function, ast.FunctionDef)
    *_, last = (item for item in function.body if not isinstance(item, ast.Return))
    while isinstance(last, ast.If) and not last.orelse:
        last = last.body[-1]
    ends = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)
    return range(found[0] + 1, first + (last.lineno - 1 if ends else len(lines)))


# ------------------------------------------------------------------------------------------------- what is seen of it


def test_the_peer_hears_why_and_the_node_tells_where(rig: Rig, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = rig.client(node), rig.client(node)
    good.receiver("other")
    rig.settle()
    with monkeypatch.context() as patch:
        patch.setattr(ProducerLink, "delivered", raising(Defect("for once")))
        link = bad.sender("work")
        rig.settle()
        bad.send(link, "a")
        rig.settle()
    assert bad.over and not good.over
    assert {str(item.error.condition) for item in bad.detached if item.error} == {"amqp:internal-error"}
    (line,) = [line for line in node.logs if "Defect" in line]
    assert "for once" in line and "node.py" not in line.split(" at ")[0] and "the connection is ended" in line
    status = good.manage("STATUS", "node")[1]
    assert status["failures"] == {"peers_ended": 1, "parts": 0}


def test_a_failure_in_the_driver_counts_once_for_each_connection(rig: Rig, node: Node) -> None:
    """Several writes of one turn may fail before the transport is gone."""
    for connection in (7, 7, 8, 7, 0, 0):
        node.handle(events.DriverFailed(connection=connection))
    status = rig.client(node).manage("STATUS", "node")[1]
    assert status["failures"] == {"peers_ended": 4, "parts": 0}


def test_a_connection_that_fails_in_the_core_and_in_the_driver_counts_once(
    rig: Rig, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = rig.client(node)
    (number,) = core_of(node).connections
    with monkeypatch.context() as patch:
        patch.setattr(ProducerLink, "refill", raising(Defect("for once")))
        bad.sender("work")
        rig.settle()
    assert bad.over
    node.handle(events.DriverFailed(connection=number))
    assert core_of(node).containment.peers_ended == 1


def test_lines_about_failures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the place of the failure: one that repeats hides no other."""
    rig, node = world(log_lines_per_minute=3)
    with monkeypatch.context() as patch:
        patch.setattr(ProducerLink, "refill", raising(Defect("again")))
        for _ in range(10):
            rig.client(node).sender("work")
            rig.settle()
    assert core_of(node).containment.peers_ended == 10
    assert len([line for line in node.logs if "again" in line]) == 3
    with monkeypatch.context() as patch:
        patch.setattr(ProducerLink, "delivered", raising(Defect("another")))
        link = (client := rig.client(node)).sender("work")
        rig.settle()
        client.send(link, "a")
        rig.settle()
    assert len([line for line in node.logs if "another" in line]) == 1
    rig.pass_time(21)
    with monkeypatch.context() as patch:
        patch.setattr(ProducerLink, "refill", raising(Defect("again")))
        rig.client(node).sender("work")
        rig.settle()
    assert [line for line in node.logs if "again" in line][-1].endswith(
        "(7 lines like this one were left out before it)"
    )


# ---------------------------------------------------------------------------------------------- what becomes of others


def test_a_failure_before_any_change_leaves_the_others_turn(rig: Rig, node: Node) -> None:
    """Both are in one turn: what the first brought is stored, for the second had changed nothing."""
    states, stored = two_in_one_turn(rig, node, changes=False)
    assert states == [Accepted] and stored == ["good"]


def test_a_failure_after_a_change_has_the_others_send_again(rig: Rig, node: Node) -> None:
    """The turn never was: what the first brought is released, and nothing of the second is left."""
    states, stored = two_in_one_turn(rig, node, changes=True)
    assert states == [Released] and stored == []
    assert node.queue("work").messages == 0 and node.queue("work").next_sequence == 3  # numbers are not used twice


def two_in_one_turn(rig: Rig, node: Node, *, changes: bool) -> tuple[list[Any], list[str]]:
    good, bad = rig.client(node), rig.client(node)
    links = good.sender("work"), bad.sender("work")
    rig.settle()
    good.send(links[0], "good")
    bad.send(links[1], "bad")
    victim = next(peer for peer in reversed(core_of(node).connections.values()))
    delivered = ProducerLink.delivered

    def fail(self: ProducerLink, delivery: Any) -> None:
        if self.peer is not victim:
            delivered(self, delivery)
            return
        if changes:
            delivered(self, delivery)
        raise Defect("in between")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProducerLink, "delivered", fail)
        for client in (good, bad):  # both before the turn ends
            client.flush()
            assert client.end is not None
            end = client.end.wire.other(client.end)
            data = bytes(end.inbox)
            end.inbox.clear()
            end.receive(data)
        rig.settle()
    assert bad.over and not good.over
    core_of(node).validate()
    return [type(state) for _, state in good.outcomes], node.bodies("work")


def test_what_the_peer_held_goes_to_others(rig: Rig, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, holder, other = (rig.client(node) for _ in range(3))
    link = sender.sender("work")
    rig.settle()
    sender.send(link, "a")
    holder.receiver("work")
    rig.settle()
    other.receiver("work")
    rig.settle()
    assert holder.bodies() == ["a"] and not other.bodies()
    with monkeypatch.context() as patch:
        patch.setattr(ConsumerLink, "outcomes", raising(Defect("unsettled")))
        holder.accept()
        rig.settle()
    assert holder.over and other.bodies() == ["a"]


# ------------------------------------------------------------------------------------------------- what ends the node


def test_a_broken_invariant_ends_the_node_before_the_next_commit(rig: Rig, node: Node) -> None:
    """The failure had counted a message that is nowhere: no later commit may store the count."""
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()

    def miscount(self: ProducerLink, delivery: Any) -> None:
        self.queue.messages += 1
        raise Defect("half done")

    client.send(link, "a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProducerLink, "delivered", miscount)
        with pytest.raises(BrokenInvariant, match="queue 'work': messages, and entries: found 1, 0"):
            rig.settle()
    assert node.pending is None


@pytest.mark.parametrize("error", [StorageError("the disk is gone"), BrokenInvariant("two of one")])
def test_what_the_store_says_is_never_one_peers_own(rig: Rig, node: Node, error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        fail_with(rig, node, Room, "has", error)


@pytest.mark.parametrize("step", ["take_stock", "wake_all", "_end"])
def test_a_failure_in_the_containment_itself_ends_the_node_and_names_both(rig: Rig, node: Node, step: str) -> None:
    """What peers share may be counted wrong from then on: nothing of it goes to the disk."""
    core = core_of(node)
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    client.send(link, "a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProducerLink, "delivered", raising(Defect("the first")))
        patch.setattr(core.containment if step == "_end" else core.recovery, step, raising(Defect("the second")))
        with pytest.raises(BrokenInvariant, match=r"what failed could not be undone: Defect\('the second'\)") as found:
            rig.settle()
    assert str(found.value.__cause__) == "the first" and node.pending is None


def test_what_is_counted_anew_after_a_failure_is_right_whatever_it_was(rig: Rig, node: Node) -> None:
    """The failure may lie between any change and its count: so each count is made wrong, as it would be then."""
    core = core_of(node)
    holder, producer, bad = (rig.client(node) for _ in range(3))
    holder.receiver("work")
    links = producer.sender("work"), bad.sender("bad")
    rig.settle()
    for number in range(3):
        producer.send(links[0], str(number))
    rig.settle()
    use = core.users.anonymous
    counted = (use.connections, use.links, [account.held for account in core.memory.accounts])

    def miscount(self: ProducerLink, delivery: Any) -> None:
        use.connections += 1
        use.links += 1
        use.unsettled_bytes += 100
        core.pressure.ahead_bytes += 100
        core.pressure.partials.held += 100
        for account in core.memory.accounts:
            account.held += 100
        core.memory.total.held += 7
        next(iter(core.connections.values())).parked_bytes += 100
        raise Defect("in between")

    bad.send(links[1], "x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProducerLink, "delivered", miscount)
        rig.settle()
    assert bad.over and core.containment.peers_ended == 1
    core.validate()
    assert (use.connections, use.links) == (counted[0] - 1, counted[1] - 1)
    assert core.memory.total.held == sum(account.held for account in core.memory.accounts)
    assert holder.accept() == ["0", "1", "2"]
    rig.run(1)
    assert not node.queue("work").messages and not core.users.anonymous.unsettled_bytes


def test_an_assertion_about_what_is_shared_ends_the_node(rig: Rig, node: Node) -> None:
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    client.send(link, "a")
    queue = node.queue("work")
    shared: dict[str, Any] = {"__name__": "holdfast.broker.queue"}  # whose function it is, is what counts
    exec("def fits(self, *_):\n    assert False, '1 is not 2'", shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(queue), "fits", shared["fits"])
        with pytest.raises(BrokenInvariant, match=r"assertion failed at .* fits: 1 is not 2"):
            rig.settle()


def test_an_assertion_about_one_peer_ends_that_peer(rig: Rig, node: Node) -> None:
    """As deep in the protocol as it may be: it says what holds of that peer's link."""
    fail_with(rig, node, producer.ProducerLink, "take", AssertionError("of a link"))
    rig.client(node).sender("work")
    rig.settle()
    assert core_of(node).containment.peers_ended == 1


def fail_with(rig: Rig, node: Node, owner: type, function: str, error: Exception) -> Client:
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    client.send(link, "a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, function, raising(error))
        rig.settle()
    return client


# ------------------------------------------------------------------------------------------------- on nobody's behalf


def test_a_part_of_the_node_that_fails_rests_and_is_tried_again(rig: Rig, node: Node) -> None:
    core = core_of(node)
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core.destination, "tick", raising(Defect("of origins")))
        rig.run(20)
        told = [line for line in node.logs if "of origins" in line]
        client.send(link, "a")
        rig.settle()
    assert 3 <= len(told) <= 6 and "Destination" in told[0] and "tried again in 1 s" in told[0]  # 1, 2, 4, 8 s
    assert node.bodies("work") == ["a"] and not client.over
    rig.run(40)
    assert not core.containment.resting and core.containment.parts_failed == len(told)


@pytest.mark.parametrize("dialled", [False, True])
def test_a_connection_whose_opening_fails_is_ended_and_a_dialled_one_is_dialled_anew(
    rig: Rig, dialled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    jfk, hub = rig.pair(start=False)
    opening, other = (jfk, hub) if dialled else (hub, jfk)
    opening.start()
    core = core_of(opening)
    left = [Defect("while it opens")]
    opened = core.driver_events.happened

    def failing(event: events.Event) -> None:
        if isinstance(event, events.ConnectionOpened) and left:
            raise left.pop()
        opened(event)

    monkeypatch.setattr(core.driver_events, "happened", failing)
    client = rig.client(opening) if not dialled else None
    other.start()
    rig.run(0.5)
    assert not left and core.containment.peers_ended == 1 and core.containment.parts_failed == 0
    assert client is None or client.over
    rig.run(20.0)
    assert core.neighbours[other.name].established
    assert rig.client(opening).manage("STATUS", "node")[0] == 200


def test_what_is_to_be_done_after_a_commit_is_tried_until_it_is_done(rig: Rig, node: Node) -> None:
    """Nobody asks for it again: what a queue hides until its entries are off the disk would be hidden for ever."""
    core = core_of(node)
    left = [Defect("of a step"), Defect("of a step")]
    done: list[float] = []

    def step(effect: Effect) -> None:
        if left:
            raise left.pop()
        done.append(rig.now)

    core.turns.effects.on(Effect, step)
    core.turns.gathered.then.append(Effect(core.turns.event))
    began = rig.now
    rig.client(node).manage("STATUS", "node")
    assert not done and len(left) == 1
    rig.run(10)
    assert len(done) == 1 and done[0] - began >= 3  # after 1 s, and 2
    assert len([line for line in node.logs if line.startswith("Effect(cause=") and "tried again" in line]) == 2
    assert not core.containment.resting and not core.containment.peers_ended


@pytest.mark.parametrize("failures", [1, 2])
def test_what_was_rejected_is_tried_twice_and_then_offered_anew(
    rig: Rig, node: Node, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    sender, consumer, other = (rig.client(node) for _ in range(3))
    link = sender.sender("work")
    rig.settle()
    sender.send(link, "a")
    consumer.receiver("work")
    rig.settle()
    left = [Defect("of a dead letter")] * failures
    dead_letter = DeadLettering.dead_letter

    def fail(*given: Any) -> int:
        if left:
            raise left.pop()
        return dead_letter(*given)

    with monkeypatch.context() as patch:
        patch.setattr(DeadLettering, "dead_letter", fail)
        consumer.accept(Rejected())
        rig.run(2)
    assert consumer.over and not left and not sender.over
    other.receiver("work")
    rig.run(1)
    if failures == 1:
        assert node.bodies("$dead-letters") == ["a"] and not other.bodies() and not node.queue("work").messages
    else:
        assert "$dead-letters" not in core_of(node).catalog.queues and other.bodies() == ["a"]


def test_what_is_set_aside_is_offered_anew_though_its_consumers_end_failed(
    rig: Rig, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one consumer takes so much, and is the one whose end fails."""
    sender, large, small = (rig.client(node) for _ in range(3))
    link = sender.sender("work")
    large.receiver("work", credit=0)
    small.receiver("work", max_message_size=200)
    rig.settle()
    sender.send(link, "a" * 300)
    rig.settle()
    shared = node.queue("work").shared
    assert list(shared.exclusions.aside) == [1]
    left = [Defect("of exclusions")]
    offer_anew = Exclusions._offer_anew

    def fail(self: Exclusions, returned: list[int]) -> list[int]:
        if left:
            raise left.pop()
        return offer_anew(self, returned)

    with monkeypatch.context() as patch:
        patch.setattr(Exclusions, "_offer_anew", fail)
        large.close_transport()
        rig.run(1)
    assert not left and core_of(node).containment.peers_ended == 1 and not shared.exclusions.aside
    assert [str(item.error.condition) for item in small.detached if item.error] == ["amqp:link:message-size-exceeded"]


def test_what_asks_for_the_next_deadline_is_contained_too(rig: Rig, node: Node) -> None:
    core = core_of(node)
    client = rig.client(node)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core.destination, "next_deadline", raising(Defect("of deadlines")))
        rig.run(3)
    assert any("of deadlines" in line for line in node.logs) and not client.over
    rig.run(5)
    assert not core.containment.resting


def test_a_turn_that_can_never_be_handed_over_ends_the_node(rig: Rig, node: Node) -> None:
    core = core_of(node)
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    client.send(link, "a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core.catalog.rows, "put", raising(Defect("of counters")))
        with pytest.raises(BrokenInvariant, match="the turn cannot be handed over"):
            rig.settle()
    assert node.pending is None
