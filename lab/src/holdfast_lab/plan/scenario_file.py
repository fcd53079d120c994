"""Scenarios in TOML: a named run for people to read, write and start (docs/simulator.md, "Scenario format").

Rules of this file: text to Plan and nothing more. Every mistake is one ConfigError line: the file, the table, the key,
what is wrong, what is expected. A scenario and a seed give the same plan wherever it is read; only `[draw]` and
`[network]` look at the seed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, get_type_hints

from holdfast.errors import ConfigError
from holdfast.routing.settings import RoutingConfig
from holdfast.routing.topology import DIRECTIONS
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.text_files import text_of, toml_of
from holdfast.units import written
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.plan.faults import KINDS as FAULT_KINDS
from holdfast_lab.plan.faults import Fault, FaultBudget, make_fault
from holdfast_lab.plan.networks import Link, LinkShape, Topology
from holdfast_lab.plan.plan import LIVENESS_S, SAFETY_S, Plan, from_json
from holdfast_lab.plan.shapes import SHAPES
from holdfast_lab.workloads import KINDS as WORKLOAD_KINDS
from holdfast_lab.workloads import make_workload

NODES_MAX: Final = 300
TIMES_MAX: Final = 1_000
FILE_BYTES_MAX: Final = 4 * 1024 * 1024
DAY_S: Final = 86_400.0

Table = dict[str, Any]
Check = Callable[[Any], str | None]
"""Gives what is expected where the value is not, else None."""


def _number(low: float, high: float, what: str) -> Check:
    def check(value: Any) -> str | None:
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
        return None if good else f"{what}, {written(low)} to {written(high)}"

    return check


def _whole(low: int, high: int, what: str) -> Check:
    def check(value: Any) -> str | None:
        good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return None if good else f"{what}, {low} to {high}"

    return check


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "text"


def _text_or_empty(value: Any) -> str | None:
    """Of a field that may be left out: plans hold its default."""
    return None if isinstance(value, str) else "text"


def _texts(value: Any) -> str | None:
    return (
        None if isinstance(value, list) and value and all(_text(item) is None for item in value) else "a list of names"
    )


def _direction(value: Any) -> str | None:
    return None if value in DIRECTIONS else f"one of {', '.join(DIRECTIONS)}"


def _shape(value: Any) -> str | None:
    return None if value in SHAPES else f"one of {', '.join(SHAPES)}"


def _table(value: Any) -> str | None:
    return None if isinstance(value, dict) else "a table"


def _tables(value: Any) -> str | None:
    return None if isinstance(value, list) and all(isinstance(item, dict) for item in value) else "tables, [[…]]"


_SECONDS: Final = _number(0, DAY_S, "seconds")
_SHAPE: Final[dict[str, Check]] = {
    "rate": _number(1, 1e12, "bytes a second"),
    "delay_s": _number(0, 3_600, "seconds"),
    "jitter_s": _number(0, 3_600, "seconds"),
    "loss": _number(0, 0.9, "a share of packets"),
    "queue_bytes": _whole(1_500, 1 << 40, "bytes"),
}
_TOP: Final[dict[str, Check]] = {
    "shows": _text,
    "topology": _table,
    "network": _table,
    "limits": _table,
    "routing": _table,
    "run": _table,
    "draw": _table,
    "clocks": _table,
    "link": _tables,
    "queue": _tables,
    "route": _tables,
    "workload": _tables,
    "fault": _tables,
}
_TOPOLOGY: Final[dict[str, Check]] = {
    "nodes": _texts,
    "keepalive_s": _number(0.01, 3_600, "seconds"),
    "hold_time_s": _number(0.03, 3_600, "seconds"),
    "routing": _flag,
    "supers": _texts,
    "joins": _texts,
}
_NETWORK: Final[dict[str, Check]] = {"nodes": _whole(4, NODES_MAX, "a number of nodes"), "shape": _shape, **_SHAPE}
_RUN: Final[dict[str, Check]] = {
    "safety_s": _number(0, DAY_S, "seconds"),
    "liveness_s": _number(1, DAY_S, "seconds"),
    "turn_s": _number(0.000_001, 1, "seconds"),
}
_DRAW: Final[dict[str, Check]] = {
    "kinds": _texts,
    "faults_max": _whole(1, 100, "a number of faults"),
    "down_max": _whole(0, NODES_MAX, "a number of nodes"),
    "disks_max": _whole(0, NODES_MAX, "a number of disks"),
}
_LINK: Final[dict[str, Check]] = {
    "one": _text,
    "other": _text,
    **_SHAPE,
    "back": _table,
    "cost": _number(0.000_001, 1e9, "a link's cost"),
    "direction": _direction,
}
_ROUTE: Final[dict[str, Check]] = {"node": _text, "destination": _text, "via": _text}
_REPEAT: Final[dict[str, Check]] = {
    "every_s": _number(0.001, DAY_S, "seconds"),
    "times": _whole(2, TIMES_MAX, "a number of times"),
}
_AMOUNTS: Final[dict[str, Check]] = {
    "slow-link": _number(1, 1e6, "a factor"),
    "slow-disk": _number(1, 1e6, "a factor"),
    "full-disk": _number(0, 1 << 40, "bytes of room left"),
    "clock-step": _number(-3_650 * DAY_S, 3_650 * DAY_S, "seconds"),
    "restore-backup": _number(0, DAY_S, "the backup's age in seconds"),
    "copied-disk": _number(0, DAY_S, "the copy's age in seconds"),
    "lying-peer": _number(0, 1, "the share of frames in which it lies"),
    "defect": _number(0, 1, "the share of events in which a function may raise"),
    "change-topology": _number(0, 1e6, "a factor of the link's cost, or 0 to take the link out"),
}
_MAY: Final = frozenset({"lying-peer", "defect", "copied-disk", "change-topology"})
"""Those that need no amount: it is a usual one, the copy is as new as what it is of, or the link is taken out."""
_DRAWABLE: Final = {kind: place for kind, place in FAULT_KINDS.items() if kind != "remove-link"}
"""Those that heal. Which links may go for good, with all that is sent still arriving, only the writer knows."""
_MOMENTS: Final = frozenset({"cut", "silent-cut", "clock-step", "purge", "remove-link"})
"""Faults that are over at once, or never."""


def _shown(value: Any) -> str:
    """The value on a line, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _take(told: Any, where: str, checks: Mapping[str, Check], required: tuple[str, ...] = ()) -> Table:
    """The table, checked key by key."""
    for key, value in told.items():
        check = checks.get(key)
        if check is None:
            raise ConfigError(f"unknown key {key!r} in {where}; expected one of {', '.join(checks)}")
        wanted = check(value)
        if wanted is not None:
            raise ConfigError(f"invalid value {_shown(value)} for {where} {key}; expected {wanted}")
    for key in required:
        if key not in told:
            raise ConfigError(f"{where} has no {key}; add it")
    return dict(told)


