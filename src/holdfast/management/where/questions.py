"""Where is my message: a question to one node, which is answered along the path (docs/where.md).

Rules of this file: each question is answered once and in time; the answer says what a node could not look at, and which
node did not answer. A neighbour's questions are bounded in number and in rate. Its answers are checked before they are
passed on, and cut so that they fit a control link together with our own step. A question carries the names of the nodes
that were asked, so that it ends in a loop.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard
from uuid import UUID

from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries import entry
from holdfast.broker.entries.host_names import host_of, node_of
from holdfast.custody.names.identity import Identities
from holdfast.engine.clock import Clock
from holdfast.links.ingress import NODE_MESSAGE_BYTES_MAX
from holdfast.management.where.message_ids import MessageId, as_sent, checked, encodings
from holdfast.management.where.search import Hint, Look, Step, Whereabouts
from holdfast.names import DESTINATION_BYTES_MAX, NAME_BYTES_MAX
from holdfast.peers.limits.allowances import Allowances
from holdfast.peers.neighbours.session_port import ControlHandlers, Session
from holdfast.schema import is_whole, is_whole_within
from holdfast.settings.limits import Limits

IDS_MAX: Final = 4
"""Message-ids that one question gives to choose from: a text may also be a number, a UUID or binary."""

LIMIT_S: Final = (0.1, 60.0)
LIMIT_S_DEFAULT: Final = 5.0
ONWARD_SHARE: Final = 0.8
"""Of the time that is left, what the next node has: so that who did not answer is known in time."""

CLIENT_ASKS_MAX: Final = 16
"""Questions of clients under way at once."""

NEIGHBOUR_ASKS_MAX: Final = 16
NEIGHBOUR_ASKS_PER_S: Final = 20.0
NEIGHBOUR_ASKS_BURST: Final = 40.0
"""Questions of one neighbour: under way, each second, and at once after a quiet while. More are answered `busy`."""

STEPS_A_TURN: Final = 4
"""Searches that go on in one turn, a share each: some milliseconds together."""

NODES_MAX: Final = entry.TRACE_MAX
"""Nodes that one question reaches."""

ANSWER_BYTES_MAX: Final = NODE_MESSAGE_BYTES_MAX // 2
"""Of the steps of one answer, encoded. The rest is room for what else is in the message, and for who is left out."""

TEXT_MAX: Final = 500
PATH_MAX: Final = entry.TRACE_MAX + 1

ASK: Final = "where"
ANSWER: Final = "there"

_TEXTS: Final = (
    "node", "store", "state", "next", "at", "since", "queue", "origin", "destination", "waits_for", "reason", "note",
)  # fmt: skip
_NUMBERS: Final = ("sequence", "number", "looked_at", "messages")
_LISTS: Final = ("path", "subscriptions")

_FOUND: Final = (
    "in transmission", "held back", "queued", "with a consumer", "consumed", "dead letter", "expired", "delivered",
    "ended",
)  # fmt: skip
"""States that say where the message is, or that it is no more."""

_STORE: Final = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(eq=False)
class Ask:
    """A running question. `told` gets its answer: the steps from this node on, and whether everything was looked at."""

    look: Look
    running: Iterator[None]
    ids: tuple[MessageId, ...]
    asked: tuple[str, ...]
    deadline: float
    told: Callable[[list[Step]], None]
    by: str | None
    """The neighbour that asks; None: a client."""
    steps: list[Step] = field(default_factory=list)
    number: int = 0
    """Under which the next node was asked; 0: none yet."""
    onward: str | None = None
    failed: bool = False
    """Whether the search, or what came of it, failed: the question is answered all the same, once more."""


class WhereQuestions:
    """Questions about messages, from the node's clients and its neighbours."""

    def __init__(
        self,
        here: Whereabouts,
        clock: Clock,
        limits: Limits,
        neighbours: Mapping[str, Session],
        identities: Identities,
    ) -> None:
        self.here = here
        self._clock = clock
        self._neighbours = neighbours
        self._identities = identities
        self._limits = limits
        self.looking: dict[Ask, None] = {}
        self.waiting: dict[int, Ask] = {}
        """By number: those that another node is to answer."""
        self._number = 0
        self._allowances = Allowances(self._clock, per_s=NEIGHBOUR_ASKS_PER_S, burst=NEIGHBOUR_ASKS_BURST)
        """By neighbour, of questions."""

    @property
    def hears(self) -> ControlHandlers:
        """The handlers of its control messages, by kind."""
        return {ASK: self._on_ask, ANSWER: self._on_answer}

    # ------------------------------------------------------------------------------------------------ asking

    def ask(self, host: str, ids: tuple[MessageId, ...], limit_s: float, told: Callable[[list[Step]], None]) -> bool:
        """A client's question about messages in its virtual host; `told` is called once, in a later turn. False: too
        many are running."""
        if sum(ask.by is None for ask in (*self.looking, *self.waiting.values())) >= CLIENT_ASKS_MAX:
            return False
        self._begin(host, ids, None, (), limit_s, told, None)
        return True

    def _begin(
        self, host: str, ids: tuple[MessageId, ...], hint: Hint | None, asked: tuple[str, ...], limit_s: float,
        told: Callable[[list[Step]], None], by: str | None,
    ) -> None:  # fmt: skip
        wanted = tuple(encoding for message_id in ids for encoding in encodings(message_id))
        look = self.here.look(host, wanted, hint)
        running = look.run(self._limits.where_entries_max)
        self.looking[Ask(look, running, ids, asked, self._clock.now + limit_s, told, by)] = None

    def next_deadline(self) -> float | None:
        if self.looking:
            return self._clock.now
        if not self.waiting:
            return None
        return min((ask.deadline for ask in self.waiting.values()), default=None)

    def tick(self, now: float) -> None:
        """One step of each search; names neighbours that did not answer in time."""
        if not self.looking and not self.waiting:
            return
        for ask in list(self.looking)[:STEPS_A_TURN]:
            del self.looking[ask]
            try:
                if self._goes_on(ask, now):
                    self.looking[ask] = None  # the turn of others
            except Exception:
                if not ask.failed:
                    ask.failed = True
                    self.looking[ask] = None
                raise
        for number, ask in list(self.waiting.items()):
            if now >= ask.deadline:
                assert ask.onward is not None
                self._end(ask, {"node": ask.onward, "state": "silent", "note": "it did not answer in time"})
                del self.waiting[number]

    def _goes_on(self, ask: Ask, now: float) -> bool:
        """One step of a search; returns whether there is more to look at."""
        if ask.failed:
            text = "a failure of this node, see its log"
            ask.steps = ask.steps or [{"node": self.here.node, "state": "silent", "note": text}]
            self._end(ask)
        elif now < ask.deadline and next(ask.running, self) is None:
            return True
        else:
            self._looked(ask)
        return False

    def _looked(self, ask: Ask) -> None:
        """The search has ended: answers, or asks the next node."""
        look, here = ask.look, self.here
        hint, name = look.onward or look.hint, here.node
        step = look.step
        is_here = hint is not None and node_of(hint.destination) == name
        if step is None and hint is not None and is_here:
            step = here.finished_here(hint)
            if step["state"] == "delivered" and look.complete:
                step |= {"state": "consumed", "waits_for": "nothing"}
        if step is None:
            step = {"state": "not here"}
        if not look.complete and look.step is None:
            messages = sum(queue.messages for queue in here.catalog.of_host(look.host))
            step |= {"looked_at": look.looked_at, "messages": messages}
            step["note"] = f"not found in the {look.looked_at} that were looked at, of {messages}"
        ask.steps = [{"node": name, "store": str(self._identities.store_uuid), **step}]
        if hint is None or is_here or (step["state"] in _FOUND and look.onward is None):
            self._end(ask)
            return
        asked = look.neighbour if look.neighbour is not None else here.forwarding.via(hint.destination)
        onward = self._neighbours.get(asked)
        if onward is None or not here.hops[onward.name].takes(hint.destination):
            self._end(ask)
        elif onward.name in ask.asked:
            self._end(ask, {"node": onward.name, "state": "asked before", "note": "it has this question already"})
        elif len(ask.asked) + 1 >= NODES_MAX:
            self._end(ask, {"node": onward.name, "state": "not asked", "note": f"after {NODES_MAX} nodes"})
        else:
            self._pass_on(ask, hint, onward)

    def _pass_on(self, ask: Ask, hint: Hint, onward: Session) -> None:
        left_s = (ask.deadline - self._clock.now) * ONWARD_SHARE
        self._number += 1
        fields = {
            "kind": ASK,
            "ask": Ulong(self._number),
            "ids": [as_sent(message_id) for message_id in ask.ids],
            "destination": hint.destination,
            "origin": hint.identity.origin,
            "number": Ulong(hint.identity.number),
            "to": hint.to,
            "asked": [*ask.asked, self.here.node],
            "limit": Ulong(max(0, int(left_s * 1000))),
        }
        if not onward.established or left_s < LIMIT_S[0] or not onward.send(fields):
            why = "no time is left" if onward.established else f"the session is {onward.state.value}"
            self._end(ask, {"node": onward.name, "state": "silent", "note": why})
            return
        ask.number, ask.onward = self._number, onward.name
        self.waiting[ask.number] = ask

    def _end(self, ask: Ask, *last: Step) -> None:
        ask.told(_fitting([*ask.steps, *last]))

    # ------------------------------------------------------------------------------------------------ neighbours

    def _on_ask(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        number, ids, asked = fields.get("ask"), fields.get("ids"), fields.get("asked")
        origin, count, limit_ms = fields.get("origin"), fields.get("number"), fields.get("limit")
        destination, to = fields.get("destination"), fields.get("to")
        if (
            not is_whole_within(number, 0, 2**63)
            or not isinstance(ids, list)
            or not 0 < len(ids) <= IDS_MAX
            or not isinstance(asked, list)
            or len(asked) >= NODES_MAX
            or not all(_is_name(name) for name in (*asked, to))
            or not _is_name(destination, DESTINATION_BYTES_MAX)
            or not isinstance(origin, UUID)
            or not is_whole_within(count, 1, 2**63)
            or not is_whole_within(limit_ms, 0, 2**63)
        ):
            return
        wanted = tuple(found for found in map(checked, ids) if found is not None)
        if len(wanted) != len(ids):
            return

        def told(steps: list[Step]) -> None:
            neighbour.send({"kind": ANSWER, "ask": Ulong(number), "steps": [_as_sent(step) for step in steps]})

        under_way = sum(ask.by == neighbour.name for ask in (*self.looking, *self.waiting.values()))
        if not self._allowances.count(neighbour.name) or under_way >= NEIGHBOUR_ASKS_MAX:
            told([{"node": self.here.node, "state": "busy", "note": "too many questions at once"}])
            return
        if self.here.node in asked:
            told([{"node": self.here.node, "state": "asked before", "note": "it has this question already"}])
            return
        host = host_of(destination)
        if host and not self.here.hops[neighbour.name].takes(destination):
            told([{"node": self.here.node, "state": "not here"}])
            return
        hint = Hint(str(destination), entry.Identity(entry.uuid_of(origin.bytes), int(count)), str(to))
        limit_s = min(limit_ms / 1000, LIMIT_S[1])
        self._begin(host, wanted, hint, tuple(map(str, asked)), limit_s, told, neighbour.name)

    def _on_answer(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        number, steps = fields.get("ask"), fields.get("steps")
        ask = self.waiting.get(number) if is_whole(number) else None
        if ask is None or ask.onward != neighbour.name or not isinstance(steps, list):
            return
        self._end(ask, *[_read_step(step) for step in steps[: 2 * NODES_MAX] if isinstance(step, dict)])
        del self.waiting[ask.number]


def answer_of(ids: tuple[MessageId, ...], steps: list[Step]) -> dict[str, Any]:
    """The answer of the operation WHERE: a summary, and the step of every node. Stores that a node could not name get
    the names that these nodes have in their own steps."""
    names = {step["store"]: step["node"] for step in steps if "store" in step and _is_name(step["node"])}
    for step in steps:
        if "waits_for" in step:  # in one pass, because a name may look like another store
            step["waits_for"] = _STORE.sub(lambda found: names.get(found[0], found[0]), step["waits_for"])
        step |= {"path": [names.get(name, name) for name in step["path"]]} if "path" in step else {}
        step |= {"origin": names.get(step["origin"], step["origin"])} if "origin" in step else {}
    last = steps[-1]
    known = [step for step in steps if step["state"] != "not here"]
    found = bool(known) and known[0]["state"] in (*_FOUND, "passed")
    holder = next((step for step in reversed(steps) if step.get("custody")), None)
    told = last
    if holder is not None and holder["state"] == "in transmission" and last["state"] not in (*_FOUND, "passed"):
        told = holder | ({"waits_for": last["waits_for"]} if "waits_for" in last else {})  # why it ends here
    complete = {*_FOUND}
    if told is not last:
        complete.add("expected")
    if not known:  # every node that was asked has looked at all that it has
        complete.add("not here")
    times = {step["node"]: step.get("since") for step in steps}
    path: list[str] = []
    for step in steps:
        if step.get("path") is not None:
            path = [*step["path"], step["node"]]
    return {
        "message_id": as_sent(ids[0]),
        "found": found,
        "complete": last["state"] in complete and "looked_at" not in last,
        "custody": holder["node"] if holder is not None else None,
        "state": told["state"],
        "waits_for": told.get("waits_for"),
        "path": [{"node": name, "since": times.get(name)} for name in path],
        "steps": [_as_sent(step) for step in steps],
    }


def ids_of(value: Any) -> tuple[MessageId, ...] | None:
    """The argument `message_id`: one, or a list of alternatives; None if it is neither."""
    values = value if isinstance(value, list) else [value]
    ids = tuple(found for found in map(checked, values) if found is not None)
    return ids if len(ids) == len(values) and 0 < len(ids) <= IDS_MAX else None


# ------------------------------------------------------------------------------------------------ steps


def _as_sent(step: Step) -> Step:
    return {key: Ulong(value) if key in _NUMBERS else value for key, value in step.items()}


def _fitting(steps: list[Step]) -> list[Step]:
    """The first steps with at most ANSWER_BYTES_MAX together; if these are not all, then a step `left out`."""
    left = ANSWER_BYTES_MAX
    for at, step in enumerate(steps):
        left -= len(encode(_as_sent(step)))
        if left < 0:
            note = f"the rest is left out: the answers of the nodes are more than {ANSWER_BYTES_MAX} bytes"
            return [*steps[:at], {"node": step["node"], "state": "left out", "note": note}]
    return steps


def _read_step(told: dict[Any, Any]) -> Step:
    """A step of another node, with only the fields that our own steps have."""
    step: Step = {"node": "?", "state": "?"}
    for key in _TEXTS:
        if isinstance(told.get(key), str):
            step[key] = str(told[key])[:TEXT_MAX]
    for key in _NUMBERS:
        value = told.get(key)
        if is_whole_within(value, 0, 2**64):
            step[key] = int(value)
    for key in _LISTS:
        values = told.get(key)
        if isinstance(values, list) and len(values) <= PATH_MAX and all(isinstance(value, str) for value in values):
            step[key] = [str(value)[:TEXT_MAX] for value in values]
    if told.get("custody") is True:
        step["custody"] = True
    return step


def _is_name(value: object, bytes_max: int = NAME_BYTES_MAX) -> TypeGuard[str]:
    return isinstance(value, str) and len(value.encode("utf-8", "replace")) <= bytes_max
