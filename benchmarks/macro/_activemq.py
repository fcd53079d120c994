"""ActiveMQ Classic as Debian has it, a peer for topics.

Debian's package has no AMQP transport (its jars leave out activemq-amqp and proton-j), so the load speaks STOMP to it.
"""

import contextlib
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from _peers import START_S_MAX, Peer, PeerMissing, free_port, strace_command

HOME: Final = Path("/usr/share/activemq")
LAUNCHER: Final = HOME / "bin" / "activemq.jar"
HEAP: Final = "-Xmx512m"
PROBE: Final = b"CONNECT\naccept-version:1.1\nhost:localhost\nheart-beat:0,0\n\n\0"


class ActiveMq(Peer):
    """A broker in the foreground with its defaults, KahaDB among them, but for places, its port, and JMX, which is
    off."""

    name = "activemq_stomp"
    protocol = "stomp"

    def topic(self, name: str) -> str:
        """Each message's own, by its subject (`_stomp.SendBatch`)."""
        return "/topic"

    def subscription(self, name: str, rest: str) -> str:
        return f"/topic/{name}.{'>' if rest == '#' else rest}"

    def start(self, directory: Path, trace: Path | None = None) -> None:
        if not LAUNCHER.exists() or shutil.which("java") is None:
            raise PeerMissing("ActiveMQ is not installed: apt-get install activemq")
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        data = directory / "data"
        uri = f"broker:(stomp://127.0.0.1:{self.port})?persistent=true&useJmx=false&dataDirectory={data}"
        places = {"home": HOME, "base": directory, "data": data, "conf": directory}
        with (directory / "log").open("w") as log:
            self.process = subprocess.Popen(
                [
                    *strace_command(trace), "java", HEAP, *(f"-Dactivemq.{key}={at}" for key, at in places.items()),
                    "-jar", str(LAUNCHER), "start", uri,
                ],
                cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_S_MAX * (1 if trace is None else 5)
        while not self._serves():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise PeerMissing(f"{self.name} does not start: see {directory / 'log'}")
            time.sleep(0.2)
        self.pid = self.process.pid

    def _serves(self) -> bool:
        """Its STOMP transport answers."""
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 1.0) as probe:
            probe.settimeout(5.0)
            probe.sendall(PROBE)
            return probe.recv(9) == b"CONNECTED"
        return False

    def settings(self) -> dict[str, object]:
        sender = "transactions of one write, a receipt for each"
        return {"configuration": "defaults, KahaDB", "heap": HEAP, "sender": sender, "acks": "of bursts"}