def _checks_of(kind: type[Any]) -> tuple[dict[str, Check], tuple[str, ...]]:
    """What the fields of a dataclass take, by their types, and those that must be there."""
    hints = get_type_hints(kind)
    found: dict[str, Check] = {}
    required = []
    for item in fields(kind):
        if not item.init:
            continue
        hint = str(hints[item.name])
        if hint == "<class 'str'>":
            found[item.name] = _text if item.default else _text_or_empty
        elif hint == "<class 'bool'>":
            found[item.name] = _flag
        elif "int" in hint and "float" not in hint and "[" not in hint:
            found[item.name] = _whole(0, 1 << 40, "a whole number")
        elif "float" in hint and "[" not in hint:
            found[item.name] = _number(0, 1e12, "a number")
        else:
            found[item.name] = lambda value: None
        if item.default is MISSING and item.default_factory is MISSING:
            required.append(item.name)
    return found, tuple(required)


# ----------------------------------------------------------------------------------------------------- the tables


def _node(name: str, nodes: tuple[str, ...], where: str) -> str:
    if name not in nodes:
        raise ConfigError(f"invalid value {name!r} for {where}; expected a node ({', '.join(nodes)})")
    return name


def _link(told: Table, where: str, nodes: tuple[str, ...]) -> Link:
    link = _take(told, where, _LINK, ("one", "other"))
    one, other, back = link.pop("one"), link.pop("other"), link.pop("back", None)
    for key, name in (("one", one), ("other", other)):
        _node(name, nodes, f"{where} {key}")
    if one == other:
        raise ConfigError(f"{where} has {one!r} at both ends; give it two nodes")
    told_to_routing = {key: link.pop(key) for key in ("cost", "direction") if key in link}
    there = LinkShape(**link)
    if back is not None:
        # What the way back does not say, it has from the way there.
        back = LinkShape(**{**link, **_take(back, f"{where} back", _SHAPE)})
    return Link(one=one, other=other, there=there, back=back, **told_to_routing)


