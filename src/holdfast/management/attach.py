"""Links to and from `$management`, as a client attaches them."""

from typing import Any

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.wire.performatives import Target
from holdfast.endpoints.addresses.attach import AttachTable
from holdfast.endpoints.addresses.resolver import MANAGEMENT
from holdfast.management.requests import Requests
from holdfast.peers.peer import Peer
from holdfast.settings.limits import Limits


class ManagementAttach:
    """Answers such attaches."""

    def __init__(self, limits: Limits, requests: Requests) -> None:
        self._limits = limits
        self._requests = requests

    def serve(self, table: AttachTable) -> None:
        table.serve(MANAGEMENT, receive=self.receive, send=self.send)

    def receive(self, peer: Peer, link: Receiver, _: Any) -> None:
        link.context = requests = self._requests.request_link(peer, link)
        link.accept(max_message_size=self._limits.request_bytes_max)
        requests.top_up(self._limits.requests_max)

    def send(self, peer: Peer, link: Sender, _: Any) -> None:
        target = None if link.remote_attach is None else link.remote_attach.target
        reply_to = target.address if isinstance(target, Target) else None
        link.context = self._requests.reply_link(peer, link, str(reply_to) if reply_to is not None else link.name)
        link.accept()
