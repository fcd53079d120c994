"""The driver's other events, besides bytes, time and the end of a turn or a commit: connections that open and end, and
changes of the network and of the process.

Rules of this file: each event goes to one place.
"""

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.reloading import Reloading
from holdfast.custody.forwarding import Forwarding
from holdfast.endpoints.remotes.remote import Remote
from holdfast.endpoints.remotes.remotes import Remotes
from holdfast.engine import events
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.links.containment import Containment
from holdfast.links.pressure import Pressure
from holdfast.management.status.descriptors import Descriptors
from holdfast.management.status.users_file_status import UsersFileStatus
from holdfast.management.triggers import Triggers
from holdfast.peering.doors import Doors
from holdfast.peering.sessions import Neighbour
from holdfast.peers.connections import Connections
from holdfast.peers.limits.guard import Guard


class DriverEvents:
    """Passes each of these events to the part that handles it."""

    def __init__(
        self,
        clock: Clock,
        log: Log,
        outbox: Outbox,
        connections: Connections,
        guard: Guard,
        pressure: Pressure,
        containment: Containment,
        doors: Doors,
        forwarding: Forwarding,
        descriptors: Descriptors,
        neighbours: Mapping[str, Neighbour],
        remotes: Remotes,
        triggers: Triggers,
        reloading: Reloading,
        *,
        measured: Callable[[], dict[str, Any]],
        certificate_read: Callable[[events.CertificateRead], None],
        users_file: UsersFileStatus,
    ) -> None:
        self._clock = clock
        self._log = log
        self._outbox = outbox
        self._connections = connections
        self._guard = guard
        self._pressure = pressure
        self._containment = containment
        self._doors = doors
        self._forwarding = forwarding
        self._descriptors = descriptors
        self._neighbours = neighbours
        self._remotes = remotes
        self._triggers = triggers
        self._reloading = reloading
        self._measured = measured
        self._certificate_read = certificate_read
        self._users_file = users_file

    def dialled(self, name: str) -> Neighbour | Remote | None:
        """The neighbour or remote of that name."""
        return self._neighbours.get(name) or self._remotes.by_name.get(name)

    def happened(self, event: events.Event) -> None:
        """Handles the event. Exceptions belong to the event's connection or neighbour, if it has one."""
        dialled = getattr(event, "neighbour", None)
        if dialled is not None and self.dialled(dialled) is None:  # it was removed meanwhile
            if isinstance(event, events.ConnectionOpened):
                self._outbox.put(events.CloseConnection(connection=event.connection, abort=True))
            return
        if isinstance(event, events.ConnectionOpened):
            self._doors.open(event)
        elif isinstance(event, (events.Secured, events.SecuringFailed)):
            self._doors.secured(event)
        elif isinstance(event, events.ConnectionLost):
            self._connections.lost(event.connection, event.reason)
        elif isinstance(event, events.ConnectFailed):
            if (session := self.dialled(event.neighbour)) is not None:
                session.connect_failed(event.reason)
        elif isinstance(event, (events.WritingPaused, events.WritingResumed)):
            peer = self._connections.get(event.connection)
            if peer is not None:
                self._guard.writing(peer, isinstance(event, events.WritingResumed))
        elif isinstance(event, events.ForwardingChanged):
            self._forwarding.change(event.table)
        elif isinstance(event, events.DescriptorsMeasured):
            self._descriptors.measured(event)
        else:
            self._told(event)

    def _told(self, event: events.Event) -> None:
        """Handles events about the network, which go to the sessions that they concern, and about the process."""
        if isinstance(event, events.NetworkChanged):
            for neighbour in self._neighbours.values():
                neighbour.network_changed()
            self._remotes.network_changed()
        elif isinstance(event, events.UsersChanged):
            self._users_file.changed(event)
            self._doors.users_changed(event)
        elif isinstance(event, events.UsersFileProblem):
            self._users_file.read(event)
        elif isinstance(event, events.ConfigRead):
            self._reloading.read(event)
        elif isinstance(event, events.CertificateRead):
            self._certificate_read(event)
        elif isinstance(event, events.StatusAsked):
            self._outbox.put(events.StatusTold(fields=self._measured()))
        elif isinstance(event, events.CommandEnded):
            self._triggers.ended(event)
        elif isinstance(event, events.DriverWarned):
            self._log.write("WARNING", event.text, about=event.about)
        elif isinstance(event, events.DriverFailed):
            self._containment.count(event.connection)
        elif isinstance(event, (events.OutputMeasured, events.ReadPutOff)):
            peer = self._connections.get(event.connection)
            if peer is not None and isinstance(event, events.ReadPutOff):
                self._pressure.put_off(peer, event.size)
            if peer is not None and peer.neighbour is not None:
                if isinstance(event, events.ReadPutOff):
                    peer.neighbour.heard_at = self._clock.now
                    peer.neighbour.stir()
                else:
                    peer.neighbour.measured(peer, event)
