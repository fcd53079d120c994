"""Corruptions of federation (support/corruption.py).

Rules of this file: one function, or one line, each.
"""

from collections import deque
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from holdfast.federation.confirming import WAITING_MAX, Bind
from holdfast.federation.messages import FOLLOWED_MAX
from holdfast.federation.rows import VOID, Row, Stamp
from holdfast.federation.serving import NAMES_MAX, REPLIES_MAX
from holdfast.federation.sets import Key, stamped
from support.corruption import breaks, one_more
from support.standing import federating

GHOST = Key("ghost", "prices")

# ------------------------------------------------------------------------------------------------------ the node


@breaks("federation: federation: the session of {} is another's", federating)
def _(s: Any) -> None:
    s.taken.name = "ghost"


@breaks("federation: federation: too many binds wait", federating)
def _(s: Any) -> None:
    s.federation.confirming.binds = dict.fromkeys(range(WAITING_MAX + 1))


@breaks("federation: federation: a bind under another number", federating)
def _(s: Any) -> None:
    s.federation.confirming.binds[9] = Bind(8, "prices", Row("us.#"), 0.0)


@breaks("federation: federation: a bind to a topic that is not announced", federating)
def _(s: Any) -> None:
    s.federation.confirming.binds[9] = Bind(9, "ghost", Row("us.#"), 0.0)


@breaks("federation: federation: a parent of {} that is not forwarded to", federating)
def _(s: Any) -> None:
    s.federation.parents[GHOST] = "ghost"


@breaks("federation: federation: a parent of the own set", federating)
def _(s: Any) -> None:
    s.federation.parents[s.own] = "c"


@breaks("federation: federation: rows of {} since when is not known", federating)
def _(s: Any) -> None:
    s.federation.own["prices"].since.clear()


@breaks("federation: federation: a row of {} from a version to come", federating)
def _(s: Any) -> None:
    since = s.federation.own["prices"].since
    row, stamp = next(iter(since.items()))
    since[row] = Stamp(stamp.life, stamp.version + 1_000)


# ------------------------------------------------------------------------------------------------------ the sets


@breaks("federation: federation: a set that is listed and not there", federating)
def _(s: Any) -> None:
    s.sets._by_topic["prices"]["ghost"] = None


@breaks("federation: federation: bytes of {}", federating)
def _(s: Any) -> None:
    s.sets.stored[s.key] = replace(s.held, bytes=s.held.bytes + 1)


@breaks("federation: federation: marked rows of {}", federating)
def _(s: Any) -> None:
    s.sets.stored[s.key] = replace(s.held, marked=s.held.marked | {Row("ghost", None, 1)})


@breaks("federation: federation: digest of {}", federating)
def _(s: Any) -> None:
    s.sets.stored[s.key] = replace(s.held, digest=s.held.digest + 1)


@breaks("federation: federation: rows of {} that has another digest", federating)
def _(s: Any) -> None:
    s.sets.stored[s.key] = replace(s.held, taken=s.held.taken + 1)


@breaks("federation: federation: too many rows of {}", federating)
def _(s: Any) -> None:
    s.federation.bounds = replace(s.federation.bounds, rows_max=1)


@breaks("federation: federation: our own set has no stamp", federating)
def _(s: Any) -> None:
    s.sets.stored[s.own] = stamped(s.sets.stored[s.own], VOID)


def more_bytes(s: Any, more: int) -> None:
    """So that the account of memory and its holder agree."""
    s.sets.bytes += more
    s.core.memory.sets.held += more
    s.core.memory.total.held += more


@breaks("federation: federation: bytes of all sets", federating)
def _(s: Any) -> None:
    more_bytes(s, 1)


@breaks("federation: federation: sets that are there and not listed", federating)
def _(s: Any) -> None:
    del s.sets._by_topic["prices"][s.key.origin]
    more_bytes(s, -s.held.bytes)


@breaks("federation: federation: what a commit moved was not passed on", federating)
def _(s: Any) -> None:
    s.sets.moved[s.key] = None


# ------------------------------------------------------------------------------------------------- the neighbours


@breaks("federation: federation: {} follows too much", federating)
def _(s: Any) -> None:
    s.serving.followers = dict.fromkeys(range(FOLLOWED_MAX + 1))


@breaks("federation: federation: {} is sent what it does not take", federating)
def _(s: Any) -> None:
    s.serving.pending[GHOST] = None


