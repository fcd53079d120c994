"""A run as data: topology, workloads, faults and phases; what a scenario file says, or what a seed draws.

Rules of this file: a plan and a seed are a run, wherever it is made again. `to_json` and `from_json` are exact, so that
a plan that failed can be kept, shrunk and replayed.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from holdfast.access.rules import AccessConfig, AccessRule, GroupConfig
from holdfast.errors import ConfigError
from holdfast.pacing.settings import PacingConfig
from holdfast.routing.settings import RoutingConfig
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast_lab.plan.faults import Fault, make_fault
from holdfast_lab.plan.networks import BrokerShape, Link, LinkShape, Topology

SAFETY_S = 30.0
LIVENESS_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`safety_s`: faults strike; then all is healed, and everything must be done within `liveness_s`, virtual time."""

    name: str
    topology: Topology
    workloads: tuple[dict[str, Any], ...]
    faults: tuple[Fault, ...] = ()
    safety_s: float = SAFETY_S
    liveness_s: float = LIVENESS_S
    turn_s: float = 0.000_1
    drifts: dict[str, float] = field(default_factory=dict)
    """By node, how much faster its clock runs, as a fraction."""
    knobs: dict[str, int] = field(default_factory=dict)
    """Bounds of the nodes' work, as `knobs.py` names them."""
    piece_bytes: int = 0
    """As SimNetwork's (`sim/network.py`): mean size of the pieces in which writes arrive; 0: none is cut."""
    paged: bool = False
    """LMDB's store has what simulated nodes commit too, and is compared with theirs (`sim/paged_store.py`)."""

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    def shrunk(self, **changes: Any) -> "Plan":
        return replace(self, **changes)


def from_json(text: str) -> Plan:
    """The plan that `to_json` wrote; ConfigError where the text is none."""
    try:
        told = json.loads(text)
        topology = told.pop("topology")
        links = tuple(
            Link(
                one=link["one"],
                other=link["other"],
                there=LinkShape(**link["there"]),
                back=None if link["back"] is None else LinkShape(**link["back"]),
                cost=link.get("cost"),
                direction=link.get("direction", "both"),
            )
            for link in topology.pop("links")
        )
        queues = {
            node: tuple(QueueConfig(**queue) for queue in found) for node, found in topology.pop("queues").items()
        }
        limits = Limits(**topology.pop("limits"))
        nodes = tuple(topology.pop("nodes"))
        routing = topology.pop("routing", None)
        routing = None if routing is None else RoutingConfig(**routing)
        supers, joins = tuple(topology.pop("supers", ())), tuple(topology.pop("joins", ()))
        crossing = tuple(topology.pop("crossing", ()))
        pacing = {node: _pacing(table) for node, table in topology.pop("pacing", {}).items()}
        brokers = {
            node: tuple(BrokerShape(**shape) for shape in found) for node, found in topology.pop("brokers", {}).items()
        }
        access = {node: _access(table) for node, table in topology.pop("access", {}).items()}
        faults = tuple(make_fault(fault, "plan") for fault in told.pop("faults"))
        workloads = tuple(told.pop("workloads"))
        made = Topology(
            nodes=nodes, links=links, queues=queues, limits=limits, routing=routing, supers=supers, joins=joins,
            crossing=crossing, pacing=pacing, access=access, brokers=brokers, **topology,
        )  # fmt: skip
        plan = Plan(topology=made, faults=faults, workloads=workloads, **told)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"invalid plan {text[:60]!r}… ({error}); expected what a failed run wrote") from None
    plan.topology.validate()
    return plan


def _access(table: dict[str, Any]) -> AccessConfig:
    rules, groups = ([_of_lists(item) for item in table[key]] for key in ("rules", "groups"))
    return AccessConfig(
        rules=tuple(AccessRule(**told) for told in rules), groups=tuple(GroupConfig(**told) for told in groups)
    )


def _of_lists(told: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}


def _pacing(table: dict[str, Any]) -> PacingConfig:
    shares = tuple((str(client), float(share)) for client, share in table["shares"])
    host_shares = tuple((str(host), float(share)) for host, share in table.get("host_shares", ()))
    told = table | {"shares": shares, "roots": tuple(table["roots"]), "host_shares": host_shares}
    told["hosts"] = tuple(table.get("hosts", ()))
    if "weights" in table:
        told["weights"] = tuple((float(start), int(weight)) for start, weight in table["weights"])
    return PacingConfig(**told)
