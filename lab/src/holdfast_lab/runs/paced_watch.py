"""Holds the clients of a root to their rates: what one sends stays within its leases, and each rate that one obeys is
what its root gave to it and to that virtual host, for no longer than the root counts with it (docs/pacing.md).

Rules of this file: looks on from outside, after each turn, and changes nothing. What was sent it takes from the hop's
numbers and the queue, and not from what the node counts for its shaper.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.entries import packed
from holdfast.pacing.changes import valid_ms_of
from holdfast.pacing.pacer import Pacer
from holdfast_lab.base.client_history import Violation
from holdfast_lab.sim.node import SimNode
from holdfast_lab.sim.sim_bed import SimBed

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore


def ignore_rate(pacer: Pacer) -> None:
    """From now on it lets everything go."""
    heedless: Any = pacer
    heedless.ready = lambda now: True
    heedless.bounds = lambda now: False
    heedless.ready_at = lambda now: now


def obey_again(pacer: Pacer) -> None:
    for name in ("ready", "bounds", "ready_at"):
        vars(pacer).pop(name, None)


def ignores_rate(pacer: Pacer) -> bool:
    return "ready" in vars(pacer)


GIVEN_MAX: Final = 200
"""Rates of one client and host that are remembered."""

LATE_S: Final = 0.1
"""Of the time in which a message that waited could have left, so much may be made good (GUARANTEES)."""

SLACK_BYTES: Final = 1.0
"""Of the arithmetic of floats."""

SLACK_S: Final = 1e-6
"""The same of moments."""


def watch_rates(bed: SimBed) -> "PacedWatch | None":
    """Watches the clients of roots from now on, where there are some; no node has started."""
    clients = [name for name, told in bed.topology.pacing.items() if told.roots]
    if not clients:
        return None
    watch = PacedWatch()
    for name, told in bed.topology.pacing.items():
        if told.rate is not None:
            bed.sim_nodes[name].on_turn.append(watch.root_turned)
    for name in clients:
        bed.sim_nodes[name].on_turn.append(watch.turned)
    return watch


class _Rate:
    """What one life of a client may send to one root. `debt`: bytes that were sent and not paid for since, by the rate
    that held after the turn before."""

    def __init__(self, core: "NodeCore", pacer: Pacer) -> None:
        self.core = core
        self.pacer = pacer
        self.debt = 0.0
        self.largest = 0
        self.waiting = False
        """Whether messages waited for the rate after the turn before: then time in which none left is made good."""
        self.sent: dict[str, tuple[object, int]] = {}
        """By next hop: epoch and number of the last message that was looked at."""
        self.look()

    def look(self) -> None:
        origin = self.pacer.origin
        self.at = self.core.clock.now
        pace, base = origin.pace, origin.base
        self.ends = origin.lease_ends if pace is not None else self.at
        self.rate = float(pace.rate) if pace is not None else base
        self.base = base

    def paid(self) -> float | None:
        """The bytes that the time since the last check allows; None: there is no bound."""
        now = self.core.clock.now
        if self.rate is None or self.base is None:
            return None
        until = min(max(self.ends, self.at), now)
        return self.rate * (until - self.at) + self.base * (now - until)


class PacedWatch:
    """Watches the rates of one run."""

    def __init__(self) -> None:
        self.rates: dict[tuple[str, str], _Rate] = {}
        self.paced = 0
        """Messages that were sent under a rate."""
        self.sent_bytes: Counter[tuple[str, str]] = Counter()
        """Bytes of own messages that each client sent to each destination with rates, over all its lives."""
        self.waited = 0
        """Turns after which some waited for theirs."""
        self.hosts = 0
        """Of the messages that were sent under a rate, those of other virtual hosts than the default one."""
        self.given: dict[tuple[str, str, str], dict[tuple[int, int], tuple[int, float, float]]] = {}
        """By root, host and client: the rates that it was given, by the root's process and their version; from when on
        the root counts the lease of each, by the world's clock, and how long that is, by its own."""

    def root_turned(self, node: SimNode) -> None:
        core = node.core
        if core is None or core.rates.root is None:
            return
        for host, table in core.rates.root.groups.tables.items():
            for row in table.rows.values():
                given = self.given.setdefault((node.name, host, row.origin), {})
                if row.told_version:
                    lease_s = valid_ms_of(table.pacing.period_s) / 1000
                    begins = node.clock.world(row.lease_ends - lease_s)
                    given.setdefault((table.process, row.told_version), (row.told_rate, begins, lease_s))
                    if len(given) > GIVEN_MAX:
                        del given[next(iter(given))]

    def turned(self, node: SimNode) -> None:
        core = node.core
        if core is None:
            return
        for root, pacer in core.rates.pacers.items():
            known = self.rates.get((node.name, root))
            if known is None or known.core is not core:
                known = self.rates[node.name, root] = _Rate(core, pacer)
            self._turned(node.name, root, known)
            self._look_given(node, pacer)

    def _look_given(self, node: SimNode, pacer: Pacer) -> None:
        """The rate that it obeys is one that it was given, in that host; its lease ends no later than at the root.

        Clocks that drift end leases of one length at different moments, so their beginnings are compared.
        """
        name, origin, pace = node.name, pacer.origin, pacer.origin.pace
        if pace is None:
            return
        given = self.given.get((origin.root, origin.group, name), {})
        rate, begins, lease_s = given.get((pace.process, pace.version), (None, 0.0, 0.0))
        if rate != pace.rate:
            host = f" in the virtual host {origin.group!r}" if origin.group else ""
            raise Violation(f"{name} obeys a rate of {pace.rate}, which {origin.root} never gave to it{host}")
        longer = node.clock.world(origin.lease_ends - lease_s) - begins
        if longer > SLACK_S:
            raise Violation(f"{name} obeys a rate for {longer:.3f} s longer than {origin.root} counts with it")

    def _turned(self, name: str, root: str, known: _Rate) -> None:
        paid = known.paid()
        sizes = self._sent(root, known)
        known.largest = max([known.largest, *sizes])
        self.sent_bytes[name, root] += sum(sizes)
        if paid is None or ignores_rate(known.pacer):
            known.debt = 0.0
        else:
            self.paced += len(sizes)
            self.hosts += len(sizes) if known.pacer.origin.group else 0
            least = -LATE_S * max(known.rate or 0.0, known.base or 0.0) if known.waiting else 0.0
            known.debt = max(least, known.debt - paid) + sum(sizes)
            if known.debt > known.largest + SLACK_BYTES:
                over = known.debt - known.largest
                raise Violation(f"{name} sent {over:.0f} bytes more to {root} than its rate of {known.rate:.0f} allows")
        known.look()
        known.waiting = self._waits(root, known.core)

    def _waits(self, root: str, core: "NodeCore") -> bool:
        senders: list[Any] = [hop.senders.get(root) for hop in core.next_hops.values()]
        return any(sender is not None and sender.waiting for sender in senders)

    def _sent(self, root: str, known: _Rate) -> list[int]:
        """Sizes of the client's own messages that left in this turn."""
        core, found = known.core, []
        ours = core.identities.store_uuid.bytes
        for hop in core.next_hops.values():
            sender: Any = hop.senders.get(root)
            if sender is None or not sender.open:  # numbers begin anew once the link is answered
                continue
            self.waited += bool(sender.waiting)
            epoch, number = known.sent.get(hop.name, (None, 0))
            if epoch != sender.epoch:
                number = 0
            for each in range(number + 1, sender.number + 1):
                sequence = sender.in_doubt.get(each)
                value = None if sequence is None else sender.queue.value(sequence)
                if value is not None and packed.origin_of(value) == ours and not sender.queue.expired(value):
                    found.append(packed.size_of(value))
            known.sent[hop.name] = sender.epoch, sender.number
        return found

    def metrics(self) -> dict[str, Any]:
        return {"paced": self.paced, "paced_of_hosts": self.hosts, "turns_that_waited": self.waited}
