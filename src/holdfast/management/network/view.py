"""One view of the network from any node: each node's row, asked for hop by hop (docs/operations.md, "All nodes at
once"; ADR 0104).

Rules of this file: no custody, so a question or a row may be lost, and is asked for again by the next look. A node
keeps nothing of what it passes on. Rows that are passed on have a share of the line, and wait for it, a bounded number;
a node that was asked is not asked again before it has answered, or AGAIN_S are over. What a neighbour says is checked.
Old and missing rows are marked as such.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.amqp.wire.encoding import encode
from holdfast.broker.entries.entry import TRACE_MAX
from holdfast.custody.forwarding import Forwarding
from holdfast.engine.clock import Clock
from holdfast.management.network.node_row import NodeRow, read, write
from holdfast.management.network.own_row import OwnRow
from holdfast.peering.route_status import RoutesNow, state_of
from holdfast.peers.limits.allowances import Allowances
from holdfast.peers.neighbours.session_port import ControlHandlers, Session
from holdfast.routing.rows import read_names
from holdfast.routing.topology import BANDWIDTH_BPS_DEFAULT

FRESH_S: Final = 1.0
"""A row that came so lately is not asked for again."""
AGAIN_S: Final = 10.0
"""A node that has not answered is asked again after this."""
ASKS_MAX: Final = 16
"""Questions of clients under way at once."""
NODES_MAX: Final = 200
"""Nodes of one answer to a client; the next are asked for behind the last one's name."""
NAMES_MAX: Final = 100
"""Nodes that one control message asks for."""
QUESTIONS_PER_S: Final = 10.0
QUESTIONS_BURST: Final = 40.0
"""Of one neighbour; what comes beyond is dropped."""
LINE_SHARE: Final = 0.1
"""Of what a line carries, what rows may have."""
BURST_S: Final = 1.0
"""So much of that share may be used at once."""
WAITING_MAX: Final = 1_000
"""Rows that wait for one line; the oldest is dropped."""

ASK: Final = "view"
ANSWER: Final = "row"

Row = dict[str, Any]


@dataclass(eq=False, slots=True)
class Look:
    """A client's question: the nodes whose answers are outstanding, until when, and the function to call then."""

    names: list[str]
    more: bool
    missing: set[str]
    deadline: float
    told: Callable[[list[Row], bool], None]


@dataclass(slots=True)
class Line:
    """What waits for one neighbour; `free_at`: when all that was sent has passed, at the line's share."""

    waiting: deque[dict[str, Any]]
    free_at: float


