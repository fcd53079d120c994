"""What follows a commit is data: a turn can be printed, and each kind of effect has its handler."""

from typing import Any
from uuid import UUID

from holdfast.amqp.wire.extensions import PRODUCER
from holdfast.broker.stored.custody_records import Renewal
from holdfast.core.reloading import LogOutAskers
from holdfast.custody.dead_lettering import DeadLettered
from holdfast.custody.delays import Delivered
from holdfast.custody.delivery_limits import Exhausted
from holdfast.custody.expiry import CountExpired, UnhideExpired
from holdfast.custody.names.identity import OfferRenumbered, TellIdentity
from holdfast.endpoints.attaching.neighbour_attach import AnswerHop
from holdfast.endpoints.attaching.producer_attach import AnswerNamedProducer
from holdfast.endpoints.entry_changes import UnhideDeleted, UnhideMoved
from holdfast.endpoints.listening import TellListeners
from holdfast.endpoints.resumption.consumer import AnswerConsumer
from holdfast.endpoints.resumption.producer import AnswerProducer
from holdfast.endpoints.spreading import Published
from holdfast.endpoints.stored_answers import AnswerSubscriber
from holdfast.endpoints.transactions.discharge import Discharged
from holdfast.engine.effects import DESCRIBED_MAX, Effect, LinkEffect, effect_of
from holdfast.engine.port import Batch
from holdfast.management.operations.entries import AnswerMoved
from holdfast.management.operations.queues import AnswerSkip
from holdfast.management.requests import LogChange, SendAnswer
from holdfast.queue_links.handing import Handed
from holdfast.queue_links.leftovers import Deleted
from holdfast.state.producer_ends import EndProducer
from holdfast.state.turns import Turn
from support.rig import Rig

STORE = UUID(int=7)
AN_OBJECT: Any = object()
"""Stands for what a handler needs and no description shows."""

AFTER = {
    LogOutAskers(21, []): "LogOutAskers(cause=21)",
    AnswerHop(1, 2, "custody-hub", AN_OBJECT, STORE): f"AnswerHop(cause=1, connection=2, name='custody-hub', "
    f"continues={STORE!r})",
    AnswerNamedProducer(2, 3, "out", "meter", AN_OBJECT, AN_OBJECT): "AnswerNamedProducer(cause=2, connection=3, "
    "name='out', producer='meter')",
    AnswerProducer(3, 3, "out", AN_OBJECT, None, AN_OBJECT): "AnswerProducer(cause=3, connection=3, name='out')",
    AnswerConsumer(4, 3, "in\n", AN_OBJECT): "AnswerConsumer(cause=4, connection=3, name='in\\n')",
    EndProducer(14, 3, "out", AN_OBJECT, "drained", "c"): "EndProducer(cause=14, connection=3, name='out', "
    "reason='drained', condition='c')",
    AnswerSubscriber(4, 3, "in", AN_OBJECT, None): "AnswerSubscriber(cause=4, connection=3, name='in')",
    LogChange(5, 3, "queue 'a' made", AN_OBJECT): "LogChange(cause=5, connection=3, changed=\"queue 'a' made\")",
    SendAnswer(6, 3, "replies", 200, AN_OBJECT, AN_OBJECT, b""): "SendAnswer(cause=6, connection=3, "
    "reply_to='replies', status=200)",
    UnhideExpired(7, [(1, [4, 5])]): "UnhideExpired(cause=7, gone=[(1, [4, 5])])",
    TellIdentity(8, STORE): f"TellIdentity(cause=8, store={STORE!r})",
    UnhideDeleted(13, 1, 6): "UnhideDeleted(cause=13, queue_id=1, sequence=6)",
    OfferRenumbered(9, "hub", Renewal(STORE, 1, 1, 1, 1)): "OfferRenumbered(cause=9, destination='hub')",
}
DECIDED = {
    AnswerSkip(10, "work", 2, AN_OBJECT, AN_OBJECT): "AnswerSkip(cause=10, queue='work', ranges=2)",
    AnswerMoved(12, AN_OBJECT, AN_OBJECT): "AnswerMoved(cause=12)",
    UnhideMoved(14, 1, 6): "UnhideMoved(cause=14, queue_id=1, sequence=6)",
    CountExpired(11, 1, [6]): "CountExpired(cause=11, queue_id=1, sequences=[6])",
    Discharged(12, "0a", AN_OBJECT, AN_OBJECT): "Discharged(cause=12, txn_id='0a')",
    Exhausted(17, "work", AN_OBJECT, AN_OBJECT): "Exhausted(cause=17, queue='work')",
    DeadLettered(16, "work", 2, AN_OBJECT): "DeadLettered(cause=16, queue='work', sequence=2)",
    Deleted(18, AN_OBJECT): "Deleted(cause=18)",
    Handed(15, "clean", AN_OBJECT, AN_OBJECT): "Handed(cause=15, name='clean')",
    Delivered(18, "acme", [1]): "Delivered(cause=18, host='acme')",
    Published(19, "5f", 3): "Published(cause=19, store='5f', number=3)",
    TellListeners(20, "topic/news", AN_OBJECT, b"", 4, None): "TellListeners(cause=20, name='topic/news', size=4)",
}


def test_a_turn_is_printed_with_effects_of_all_kinds() -> None:
    turn = Turn(Batch(), then=[*AFTER], decided=[*DECIDED])
    assert turn.describe() == (
        "0 appended, 0 retired, 0 moved, 0 rows put, 0 deleted, 0 pieces; 0 deliveries on 0 links, 0 answers; "
        f"then: {', '.join(AFTER.values())}; decided: {', '.join(DECIDED.values())}"
    )


def test_a_turn_with_very_many_effects_is_printed_in_part() -> None:
    text = Turn(Batch(), then=[Effect(number) for number in range(1000)]).describe()
    assert f"Effect(cause={DESCRIBED_MAX - 1}), …; decided: nothing" in text
    assert f"Effect(cause={DESCRIBED_MAX})" not in text


def test_every_kind_of_effect_is_here_and_has_a_handler() -> None:
    kinds = {kind.__name__ for kind in (*Effect.__subclasses__(), *LinkEffect.__subclasses__())} - {"LinkEffect"}
    assert kinds == {type(effect).__name__ for effect in (*AFTER, *DECIDED)}
    core = Rig().node("hub").core
    assert core is not None
    for effect in AFTER:
        assert effect_of(core.turns.effects.after(effect)) is effect
    for effect in DECIDED:
        assert effect_of(core.turns.effects.decided(effect, stored=True)) is effect


def test_an_effect_tells_its_connection_and_the_event_that_caused_it() -> None:
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    rig.settle()
    node.hold_commits = True
    client.sender("work", properties={PRODUCER: "meter"})
    rig.settle()
    core = node.core
    assert core is not None and core.turns.in_flight is not None
    (effect,) = core.turns.in_flight.then
    assert isinstance(effect, AnswerNamedProducer)
    assert effect.connection in core.connections and 0 < effect.cause < core.turns.event
    assert repr(effect) in core.turns.in_flight.describe()
