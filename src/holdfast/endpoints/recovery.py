"""Recovery after a failure: counts again what clients' links hold, and wakes those that may wait (docs/adr/0019).

Rules of this file: it registers the holders of entries of suspended links, and of links whose outcomes wait, with the
owners of the counts.
"""

from collections.abc import Container, Iterator

from holdfast.endpoints.background_jobs import BackgroundJobs
from holdfast.endpoints.browser import ReaderLink
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.endpoints.resumption.producer import REJECTED_BYTES
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.peers.connections import Connections
from holdfast.peers.limits.memory import Memory
from holdfast.peers.link_tables import LinkTables, links_of
from holdfast.peers.use import Use
from holdfast.peers.users import Users
from holdfast.state.queue_changes import QueueChanges


class ClientRecovery:
    """For all links of clients."""

    def __init__(
        self,
        connections: Connections,
        links: LinkTables,
        memory: Memory,
        users: Users,
        queue_changes: QueueChanges,
        resume: Resumption,
        jobs: BackgroundJobs,
    ) -> None:
        self._connections = connections
        self._links = links
        self._resume = resume
        self._jobs = jobs
        queue_changes.suspended_by(self._suspended)
        users.unsettled_in(self._unsettled)
        incoming, outgoing = resume.incoming, resume.outgoing
        memory.held_in(
            memory.resumable, lambda: sum(record.counted_bytes for record in (*incoming.values(), *outgoing.values()))
        )
        memory.held_in(
            memory.rejected, lambda: sum(REJECTED_BYTES * len(record.rejected) for record in incoming.values())
        )
        memory.held_in(memory.settling, lambda: jobs.settlements.held_bytes)

    def _suspended(self) -> Iterator[tuple[object, Container[int] | None]]:
        for record in self._resume.outgoing.values():
            if record.until is not None:
                yield record.consumer, {*record.held.values()}
        for settlement in self._jobs.settlements.waiting:
            yield settlement, None
        for item in self._jobs.returns.waiting:
            yield item.consumer, None

    def _unsettled(self) -> Iterator[tuple[Use | None, int]]:
        for peer in self._connections.values():
            for link in links_of(peer):
                if isinstance(link, ConsumerLink):
                    yield link.use, link.held_bytes
        for record in self._resume.outgoing.values():
            yield record.use, record.use_bytes

    def recover(self) -> None:
        """Links of closed connections end, and hold nothing."""
        self._resume.recover()
        self._jobs.returns.forget()

    def wake(self) -> None:
        """Consumers take again."""
        for peer in self._connections.values():
            for link in links_of(peer):
                if isinstance(link, (ConsumerLink, ReaderLink)):
                    link.credited()
                    if isinstance(link, ConsumerLink) and link.batch:
                        self._links.presettled[link] = None
