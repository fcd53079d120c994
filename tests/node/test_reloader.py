"""The configuration is read in a thread, and taken up once the core has decided (node/reload.py)."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.network.tls import tls_of
from holdfast.client.network.url import parse_url
from holdfast.engine.events import CertificateRead, ConfigDecided, ConfigRead, Event
from holdfast.errors import ConfigError
from holdfast.fleet import private_files
from holdfast.node import reload as reloads
from holdfast.node import users_file
from holdfast.node.config import NodeSettings
from holdfast.node.network.certificates import certificates_of
from holdfast.node.network.revocation import read_revoked
from holdfast.node.passwords import password_in
from holdfast.node.process.appending import Opened
from holdfast.node.reload import Reloader
from holdfast.node.tls import TlsFiles
from holdfast.settings.neighbours import NeighbourConfig
from node.fakes import LIMIT_S, settings
from support.certificates import authority, needs_openssl, of_node
from support.eventually import eventually_true

HUB = parse_url("amqps://127.0.0.1")


class NoDials:
    """Dials nothing."""

    wanted = False

    def configure(self, dialled: object, certificates: object) -> None:
        pass


class World:
    """A reloader, and what it has fed."""

    def __init__(self, given: NodeSettings, load: Callable[[], NodeSettings]) -> None:
        self.fed: list[ConfigRead] = []
        self.of_certificates: list[CertificateRead] = []
        self.reloader = Reloader(
            asyncio.get_running_loop(), load, given, self._feed, files=(None, None),
            certificates=certificates_of(given), check_revoked=lambda: None, dials=NoDials(),  # type: ignore[arg-type]
            watch_network=lambda: None, users=None, log=None,
        )  # fmt: skip

    def _feed(self, event: Event) -> None:
        if isinstance(event, CertificateRead):
            self.of_certificates.append(event)
            return
        assert isinstance(event, ConfigRead)
        self.fed.append(event)

    async def until(self, count: int) -> ConfigRead:
        await eventually_true(lambda: len(self.fed) >= count, what="a reading")
        return self.fed[count - 1]


@asynccontextmanager
async def hanging(tmp_path: Path) -> AsyncIterator[tuple[World, threading.Event, list[int]]]:
    """A world whose files hang until the event is set; and one number for each reading."""
    given, goes_on, readings = settings(tmp_path), threading.Event(), list[int]()

    def load() -> NodeSettings:
        readings.append(len(readings))
        goes_on.wait(LIMIT_S)
        return given

    yield World(given, load), goes_on, readings
    goes_on.set()


async def test_who_asks_while_the_files_hang_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(reloads, "READ_S_MAX", 0.05)
    async with hanging(tmp_path) as (world, goes_on, readings):
        world.reloader.begin()
        world.reloader.begin()
        refused = await world.until(1)
        assert refused.config is None and "its files have not been read in 0.05 s" in refused.problem
        world.reloader.begin()
        assert world.fed[1].problem == refused.problem, "at once, and by no further thread"
        assert readings == [0]
        goes_on.set()
        await eventually_true(lambda: "too late to be used; reload again" in caplog.text, what="the line")
        assert len(world.fed) == 2, "who asked was told that nothing has changed"
        world.reloader.begin()
        assert (await world.until(3)).config is not None


async def test_a_reading_in_time_is_read_once_more_for_who_asked_meanwhile(tmp_path: Path) -> None:
    async with hanging(tmp_path) as (world, goes_on, readings):
        world.reloader.begin()
        world.reloader.begin()
        goes_on.set()
        await world.until(2)
        assert readings == [0, 1] and all(read.config is not None for read in world.fed)


@needs_openssl
async def test_a_neighbour_that_stays_until_a_restart_can_be_dialled(tmp_path: Path) -> None:
    """The file has no neighbour with TLS any more; the core keeps one."""
    given = settings(tmp_path, neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1", tls=True),))
    given = replace(given, tls=TlsFiles(authorities=of_node().authority))
    world = World(given, lambda: replace(given, core=replace(given.core, neighbours=())))
    world.reloader.begin()
    read = await world.until(1)
    assert read.config is not None and not read.config.neighbours
    world.reloader.decided(ConfigDecided(accepted=True, config=given.core))
    certificates = world.reloader.certificates
    assert certificates is not None
    assert certificates.dialled("localhost") is not None


@needs_openssl
async def test_a_node_that_begins_to_show_a_certificate_tells_of_it(tmp_path: Path) -> None:
    given = settings(tmp_path)
    node = of_node()
    neighbour = NeighbourConfig(name="hub", remote="127.0.0.1:1", tls=True)
    files = TlsFiles(certificate=node.certificate, key=node.key, authorities=node.authority)
    new = replace(given, tls=files, core=replace(given.core, neighbours=(neighbour,)))
    world = World(given, lambda: new)
    assert world.reloader.certificates is None
    world.reloader.begin()
    await world.until(1)
    world.reloader.decided(ConfigDecided(accepted=True, config=new.core))
    (told,) = world.of_certificates
    assert told.ends_ms is not None and world.reloader.certificates is not None
    world.reloader.certificates.close()


@needs_openssl
@pytest.mark.parametrize("other_files", [False, True])
async def test_a_reload_that_takes_up_an_expired_certificate_says_so(tmp_path: Path, other_files: bool) -> None:
    old, good = authority(tmp_path / "ca", "an authority").sign("old", days=-1), of_node()
    used = [tmp_path / "used.pem", tmp_path / "used.key"]
    for to, source in zip(used, (good.certificate, good.key), strict=True):
        to.write_bytes(source.read_bytes())
    neighbour = NeighbourConfig(name="hub", remote="127.0.0.1:1", tls=True)
    given = settings(tmp_path, neighbours=(neighbour,))
    given = replace(given, tls=TlsFiles(certificate=used[0], key=used[1], authorities=good.authority))
    new = given
    if other_files:
        new = replace(given, tls=replace(given.tls, certificate=old.certificate, key=old.key))
    world = World(given, lambda: new)
    if not other_files:
        used[0].write_bytes(old.certificate.read_bytes())
        used[1].write_bytes(old.key.read_bytes())
    world.reloader.begin()
    read = await world.until(1)
    what, told = read.changed
    assert what == ("tls" if other_files else "tls certificates")
    assert told.startswith("tls certificate_file: this node's certificate has expired: others refuse connections")


def test_a_pipe_without_a_reader_or_a_writer_holds_nobody_up(tmp_path: Path) -> None:
    """A reload opens both files anew."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    opened: list[Any] = []
    with pytest.raises(ConfigError, match=r"log file .* cannot be opened"):
        opened.append(Opened("log", pipe, 0o640))
    with pytest.raises(ConfigError, match=r"^user 'ann' password_file '.*' cannot be read \(no regular file\)"):
        password_in("user 'ann'", str(pipe))
    reader = os.open(pipe, os.O_RDWR)
    try:
        with pytest.raises(ConfigError, match=r"cannot be read \(no regular file\)"):
            password_in("user 'ann'", str(pipe))
        written = Opened("log", pipe, 0o640)
        assert os.get_blocking(written.fd), "its lines are written by a thread, which may wait"
        written.close()
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    "read",
    [
        users_file.read,
        lambda path: TlsFiles(authorities=path).check_readable(),
        read_revoked,
        lambda path: private_files.read_private(path, "the key", 100),
        lambda path: private_files.read(path, "the key", 100),
        lambda path: password_in("--password-file", str(path)),
        lambda path: tls_of(HUB, ca_file=path, certificate_file=None, key_file=None, server_name=None),
        lambda path: tls_of(HUB, ca_file=None, certificate_file=path, key_file=None, server_name=None),
    ],
)
def test_a_name_of_a_file_with_a_nul_is_told(read: Callable[[Path], object]) -> None:
    """It may come from a program, too."""
    with pytest.raises(ConfigError, match=r"cannot be (read|used) \((embedded null byte|Invalid argument)"):
        read(Path("a\0b"))


def test_what_was_opened_for_a_reload_is_closed_whatever_fails_then(tmp_path: Path) -> None:
    given = replace(settings(tmp_path), telemetry_file=tmp_path / "told", audit_file=tmp_path / "seen")
    opened = Opened("telemetry", tmp_path / "told", 0o640)

    class Reopens:
        def reopen(self, path: Path) -> Opened:
            return opened

    class Fails:
        def reopen(self, path: Path) -> Opened:
            raise ValueError("embedded null byte")

    loop = asyncio.new_event_loop()
    try:
        files: Any = (Reopens(), Fails())
        reloader = Reloader(
            loop, lambda: given, given, lambda event: None, files=files, certificates=None,
            check_revoked=lambda: None, dials=NoDials(), watch_network=lambda: None, users=None, log=None,  # type: ignore[arg-type]
        )  # fmt: skip
        with pytest.raises(ValueError, match="embedded"):
            reloader._prepare(given)
    finally:
        loop.close()
    assert opened.fd == -1
