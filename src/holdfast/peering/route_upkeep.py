"""Maintenance of link states: tables are compared from time to time, versions near their highest value are reset, and
nodes that are gone are forgotten (docs/routing.md, "Upkeep").

Rules of this file: its messages are passed on at most once a second for each node, and may be lost: the next comparison
finds the same difference again. Source: docs/adr/0029-link-state-upkeep.md.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, Protocol

from holdfast.amqp.wire.types import Ulong
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.peers.neighbours.session_port import ControlHandlers, Session
from holdfast.routing.linkstate import LinkStates
from holdfast.routing.paths import Path
from holdfast.routing.records import VERSION_END
from holdfast.routing.settings import RoutingConfig
from holdfast.routing.topology import Topology
from holdfast.schema import is_whole_within

DROPPED_S: Final = 300.0
"""How long the last record of a forgotten node is not accepted again: others may not have forgotten it yet."""

QUARANTINE_S: Final = 60.0
"""How long a high version is not accepted for a node whose versions were reset: some nodes still have it, and it would
follow the reset round the network for ever."""

DELAY: Final = (0.5, 1.0)
"""The first comparison after a start, in shares of `refresh_s`: nodes that start together do not compare together."""


class Maintained(Protocol):
    """The control plane whose tables are maintained (routes.py)."""

    name: str
    config: RoutingConfig
    topology: Topology
    states: LinkStates
    paths: dict[str, Path]

    def wake(self) -> None:
        """Something changed: requests a tick in this turn."""

    def compare_with(self, neighbour: str) -> None:
        """Our table differs from that neighbour's: both send their summaries."""

    def may_answer(self, what: str, name: str) -> bool:
        """Whether an event of that kind and node may be acted upon again; counts it if so."""

    def malformed(self, neighbour: str, text: str) -> None:
        """A neighbour's message is malformed; logged with a limited rate."""


