"""The paper's experiment through the provider's network: the same clients and root, joined by the VPN.

Rules of this file: what direct links leave out. Each client has one connection to the root, and data, answers, loads
and paces share it (traffic-control §3.2). A message stays in the client's queue as a copy until the root has answered
for it, and the root gives credit for what it has room for. The pacing is the nodes' code, as in model.py.
"""

from functools import partial
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast.pacing.messages import Pace, Report
from holdfast_lab.mpls.clock import NEVER
from holdfast_lab.mpls.links import Packet
from holdfast_lab.mpls.network_file import NetworkFile, read_network, with_clients
from holdfast_lab.mpls.provider import Provider
from holdfast_lab.mpls.routers import Host
from holdfast_lab.mpls.transport import Connection
from holdfast_lab.vpn.model import Client, Network
from holdfast_lab.vpn.parameters import SIZE, Experiment

CREDIT: Final = 10
"""Messages that a client may have on the way, where the root has room: twice what it sends in a round trip at 100 a
second. More would keep room at the root for who does not need it."""

MESSAGE_BYTES: Final = SIZE + 100
"""With what AMQP and custody add."""

ANSWER_BYTES: Final = 60
CONTROL_BYTES: Final = 250
"""A load or a pace."""

DATA, ANSWER, CONTROL = range(3)


class Far:
    """A client's connection, both of its ends, and the credit that it has. `received`: by the root, of `granted`."""

    __slots__ = ("at_client", "at_root", "client", "credit", "granted", "received")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.credit = 0
        self.granted = 0
        self.received = 0
        self.at_client: Connection
        self.at_root: Connection


def network_of(experiment: Experiment) -> "MplsNetwork":
    """Raises ConfigError where the file has no such experiment."""
    file = read_network(experiment.network)
    if not file.clients:
        raise ConfigError(f"{file.name}: no [traffic]; expected its root and clients")
    if len(file.clients) != experiment.clients:
        file = with_clients(file, experiment.clients)
    return MplsNetwork(experiment, file)


