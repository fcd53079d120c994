"""The brokers under load, each a process of its own, started here and ended by its id.

Every peer listens on a port of 127.0.0.1 that the system chose, keeps its files below the directory it is
given, and can be started under strace (`trace`), which is its parent's business no more than that: the
traced process keeps its own id.
"""

import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from _tls import Identity

from holdfast_lab.base.processes import parse_ready

START_S_MAX = 60.0
STOP_S_MAX = 20.0
HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
RABBITMQ_PLACES = ("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin", "/opt/rabbitmq/sbin")


class PeerMissing(Exception):
    """This peer cannot be had on this machine; the text says why and what would bring it."""


def listens_at(output: str, key: str = "amqp") -> tuple[str, int] | None:
    """Host and port of AMQP, or of amqps by `key`, in the first `ready` line of that output; None where no whole line
    says it."""
    for line in output.splitlines(keepends=True):
        fields = parse_ready(line) if line.endswith("\n") else None
        if fields is not None and key in fields:
            host, _, port = fields[key].rpartition(":")
            return host, int(port)
    return None


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has now; for programs that cannot ask the system themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def file_system(path: Path) -> str:
    """Type of the file system that holds `path`, from /proc/mounts: the longest mount point wins."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, found, *_ = line.split()
        inside = mount == "/" or str(path.resolve()) == mount or str(path.resolve()).startswith(mount + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def require_real_disk(path: Path) -> str:
    """The type of file system below `path`; SystemExit where a sync there costs nothing."""
    kind = file_system(path)
    if kind in ("tmpfs", "ramfs"):
        raise SystemExit(f"--data {path}: a sync costs nothing on {kind}; name a directory on a disk")
    return kind


def end_process(process: subprocess.Popen[str], kind: signal.Signals = signal.SIGTERM) -> None:
    """Ask by signal, wait, then insist; the process is reaped, its pipes are closed."""
    if process.poll() is None:
        process.send_signal(kind)
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def read_line(stream: IO[str], timeout_s: float) -> str:
    """One line of an unbuffered pipe, or "" at its end; TimeoutError after timeout_s."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        if not selector.select(timeout_s):
            raise TimeoutError(f"no line within {timeout_s} s")
    return stream.readline()


def strace_command(trace: Path | None) -> list[str]:
    """The words before a command that make strace log its syncs and writes to `trace` (no words: None)."""
    if trace is None:
        return []
    calls = "open,openat,creat,fsync,fdatasync,msync,sync_file_range,write,writev,pwrite64,pwritev,pwritev2"
    return ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-y", "-s", "0", "-ttt", "-e", "signal=none", "-e",
            f"trace={calls}", "-o", str(trace)]  # fmt: skip