class Upkeep:
    """A part of `Routes`, which ticks it before it sends anything to neighbours."""

    def __init__(
        self,
        routes: Maintained,
        clock: Clock,
        rng: Random,
        log: Log,
        neighbours: Mapping[str, Session],
        nodes_left: Callable[[], None],
    ) -> None:
        """`nodes_left`: called when a node was forgotten."""
        self.routes = routes
        self._clock = clock
        self._log = log
        self._neighbours = neighbours
        self._nodes_left = nodes_left
        self.forgot: Callable[[str], None] = _nothing
        """Called with the name of a node that was forgotten."""
        self.states: LinkStates = routes.states
        config = routes.config
        self.refresh_at = clock.now + config.refresh_s * rng.uniform(*DELAY)
        self.gone_since: dict[str, float] = {}
        """Nodes that the topology file does not name and that cannot be reached, and since when."""
        self._dropped_at: dict[str, float] = {}
        self._quarantined_at: dict[str, float] = {}
        self._to_send: dict[str, dict[str, dict[str, Any]]] = {}
        """By neighbour, messages that wait for credit, by kind and node: `records_max` at most."""

    @property
    def hears(self) -> ControlHandlers:
        """The handlers of its control messages, by kind."""
        return {"digest": self._on_digest, "reset": self._on_reset, "forget": self._on_forget}

    # ------------------------------------------------------------------------------------------------ time

    def tick(self, now: float) -> bool:
        """Returns whether everything due was sent."""
        states = self.states
        if states.resets:
            states.resets = False
            self._quarantined_at[self.routes.name] = now
            self._pass_on({"kind": "reset", "node": self.routes.name}, None)
        for name, node in states.stale:
            self._wait(name, {"kind": "reset", "node": node})
        states.stale.clear()
        if now >= self.refresh_at:
            self.refresh_at = now + self.routes.config.refresh_s
            self._refresh(now)
        for name, waiting in list(self._to_send.items()):
            if name not in states.told:
                del self._to_send[name]
                continue
            while waiting:
                key = next(iter(waiting))
                if not self._neighbours[name].send(waiting[key]):
                    break
                del waiting[key]
            if not waiting:
                del self._to_send[name]
        return not self._to_send

    def _refresh(self, now: float) -> None:
        states, routes = self.states, self.routes
        states.recount()
        _expire(self._dropped_at, states.dropped, now - DROPPED_S)
        _expire(self._quarantined_at, states.quarantined, now - QUARANTINE_S)
        gone = [name for name in states.known if not self._is_named(name) and name not in routes.paths]
        self.gone_since = {name: self.gone_since.get(name, now) for name in gone}
        for name, since in list(self.gone_since.items()):
            if now >= since + routes.config.forget_s:
                self.forget(name, f"gone for {now - since:.0f} s")
        for name in states.told:
            self._neighbours[name].send({"kind": "digest", "digest": Ulong(states.digest)})

    def _is_named(self, name: str) -> bool:
        """Whether the configuration or the topology file names it."""
        routes = self.routes
        return name == routes.name or routes.topology.node(name) is not None or name in self._neighbours

    def _pass_on(self, fields: dict[str, Any], but: str | None) -> None:
        for name in self.states.told:
            if name != but:
                self._wait(name, fields)

    def _wait(self, name: str, fields: dict[str, Any]) -> None:
        """Queues a message for that neighbour until there is credit; beyond `records_max` the oldest is dropped."""
        waiting = self._to_send.setdefault(name, {})
        waiting[f"{fields['kind']} {fields['node']}"] = fields
        if len(waiting) > self.states.records_max:
            del waiting[next(iter(waiting))]

    # ------------------------------------------------------------------------------------------------ hearing

    def _on_digest(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        """The digest of the neighbour's table. If ours differs, both exchange summaries."""
        digest = fields.get("digest")
        routes = self.routes
        if is_whole_within(digest, 0, VERSION_END) and digest != self.states.digest:
            routes.compare_with(neighbour.name)

    def _on_reset(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        """Handles `reset`: a node's version reached its highest value, and the node starts again from its clock. A
        reset of an unknown node is not passed on, so that made-up names are not flooded."""
        name = self._node_in(neighbour, fields)
        if name is None or name == self.routes.name:
            return
        is_known = name in self.states.known
        voided = self.states.void(name)
        self._remember(self._quarantined_at, self.states.quarantined, name)
        if voided or (is_known and self.routes.may_answer("reset", name)):
            self._pass_on({"kind": "reset", "node": name}, neighbour.name)
            self.routes.wake()

    def _on_forget(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        """Handles `forget`: removes the node from the table, unless it is reachable or configured here."""
        name = self._node_in(neighbour, fields)
        version = fields.get("version")
        if name is None or not is_whole_within(version, 0, VERSION_END) or not self.routes.may_answer("forget", name):
            return
        known = self.states.known.get(name)
        if known is not None and known.record.version <= version and self.why_kept(name) is None:
            self.forget(name, f"as {neighbour.name} says", but=neighbour.name)

    def _node_in(self, neighbour: Session, fields: dict[Any, Any]) -> str | None:
        name = fields.get("node")
        try:
            if isinstance(name, str):
                return check_name(str(name))
        except ConfigError:
            pass
        self.routes.malformed(neighbour.name, f"invalid node in {fields.get('kind')}; expected a node's name")
        return None

    def _remember(self, moments: dict[str, float], names: dict[str, Any], name: str) -> None:
        """Adds it to `names`; at the bound the oldest is removed."""
        moments.pop(name, None)
        while len(moments) >= self.states.records_max:
            oldest = next(iter(moments))
            del moments[oldest]
            names.pop(oldest, None)
        moments[name] = self._clock.now

    # ------------------------------------------------------------------------------------------------ forgetting

    def why_kept(self, name: str) -> str | None:
        """Why a known node must not be forgotten; None if it may be."""
        if self._is_named(name):
            return "this node's configuration or topology file names it: take it out there first"
        if name in self.routes.paths:
            return "it is in reach: stop it first"
        return None

    def forget(self, name: str, reason: str, *, but: str | None = None) -> None:
        """Removes the node from the table, here and at all reachable nodes."""
        edition = self.states.drop(name)
        if edition is None:
            return
        self._remember(self._dropped_at, self.states.dropped, name)
        self.gone_since.pop(name, None)
        self._pass_on({"kind": "forget", "node": name, "version": Ulong(edition.version)}, but)
        self._log.write("INFO", f"routing: node {name} is forgotten: {reason}")
        self._nodes_left()
        self.forgot(name)
        self.routes.wake()


def _expire(moments: dict[str, float], names: dict[str, Any], before: float) -> None:
    """Removes names with an earlier time from both."""
    for name in [name for name, at in moments.items() if at < before]:
        del moments[name]
        names.pop(name, None)


def _nothing(_: str) -> None:
    """Does nothing."""