@breaks("federation: federation: replies to {}", federating)
def _(s: Any) -> None:
    s.serving.replies.extend([(s.key, s.held.edition, "")] * (REPLIES_MAX + 1))


@breaks("federation: federation: {} takes what it does not forward", federating)
def _(s: Any) -> None:
    s.serving.topics = frozenset()


@breaks("federation: federation: {} compares what it was not sent last", federating)
def _(s: Any) -> None:
    s.serving.followers[s.key].compared = replace(s.held, digest=s.held.digest + 1)


@breaks("federation: federation: names behind {}", federating)
def _(s: Any) -> None:
    s.serving.followers[s.key].names = dict.fromkeys(range(NAMES_MAX + 1))


one_more("federation: federation: all names behind {}", federating, lambda s: s.serving, "named")


@breaks("federation: federation: {} was told what is not wanted", federating)
def _(s: Any) -> None:
    s.taking.told[GHOST] = s.taking.told[s.key]


@breaks("federation: federation: {} is asked for what is not wanted", federating)
def _(s: Any) -> None:
    s.taking.asked[GHOST] = None


@breaks("federation: federation: repairs from {} of what is not wanted", federating)
def _(s: Any) -> None:
    s.taking.repairs[GHOST] = SimpleNamespace(asked=(), bytes=0)


one_more("federation: federation: parts asked of {}", federating, lambda s: s.taking, "questions")
one_more("federation: federation: names that {} was told", federating, lambda s: s.taking, "named")
one_more("federation: federation: bytes of repairs from {}", federating, lambda s: s.taking, "repair_bytes")


@breaks("federation: federation: {} is asked for parts of no repair", federating)
def _(s: Any) -> None:
    s.taking.requests[s.key] = {"0": None}


@breaks("federation: federation: {} was asked for parts of no repair", federating)
def _(s: Any) -> None:
    s.taking.open[s.key, "0"] = None


@breaks("federation: federation: {} is not the parent of {}", federating)
def _(s: Any) -> None:
    s.taking.wanted[GHOST] = None


@breaks("federation: federation: {} is not asked for {}", federating)
def _(s: Any) -> None:
    del s.taking.told[s.key]


# ------------------------------------------------------------------------------------------------- in its node


@breaks("peering: federation: something is to be said to who is away", federating)
def _(s: Any) -> None:
    s.control.messages.eager["ghost"] = None


@breaks("peering: federation: a message waits for who is away", federating)
def _(s: Any) -> None:
    s.control.messages.unsent["ghost"] = {"kind": "federate", "rows": []}


@breaks("peering: federation: somebody who is away was heard", federating)
def _(s: Any) -> None:
    s.control.messages.waiting["ghost"] = deque([object()])


@breaks("peering: federation: too many messages of a neighbour wait, or none", federating)
def _(s: Any) -> None:
    s.control.messages.waiting["a"] = deque()


@breaks("peering: federation: bytes of what waits", federating)
def _(s: Any) -> None:
    s.control.messages.waiting_bytes |= {"a": 1, "b": -1}


@breaks("peering: federation: a commit is under way in no turn, or a turn without", federating)
def _(s: Any) -> None:
    s.control.written = s.core.turns.gathered


@breaks("peering: federation: the turn of its records is over", federating)
def _(s: Any) -> None:
    s.sets.under_way, s.control.written = {}, object()


# ------------------------------------------------------------------------------------------------------ topics


@breaks("endpoints: topic {}: what its subscriptions want, and what is told of it", federating)
def _(s: Any) -> None:
    topic = s.node.queue("topic/prices")
    topic.listeners.popitem()


@breaks("endpoints: a confirmation is waited for on a connection that is gone", federating)
def _(s: Any) -> None:
    s.core.topic_bindings.waiting[9] = SimpleNamespace(peer=None)


@breaks("endpoints: a confirmation is waited for on a link that is gone", federating)
def _(s: Any) -> None:
    peer = next(iter(s.core.connections.values()))
    s.core.topic_bindings.waiting[9] = SimpleNamespace(peer=peer, link=SimpleNamespace(detached=True))


@breaks("endpoints: confirmations that are waited for, by link", federating)
def _(s: Any) -> None:
    s.core.topic_bindings.tokens[SimpleNamespace] = 9