class Peer(ABC):
    """A broker. `name` is its name in the results, `protocols` what the raw load may speak to it."""

    name: str
    protocol = "amqp"
    user: str | None = None
    password: str | None = None
    ca_file: str | None = None
    """With it TLS is spoken at `port`."""
    mapping: str | None = None
    """Name of a file whose mapped pages are the page cache's, not the process's own memory."""

    def __init__(self) -> None:
        self.host, self.port, self.pid = "127.0.0.1", 0, 0
        self.process: subprocess.Popen[str] | None = None

    def address(self, queue: str) -> str:
        return queue

    def topic(self, name: str) -> str:
        """Address that publishes; the message's subject, `name` and further words, counts."""
        return f"topic/{name}"

    def subscription(self, name: str, rest: str) -> str:
        """Address that subscribes to the subjects with the words `name` and then `rest`, a pattern."""
        return self.topic(name) if rest == "#" else f"topic/{name}/{name}.{rest}"

    @abstractmethod
    def start(self, directory: Path, trace: Path | None = None) -> None:
        """Start, return when it serves. PeerMissing where it cannot."""

    def stop(self) -> None:
        if self.process is not None:
            end_process(self.process)
            self.process = None

    def settings(self) -> dict[str, object]:
        """What a reader must know to start it the same way."""
        return {}

    def _start_ready(self, command: Sequence[str], directory: Path, trace: Path | None) -> None:
        """Start a command that prints `ready … amqp=HOST:PORT`; its log goes to a file in `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        log = directory / "log"
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [*strace_command(trace), *command],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=directory,
            )
        assert self.process.stdout is not None
        try:
            line = read_line(self.process.stdout, START_S_MAX)
        except TimeoutError:
            line = ""
        found = listens_at(line, "amqp" if self.ca_file is None else "amqps")
        if found is None:
            self.stop()
            last = log.read_text().strip().splitlines()[-1:]
            why = " ".join(last) or line.strip() or "no ready line"
            raise PeerMissing(f"{self.name} does not start: {why}")
        (self.host, self.port), self.pid = found, self.process.pid


class Holdfast(Peer):
    """The node, through its command line, with no configuration: any address is a durable queue."""

    name = "holdfast"
    mapping = "data.mdb"

    def __init__(self, identity: Identity | None = None) -> None:
        """With an identity it speaks TLS, by a configuration that says no more than that."""
        super().__init__()
        self._identity = identity
        if identity is not None:
            self.ca_file = str(identity.certificate)

    def start(self, directory: Path, trace: Path | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        arguments = ["node", "--name", "bench", "--listen", "127.0.0.1:0", "--data", str(directory / "store")]
        if self._identity is not None:
            file = directory / "node.toml"
            file.write_text(
                f'[node]\ncreate_queues = true\n[tls]\ncertificate_file = "{self._identity.certificate}"\n'
                f'key_file = "{self._identity.key}"\n'
            )
            arguments[1:1] = [str(file)]
            arguments[arguments.index("--listen") + 1] = "amqps://127.0.0.1:0"
        self._start_ready([sys.executable, "-m", "holdfast", *arguments], directory, trace)

    def settings(self) -> dict[str, object]:
        listen = "127.0.0.1:0" if self._identity is None else "amqps://127.0.0.1:0"
        return {"command": f"python -m holdfast node --name bench --listen {listen} --data DIR"}


class Plain(Holdfast):
    """The same without TLS, beside one with it."""

    name = "holdfast_plain"


class Bare(Peer):
    """The bare loop: frames, one write and one sync a batch."""

    name = "bare"

    def start(self, directory: Path, trace: Path | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._start_ready([sys.executable, str(HERE / "_bare.py"), str(directory / "file")], directory, trace)

    def settings(self) -> dict[str, object]:
        return {"commit": "one write and one fdatasync a batch, in a thread", "sender_credit": 8192}


class RabbitMq(Peer):
    """Debian's RabbitMQ as a foreground process with an epmd of its own; defaults, but for places and ports.

    One server answers AMQP 1.0 (plug-in) and native 0-9-1 on the same port: `RabbitMqNative` borrows it.
    """

    name = "rabbitmq_amqp10"
    user = password = "guest"
    plugins: tuple[str, ...] = ("rabbitmq_amqp1_0",)

    def __init__(self, identity: Identity | None = None) -> None:
        super().__init__()
        self.epmd: subprocess.Popen[str] | None = None
        self._sbin, self._environment = Path(), dict[str, str]()
        self.version = ""
        self._identity = identity
        self._plain_port = 0
        if identity is not None:
            self.ca_file = str(identity.certificate)

    def address(self, queue: str) -> str:
        return f"/queue/{queue}"

    def topic(self, name: str) -> str:
        """One exchange serves all topics: their first words tell them apart."""
        return "/exchange/amq.topic"

    def subscription(self, name: str, rest: str) -> str:
        return f"/topic/{name}.{rest}"

    def start(self, directory: Path, trace: Path | None = None) -> None:
        scripts = [path for place in RABBITMQ_PLACES for path in Path("/").glob(place[1:])]
        if not scripts or shutil.which("epmd") is None:
            raise PeerMissing("RabbitMQ is not installed: apt-get install rabbitmq-server")
        self._sbin = scripts[-1]
        self.version = self._sbin.parent.name
        directory.mkdir(parents=True, exist_ok=True)
        epmd_port, self.port = free_port(), free_port()
        (directory / "plugins").write_text(f"[{','.join(self.plugins)}].\n")
        self._plain_port = self.port
        lines = [f"listeners.tcp.1 = 127.0.0.1:{self._plain_port}"]
        if self._identity is not None:
            self.port = free_port()
            lines += [
                f"listeners.ssl.1 = 127.0.0.1:{self.port}",
                f"ssl_options.cacertfile = {self._identity.certificate}",
                f"ssl_options.certfile = {self._identity.certificate}",
                f"ssl_options.keyfile = {self._identity.key}",
                "ssl_options.verify = verify_none",
            ]
        (directory / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (directory / "env.conf").write_text("")
        pid_file = directory / "pid"
        pid_file.unlink(missing_ok=True)
        self._environment = environment = {
            "PATH": os.environ["PATH"], "HOME": str(directory), "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost", "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(self._plain_port),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"), "RABBITMQ_LOG_BASE": str(directory / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "env.conf"), "RABBITMQ_PID_FILE": str(pid_file),
        }  # fmt: skip
        self.epmd = subprocess.Popen(
            ["epmd", "-port", str(epmd_port), "-address", "127.0.0.1"], env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        with (directory / "log").open("w") as log:
            self.process = subprocess.Popen(
                [*strace_command(trace), str(self._sbin / "rabbitmq-server")],
                cwd=directory,  # where a crash of it leaves its dump
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_S_MAX * (1 if trace is None else 5)
        while not self._serves(pid_file):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise PeerMissing(f"{self.name} does not start: see {directory / 'log'}")
            time.sleep(0.2)
        self.pid = int(pid_file.read_text())

    def _serves(self, pid_file: Path) -> bool:
        """Its plug-in answers the AMQP 1.0 header."""
        if not (pid_file.exists() and pid_file.read_text().strip()):
            return False
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._plain_port), 1.0) as probe:
            probe.settimeout(5.0)
            probe.sendall(b"AMQP\x03\x01\x00\x00")
            return probe.recv(8) == b"AMQP\x03\x01\x00\x00"
        return False

    def control(self, *words: str) -> str:
        """What `rabbitmqctl` prints for `words`; PeerMissing where it fails."""
        command = [str(self._sbin / "rabbitmqctl"), "-n", self._environment["RABBITMQ_NODENAME"], "-q", *words]
        told = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if told.returncode != 0:
            raise PeerMissing(f"rabbitmqctl {words[0]}: {(told.stderr or told.stdout).strip()}")
        return told.stdout

    def stop(self) -> None:
        if self.process is not None and self.pid and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S_MAX)
        super().stop()
        if self.epmd is not None:
            end_process(self.epmd)
            self.epmd = None

    def settings(self) -> dict[str, object]:
        return {"version": self.version, "configuration": "defaults", "queue": "durable, classic"}


class RabbitMqNative(Peer):
    """RabbitMQ's own protocol 0-9-1 with publisher confirms, on the server of a `RabbitMq`."""

    name = "rabbitmq_native"
    protocol = "native"
    user = password = "guest"

    def __init__(self, server: RabbitMq) -> None:
        super().__init__()
        self.server = server

    def start(self, directory: Path, trace: Path | None = None) -> None:
        if not self.server.pid:
            raise PeerMissing("its server does not run")
        self.host, self.port, self.pid = self.server.host, self.server.port, self.server.pid
        self.ca_file = self.server.ca_file

    def settings(self) -> dict[str, object]:
        return {**self.server.settings(), "confirms": True, "delivery_mode": 2}


def make_peers(names: Sequence[str], identity: Identity | None = None) -> Iterator[Peer]:
    """Peers in the order of `names`; the native one shares the other's server. With an identity they speak TLS, but for
    the bare loop and `plain`, a node without it. ValueError: unknown name."""
    server = RabbitMq(identity)
    for name in names:
        if name == "holdfast":
            yield Holdfast(identity)
        elif name == "plain" and identity is not None:
            yield Plain()
        elif name == "bare":
            yield Bare()
        elif name == "rabbitmq":
            yield server
        elif name == "native":
            yield RabbitMqNative(server)
        else:
            raise ValueError(f"invalid value {name} for --peers; expected holdfast, rabbitmq, native or bare")


def start_all(
    peers: Sequence[Peer], directory: Path, absent: dict[str, str], progress: Callable[[str], None]
) -> list[Peer]:
    """Those that serve, started, each below `directory`; why not for the others goes to `absent`."""
    serving: list[Peer] = []
    for peer in peers:
        try:
            peer.start(directory / peer.name)
            serving.append(peer)
            progress(f"{peer.name}: serves on port {peer.port}")
        except PeerMissing as missing:
            absent[peer.name] = str(missing)
            progress(f"{peer.name}: left out: {missing}")
    return serving