class MplsNetwork(Network):
    def __init__(self, experiment: Experiment, file: NetworkFile) -> None:
        super().__init__(experiment)
        self.provider = Provider(self.clock, file, fast_reroute=experiment.fast_reroute)
        self.faults = self.provider.faults
        self._delays = [0.0, 0.0, 0.0]
        """Of messages: the sum and the most; of control messages: the sum."""
        self._controls = 0
        self.far = [Far(client) for client in self.clients]
        self._by_client = {far.client.origin.name: far for far in self.far}
        by_address: dict[str, Far] = {}
        root = self.provider.hosts[file.root]
        for far, name in zip(self.far, file.clients, strict=True):
            host = self.provider.hosts[name]
            by_address[host.address] = far
            far.at_client = Connection(
                self.clock, partial(_sends, host, root.address), partial(self._at_client, far)
            )  # fmt: skip
            far.at_root = Connection(self.clock, partial(_sends, root, host.address), partial(self._at_root, far))
            host.take = partial(_takes, far.at_client)
        root.take = lambda packet: by_address[packet.source].at_root.receive(packet.payload)  # type: ignore[arg-type]
        for far in self.far:
            far.credit = far.granted = min(CREDIT, self.root_messages // len(self.far))
        self._promised = sum(far.granted for far in self.far)
        """Messages that clients may send and the root does not have yet."""
        if experiment.fail:
            self.provider.check_fault(experiment.fail)
            self.clock.at(experiment.fail_at_s, self._fails)
            self.clock.at(experiment.repair_at_s, self._is_repaired)

    def _fails(self, _: None) -> None:
        self.provider.fail(self.experiment.fail)

    def _is_repaired(self, _: None) -> None:
        self.provider.repair(self.experiment.fail)

    # ------------------------------------------------------------------------------------------------- data

    def _send(self, now: float, client: Client) -> None:
        """Into the connection, what the rate and the credit allow; it stays in the queue, as a copy."""
        client.send_at = NEVER
        shaper, far = client.shaper, self.far[client.number]
        while client.queue > client.on_the_way and far.credit and shaper.ready(now):
            client.on_the_way += 1
            far.credit -= 1
            shaper.sent(now, SIZE)
            far.at_client.write((DATA, now, None), MESSAGE_BYTES)
        if client.queue > client.on_the_way and far.credit:
            client.send_at = max(now, shaper.ready_at())
            self.clock.at(client.send_at, self._due, client)
        self._report(now, client)

    def _at_root(self, far: Far, message: tuple[int, float, Any]) -> None:
        kind, sent_at, content = message
        now = self.clock.now
        if kind == CONTROL:
            self._controlled(now - sent_at)
            self._receive(content)
            return
        self._count_root(now)
        far.received += 1
        self._promised -= 1
        self.delivered += 1
        self.root_queue += 1
        self.root_peak = max(self.root_peak, self.root_queue)
        self._delays[0] += now - sent_at
        self._delays[1] = max(self._delays[1], now - sent_at)
        name = far.client.origin.name
        self.table.took(name, SIZE)
        far.at_root.write((ANSWER, now, (1, self._more_credit(far))), ANSWER_BYTES)

    def _more_credit(self, far: Far) -> int:
        """What the client is given: the root has room for all that anybody may send."""
        room = self.root_messages - self.root_queue - self._promised
        more = min(CREDIT - (far.granted - far.received), max(room // len(self.far), min(room, 1)))
        far.granted += more
        self._promised += more
        return more

    def _remove_block(self, _: None) -> None:
        super()._remove_block(None)
        for far in self.far:  # who has no credit is told of room, since no message of it will be answered
            if far.granted == far.received and (more := self._more_credit(far)):
                far.at_root.write((ANSWER, self.clock.now, (0, more)), ANSWER_BYTES)

    def _at_client(self, far: Far, message: tuple[int, float, Any]) -> None:
        kind, sent_at, content = message
        now, client = self.clock.now, far.client
        if kind == CONTROL:
            self._controlled(now - sent_at)
            self._receive(content)
            return
        taken, more = content
        client.queue -= taken
        client.on_the_way -= taken
        had_none, far.credit = not far.credit, far.credit + more
        if had_none and more:
            self._send(now, client)
        else:
            self._report(now, client)

    # ------------------------------------------------------------------------------------------------- control

    def _carry(self, now: float, message: Report | Pace) -> None:
        if self.experiment.loss and self._loss.random() < self.experiment.loss:
            return
        if isinstance(message, Pace):
            self._by_client[message.to].at_root.write((CONTROL, now, message.fields()), CONTROL_BYTES)
        else:
            self._by_client[message.origin].at_client.write((CONTROL, now, message.fields()), CONTROL_BYTES)

    def _controlled(self, delay_s: float) -> None:
        self._controls += 1
        self._delays[2] += delay_s

    def counted(self) -> dict[str, Any]:
        lost = self.provider.lost()
        ends = [end for far in self.far for end in (far.at_client, far.at_root)]
        found = {
            "message_delay_mean_s": self._delays[0] / self.delivered if self.delivered else 0.0,
            "message_delay_max_s": self._delays[1],
            "control_delay_mean_s": self._delays[2] / self._controls if self._controls else 0.0,
            "packets": sum(link.packets for link in self.provider.links.values()),
            "packets_lost": sum(lost.values()),
            **{f"packets_{where}": count for where, count in lost.items()},
            "segments_resent": sum(end.resent for end in ends),
            "timeouts": sum(end.timeouts for end in ends),
        }
        return {"network": found}


def _sends(host: Host, destination: str, payload: Any, size: int) -> None:
    host.send(Packet(host.address, destination, size, payload))


def _takes(connection: Connection, packet: Packet) -> None:
    connection.receive(packet.payload)  # type: ignore[arg-type]