class NetworkView:
    """Asks, answers and passes on. One of the node's `Timed` parts."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        own: OwnRow,
        forwarding: Forwarding,
        neighbours: Mapping[str, Session],
        routing: RoutesNow,
    ) -> None:
        self._name = name
        self._clock = clock
        self._own = own
        self._forwarding = forwarding
        self._neighbours = neighbours
        self._routing = routing
        self._allowances = Allowances(clock, per_s=QUESTIONS_PER_S, burst=QUESTIONS_BURST)
        self.looks: dict[Look, None] = {}
        self._rows: dict[str, tuple[float, NodeRow]] = {}
        """The last row of each node that was asked, and when it came."""
        self._asked_at: dict[str, float] = {}
        """Nodes that have not answered yet."""
        self._lines: dict[str, Line] = {}

    @property
    def hears(self) -> ControlHandlers:
        """Its control messages, by kind."""
        return {ASK: self._on_ask, ANSWER: self._on_row}

    # ------------------------------------------------------------------------------------------------ asking

    def ask(self, after: str, limit_s: float, told: Callable[[list[Row], bool], None]) -> bool:
        """`told(rows, more)` is called once: when all have answered, or after `limit_s`. The nodes by name, from the
        first behind `after` on. False: too many questions are under way."""
        if len(self.looks) >= ASKS_MAX:
            return False
        known = self._known()
        names = sorted(name for name in known if name > after)
        for table in (self._rows, self._asked_at):
            for name in [name for name in table if name not in known]:
                del table[name]
        page, more = names[:NODES_MAX], len(names) > NODES_MAX
        now = self._clock.now
        missing = {name for name in page if self._is_wanted(name, now)}
        look = Look(page, more, missing, now + limit_s, told)
        self._send_asks(self._asked(missing, now), [], None)
        self.looks[look] = None
        return True

    def _known(self) -> set[str]:
        routing = self._routing()
        nodes = () if routing is None else routing.nodes
        return {self._name, *self._neighbours, *self._forwarding.table, *nodes}

    def _is_wanted(self, name: str, now: float) -> bool:
        """Whether it can be asked, and its row is not new enough."""
        if name == self._name or self._hop_to(name) is None:
            return False
        found = self._rows.get(name)
        return found is None or now >= found[0] + FRESH_S

    def _asked(self, names: Iterable[str], now: float) -> list[str]:
        """Those of them that are asked now: the others were, and have not answered yet."""
        asked = [name for name in names if now >= self._asked_at.get(name, -AGAIN_S) + AGAIN_S]
        self._asked_at.update(dict.fromkeys(asked, now))
        return sorted(asked)

    def _hop_to(self, name: str) -> Session | None:
        hop = self._neighbours.get(self._forwarding.via(name))
        return hop if hop is not None and hop.established else None

    def _send_asks(self, names: Iterable[str], trace: list[str], but: str | None) -> None:
        """Asks the next node on the way to each, one message for NAMES_MAX of them."""
        by_hop: dict[str, list[str]] = {}
        for name in names:
            hop = self._hop_to(name)
            if hop is not None and hop.name != but and hop.name not in trace:
                by_hop.setdefault(hop.name, []).append(name)
        for hop_name, wanted in by_hop.items():
            for at in range(0, len(wanted), NAMES_MAX):
                fields = {"kind": ASK, "to": wanted[at : at + NAMES_MAX], "trace": [*trace, self._name]}
                self._neighbours[hop_name].send(fields)

    # ------------------------------------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        moments = [look.deadline if look.missing else self._clock.now for look in self.looks]
        moments += [line.free_at - BURST_S for line in self._lines.values() if line.waiting]
        return min(moments, default=None)

    def tick(self, now: float) -> None:
        """Answers what is complete, or has waited long enough; sends rows that waited for their line."""
        for look in list(self.looks):
            if not look.missing or now >= look.deadline:
                look.told([self._told(name, now) for name in look.names], look.more)
                del self.looks[look]
        for name, line in list(self._lines.items()):
            self._send_rows(name, line)
            if not line.waiting and now >= line.free_at:
                del self._lines[name]

    def _told(self, name: str, now: float) -> Row:
        row, age_s = None, None
        if name == self._name:
            row, age_s = self._own.row(), 0.0
        elif name in self._rows:
            at, row = self._rows[name]
            age_s = round(now - at, 3)
        return {"node": name, "state": self._state_of(name), "age_s": age_s, **({} if row is None else row.row())}

    def _state_of(self, name: str) -> str:
        routing = self._routing()
        known = None if routing is None else routing.states.known.get(name)
        if name == self._name:
            return "up"
        if routing is not None and known is not None:
            return state_of(routing, known)
        return "up" if self._hop_to(name) is not None else "unreachable"

    # ------------------------------------------------------------------------------------------------ neighbours

    def _on_ask(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        names, trace = read_names(fields.get("to"), NAMES_MAX), read_names(fields.get("trace"), TRACE_MAX)
        if not names or not trace or trace[-1] != neighbour.name or self._name in trace:
            return
        if not self._allowances.count(neighbour.name):
            return
        if self._name in names:
            self._pass_row({"kind": ANSWER, "way": trace, "node": self._name, "row": write(self._own.row())})
        if len(trace) < TRACE_MAX:
            self._send_asks([name for name in names if name != self._name], trace, neighbour.name)

    def _on_row(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        way, node, row = read_names(fields.get("way"), TRACE_MAX), fields.get("node"), read(fields.get("row"))
        if not way or way[-1] != self._name or not isinstance(node, str) or row is None:
            return
        if len(way) > 1:
            if neighbour.name not in way and read_names([node], 1):
                self._pass_row({"kind": ANSWER, "way": way[:-1], "node": str(node), "row": write(row)})
        elif self._asked_at.pop(str(node), None) is not None:
            self._rows[str(node)] = self._clock.now, row
            for look in self.looks:
                look.missing.discard(str(node))

    def _pass_row(self, fields: dict[str, Any]) -> None:
        """Sends a row one hop back, as soon as that link has a share for it."""
        name = fields["way"][-1]
        if name not in self._neighbours:
            return
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(deque(maxlen=WAITING_MAX), self._clock.now)
        line.waiting.append(fields)
        self._send_rows(name, line)

    def _send_rows(self, name: str, line: Line) -> None:
        now, neighbour = self._clock.now, self._neighbours.get(name)
        if neighbour is None or not neighbour.established:
            line.waiting.clear()
            return
        line.free_at = max(line.free_at, now)
        while line.waiting and line.free_at <= now + BURST_S:
            fields = line.waiting.popleft()
            neighbour.send(fields)
            line.free_at += 8 * len(encode(fields)) / (LINE_SHARE * self._bandwidth_bps(name))

    def _bandwidth_bps(self, name: str) -> int:
        routing = self._routing()
        link = None if routing is None else routing.topology.link_between(self._name, name)
        return BANDWIDTH_BPS_DEFAULT["tcp"] if link is None else link.bandwidth_bps or BANDWIDTH_BPS_DEFAULT[link.kind]
