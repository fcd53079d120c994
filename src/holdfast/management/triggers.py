"""Triggers: commands that a node runs when a queue is deep or its oldest message old (docs/triggers.md).

Rules of this file: a trigger has one run at a time. Runs are not stored: after a crash a queue that is still deep
triggers again, so a command must be able to start again at any time. A check reads one entry of each queue, once a
second.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.host_names import shown
from holdfast.engine import events
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import TriggerConfig
from holdfast.state.catalog import Catalog

LOOK_S: Final = 1.0
"""How often queues are looked at."""


@dataclass(slots=True, eq=False)
class Trigger:
    """A configured trigger. `rests_until`: when it may run again, on the clock's scale."""

    config: TriggerConfig
    running: bool = False
    rests_until: float = -inf
    runs_total: int = 0
    failures_total: int = 0
    last: str | None = None
    """How the last run that ended did so."""


class Triggers:
    """The triggers of a node, by name."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        catalog: Catalog,
        outbox: Outbox,
        log: Log,
        *,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._is_stopping = is_stopping
        self._node = config.name
        self._clock = clock
        self._catalog = catalog
        self._outbox = outbox
        self._log = log
        self.by_name = {item.name: Trigger(item) for item in config.triggers}
        self.waiting: dict[str, None] = dict.fromkeys(self.by_name)
        """Those that are not running."""
        self._looks_at = clock.now + LOOK_S

    def next_deadline(self) -> float | None:
        return self._looks_at if self.waiting else None

    def tick(self, now: float) -> None:
        """Starts the commands that are due."""
        if now < self._looks_at:
            return
        self._looks_at = now + LOOK_S
        if self._is_stopping():
            return
        for name in list(self.waiting):
            trigger = self.by_name[name]
            if now >= trigger.rests_until:
                self._look(trigger)

    def _look(self, trigger: Trigger) -> None:
        config = trigger.config
        queue = self._catalog.find(config.vhost, config.queue)
        if queue is None:
            return
        messages = queue.messages - queue.tombstones
        oldest_ms = queue.oldest_wall_ms()
        age_s = 0.0 if oldest_ms is None else max(0, self._clock.wall_ms - oldest_ms) / 1000
        is_deep = config.messages is not None and messages >= config.messages
        is_old = config.age_s is not None and messages > 0 and age_s >= config.age_s
        if not (is_deep or is_old):
            return
        del self.waiting[config.name]
        trigger.running = True
        trigger.runs_total += 1
        told = {
            "HOLDFAST_NODE": self._node,
            "HOLDFAST_TRIGGER": config.name,
            "HOLDFAST_QUEUE": config.queue,
            "HOLDFAST_VHOST": config.vhost,
            "HOLDFAST_MESSAGES": str(messages),
            "HOLDFAST_OLDEST_S": f"{age_s:.3f}",
        }
        why = f"{messages} messages" if is_deep else f"a message of {age_s:.0f} s"
        self._log.write(
            "INFO", f"trigger {config.name!r}: {why} in queue {shown(config.vhost, config.queue)}; its command runs"
        )
        self._outbox.put(
            events.RunCommand(trigger=config.name, command=config.command, environment=told, timeout_s=config.timeout_s)
        )

    def ended(self, event: events.CommandEnded) -> None:
        """A run has ended. A failure is logged; the command runs again after the same rest as after a success."""
        trigger = self.by_name[event.trigger]
        trigger.running = False
        trigger.rests_until = self._clock.now + trigger.config.rest_s
        trigger.last = event.problem or "ended well"
        self.waiting[event.trigger] = None
        if event.problem:
            trigger.failures_total += 1
            text = f"trigger {event.trigger!r}: {event.problem}; next try in {trigger.config.rest_s:g} s at the soonest"
            self._log.write("WARNING", text)

    def status(self, host: str) -> list[dict[str, Any]]:
        """The rows of `status` for triggers of that host's queues, in the order of the configuration."""
        return [
            {
                "name": name,
                "queue": trigger.config.queue,
                "running": trigger.running,
                "runs_total": Ulong(trigger.runs_total),
                "failures_total": Ulong(trigger.failures_total),
                "last": trigger.last,
            }
            for name, trigger in self.by_name.items()
            if trigger.config.vhost == host
        ]