def _routing(told: Table, *, on: bool) -> RoutingConfig | None:
    if told and not on:
        raise ConfigError("[routing] needs routing = true in [topology]; add it")
    checks, _ = _checks_of(RoutingConfig)
    routing = RoutingConfig(**_take(told, "[routing]", checks))
    routing.validate()
    return routing if on else None


def _network(told: Table, seed: int) -> tuple[tuple[str, ...], tuple[Link, ...]]:
    """Nodes n000, n001, … and links as the seed draws them, in that shape; all links alike."""
    for where, is_there in (("[topology] nodes", "nodes" in told["topology"]), ("[[link]]", "link" in told)):
        if is_there:
            raise ConfigError(f"{where} and [network] exclude each other; remove one of them")
    table = _take(told["network"], "[network]", _NETWORK, ("nodes", "shape"))
    count = table.pop("nodes")
    pairs = SHAPES[table.pop("shape")](count, SeedTree(seed).stream("network"))
    nodes = tuple(f"n{place:03}" for place in range(count))
    shape = LinkShape(**table)
    return nodes, tuple(Link(one=nodes[one], other=nodes[other], there=shape) for one, other in pairs)


def _topology(told: Table, seed: int) -> Topology:
    drawn = _network(told, seed) if "network" in told else None
    table = _take(told["topology"], "[topology]", _TOPOLOGY, () if drawn else ("nodes",))
    nodes = drawn[0] if drawn else tuple(table.pop("nodes"))
    routing = _routing(told.get("routing", {}), on=table.pop("routing", False))
    supers = tuple(_node(name, nodes, "[topology] supers") for name in table.pop("supers", ()))
    joins = tuple(_node(name, nodes, "[topology] joins") for name in table.pop("joins", ()))
    for key, named in (("supers", supers), ("joins", joins)):
        if named and routing is None:
            raise ConfigError(f"[topology] {key} needs routing = true; add it")
    if len(nodes) > NODES_MAX or len(set(nodes)) != len(nodes):
        raise ConfigError(f"invalid [topology] nodes, {len(nodes)} of them; expected up to {NODES_MAX}, each once")
    links = tuple(_link(link, f"[[link]] {index}", nodes) for index, link in enumerate(told.get("link", ()), 1))
    links = drawn[1] if drawn else links
    pairs: set[tuple[str, str]] = set()
    for index, link in enumerate(links, 1):
        pair = link.one, link.other  # the other way round both dial, which is a case of its own
        if pair in pairs:
            raise ConfigError(f"[[link]] {index} is {'-'.join(pair)} a second time; remove it")
        pairs.add(pair)
    queues: dict[str, tuple[QueueConfig, ...]] = {}
    queue_checks, _ = _checks_of(QueueConfig)
    for index, queue in enumerate(told.get("queue", ()), 1):
        where = f"[[queue]] {index}"
        queue = _take(queue, where, {"node": _text, **queue_checks}, ("node", "name"))
        node = _node(queue.pop("node"), nodes, f"{where} node")
        made = QueueConfig(**queue)
        made.validate()
        queues[node] = (*queues.get(node, ()), made)
    forwarding: dict[str, dict[str, str]] = {}
    for index, route in enumerate(told.get("route", ()), 1):
        where = f"[[route]] {index}"
        route = _take(route, where, _ROUTE, tuple(_ROUTE))
        for key in _ROUTE:
            _node(route[key], nodes, f"{where} {key}")
        forwarding.setdefault(route["node"], {})[route["destination"]] = route["via"]
    limit_checks, _ = _checks_of(Limits)
    limits = Limits(**_take(told.get("limits", {}), "[limits]", limit_checks))
    topology = Topology(
        nodes=nodes, links=links, queues=queues, forwarding=forwarding, limits=limits, routing=routing, supers=supers,
        joins=joins, **table,
    )  # fmt: skip
    if topology.hold_time_s < topology.keepalive_s:
        raise ConfigError(
            f"invalid value {topology.hold_time_s} for [topology] hold_time_s; expected at least keepalive_s "
            f"({topology.keepalive_s})"
        )
    whole, remotes = topology.map(), dict.fromkeys(nodes, "127.0.0.1:1")
    for node in nodes:  # what a node itself would refuse at its start: routes, doubles
        topology.config(node, remotes, whole).validate()
    return topology


