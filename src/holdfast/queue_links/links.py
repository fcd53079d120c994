"""All links between queues of a node: created at start from the configuration and the store, and by requests.

Rules of this file: a link is one row of table `node`. A row of a configured link is deleted when the configuration does
not have the link any more. A deleted link ends when it holds nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sized
from operator import attrgetter
from random import Random
from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.cursors.shown import LINK_PREFIX
from holdfast.broker.entries.annotate import LINK_ID_BYTES
from holdfast.broker.entries.host_names import HostedName, hosted, read_key
from holdfast.broker.queue import Queue
from holdfast.broker.stored import records
from holdfast.broker.stored.records import QueueLinkRecord
from holdfast.errors import ConfigError
from holdfast.queue_links.ends import LinkEnds, MayLeave, Plan
from holdfast.queue_links.handing import Handed, Handing, HandingParts
from holdfast.queue_links.leftovers import Leftovers
from holdfast.queue_links.link import QueueLink
from holdfast.queue_links.selecting import LinkSelector
from holdfast.settings.queues import LinkConfig
from holdfast.state.tables import Tables
from holdfast.steps.windows import Windows

LINKS_MAX: Final = 256
"""The maximum number of links between queues in each virtual host of a node."""


GRAIN_MS: Final = 1_000
"""Windows end in whole seconds, so that the windows of many keys end in one commit."""


Run = Callable[..., None]
"""(part, work, what the work is given): as `Containment.run`."""


class QueueLinks:
    """`by_name`: all links; `by_target`: those that wait for room in a queue; `pending`: those that took something in
    this turn; `windowed`: those whose steps have windows, each with whether those that were over when it was last
    looked at have to wait."""

    def __init__(
        self, parts: HandingParts, store: Tables, rng: Random, *,
        is_stopping: Callable[[], bool], run: Run, rests: Callable[[object], bool],
    ) -> None:  # fmt: skip
        """`run`: runs a link's work, so that a failure only pauses that link; `rests`: whether it is paused."""
        self._parts = parts
        self._run = run
        self._config = parts.config
        self._catalog = parts.catalog
        self._rng = rng
        self._is_stopping = is_stopping
        self._rests = rests
        self.handing = Handing(parts, store)
        self._ends = LinkEnds(parts.config, parts.catalog, parts.forwarding, parts.remote_queues, store)
        self.leftovers = Leftovers(parts.turns, store)
        self._look_due = False
        self.by_name: dict[HostedName, QueueLink] = {}
        self.by_target: dict[Queue, dict[QueueLink, None]] = {}
        self.pending: dict[QueueLink, None] = {}
        self.windowed: dict[QueueLink, bool] = {}
        windows = parts.memory.windows
        parts.memory.held_in(windows, lambda: sum(link.windows.held_bytes for link in self.by_name.values()))
        parts.turns.effects.on_decided(Handed, self._decided)
        self._begin(store)

    # ------------------------------------------------------------------------------------------------ start

    def _begin(self, store: Tables) -> None:
        stored: dict[HostedName, QueueLinkRecord] = {}
        for key, data in store.table("node"):
            if key.startswith(records.QUEUE_LINK):
                host, name = read_key(key[len(records.QUEUE_LINK) :].decode())
                stored[hosted(host, name)] = records.unpack_queue_link(data)
        wanted = {name: _of_record(name, row) for name, row in stored.items() if row.is_created}
        wanted |= {config.key: config for config in self._config.links}
        configured = {config.key for config in self._config.links}
        kept = {
            (hosted(config.vhost, config.source), f"{LINK_PREFIX}{config.name}")
            for name, config in wanted.items()
            if (row := stored.get(name)) is not None
            and (config.source, config.mode, config.start) == (row.source, "copy", row.start)
        }
        for queue in self._catalog.queues.values():
            for cursor in [name for name in queue.named if name.startswith(LINK_PREFIX)]:
                if (queue.key, cursor) not in kept:
                    queue.remove_cursor(cursor)
        for name in stored.keys() - wanted.keys():
            self._forget_row(name)
        for name, config in wanted.items():
            row = stored.get(name)
            link = self._make(config, None if row is None else row.link_id, is_created=name not in configured)
            link.is_stopped = row is not None and row.is_stopped
            self._store(link)
        self.leftovers.keep_rest()

    def _make(self, config: LinkConfig, link_id: bytes | None, *, is_created: bool) -> QueueLink:
        """Makes a link, which takes messages from now on. ConfigError if it is not possible."""
        self._check_count(config, self.of_host(config.vhost), 1)
        plan = self._ends.plan(config, is_stored=is_created and link_id is not None)
        self._ends.check_room(plan)
        return self._add(plan, link_id, is_created=is_created)

    def _check_count(self, config: LinkConfig, found: Sized, more: int) -> None:
        if len(found) + more > LINKS_MAX:
            text = f"there are {len(found)} links, and the limit is {LINKS_MAX}"
            raise ConfigError(f"link {config.name!r} cannot be made; {text}")

    def _add(self, plan: Plan, link_id: bytes | None, *, is_created: bool) -> QueueLink:
        """Adds a link that can be made."""
        config, target = plan.config, plan.target
        if link_id is None:
            link_id = self._rng.getrandbits(8 * LINK_ID_BYTES).to_bytes(LINK_ID_BYTES, "big")
        selects, cursor = LinkSelector(link_id, plan.selector), self._ends.cursor(plan)
        link = QueueLink(
            config, link_id, cursor, selects, node=plan.node, to=plan.to, is_created=is_created,
            windows=Windows(plan.steps, self._parts.memory.windows), room=self._room_for, took=self._took,
        )  # fmt: skip
        self.by_name[config.key] = link
        if link.windows.ids:
            self.windowed[link] = False
            self.leftovers.give(link_id, link.windows)
        if config.mode == "move":
            cursor.attach(link, selects, shows=False)
        else:
            cursor.selector = selects
            cursor.attach(link)
        if target is not None:
            self._lead(link, target)
        self._look_due = True
        return link

    # ------------------------------------------------------------------------------------------------ rows

    def _store(self, link: QueueLink) -> None:
        config = link.config
        record = QueueLinkRecord(
            config.source, config.target, config.selector, config.mode, link.link_id, link.is_created, link.is_stopped,
            config.steps if link.is_created else "", config.start,
        )  # fmt: skip
        key = ("node", records.queue_link_key(link.config.key))
        self._batch.deletes[:] = [each for each in self._batch.deletes if each != key]
        self._batch.puts[key] = records.pack_queue_link(record)

    def _forget_row(self, name: HostedName) -> None:
        key = ("node", records.queue_link_key(name))
        self._batch.puts.pop(key, None)
        self._batch.deletes.append(key)

    @property
    def _batch(self) -> Any:
        return self._parts.turns.gathered.batch

    # ------------------------------------------------------------------------------------------------ the file

    def check(self, wanted: Iterable[LinkConfig], may_leave: MayLeave) -> list[Plan]:
        """How to make the links that are new among these, for `take_up`. Makes their queues if the node makes queues on
        demand; ConfigError if one of the links cannot be made. `may_leave`: as it is going to be."""
        new = [config for config in wanted if not self._is_configured(config)]
        plans: list[Plan] = []
        for config in new:
            if config.key in self.by_name:
                text = "was made by a request, or has not ended yet; delete it first, or wait"
                raise ConfigError(f"link {config.name!r} {text}")
            mine = sum(other.vhost == config.vhost for other in new)
            self._check_count(config, self.of_host(config.vhost), mine)
            plan = self._ends.plan(config, may_leave=may_leave)
            self._ends.check_room(plan, plans)
            plans.append(plan)
        return plans

    def take_up(self, wanted: Iterable[LinkConfig], plans: Iterable[Plan]) -> None:
        """Replaces the links of the file by these. `plans`: what `check` has made of them."""
        kept = {config.key for config in wanted}
        for link in list(self.by_name.values()):
            if not link.is_created and not link.ended and link.config.key not in kept:
                self.delete(link)
        for plan in plans:
            if not self._is_configured(plan.config):
                self._store(self._add(plan, None, is_created=False))

    def _is_configured(self, config: LinkConfig) -> bool:
        link = self.by_name.get(config.key)
        return link is not None and not link.is_created and not link.ended

    # ------------------------------------------------------------------------------------------------ requests

    def create(self, config: LinkConfig) -> QueueLink:
        """Creates a link with a new name. ConfigError if it is not possible."""
        link = self._make(config, None, is_created=True)
        self._store(link)
        return link

    def delete(self, link: QueueLink) -> None:
        link.ended = True
        self._forget_row(link.config.key)
        if link.is_idle:
            self._end(link)

    def stop(self, link: QueueLink, *, is_stopped: bool) -> None:
        """Stops the link, over restarts too, or starts it again."""
        link.is_stopped = is_stopped
        self._store(link)
        link.cursor.queue.touch()

    def _end(self, link: QueueLink) -> None:
        cursor, source = link.cursor, self._catalog.queue_of(link.cursor)
        cursor.release(link)
        if link.config.mode == "copy":
            source.remove_cursor(cursor.name)
        self._lead(link, None)
        del self.by_name[link.config.key]
        self.windowed.pop(link, None)
        self.leftovers.leave(link.link_id, link.windows)

    def reserved(self) -> Iterator[tuple[Queue, int, int]]:
        """Queues in memory that keep room for messages of links: messages, and bytes."""
        for link in self.by_name.values():
            if link.moving is not None and link.moving.reserved_in is not None:
                posts = link.moving.posts
                yield link.moving.reserved_in, len(posts), sum(size for _, size in posts)

    def recover(self) -> None:
        """After a failure: entries that links have taken and do not hold are released from them, entries that they hold
        and have not taken are returned, and reserved room is counted again. To be called after
        `Transactions.recover`."""
        for link in self.by_name.values():
            cursor = link.cursor
            held = {sequence for sequence, item in cursor.acquired.items() if item.consumer is link}
            link.taken = [item for item in link.taken if item[0] in held]
            link.taken_bytes = sum(len(value) for _, value in link.taken)
            if link.taken:
                self.pending[link] = None
            taken = {sequence for sequence, _ in link.taken}
            if link.moving is None:
                cursor.requeue(sorted(held - taken), failed=False)
        for queue, messages, size in self.reserved():
            queue.reserved += messages
            queue.reserved_bytes += size

    def naming(self, queue: Queue) -> list[str]:
        """The links that take from a queue or lead into it."""
        return [link.name for link in self.by_name.values() if link.cursor.queue is queue or link.target is queue]

    # ------------------------------------------------------------------------------------------------ turn

    def _room_for(self, link: QueueLink) -> int:
        return 0 if self._is_stopping() or self._rests(link) else self.handing.room_for(link)

    def _took(self, link: QueueLink) -> None:
        self.pending[link] = None

    @property
    def has_work(self) -> bool:
        return bool(self.pending) or self._look_due or self.leftovers.has_work or self._some_over()

    def _some_over(self) -> bool:
        return any(self._due_in_ms(link) == 0 for link in self.windowed)

    def step(self) -> None:
        """Hands over the entries that links took in this turn, and the results of windows that are over. A link that
        fails is paused, and no other is."""
        if self._look_due:
            self.look()
        for link in list(self.pending):
            self._run(link, self._hand_over, link)
        for link in list(self.windowed):
            may = link.is_idle and not (link.is_stopped or link.ended or self._is_stopping())
            self.windowed[link] = self._due_in_ms(link) == 0
            if may and self.windowed[link]:
                self._run(link, self._end_windows, link)
        if self.leftovers.has_work and not self._parts.disk.takes_nothing:
            self.leftovers.step()

    def _hand_over(self, link: QueueLink) -> None:
        if link.moving is None and link.taken:
            self.handing.hand_over(link)
        self.pending.pop(link, None)

    def _end_windows(self, link: QueueLink) -> None:
        self.windowed[link] = not self.handing.end_windows(link)

    def _due_in_ms(self, link: QueueLink) -> int | None:
        """How long it takes until windows of the link are over, in whole seconds of the wall clock."""
        now_ms = self._parts.clock.wall_ms
        left = link.windows.due_in_ms(now_ms)
        return None if left is None else max(0, left + -(now_ms + left) % GRAIN_MS)

    def next_deadline(self) -> float | None:
        """When windows are over, but for those that are and have to wait: these continue with a later turn anyway."""
        found = [
            left
            for link, waits in self.windowed.items()
            if link.moving is None and not link.is_stopped and (left := self._due_in_ms(link)) is not None
            if left or not waits
        ]
        if not found:
            return None
        left = min(found)  # the wall clock has whole milliseconds: one more, so that this is not too early
        return self._parts.clock.now + (left + 1) / 1_000 if left else self._parts.clock.now

    def tick(self, now: float) -> None:
        """Does nothing: the end of the turn does the work (`step`)."""

    def _decided(self, effect: Handed, stored: bool) -> None:
        if self.handing.decided(effect, stored=stored) and effect.link.ended and effect.link.is_idle:
            self._end(effect.link)

    def awaits_room(self, queue: Queue) -> bool:
        """Whether a link may wait for room in the queue."""
        return queue in self.by_target or self.handing.remote_room.is_awaited(queue)

    def room_may_be_back(self, target: Queue) -> None:
        """A queue has changed: links that wait for room there check again."""
        for link in self.by_target.get(target, ()):
            if link.starved and self.handing.room_for(link):
                link.cursor.queue.touch()
        self.handing.remote_room.room_may_be_back(target)

    def look_soon(self) -> None:
        """Nodes may have become known, or have left."""
        self._look_due = bool(self.by_name)

    def look(self) -> None:
        """Links to other nodes find their transmission queues, or wait until the nodes are known."""
        self._look_due = False
        for link in self.by_name.values():
            node = link.node
            if node is None:
                continue
            if not self._parts.forwarding.knows(node):
                self._lead(link, None)
            elif link.target is None or not self._catalog.has(link.target):
                self._lead(link, self._catalog.transmission(node))
                self._parts.forwarding.steer(node)
            link.cursor.queue.touch()

    def _lead(self, link: QueueLink, target: Queue | None) -> None:
        before = link.target
        if before is not None:
            self.handing.forget(link)
            waiting = self.by_target.get(before, {})
            waiting.pop(link, None)
            if not waiting:
                self.by_target.pop(before, None)
        link.target = target
        if target is not None:
            self.by_target.setdefault(target, {})[link] = None

    # ------------------------------------------------------------------------------------------------ told

    def of_host(self, host: str) -> list[QueueLink]:
        """The links of that virtual host, by name."""
        return sorted((link for link in self.by_name.values() if link.config.vhost == host), key=attrgetter("name"))

    def status(self, host: str) -> list[dict[str, Any]]:
        """Each link of that host as `status` and `link list` show it, by name."""
        return [self.told(link) for link in self.of_host(host)]

    def told(self, link: QueueLink) -> dict[str, Any]:
        config = link.config
        return {
            "name": link.name,
            "from": config.source,
            "to": config.target,
            "selector": config.selector,
            "mode": config.mode,
            "start": config.start if isinstance(config.start, str) else Ulong(config.start),
            "configured": not link.is_created,
            "state": self._state(link),
            "moved_total": Ulong(link.moved_total),
            "dead_lettered_total": Ulong(link.dead_total),
            "dropped_total": Ulong(link.dropped_total),
            "steps": [step.kind for step in link.windows.steps],
            "windows": Ulong(len(link.windows)),
        }

    def _state(self, link: QueueLink) -> str:
        if link.ended:
            return "ending"
        if link.is_stopped:
            return "stopped"
        if link.target is None:
            return "no route"
        return "no room" if link.starved or link.needs or link.disk_needs or link.dead_needs else "running"


def _of_record(key: HostedName, row: QueueLinkRecord) -> LinkConfig:
    host, name = read_key(key)
    return LinkConfig(
        vhost=host,
        name=name,
        source=row.source,
        target=row.target,
        selector=row.selector,
        mode=row.mode,
        steps=row.steps,
        start=row.start,
    )
