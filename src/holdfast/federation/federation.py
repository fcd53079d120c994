"""The bindings of a node's topics and of all that it sends to: what is published, taken, passed on and confirmed.

Rules of this file: no clock, no session, no disk; times are seconds on `now`'s scale. After each event the caller asks
`records`, and, once they are on disk, says `committed`; `take` gives what may be said now, which is never ahead of the
disk. Source: docs/adr/0079.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from holdfast.federation.aliases import Malformed
from holdfast.federation.claims import Claims
from holdfast.federation.confirming import WAITING_MAX, Answer, Bind, Confirming
from holdfast.federation.following import Following
from holdfast.federation.idle import LOOKED_MIN, idle
from holdfast.federation.index import Asks, unasked
from holdfast.federation.keeping import Sets, Write
from holdfast.federation.messages import (
    Change,
    Claim,
    Compare,
    Federate,
    Follow,
    Message,
    PartsOf,
    Reset,
    RowsOf,
    Stored,
    read,
    write,
)
from holdfast.federation.modes import DYNAMIC
from holdfast.federation.neighbour import Neighbour
from holdfast.federation.own import Own
from holdfast.federation.parents import Routes, both_ways, reached
from holdfast.federation.relaying import Choice, Relays, tagged
from holdfast.federation.rows import LIFE_HIGH, RELAY, VERSION_HIGH, VOID, Row, Stamp, text_hash
from holdfast.federation.serving import PartsCache
from holdfast.federation.sets import Edition, Held, Key, bounded, is_sound, make, stamped, substitute
from holdfast.federation.settings import Bounds, Entry, check_entries, federates
from holdfast.federation.standing import Standing, standing
from holdfast.federation.taking import voided

RETRY_S: Final = 1.0
"""Seconds until a retry after a refused commit."""

CREDIT_KEPT: Final = 16
"""Credit of a control link that is reserved for the messages that keep the session up."""

CHECKED_ROWS: Final = 5_000
"""The number of rows whose digests are added up in one turn."""

SUMMARY_S: Final = 1.0
"""Seconds between steps in which exact rows follow a summary."""


class Federation:
    """One node. `life`: wall milliseconds at its start; `rows`: what is on disk."""

    def __init__(
        self,
        name: str,
        life: int,
        now: float,
        *,
        bounds: Bounds = Bounds(),
        rows: Mapping[tuple[str, ...], list[Any]] | None = None,
    ) -> None:
        self.name = name
        self.bounds = bounds
        self.sets = Sets()
        self.sets.load(rows or {})
        own = {key: held for key, held in self.sets.stored.items() if key.origin == name}
        lives = [held.stamp.life + 1 for held in own.values() if held.stamp.life + 1 < LIFE_HIGH]
        self.life = max([1, min(life, LIFE_HIGH - 1), *lives])
        self.resets = 0
        self.own: dict[str, Own] = {key.topic: Own() for key in own}
        self._look_for_idle = max(LOOKED_MIN, 2 * len(self.own))
        """With how many topics of its own."""
        self._gone = VOID
        """The highest stamp of own sets that are not held any more: one that comes back goes on behind it."""
        self.bindings: dict[str, set[Row]] = {}
        self.revision = 0
        """Increases with everything that may change `spread`."""
        self.relays = Relays()
        self.reachable: set[str] = set()
        self.forwarded: dict[str, Federate] = {}
        """By neighbour: what we forward to it, and what we ask it for."""
        self._asked: set[str] = set()
        """Topics that neighbours are asked for."""
        self.neighbours: dict[str, Neighbour] = {}
        self.following = Following(name, bounds, self.sets)
        self.parents = self.following.parents
        self.confirming = Confirming()
        self.claims = Claims(name)
        self.nonces: dict[Key, int] = {}
        """By set: the nonce of the last reset that was passed on."""
        self.cache = PartsCache()
        self.voided = 0
        """Sets whose digest was found to be wrong."""
        self._rerouted = True
        self._to_answer: dict[Key, None] = {}
        """Sets about which followers have sent something."""
        self._standings: set[str] = set()
        """Topics whose binds may be answered now."""
        self._refresh_at = now + bounds.refresh_s
        self._to_check: list[Key] = []
        self._retry_at: float | None = None
        self._summed_at = now + SUMMARY_S
        for key, held in own.items():
            self.sets.put(key, stamped(bounded(held, bounds.rows_max), Stamp(self.life, 1)))

    # ------------------------------------------------------------------------------------------------ told by the node

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Those by which messages go to a neighbour."""
        return self.following.entries

    @property
    def routes(self) -> Routes:
        return self.following.routes

    def configure(self, entries: Iterable[Entry], now: float) -> None:
        """Sets the `[[federation]]` entries. Raises ConfigError."""
        entries = tuple(entries)
        check_entries(entries, self.name)
        self.relays, self.forwarded = Relays(entries), federates(entries)
        self.following.entries = tuple(entry for entry in entries if entry.goes)
        self._asked = {entry.topic for entry in entries if entry.comes}
        self.revision += 1
        for topic in dict.fromkeys([*self.own, *(entry.topic for entry in entries)]):
            self._refresh_own(topic)
        for neighbour in self.neighbours.values():
            neighbour.federate_due = True
        self._rerouted = True
        self.settle(now)

    def spread(self) -> set[str]:
        """Topics whose bindings at this node matter to others: in entries of this node or of a neighbour, or
        followed."""
        told = (topic for neighbour in self.neighbours.values() for topic in neighbour.modes)
        return {*self.own, *(entry.topic for entry in self.entries), *told, *self._asked}

    def spreads(self, topic: str) -> bool:
        """Whether a message of the topic may need to go to another node."""
        return topic in self.sets.topics() or self.relays.has(topic)

    def bind(self, topic: str, rows: Iterable[Row], now: float) -> None:
        """All that this node's clients want of a topic."""
        self.bindings[topic] = set(rows)
        self._refresh_own(topic)
        self.settle(now)

    def rebind(self, topic: str, add: Collection[Row], remove: Collection[Row], now: float) -> None:
        """What changed of it; it costs what changed. None of these rows has bits, as those of static entries have."""
        bindings = self.bindings.setdefault(topic, set())
        bindings.difference_update(remove)
        bindings.update(add)
        if topic in self.own:
            self.own[topic].change(add, remove)
        else:
            self._refresh_own(topic)
        self.settle(now)

    def _announce(self, topic: str) -> None:
        """Begins to announce this node's bindings of the topic, because another node takes them."""
        if topic not in self.own:
            self.own[topic] = Own()
            self.revision += 1

    def _release(self) -> None:
        """Removes topics that nobody needs, with their sets."""
        awaited = {bind.topic for bind in self.confirming.binds.values()} | self._asked
        for topic in idle(self.own, self.entries, self.neighbours.values(), awaited):
            held = self.sets.current(Key(self.name, topic))
            if held is not None and (held.rows or held.edges):
                continue  # they are withdrawn first
            if held is not None and held.stamp.life < LIFE_HIGH and held.stamp.version < VERSION_HIGH:
                self._gone = max(self._gone, held.stamp)
            del self.own[topic]
            self.bindings.pop(topic, None)
            self.confirming.regulars.pop(topic, None)
            self.sets.drop(Key(self.name, topic))
            self.revision += 1
        self._look_for_idle = max(LOOKED_MIN, 2 * len(self.own))

    def _refresh_own(self, topic: str) -> None:
        own = self.own.setdefault(topic, Own())
        relayed = frozenset(Row(pattern, None, RELAY) for pattern in self.relays.patterns(topic))
        own.want(relayed.union(self.bindings.get(topic, ())))
        own.edges = self.following.edges(topic)

    def route(self, routes: Routes, now: float) -> None:
        """Takes the routes that routing has computed."""
        self.following.routes = routes
        self.reachable = reached(self.name, both_ways(routes))
        self._rerouted = True
        self._standings.update(self.own)
        self.settle(now)

    def forget(self, origin: str, now: float) -> None:
        """Removes a node that left the network permanently."""
        for key in self.sets.everything():
            if key.origin == origin != self.name:
                self.sets.drop(key)
        self._rerouted = True
        self.settle(now)

    def up(self, name: str, now: float) -> None:
        """A session with a neighbour that supports federation is up."""
        self.down(name, now)
        self.neighbours[name] = Neighbour(name, self.bounds)
        self._rerouted = True
        self.settle(now)

    def down(self, name: str, now: float) -> None:
        gone = self.neighbours.pop(name, None)
        if gone is not None:
            self._answered(gone.serving.followers, now)
            self.settle(now)

    # ------------------------------------------------------------------------------------------------ the disk

    @property
    def has_records(self) -> bool:
        return self.sets.has_records and self._retry_at is None

    def records(self, now: float) -> list[Write]:
        """The records for the commit that begins now; none while a commit is under way, or shortly after a refused
        one."""
        return self.sets.records() if self.has_records else []

    def committed(self, now: float) -> None:
        """The result of `records` is on disk."""
        self.sets.commit()
        self._say_committed(now)
        self.settle(now)

    @property
    def held_bytes(self) -> int:
        """The estimated memory of all sets, and of what is kept to compare them."""
        return self.sets.bytes + self.cache.held_bytes(self.sets.committed)

    def _say_committed(self, now: float) -> None:
        moved, self.sets.moved = self.sets.moved, {}
        for key, old in moved.items():
            new = self.sets.committed(key)
            if key.origin == self.name and key.topic in self.own:
                self.own[key.topic].committed(old, new)
            for neighbour in self.neighbours.values():
                if key in neighbour.serving.followers:
                    neighbour.serving.pending[key] = None
                    if new is None or new.stamp == VOID:
                        neighbour.serving.end_comparison(key)
        self.cache.discard_unused([one.serving for one in self.neighbours.values()], self.sets.committed)
        self._answered(moved, now)

    def refused(self, now: float) -> None:
        """The commit failed: the state is as before it, and what neighbours have sent since is requested again."""
        for key in self.sets.refuse():
            self.nonces.pop(key, None)
        self._retry_at = now + RETRY_S
        self._rerouted = True

    def undone(self, now: float) -> None:
        """The current turn is undone, except for what a commit under way contains. What neighbours have sent since is
        requested again at once."""
        if not (gone := self.sets.undo()):
            return
        for key in gone:
            self.nonces.pop(key, None)
        for neighbour in self.neighbours.values():
            neighbour.say_again()
        self._rerouted = True
        self.settle(now)

    # ------------------------------------------------------------------------------------------------ neighbours

    def receive(self, name: str, fields: dict[Any, Any], now: float) -> str | None:
        """Handles a control message of federation. Returns the fault in one line, if any, which ends the session; then
        call `down`."""
        try:
            message = self.read(name, fields)
            if message is not None:
                self.apply(name, message)
        except Malformed as error:
            return str(error)
        self.settle(now)
        return None

    def read(self, name: str, fields: dict[Any, Any]) -> Message | None:
        """The message, for `apply`; None where no session is up. All are read in the order in which they came. Raises
        Malformed."""
        neighbour = self.neighbours.get(name)
        return None if neighbour is None else read(fields, neighbour.heard)

    def effort(self, name: str, message: Message) -> int:
        """The cost of applying the message, in roughly equal units."""
        return self.neighbours[name].effort(message, self.sets, self.cache)

    def apply(self, name: str, message: Message) -> None:
        """Applies the result of `read`; call `settle` afterwards. Raises Malformed."""
        neighbour = self.neighbours[name]
        serving, taking = neighbour.serving, neighbour.taking
        match message:
            case Federate(rows, asks):
                neighbour.modes, neighbour.asks = dict(rows), asks
                self.revision += 1
                serving.federate(frozenset(topic for topic, mode in rows if mode == DYNAMIC))
                if len(self.own) >= self._look_for_idle:
                    self._release()
            case Follow():
                for key, has in serving.follow(message):
                    if key.origin == self.name:
                        self._announce(key.topic)
                    self._compare(neighbour, key, has)
            case Compare(count, digest, again):
                if again:
                    neighbour.say_again()
                elif (count, digest) != serving.digest:
                    neighbour.again_due = True
                else:
                    serving.send_again()
            case PartsOf() if message.is_question:
                serving.ask(message, self.cache)
            case Change() | PartsOf() | RowsOf():
                self._content(neighbour, message)
            case Stored():
                serving.stored(message, self.sets.committed(message.key))
                self._compare(neighbour, message.key, message.has)
            case Claim():
                self.claims.add(message.key, message.has, message.trace)
            case Reset(key, nonce):
                held = self.sets.current(key)
                if key in taking.wanted and held is not None and self.nonces.get(key) != nonce:
                    self.nonces[key] = nonce
                    self.sets.put(key, voided(held))
                    self._pass_reset(key, nonce)
        self._to_answer.update(serving.answered)
        serving.answered.clear()

    def _content(self, neighbour: Neighbour, message: Change | PartsOf | RowsOf) -> None:
        """The parent's content of a set. Content from other neighbours is ignored."""
        key, new, taking = message.key, message.new, neighbour.taking
        if key not in taking.wanted or key not in taking.told or new.stamp == VOID:
            return
        held = self.sets.current(key)
        if held is not None:
            if new.stamp < held.stamp:
                self.claims.add(key, held.source, ())
                return
            if held.source == new and key not in taking.anew:
                return
        found: Held | None
        if isinstance(message, Change):
            found = taking.change(message, held)
        elif isinstance(message, PartsOf):
            found = taking.parts(message, held)
        else:
            found = taking.rows(message)
        if found is None:
            return
        if self.sets.bytes + found.bytes - (held.bytes if held is not None else 0) > self.bounds.bytes_max:
            found = substitute(found.stamp, found.edges, found.taken)
        self.sets.put(key, found)

    def _compare(self, neighbour: Neighbour, key: Key, has: Edition) -> None:
        """Compares with the edition that a follower has: if it is higher than the one here, the origin must be
        asked."""
        if neighbour.serving.is_behind(key, self.sets.committed(key)):
            self.claims.add(key, has, (neighbour.name,))

    def _pass_reset(self, key: Key, nonce: int) -> None:
        for neighbour in self.neighbours.values():
            if key in neighbour.serving.followers:
                neighbour.resets[key] = nonce

    def _pass_claims(self, now: float) -> None:
        for key, has, trace in self.claims.take(now):
            held = self.sets.current(key)
            if key.origin == self.name:
                if held is not None and has.stamp > held.stamp:
                    self.claims.passed(key, now)
                    self._begin_life(key, held, has.stamp.life)
            elif trace == () or held is None or has.stamp > held.stamp:
                parent = self.neighbours.get(self.parents.get(key, ""))
                if parent is not None and parent.name not in trace:
                    self.claims.passed(key, now)
                    parent.claims[key] = Claim(key, has, (*trace, self.name))

    def _begin_life(self, key: Key, held: Held, past: int) -> None:
        """Begins a new life of our set: another node has it with a life that we did not assign, or its versions are
        used up."""
        if past + 1 < LIFE_HIGH:
            self.sets.put(key, stamped(held, Stamp(past + 1, 1)))
            return
        self.resets += 1
        self.sets.put(key, stamped(held, Stamp(self.life + self.resets, 1)))
        self._pass_reset(key, text_hash(self.name, self.life, self.resets))

    def take(self, name: str, credit: int, now: float) -> list[dict[str, Any]]:
        """Control messages for a neighbour; all of them must be sent, in this order."""
        neighbour, federate = self.neighbours.get(name), self.forwarded.get(name, Federate(()))
        messages: list[dict[str, Any]] = []
        while neighbour is not None and credit - len(messages) > CREDIT_KEPT:
            message = neighbour.next(federate, self.sets, self.cache, self._standing, now)
            if message is None:
                break
            messages.append(write(message, neighbour.said))
        return messages

    # ------------------------------------------------------------------------------------------------ confirmation

    def _standing(self, key: Key) -> tuple[dict[str, Stamp], bool]:
        """The nodes that take a set through this node, with what each has stored; whether all followers are
        complete."""
        return standing(self.name, key, self.sets.committed(key), self.neighbours.values())

    def _answered(self, keys: Iterable[Key], now: float) -> None:
        """The nodes that take these sets through this node may have changed."""
        for key in keys:
            if key.origin == self.name:
                self.confirming.listed(key.topic, self._standing(key)[0], now)
                self._standings.add(key.topic)
            parent = self.neighbours.get(self.parents.get(key, ""))
            if parent is not None and key in parent.taking.told:
                parent.tellings.setdefault(key, 0.0)

    def confirm(self, topic: str, row: Row, now: float, wait_s: float) -> int:
        """Asks which nodes have stored the binding `row`, which `bind` was given. The answer is in `answers` under this
        number."""
        bind = self.confirming.ask(topic, row, now + wait_s)
        self._settle_binds(topic, [bind], now, give_up=len(self.confirming.binds) > WAITING_MAX)
        return bind.token

    def cancel(self, token: int) -> None:
        """The asking client has disconnected."""
        self.confirming.binds.pop(token, None)

    def _settle_binds(self, topic: str, binds: Iterable[Bind], now: float, *, give_up: bool = False) -> None:
        key, own = Key(self.name, topic), self.own.get(topic)
        kept = self.sets.rows(key)
        names, _ = self._standing(key)
        self.confirming.listed(topic, names, now)
        regulars = self.confirming.regulars.get(topic, ())
        moment = Standing(key, names, self.neighbours.values(), regulars, self.reachable)
        for bind in binds:
            if own is not None and bind.by not in own.since:
                found = own.since_of(bind.row, kept, all_of_them=not bind.looked)
                bind.by, bind.looked = None if found is None else found[0], True
            since = None if own is None or bind.by is None else own.since.get(bind.by)
            self.confirming.settle(bind, None if since is None else moment.of(since), now, give_up=give_up)

    def answers(self) -> list[Answer]:
        """The answers to binds since the last call."""
        answers, self.confirming.answers = self.confirming.answers, []
        return answers

    # ------------------------------------------------------------------------------------------------ time

    def next_deadline(self, now: float, without_credit: Collection[str] = ()) -> float:
        """`without_credit`: their deadlines do not count, because nothing can be sent to these neighbours."""
        if self._to_check:
            return now
        said = (one.next_deadline() for name, one in self.neighbours.items() if name not in without_credit)
        asked = (self._retry_at, self.confirming.next_deadline(now), *said)
        times = [self._refresh_at, *self.claims.next_deadlines(), *(at for at in asked if at is not None)]
        if any(own.is_summed(self.bounds.rows_max) for own in self.own.values()):
            times.append(self._summed_at)
        return max(now, min(times))

    def tick(self, now: float) -> None:
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            for neighbour in self.neighbours.values():
                neighbour.say_again()
        bind_at = self.confirming.next_deadline(now)
        if bind_at is not None and now >= bind_at:
            self._standings.update(self.own)
        if now >= self._summed_at:
            self._summed_at = now + SUMMARY_S
        if now >= self._refresh_at and not self._to_check:
            self._refresh_at = max(now, self._refresh_at) + self.bounds.refresh_s
            self._to_check = self.sets.everything() or [Key(self.name, "")]
        if self._to_check:
            self._check(now)
        self.settle(now)

    def _check(self, now: float) -> None:
        """Checks digests, CHECKED_ROWS rows each turn; the refresh ends with the last of them."""
        rows = 0
        while self._to_check and rows < CHECKED_ROWS:
            key = self._to_check.pop()
            held = self.sets.current(key)
            if held is None:
                continue
            rows += 1 + len(held.rows)
            right = make(held.stamp, held.rows, held.edges)
            if key.origin == self.name:
                if not 0 < held.stamp.life < LIFE_HIGH or not 0 < held.stamp.version < VERSION_HIGH:
                    self._begin_life(key, right, max(held.stamp.life, self.life))
                elif right.digest != held.digest or not held.is_whole:
                    self.sets.put(key, stamped(right, Stamp(held.stamp.life, held.stamp.version + 1)))
            elif right.digest != held.digest or (held.stamp != VOID and 0 in held.stamp) or not is_sound(held):
                self.voided += 1
                self.sets.put(key, voided(right))
            if key.origin != self.name:
                self.sets.compare(key)
        if self._to_check:
            return
        self.sets.recount()
        self._rerouted = True
        for topic, own in list(self.own.items()):
            self._refresh_own(topic)
            held = self.sets.committed(Key(self.name, topic))
            own.recount(held if held is not None and held.stamp.life >= self.life else None)
        for neighbour in self.neighbours.values():
            neighbour.refresh(self.sets)
            for key, follower in neighbour.serving.followers.items():
                self._compare(neighbour, key, follower.has)
        self._release()
        self.cache.discard_unused([one.serving for one in self.neighbours.values()], self.sets.committed)
        self.claims.forget(lambda key: self.sets.current(key) is not None)
        self.nonces = {key: nonce for key, nonce in self.nonces.items() if self.sets.current(key) is not None}
        self.following.leave(now)

    # ------------------------------------------------------------------------------------------------ after each event

    def settle(self, now: float) -> None:
        """Carries out the consequences of everything that arrived since the last call."""
        if self._to_answer:
            answered, self._to_answer = self._to_answer, {}
            self._answered(answered, now)
        if self._retry_at is None:
            self._publish(now)
        if self._rerouted or self.sets.touched:
            self._find_parents(now)
        self._pass_claims(now)
        if self._standings:
            asked: dict[str, list[Bind]] = {}
            for bind in self.confirming.binds.values():
                if bind.topic in self._standings:
                    asked.setdefault(bind.topic, []).append(bind)
            self._standings.clear()
            for topic, binds in asked.items():
                self._settle_binds(topic, binds, now)

    def _publish(self, now: float) -> None:
        bounds = self.bounds
        for topic, own in self.own.items():
            key = Key(self.name, topic)
            if not self.sets.is_settled(key):
                continue
            found = self.sets.current(key)
            held = found or make(max(Stamp(self.life, 0), self._gone), (), ())
            if found is not None and found.stamp.life < self.life:  # the commit that was to begin this life failed
                self.sets.put(key, stamped(found, Stamp(self.life, 1)))
                continue
            if held.stamp.life >= LIFE_HIGH or held.stamp.version >= VERSION_HIGH:
                self._begin_life(key, held, max(held.stamp.life, self.life))
                continue
            new = own.next(held, now, bounds.keys_max, bounds.rows_max, bounds.summary_bytes_s)
            if new is None and found is None:
                new = stamped(held, Stamp(held.stamp.life, held.stamp.version + 1))  # that there is nothing is told
            if new is not None:
                self.sets.put(key, new)

    def _find_parents(self, now: float) -> None:
        all_topics, self._rerouted = self._rerouted, False
        self.following.find(now, all_topics=all_topics)
        for name, keys in self.following.wanted(self.neighbours).items():
            neighbour = self.neighbours[name]
            neighbour.taking.want(keys)
            for key in keys:
                neighbour.tellings.setdefault(key, 0.0)

    # ------------------------------------------------------------------------------------------------ messages

    def choose(
        self, topic: str, subject: str | None, asks: Asks = unasked, *, tags: tuple[str, ...] = (), anew: bool = True
    ) -> Choice:
        """The destinations of a message. `anew`: it was published here or arrived by a static entry; otherwise its
        publisher's node chose this node. `tags`: the nodes that have delivered it. `subject`: None if unknown; it then
        goes to all that want any message."""
        tags = tagged(tags, self.name)
        wanting: Collection[str] = ()
        relays = self.relays.choose(topic, subject, tags)
        is_passed_on = bool(relays)
        if anew:
            index = self.sets.index(topic, self.name)
            found = index.everyone() if subject is None else index.wanting(subject, asks)
            wanting = set(found) - set(tags)
            is_passed_on = is_passed_on or any(self._may_pass_on(Key(origin, topic)) for origin in wanting)
        return Choice(tuple(sorted(wanting)), relays, tags, is_passed_on)

    def _may_pass_on(self, key: Key) -> bool:
        """Whether the set's origin may have static entries: rows that stand for others do not tell."""
        held = self.sets.current(key)
        return held is not None and bool(held.marked)