def _workload(told: Table, where: str, topology: Topology) -> Table:
    kind = WORKLOAD_KINDS.get(str(told.get("kind")))
    if kind is None:
        known = ", ".join(sorted(WORKLOAD_KINDS))
        raise ConfigError(f"invalid value {told.get('kind')!r} for {where} kind; expected one of {known}")
    checks, required = _checks_of(kind)
    taken = _take(told, where, {"kind": _text, **checks}, required)
    if "node" in taken:
        _node(taken["node"], topology.nodes, f"{where} node")
    address = taken.get("address")
    if isinstance(address, str) and "@" in address:
        remotes = (broker.name for broker in topology.brokers.get(taken.get("node", ""), ()))
        _node(address.rpartition("@")[2], (*topology.nodes, *remotes), f"{where} address")
    make_workload(taken, where)
    return taken


def _place(fault: Fault, where: str, topology: Topology) -> None:
    """Raises ConfigError where the topology has no such node or link."""
    if FAULT_KINDS[fault.kind] == "node":
        _node(fault.node, topology.nodes, f"{where} node")
    elif not any({link.one, link.other} == set(fault.link) for link in topology.links):
        joined = ", ".join(f"{link.one}-{link.other}" for link in topology.links) or "there is none"
        raise ConfigError(f"invalid value {'-'.join(fault.link)!r} for {where} link; expected a link ({joined})")


def _faults(told: Table, where: str, topology: Topology, safety_s: float) -> list[Fault]:
    repeat = _take({key: told[key] for key in _REPEAT if key in told}, where, _REPEAT)
    if len(repeat) == 1:
        raise ConfigError(f"{where} has {next(iter(repeat))!r} alone; give every_s and times together")
    fault = make_fault({key: value for key, value in told.items() if key not in _REPEAT}, where)
    if "seconds" in told:
        wanted = _SECONDS(told["seconds"])
        if wanted is not None or fault.kind in _MOMENTS:
            expected = wanted if wanted is not None else f"none for {fault.kind}, which is over at once"
            raise ConfigError(f"invalid value {told['seconds']!r} for {where} seconds; expected {expected}")
    if (fault.kind in _AMOUNTS and fault.kind not in _MAY) or "amount" in told:
        check = _AMOUNTS.get(fault.kind)
        wanted = f"none for {fault.kind}" if check is None else check(told.get("amount"))
        if wanted is not None:
            raise ConfigError(f"invalid value {told.get('amount')!r} for {where} amount; expected {wanted}")
    if "lie" in told and fault.kind != "lying-peer":
        raise ConfigError(f"invalid value {told['lie']!r} for {where} lie; expected none for {fault.kind}")
    strikes = FAULT_KINDS[fault.kind]
    spare = "link" if strikes == "node" else "node"
    if spare in told:
        raise ConfigError(f"invalid value {told[spare]!r} for {where} {spare}; expected a {strikes} for {fault.kind}")
    _place(fault, where, topology)
    made = []
    for number in range(repeat.get("times", 1)):
        at = round(fault.at + number * repeat.get("every_s", 0.0), 6)
        if not 0 <= at <= safety_s:
            raise ConfigError(f"invalid value {at:g} for {where} at; expected 0 to safety_s ({safety_s:g})")
        made.append(replace(fault, at=at))
    return made


def _drawn(told: Table, topology: Topology, safety_s: float, seed: int) -> list[Fault]:
    table = _take(told, "[draw]", _DRAW, ("kinds",))
    kinds = table.pop("kinds")
    for kind in kinds:
        if kind not in _DRAWABLE or (_DRAWABLE[kind] == "link" and not topology.links):
            raise ConfigError(f"invalid value {kind!r} for [draw] kinds; expected any of {', '.join(_DRAWABLE)}")
    links = [(link.one, link.other) for link in topology.links]
    random = SeedTree(seed).stream("draw")
    return FaultBudget(**table).draw(random, kinds, list(topology.nodes), links, safety_s * 0.8)


