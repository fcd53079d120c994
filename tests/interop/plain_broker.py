"""A small broker on Qpid Proton, which knows nothing of Holdfast: it takes messages at any address, in a process of its
own, and says what came.

python plain_broker.py PORT RELEASES REJECTED

Rules of this file: those of peer_process.py. It gives the first RELEASES messages back, and rejects those whose body is
REJECTED.
"""

import json
import sys
from typing import Any

from proton.handlers import MessagingHandler
from proton.reactor import Container


class PlainBroker(MessagingHandler):  # type: ignore[misc]
    def __init__(self, port: int, releases: int, rejected: str) -> None:
        super().__init__(auto_accept=False)
        self._port = port
        self._releases = releases
        self._rejected = rejected

    def on_start(self, event: Any) -> None:
        event.container.listen(f"127.0.0.1:{self._port}")
        _say(event="listens")

    def on_link_opening(self, event: Any) -> None:
        event.link.target.address = event.link.remote_target.address
        event.link.source.address = event.link.remote_source.address

    def on_message(self, event: Any) -> None:
        body = str(event.message.body)
        if self._releases:
            self._releases -= 1
            self.release(event.delivery, delivered=False)
        elif body == self._rejected:
            self.reject(event.delivery)
        else:
            _say(event="came", address=event.link.target.address, subject=event.message.subject, body=body)
            self.accept(event.delivery)


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    Container(PlainBroker(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])).run()
