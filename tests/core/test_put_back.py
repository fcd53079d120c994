"""An older store that is put back: it gets a new UUID at the start, or as soon as anybody can know (ADR 0025)."""

from typing import Any
from uuid import UUID

import pytest

from holdfast.broker import rewriting
from holdfast.broker.queue import Queue
from holdfast.broker.stored import custody_records
from holdfast.custody.hop import next_hop
from holdfast.custody.names import identity
from holdfast.custody.names.identity import Identities
from holdfast.endpoints.attaching import neighbour_attach
from holdfast.engine.port import Batch
from holdfast.peering import control
from holdfast.settings.queues import QueueConfig
from support.hops import STRICT, names, send, snapshot
from support.rig import Node, Rig

WHY = "its file is not the one that was opened last"


def put_back(node: Node, kept: Any, *, known: bool = True) -> None:
    """The node stands still, its store is the older copy; `known`: as a store on disk finds it."""
    if node.core is not None:
        node.crash()
    node.store = kept
    node.store.copied = WHY if known else None


def status_of(rig: Rig, node: Node) -> dict[str, Any]:
    return rig.client(node).manage("STATUS", "node")[1]


def first_contact_knows_nothing(last: int, *, known: bool = True) -> tuple[Rig, Node, Node, Node, UUID]:
    """a is put back to 3 of 9 and sends 10 to `last`; its only neighbour, b, has passed nothing on that it remembers: c
    knows, and says so too late. With them a's former UUID. `known`: as `put_back` says."""
    rig = Rig()
    a, b, c = rig.line("a", "b", "c", c=STRICT)
    rig.run(2)
    send(rig, a, *names(1, 3), to="c")
    rig.run(2)
    kept = snapshot(a)
    send(rig, a, *names(4, 9), to="c")
    rig.run(2)
    old = a.store.uuid
    if not known:
        c.unwatched.add("$holdfast/custody")  # it will accept what it takes for copies
    put_back(a, kept, known=known)
    for node in (b, c):
        node.crash()
    b.store = type(b.store)(mint_from=rig.uuid)  # its disk is new
    b.start()
    a.start()
    send(rig, a, *names(10, last), to="c")
    rig.run(2)
    c.start()
    rig.run(40)
    return rig, a, b, c, old


def test_new_messages_are_new_though_the_first_contact_knows_nothing() -> None:
    rig, a, b, c, old = first_contact_knows_nothing(15)
    assert c.bodies("work") == names(1, 15)
    told = status_of(rig, a)
    assert told["former_store"] == str(old) and told["store"] == str(a.store.uuid) != str(old)
    assert any("this store was copied, put back or renamed: " + WHY in text for text in a.logs)
    assert any("has a new store" in text for text in b.logs) or b.store.uuid != old


def test_what_it_holds_keeps_its_identity_and_is_not_doubled() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.refuse_dials = True
    send(rig, jfk, *names(1, 5), to="hub")
    kept = snapshot(jfk)
    rig.refuse_dials = False
    rig.run(10)
    assert hub.bodies("work") == names(1, 5)
    put_back(jfk, kept)
    jfk.start()
    send(rig, jfk, "6", to="hub")
    rig.run(10)
    assert hub.bodies("work") == names(1, 6)
    assert any("neighbour jfk has a new store" in text for text in hub.logs)


def test_one_of_before_the_tables_said_whose_they_are_begins_anew_too() -> None:
    """Its numbers are not the former store's, nor its queues: or the new UUID would begin in the midst of them."""
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.run(2)
    send(rig, jfk, *names(1, 5), to="hub")
    rig.run(2)
    kept = snapshot(jfk)
    kept.commit(Batch(deletes=[("custody", custody_records.NUMBERED_BY)]))
    queue = jfk.queue("@hub").uuid
    send(rig, jfk, *names(6, 9), to="hub")
    rig.run(2)
    put_back(jfk, kept)
    jfk.hold_commits = True  # killed once, with nothing stored but who it is
    jfk.start()
    rig.run(3)
    jfk.crash()
    jfk.hold_commits = False
    jfk.start()
    send(rig, jfk, *names(10, 15), to="hub")
    rig.run(10)
    assert hub.bodies("work") == names(1, 15)
    assert jfk.core is not None and jfk.core.catalog.ledger.identities["hub"] == 7
    assert jfk.queue("@hub").uuid != queue


