"""The workloads of a bed: programs that send, receive, browse and manage, each with the conditions that must hold at
the end.

Rules of this package: a workload is `setup` (make what it needs), `start` (spawn its programs), `check` (raise
Violation) and `metrics` (numbers, by name); it is asyncio over the client library and knows no bed's insides.
Randomness comes from `bed.stream` alone, times from `bed.now`; names of clients and links are given, so that a run can
be repeated.
"""

from dataclasses import fields
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast_lab.workloads.addressed import Addressed
from holdfast_lab.workloads.apart import Apart
from holdfast_lab.workloads.bounded import Bounded
from holdfast_lab.workloads.browse import Browse
from holdfast_lab.workloads.by_hand import ByHand
from holdfast_lab.workloads.common import Workload, attached, full_address, marked
from holdfast_lab.workloads.consume import Consume
from holdfast_lab.workloads.copied import Copied
from holdfast_lab.workloads.delayed import Delayed
from holdfast_lab.workloads.departed import Departed
from holdfast_lab.workloads.durable import Copy
from holdfast_lab.workloads.dynamic import Dynamic
from holdfast_lab.workloads.expiring import Expiring
from holdfast_lab.workloads.federated import Federated
from holdfast_lab.workloads.fenced import Fenced
from holdfast_lab.workloads.guarded import Guarded
from holdfast_lab.workloads.guessing import Guessing
from holdfast_lab.workloads.idle import Idle
from holdfast_lab.workloads.in_memory import InMemory
from holdfast_lab.workloads.lagging import Lagging
from holdfast_lab.workloads.leaving import Leaving
from holdfast_lab.workloads.linked import Linked
from holdfast_lab.workloads.listened import Listened
from holdfast_lab.workloads.manage import Manage
from holdfast_lab.workloads.misuse import Hostile
from holdfast_lab.workloads.narrow import Narrow
from holdfast_lab.workloads.poisoned import Poisoned
from holdfast_lab.workloads.presettled import Presettled
from holdfast_lab.workloads.publish import ProducerLog, Publish
from holdfast_lab.workloads.reconnecting import ReconnectingProducer
from holdfast_lab.workloads.relay import Relay
from holdfast_lab.workloads.services import Services
from holdfast_lab.workloads.skip import Skip
from holdfast_lab.workloads.slow_consumer import SlowConsumer
from holdfast_lab.workloads.spooled import SpooledProducer
from holdfast_lab.workloads.stepped import Stepped
from holdfast_lab.workloads.subscription import Subscription
from holdfast_lab.workloads.temporary_topics import TemporaryTopics
from holdfast_lab.workloads.thin import Thin
from holdfast_lab.workloads.together import Together
from holdfast_lab.workloads.topics import Topic
from holdfast_lab.workloads.transact import Transact

KINDS: Final[dict[str, type[Any]]] = {
    kind.kind: kind
    for kind in (
        Publish,
        Consume,
        SlowConsumer,
        Subscription,
        Copy,
        Browse,
        ReconnectingProducer,
        SpooledProducer,
        Expiring,
        Relay,
        Manage,
        ByHand,
        Skip,
        InMemory,
        Lagging,
        Departed,
        Presettled,
        Addressed,
        Dynamic,
        Guarded,
        Fenced,
        Topic,
        Transact,
        Linked,
        Poisoned,
        Delayed,
        Stepped,
        Together,
        TemporaryTopics,
        Apart,
        Leaving,
        Thin,
        Federated,
        Listened,
        Hostile,
        Guessing,
        Bounded,
        Services,
        Copied,
        Idle,
        Narrow,
    )
}


def make_workload(told: dict[str, Any], where: str) -> Workload:
    """The workload of a scenario's `[[workload]]` table. Raises ConfigError that names `where` and the key."""
    kind = told.get("kind")
    found = KINDS.get(str(kind))
    if found is None:
        raise ConfigError(f"invalid value {kind!r} for {where} kind; expected one of {', '.join(sorted(KINDS))}")
    known = {item.name for item in fields(found) if item.init}
    for key in told:
        if key != "kind" and key not in known:
            raise ConfigError(f"unknown key {key!r} in {where}; expected one of {', '.join(sorted(known))}")
    try:
        made: Workload = found(**{key: value for key, value in told.items() if key != "kind"})
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None
    return made


__all__ = [
    "KINDS",
    "Addressed",
    "Apart",
    "Bounded",
    "Browse",
    "ByHand",
    "Consume",
    "Copied",
    "Copy",
    "Delayed",
    "Dynamic",
    "Expiring",
    "Federated",
    "Fenced",
    "Guessing",
    "Hostile",
    "Idle",
    "InMemory",
    "Leaving",
    "Linked",
    "Listened",
    "Manage",
    "Narrow",
    "Poisoned",
    "Presettled",
    "ProducerLog",
    "Publish",
    "ReconnectingProducer",
    "Relay",
    "Services",
    "Skip",
    "SlowConsumer",
    "SpooledProducer",
    "Stepped",
    "Subscription",
    "TemporaryTopics",
    "Thin",
    "Together",
    "Topic",
    "Transact",
    "Workload",
    "attached",
    "full_address",
    "make_workload",
    "marked",
]