def parse(text: str, name: str, seed: int = 1) -> Plan:
    """The plan that a scenario's text says, for that seed. Raises ConfigError; its line begins with `name`."""
    told = toml_of(text, name)
    try:
        _take(told, "the file", _TOP, ("topology", "workload"))
        topology = _topology(told, seed)
        run = {"safety_s": SAFETY_S, "liveness_s": LIVENESS_S, **_take(told.get("run", {}), "[run]", _RUN)}
        faults = []
        for index, fault in enumerate(told.get("fault", ()), 1):
            faults += _faults(fault, f"[[fault]] {index}", topology, run["safety_s"])
        if "draw" in told:
            faults += _drawn(told["draw"], topology, run["safety_s"], seed)
        workloads = tuple(
            _workload(workload, f"[[workload]] {index}", topology) for index, workload in enumerate(told["workload"], 1)
        )
        drift = _number(-0.1, 0.1, "how much faster the clock runs, as a fraction")
        drifts = _take(told.get("clocks", {}), "[clocks]", dict.fromkeys(topology.nodes, drift))
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    faults.sort(key=lambda fault: fault.at)
    return Plan(name=name, topology=topology, workloads=workloads, faults=tuple(faults), drifts=drifts, **run)


# ------------------------------------------------------------------------------------------------------- the files


def _own() -> dict[str, str]:
    """The scenarios that come with the package: name to text, by name."""
    folder = files("holdfast_lab").joinpath("scenarios")
    found = {item.name: item.read_text(encoding="utf-8") for item in folder.iterdir() if item.name.endswith(".toml")}
    return {name.removesuffix(".toml"): found[name] for name in sorted(found)}


def names() -> list[tuple[str, str]]:
    """The package's scenarios by name, each with the sentence that says what it shows."""
    return [(name, str(toml_of(text, name).get("shows", ""))) for name, text in _own().items()]


def is_path(name_or_path: str) -> bool:
    """Whether a file is meant: it ends in .toml, or has a directory."""
    return name_or_path.endswith(".toml") or "/" in name_or_path


def load(name_or_path: str, seed: int = 1) -> Plan:
    """The plan of a scenario by name or path; `seed` matters to those with a `[draw]` or a `[network]` alone."""
    if not is_path(name_or_path):
        own = _own()
        if name_or_path not in own:
            raise ConfigError(f"invalid scenario {name_or_path!r}; expected a path or one of {', '.join(own)}")
        return parse(own[name_or_path], name_or_path, seed)
    return parse(_read(Path(name_or_path)), name_or_path, seed)


def _read(path: Path) -> str:
    return text_of(path, str(path), FILE_BYTES_MAX, allow_pipe=True)


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan kept with its run: `seed` is None where the file holds a plan alone."""

    plan: Plan
    seed: int | None


def plan_file_text(plan: Plan, seed: int) -> str:
    """What `plan.json` holds: everything that makes the run again."""
    return json.dumps({"seed": seed, "plan": json.loads(plan.to_json())}, indent=1) + "\n"


def read_plan_file(path: Path) -> PlanFile:
    """What `plan_file_text` wrote, or a plan alone. Raises ConfigError that names the file."""
    text = _read(path)
    try:
        told = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: the file is not JSON: {error}") from None
    if not isinstance(told, dict):
        raise ConfigError(f"{path}: invalid {type(told).__name__}; expected a plan that a run wrote")
    seed = told.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise ConfigError(f"{path}: invalid value {seed!r} for seed; expected a whole number")
    try:
        plan = from_json(json.dumps(told.get("plan", told)))
        for index, fault in enumerate(plan.faults, 1):
            _place(fault, f"fault {index}", plan.topology)
        for index, workload in enumerate(plan.workloads, 1):
            _workload(workload, f"workload {index}", plan.topology)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return PlanFile(plan, seed)


__all__ = ["PlanFile", "is_path", "load", "names", "parse", "plan_file_text", "read_plan_file"]