def test_its_queues_are_others_and_all_they_hold_counts_as_shown() -> None:
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    link = client.sender("work")
    rig.settle()
    for body in names(1, 3):
        client.send(link, body)
    rig.settle()
    uuid = hub.queue("work").uuid
    lease = client.manage("OPEN", "subscription", "audit", queue="work", mode="copy")[1]
    put_back(hub, snapshot(hub))
    hub.start()
    client = rig.client(hub)
    told = {"queue": "work", "queue_uuid": str(uuid), "lease_epoch": lease["lease_epoch"]}
    assert client.manage("ADVANCE", "subscription", "audit", **told, sequence=2)[0] == 412
    client.receiver("work")
    rig.settle()
    assert client.bodies() == names(1, 3)
    assert not any(message.header is not None and message.header.first_acquirer for message in client.messages())
    hub.crash()
    again = hub.store.uuid
    hub.start()
    rig.settle()
    assert hub.store.uuid == again and status_of(rig, hub)["former_store"] is None


@pytest.mark.parametrize("in_life", [False, True])
def test_a_crash_right_after_it_became_someone_new_leaves_no_numbers_of_the_former(in_life: bool) -> None:
    """The UUID is new, the tables are not yet: the numbers of the former store are nobody's any more."""
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.run(2)
    send(rig, jfk, *names(1, 5), to="hub")
    rig.run(2)
    kept = snapshot(jfk)
    if in_life:
        send(rig, jfk, "6", to="hub")
    put_back(jfk, kept, known=not in_life)
    jfk.hold_commits = True
    jfk.start()
    rig.run(3)
    assert jfk.core is not None and jfk.core.identities.renewed
    jfk.crash()
    jfk.hold_commits = False
    jfk.start()
    send(rig, jfk, "7", to="hub")
    rig.run(10)
    assert hub.bodies("work")[-1] == "7" and hub.core is not None
    assert hub.core.catalog.ledger.origins[jfk.store.uuid].mark == 1


def test_a_full_disk_does_not_keep_it_from_becoming_someone_new() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.run(2)
    send(rig, jfk, *names(1, 5), to="hub")
    kept = snapshot(jfk)
    put_back(jfk, kept)
    jfk.refuse = 1
    jfk.start()
    send(rig, jfk, "lost", to="hub")
    assert not jfk.refuse
    jfk.crash()
    jfk.start()
    send(rig, jfk, "6", to="hub")
    rig.run(10)
    assert hub.bodies("work") == names(1, 6)


def test_what_may_have_been_dropped_is_listed_where_a_copy_is_found_out_too_late() -> None:
    """Nothing on the disk told: a snapshot of the whole machine."""
    rig, a, _, c, old = first_contact_knows_nothing(12, known=False)
    assert a.store.uuid != old and c.bodies("work") == names(1, 9)
    (loss,) = status_of(rig, a)["losses"]
    assert (loss["origin"], loss["first"], loss["last"]) == (str(old), 4, 6)
    assert "may have dropped them" in loss["reason"]


def put_back_late(rig: Rig, count: int) -> tuple[Node, Node]:
    """jfk is an older store of itself, unknown to it, that accepted 10 and what follows for the hub and for x; the hub,
    which has up to 9, does not hear from it yet."""
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.run(2)
    send(rig, jfk, *names(1, 3), to="hub")
    rig.run(2)
    kept = snapshot(jfk)
    send(rig, jfk, *names(4, 9), to="hub")
    rig.run(2)
    put_back(jfk, kept, known=False)
    rig.refuse_dials = True
    jfk.start()
    send(rig, jfk, *names(10, 9 + count), to="hub")
    return jfk, hub


def is_exact(jfk: Node, hub: Node, count: int) -> None:
    assert jfk.core is not None and hub.core is not None and jfk.core.identities.renewed
    assert hub.bodies("work") == names(1, count) and not hub.core.duplicates.suppressed
    assert jfk.queue("@hub").messages == 0 and not jfk.core.catalog.ledger.renewals
    assert not jfk.store._tables.get(("custody", b"whub"))


@pytest.mark.parametrize("fault", ["none", "disk", "disk twice", "failure", "failure under way"])
def test_what_it_accepted_as_a_copy_is_new_though_the_turn_that_says_so_is_undone(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    rig = Rig()
    jfk, hub = put_back_late(rig, 3)
    renew, renew_some = Identities.renew, Identities.renew_some
    faults = {"failure": 1, "failure under way": 1}.get(fault, 0)

    def renewed(*told: Any) -> None:
        nonlocal faults
        renew(*told)
        jfk.refuse = {"disk": 1, "disk twice": 2}.get(fault, 0)
        if fault == "failure" and faults:
            faults -= 1
            raise RuntimeError("a defect")

    def some(*told: Any) -> None:
        nonlocal faults
        renew_some(*told)
        if fault == "failure under way" and faults and jfk.core is not None and jfk.core.turns.gathered.renewals:
            faults -= 1
            raise RuntimeError("a defect")

    monkeypatch.setattr(Identities, "renew", renewed)
    monkeypatch.setattr(Identities, "renew_some", some)
    rig.refuse_dials = False
    rig.run(60)
    assert not jfk.refuse and not faults
    send(rig, jfk, "13", to="hub")
    rig.run(5)
    is_exact(jfk, hub, 13)
    jfk.crash()
    jfk.start()
    send(rig, jfk, "14", to="hub")
    rig.run(10)
    assert hub.bodies("work") == names(1, 14)


@pytest.mark.parametrize("crashes", [1, 3])
def test_what_it_accepted_as_a_copy_is_new_though_it_is_killed_as_it_becomes_someone_new(
    monkeypatch: pytest.MonkeyPatch, crashes: int
) -> None:
    """The new UUID is on disk, with what is to be numbered anew, and nothing of the first commit behind it."""
    rig = Rig()
    jfk, hub = put_back_late(rig, 3)
    old = jfk.store.uuid
    monkeypatch.setattr(identity, "RENEW_COUNT", 1)
    commit = jfk.store.commit

    def last(batch: Batch) -> None:
        commit(batch)
        jfk.hold_commits = batch.mint is not None

    jfk.store.commit = last  # type: ignore[method-assign]
    rig.refuse_dials = False
    rig.run(3)
    assert jfk.core is not None and jfk.core.identities.renewed and jfk.store.uuid != old
    for _ in range(crashes):
        assert dict(jfk.store.table("custody"))[b"u"] == jfk.store.uuid.bytes
        assert b"whub" in dict(jfk.store.table("custody"))
        jfk.crash()
        jfk.start()
        rig.run(1)
    jfk.store.commit = commit  # type: ignore[method-assign]
    jfk.hold_commits = False
    send(rig, jfk, "13", to="hub")
    rig.run(10)
    assert hub.bodies("work") == names(1, 13) and not hub.core.duplicates.suppressed
    assert not jfk.store._tables.get(("custody", b"whub")) and not hub.core.losses


def test_becoming_someone_new_waits_for_no_disk_and_nobody_hears_of_it_before() -> None:
    """The commit under way, and those behind it, take their time: the node answers meanwhile, as who it was."""
    rig = Rig()
    jfk, hub = put_back_late(rig, 3)
    old = jfk.store.uuid
    jfk.hold_commits = True
    rig.refuse_dials = False
    rig.run(4)
    assert (
        jfk.core is not None and jfk.core.identities.renewed and jfk.core.identities.store_uuid != old == jfk.store.uuid
    )
    assert hub.core is not None and hub.core.catalog.ledger.neighbour_stores["jfk"] == old
    assert rig.client(jfk).manage("STATUS", "node")[0] == 200
    jfk.hold_commits = False
    rig.run(60)
    assert hub.core.catalog.ledger.neighbour_stores["jfk"] == jfk.store.uuid != old
    is_exact(jfk, hub, 12)


def test_a_full_disk_puts_off_that_it_becomes_someone_new_and_is_told_once() -> None:
    rig = Rig()
    jfk, hub = put_back_late(rig, 3)
    old = jfk.store.uuid
    jfk.refuse, jfk.refuse_all = 1_000_000, True
    tries = jfk.tries
    rig.refuse_dials = False
    rig.run(20)
    assert jfk.core is not None and jfk.core.identities.renewed and jfk.store.uuid == old and not jfk.stopped
    assert 10 < jfk.tries - tries < 40
    assert 1 <= len([text for text in jfk.logs if "the disk is full" in text]) <= 2
    jfk.refuse = 0
    rig.run(60)
    is_exact(jfk, hub, 12)


def test_a_commit_under_way_that_is_refused_gives_no_numbers_of_the_former_store_back() -> None:
    """It had numbered a message when the store became someone new, whose numbers begin at 1."""
    rig = Rig()
    jfk, hub = put_back_late(rig, 3)
    jfk.hold_commits = True
    send(rig, jfk, "refused", to="hub")
    assert jfk.core is not None and jfk.core.turns.in_flight is not None and jfk.core.turns.in_flight.identities
    rig.refuse_dials = False
    rig.run(4)
    assert jfk.core.identities.renewed
    jfk.refuse, jfk.hold_commits = 1, False
    rig.run(60)
    assert not jfk.refuse
    send(rig, jfk, "13", to="hub")
    rig.run(20)
    is_exact(jfk, hub, 13)


def test_what_is_to_be_numbered_anew_in_a_queue_that_was_never_stored_is_nothing() -> None:
    rig = Rig()
    jfk = rig.node("jfk")
    jfk.crash()
    row = custody_records.pack_renewal(custody_records.Renewal(jfk.store.uuid, 1, 1, 1))
    jfk.store.mint(lambda _: {("custody", b"wnowhere"): row})
    jfk.start()
    rig.run(1)
    assert jfk.core is not None and not jfk.core.catalog.ledger.renewals
    assert b"wnowhere" not in dict(jfk.store.table("custody"))


def test_all_destinations_begin_anew_though_the_turn_that_says_so_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """c had something of the former store, and hears of the new one from 1 on."""
    rig = Rig()
    a, b, c = rig.line("a", "b", "c", b=STRICT, c=STRICT)
    rig.run(2)
    send(rig, a, *names(1, 3), to="b")
    send(rig, a, *names(1, 3), to="c")
    rig.run(5)
    kept = snapshot(a)
    send(rig, a, *names(4, 9), to="b")
    rig.run(2)
    put_back(a, kept, known=False)
    renew = Identities.renew

    def renewed(*told: Any) -> None:
        renew(*told)
        a.refuse = 1

    monkeypatch.setattr(Identities, "renew", renewed)
    rig.refuse_dials = True
    a.start()
    send(rig, a, "10", to="b")
    rig.refuse_dials = False
    rig.run(40)
    assert a.core is not None and a.core.identities.renewed and not a.refuse
    a.crash()
    a.start()
    send(rig, a, "4", to="c")
    rig.run(20)
    assert c.bodies("work") == names(1, 4) and b.bodies("work") == names(1, 10)


@pytest.mark.parametrize("crash", [False, True])
def test_a_deep_queue_is_numbered_anew_in_shares_and_in_order(monkeypatch: pytest.MonkeyPatch, crash: bool) -> None:
    """What comes meanwhile stays behind, and a crash half-way through goes on where it was."""
    monkeypatch.setattr(identity, "RENEW_COUNT", 10)
    rig = Rig()
    jfk, hub = put_back_late(rig, 95)
    shares: list[int] = []
    renew_some = Identities.renew_some

    def some(identities: Any) -> None:
        before = len(identities._turns.gathered.rewritten)
        renew_some(identities)
        shares.append(len(identities._turns.gathered.rewritten) - before)

    monkeypatch.setattr(Identities, "renew_some", some)
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    assert jfk.core is not None
    jfk.core.identities.receipt("hub", 9)  # what the hub is about to say
    assert jfk.core.identities.renewed
    for body in () if crash else names(105, 109):
        client.send(link, body)
    if crash:
        for _ in range(10_000):
            if jfk.core.catalog.ledger.renewals["hub"].place > 20:
                break
            rig.step()
        jfk.crash()
        jfk.start()
        assert jfk.core is not None and jfk.core.catalog.ledger.renewals
        send(rig, jfk, *names(105, 109), to="hub")
    rig.settle(10**6)
    rig.refuse_dials = False
    rig.run(60)
    assert max(shares) <= 10 and sum(shares) >= 95 - 10
    assert hub.bodies("work") == names(1, 109) and not jfk.core.catalog.ledger.renewals


def test_what_is_numbered_anew_is_counted_and_recorded_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails behind the step, the turn that is undone knows of all of it."""
    rig = Rig()
    jfk, hub = put_back_late(rig, 3)
    replace = rewriting.replace
    steps: list[int] = []

    def replaced(queue: Queue, sequence: int, before: bytes, value: bytes, *told: Any) -> None:
        replace(queue, sequence, before, value, *told)
        assert (
            jfk.core is not None
            and jfk.core.turns.gathered.rewritten[queue, sequence] == queue.value(sequence) == value
        )
        steps.append(sequence)

    monkeypatch.setattr(rewriting, "replace", replaced)
    rig.refuse_dials = False
    rig.run(60)
    assert len(steps) == 3
    is_exact(jfk, hub, 12)


@pytest.mark.parametrize("again", [False, True])
def test_what_was_sent_keeps_its_identity_when_a_renamed_neighbour_makes_the_store_someone_new(again: bool) -> None:
    """x comes back as xx, with x's store, and does not know of it: it shows a mark that the hub never heard of under
    that name. Meanwhile y has some in doubt; `again`: its connection breaks before it answers."""
    rig = Rig()
    hub, x, xx, y = rig.graph("hub-x", "hub-xx", "hub-y", x=STRICT, xx=STRICT, y=STRICT)
    xx.crash()
    rig.run(2)
    send(rig, hub, *names(1, 50), to="x")
    send(rig, hub, *names(1, 20), to="y")
    rig.run(5)
    assert hub.core is not None and hub.core.catalog.ledger.receipts["y"] == 20
    old = hub.store.uuid
    y.hold_commits = True
    send(rig, hub, *names(21, 40), to="y")  # sent, and in doubt
    hub.hold_commits = True
    send(rig, hub, *names(41, 60), to="y")  # not even stored
    x.crash()
    xx.store = x.store
    del xx.store._tables["node", custody_records.NAME]  # as of a version that did not write it down
    xx.start()
    for _ in range(1_000):
        if hub.core.identities.renewed:
            break
        rig.pass_time(0.1)
        rig.settle()
    assert hub.core.identities.renewed
    hub.hold_commits = False
    rig.settle()
    if again:
        for wire in rig.between("hub", "y"):
            wire.cut()
    y.hold_commits = False
    send(rig, hub, *names(61, 80), to="y")
    send(rig, hub, *names(51, 53), to="xx")
    rig.run(40)
    assert y.bodies("work") == names(1, 80) and xx.bodies("work") == names(1, 53)
    assert y.core is not None and y.core.catalog.ledger.origins[old].mark == 40
    assert y.core.catalog.ledger.origins[hub.store.uuid].mark == 40 and not hub.queue("@y").messages
    assert not hub.core.losses and not y.core.losses
    assert any("known as x before" in text for text in hub.logs)


def out_of_credit(node: Node, to: str) -> Any:
    """All that the control link to that neighbour may say is said; its next grant is on its way. Returns the link."""
    assert node.core is not None
    link = node.core.neighbours[to].control.link
    link.credit = 0
    return link


def grant(rig: Rig, node: Node, name: str) -> None:
    """The node gives the neighbour's control link credit."""
    assert node.core is not None
    peer = node.core.neighbours[name].peer
    for session in peer.amqp.sessions:
        for link in session.remote_links.values():
            if link.name == f"control:{name}":
                link.grant(200)
    peer.touch()
    node.due = True
    rig.settle()


def test_who_it_became_is_said_with_the_next_credit() -> None:
    """It was dropped without credit, and said no more in that session."""
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    send(rig, jfk, "1", to="hub")
    rig.run(2)
    assert jfk.core is not None and hub.core is not None
    out_of_credit(jfk, "hub")
    old = jfk.core.identities.store_uuid
    jfk.core.identities.receipt("hub", 5)  # a number that it never gave
    jfk.due = True
    rig.settle()
    new = jfk.core.identities.store_uuid
    stores = hub.core.catalog.ledger.neighbour_stores
    assert new != old == stores["jfk"]
    grant(rig, hub, "jfk")
    assert stores["jfk"] == new and jfk.core.neighbours["hub"].flaps == 0
    assert not jfk.core.neighbours["hub"].control.hello_owed
    send(rig, jfk, "2", to="hub")
    rig.run(2)
    assert hub.bodies("work") == ["1", "2"]


@pytest.mark.parametrize("credit", [200, 1])
@pytest.mark.parametrize("others", [0, 3, 4, 5, 12, 17])
def test_it_hears_of_all_its_destinations_before_it_sends(
    monkeypatch: pytest.MonkeyPatch, others: int, credit: int
) -> None:
    """A hello holds so many marks: what was behind them came with the next ones, after it had sent."""
    monkeypatch.setattr(next_hop, "RECEIPTS_MAX", 4)
    rig = Rig()
    a, b, c = rig.line("a", "b", "c", c=STRICT)
    rig.run(5)
    assert a.core is not None and b.core is not None
    origin, ledger = a.core.identities.store_uuid, a.core.catalog.ledger
    for number in range(others):  # it has sent to these, and b knows what they finished of it
        ledger.put_identity(f"d{number}", 3)
        a.core.identities.sent[f"d{number}"] = 2
        b.core.forwarding.receipts.note(origin, f"d{number}", 1)
    rig.run(2)
    send(rig, a, *names(1, 3), to="c")
    rig.run(3)
    kept = snapshot(a)
    send(rig, a, *names(4, 6), to="c")
    rig.run(15)
    assert list(b.core.catalog.ledger.passing).index((origin, "c")) == others
    put_back(a, kept, known=False)
    monkeypatch.setattr(neighbour_attach, "CONTROL_CREDIT", credit)
    monkeypatch.setattr(control, "CONTROL_CREDIT", credit)
    rig.refuse_dials = True
    a.start()
    send(rig, a, *names(7, 9), to="c")
    rig.refuse_dials = False
    rig.run(20)
    assert a.core is not None and a.core.identities.renewed and not a.core.losses
    assert c.bodies("work") == names(1, 9)
