"""A site and the enrolment service over sockets: whom it believes, what it says of clocks, what the service bounds; and
the agent."""

import asyncio
import errno
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet import agent as agents
from holdfast.fleet import authority as ca
from holdfast.fleet import private_files
from holdfast.fleet import service as services
from holdfast.fleet.agent import Agent, reload_by, retry_s
from holdfast.fleet.authority import Authority
from holdfast.fleet.caller import Caller, RequestRefused, Unreachable
from holdfast.fleet.enrolment import Enrolment
from holdfast.fleet.service import Service
from holdfast.fleet.tokens import Token
from holdfast.fleet.versions import push
from holdfast.fleet.wire import REQUEST_BYTES_MAX
from holdfast.names import HostPort, parse_host_port
from support.eventually import eventually_async
from support.fleets import Fleet
from support.postgresql import free_port

LIMIT_S = 20.0


class Running:
    """A service of `fleet` in this process."""

    def __init__(self, fleet: Fleet, where: HostPort) -> None:
        self.fleet = fleet
        self.where = where
        self.log: list[str] = []

    def caller(self, *, off_s: float = 0.0, warn: Callable[[str], None] = lambda text: None) -> Caller:
        return Caller(self.where, lambda: time.time() + off_s, warn)

    def token(self, node: str) -> Token:
        return Token(node, self.where, self.fleet.fingerprint, self.fleet.token(node))

    async def enrolled(self, node: str) -> None:
        site = self.fleet.site(node)
        text = await asyncio.to_thread(self.caller().enrol, site, self.token(node))
        site.install(text, self.fleet.fingerprint, time.time())

    async def say(self, data: bytes) -> bytes:
        """What the service answers to these bytes behind its first line, until it closes."""
        context = ssl.create_default_context(cafile=self.fleet.directory.authority_file)
        reader, writer = await asyncio.open_connection(
            self.where.host, self.where.port, ssl=context, server_hostname="holdfast-fleet"
        )
        async with asyncio.timeout(LIMIT_S):
            assert json.loads(await reader.readline())["nonce"]
            writer.write(data)
            try:
                answer = await reader.readline()
            except ConnectionError:
                answer = b""
        writer.close()
        return answer


@asynccontextmanager
async def serving(fleet: Fleet, *, authority: Authority | None = None, port: int = 0) -> AsyncIterator[Running]:
    log: list[str] = []
    service = Service(fleet.directory, authority or fleet.authority, "0.1.0", log.append)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(service.run(HostPort("127.0.0.1", port), ready.set_result))
    async with asyncio.timeout(LIMIT_S):
        await asyncio.wait([ready, task], return_when=asyncio.FIRST_COMPLETED)
        running = Running(fleet, parse_host_port("test", ready.result(), port_min=1))
    running.log = log
    try:
        yield running
    finally:
        service.stop()
        async with asyncio.timeout(LIMIT_S):
            await task


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(Fleet(tmp_path)) as made:
        yield made


async def test_a_service_of_another_authority_is_not_told_the_secret(running: Running, tmp_path: Path) -> None:
    """Nor one that shows the right authority and is not certified by it."""
    other = Fleet(tmp_path / "other")
    token = running.token("ewr")
    async with serving(other) as theirs:
        with pytest.raises(ConfigError, match="somebody else answers, or the token is of another fleet"):
            await asyncio.to_thread(theirs.caller().enrol, running.fleet.site("ewr"), token)
        assert theirs.log == []
    pretends = Fleet(tmp_path / "pretends")

    class Pretending(Authority):
        @property
        def pem(self) -> str:
            return running.fleet.authority.pem

    lying = Pretending(pretends.authority._key, pretends.authority.certificate)
    async with serving(pretends, authority=lying) as theirs:
        with pytest.raises(ConfigError, match="is not this fleet's service") as found:
            await asyncio.to_thread(theirs.caller().enrol, running.fleet.site("ewr"), token)
        assert theirs.log == [] and "\n" not in str(found.value) and "_ssl.c" not in str(found.value)


async def test_a_node_of_the_fleet_is_not_taken_for_its_service(running: Running) -> None:
    """It has a certificate of the same authority, but not that name."""
    await running.enrolled("hub")
    hub = running.fleet.site("hub")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(hub.identity_file)
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    caller = Caller(HostPort("127.0.0.1", port), time.time, print)
    with pytest.raises(ConfigError, match="is not this fleet's service"):
        await asyncio.to_thread(caller.changes, hub, {}, wait=False)
    server.close()


@pytest.mark.parametrize(("off_s", "said"), [(7_300, "2 hours ahead of"), (-630, "10 minutes behind")])
async def test_a_clock_that_is_off_is_warned_of(running: Running, off_s: float, said: str) -> None:
    warned: list[str] = []
    caller = running.caller(off_s=off_s, warn=warned.append)
    await asyncio.to_thread(caller.enrol, running.fleet.site("ewr"), running.token("ewr"))
    assert f"this machine's clock is {said} the fleet's; set it" in warned


async def test_a_clock_that_is_days_off_is_told_before_anything_is_asked(running: Running) -> None:
    caller = running.caller(off_s=-4 * 86_400)
    with pytest.raises(ConfigError, match=r"clock is \d days behind the fleet's; set it, because certificates"):
        await asyncio.to_thread(caller.enrol, running.fleet.site("ewr"), running.token("ewr"))
    assert running.log == []


async def test_a_certificate_that_is_not_good_now_is_a_question_of_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ca, "SERVICE_DAYS", 1e-9)
    async with serving(Fleet(tmp_path)) as running:
        with pytest.raises(
            ConfigError, match=r"is not good at this time \(certificate has expired\): set this machine's"
        ):
            await asyncio.to_thread(running.caller().enrol, running.fleet.site("ewr"), running.token("ewr"))


async def test_a_push_is_answered_at_once_to_who_waits(running: Running) -> None:
    await running.enrolled("ewr")
    site = running.fleet.site("ewr")
    state = site.known()
    said = {"version": state.version, "crl_number": state.crl_number}
    waiting = asyncio.create_task(asyncio.to_thread(running.caller().changes, site, said, wait=True))

    async def seen() -> int:
        return running.fleet.directory.register().sites["ewr"].seen_s

    await eventually_async(seen)
    assert not waiting.done()
    async with asyncio.timeout(LIMIT_S):
        (running.fleet.directory.sites / "ewr.toml").write_text('[[queue]]\nname = "flights"\n')
        push(running.fleet.directory)
        answer = await waiting
    assert site.install(answer["provision"], None, time.time()).version == 2


async def test_who_waits_for_nothing_is_answered_after_a_while(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "WAIT_S_MAX", 0.05)
    await running.enrolled("ewr")
    site = running.fleet.site("ewr")
    said = {"version": site.known().version, "crl_number": site.known().crl_number}
    answer = await asyncio.to_thread(running.caller().changes, site, said, wait=True)
    assert answer["renew"] is False and "provision" not in answer


async def test_a_request_is_bounded(running: Running) -> None:
    within = json.dumps({"do": "x" * 100}).encode()
    assert b"none that this service knows" in await running.say(within.ljust(REQUEST_BYTES_MAX - 1) + b"\n")
    assert await running.say(b" " * (REQUEST_BYTES_MAX + 1) + within + b"\n") == b""
    assert b"authority" in await running.say(b'{"do": "authority"}\n'), "and the service goes on"


async def test_lines_about_refusals_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger could fill the disk with them; what was done for a site is always told."""
    monkeypatch.setattr(services, "LINES_PER_MINUTE", 2)
    async with serving(Fleet(tmp_path)) as running:
        for _ in range(5):
            assert b"none that this service knows" in await running.say(b"{}\n")
        assert len(running.log) == 2 and all("refused a request" in line for line in running.log)
        await running.enrolled("ewr")
        assert "enrolled ewr" in running.log[2] and running.log[2].endswith("; 3 refusals before it are left out")


async def test_a_defect_ends_one_request_alone(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Enrolment, "answer", lambda *given: 1 / 0)
        assert await running.say(b'{"do": "authority"}\n') == b""
    assert any("failed: ZeroDivisionError" in line for line in running.log)
    assert b"authority" in await running.say(b'{"do": "authority"}\n')


async def test_who_says_nothing_is_closed(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "REQUEST_S", 0.1)
    assert await running.say(b"") == b""


async def test_connections_of_an_address_are_bounded(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "ADDRESS_CONNECTIONS_MAX", 2)
    context = ssl.create_default_context(cafile=running.fleet.directory.authority_file)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            reader, writer = await asyncio.open_connection(
                running.where.host, running.where.port, ssl=context, server_hostname="holdfast-fleet"
            )
            stack.callback(writer.close)
            assert await reader.readline()
        with pytest.raises((OSError, ValueError)):
            await running.say(b'{"do": "authority"}\n')
    answered = b""
    async with asyncio.timeout(LIMIT_S):
        while not answered:  # the service has to notice that they are gone
            with suppress(OSError, ValueError):
                answered = await running.say(b'{"do": "authority"}\n')


async def test_handshakes_that_are_left_half_count_and_end(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "ADDRESS_CONNECTIONS_MAX", 2)
    monkeypatch.setattr(services, "REQUEST_S", 0.3)
    halves = [await asyncio.open_connection(running.where.host, running.where.port) for _ in range(2)]
    reader, writer = await asyncio.open_connection(running.where.host, running.where.port)
    async with asyncio.timeout(LIMIT_S):
        assert await reader.read() == b"", "at once"
        for each in halves:
            assert await each[0].read() == b"", "after a while"
    for each in (*halves, (reader, writer)):
        each[1].close()


async def test_a_service_that_does_not_answer_is_one_line(running: Running) -> None:
    await running.enrolled("ewr")
    for where in (HostPort("127.0.0.1", free_port()), HostPort("no-such-host.invalid", 1)):
        caller = Caller(where, time.time, print)
        with pytest.raises(Unreachable, match=r"the fleet's service at .* does not answer \(.+\)") as found:
            await asyncio.to_thread(caller.changes, running.fleet.site("ewr"), {}, wait=False)
        assert "\n" not in str(found.value)


def push_for(running: Running, text: str) -> None:
    """A new version of the configuration of all sites."""
    (running.fleet.directory.sites / "common.toml").write_text(text)
    push(running.fleet.directory)


def agent_of(running: Running, node: str, reload: str | None, log: list[str]) -> Agent:
    return Agent(running.fleet.site(node), running.caller(), reload_by("--reload", reload), time.time, log.append)


async def test_a_node_that_refuses_its_configuration_keeps_the_one_of_before(running: Running) -> None:
    """The operator sees why in the list of sites."""
    await running.enrolled("ewr")
    site, log = running.fleet.site("ewr"), []
    before = site.config_file.read_bytes()
    (running.fleet.directory.sites / "ewr.toml").write_text('[[queue]]\nname = "flights"\n')
    push(running.fleet.directory)
    agent = agent_of(running, "ewr", "sh -c 'echo nothing has changed: too large >&2; exit 3'", log)
    with pytest.raises(HoldfastError, match="ended with 3: nothing has changed: too large"):
        await asyncio.to_thread(agent.step, wait=False)
    assert site.config_file.read_bytes() == before and site.known().version == 1
    with pytest.raises(HoldfastError):
        await asyncio.to_thread(agent.step, wait=False)
    assert "too large" in running.fleet.directory.register().sites["ewr"].problem
    marker = site.path / "reloaded"
    await asyncio.to_thread(agent_of(running, "ewr", f"touch {marker}", log).step, wait=False)
    assert site.known().version == 2 and marker.exists() and "configuration 2 is installed" in log
    await asyncio.to_thread(agent_of(running, "ewr", "false", log).step, wait=False)
    assert running.fleet.directory.register().sites["ewr"].problem == "", "nothing changed, so nothing was reloaded"


async def test_an_agent_renews_in_time_and_reloads_nothing(running: Running) -> None:
    await running.enrolled("ewr")
    site, log = running.fleet.site("ewr"), []
    serial = site.certificate().serial_number
    with running.fleet.directory.changing() as register:
        record = register.sites["ewr"].certificates[0]
        record.made_s = record.ends_s - 10**9  # most of its time is over
    await asyncio.to_thread(agent_of(running, "ewr", "false", log).step, wait=False)
    assert site.certificate().serial_number != serial and log == ["a new certificate is installed"]


async def test_a_disk_that_is_full_is_told_and_tried_again(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that ended would miss all that follows."""
    await running.enrolled("ewr")
    agent = agent_of(running, "ewr", None, [])
    push_for(running, '[[queue]]\nname = "more"\n')

    write, site = private_files.write, running.fleet.site("ewr").path

    def full(path: Path, *rest: Any) -> None:
        if path.parent == site:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(private_files, "write", full)
        with pytest.raises(HoldfastError, match=r"\.pem: No space left on device$"):
            await asyncio.to_thread(agent.step, wait=False)
    assert running.fleet.site("ewr").known().version == 1
    await asyncio.to_thread(agent.step, wait=False)
    problem = running.fleet.directory.register().sites["ewr"].problem
    assert problem.endswith("No space left on device") and running.fleet.site("ewr").known().version == 2


async def test_an_agent_outlives_a_full_disk_while_it_renews(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await running.enrolled("ewr")
    with running.fleet.directory.changing() as register:
        record = register.sites["ewr"].certificates[0]
        record.made_s = record.ends_s - 10**9
    agent, write, site = agent_of(running, "ewr", None, []), private_files.write, running.fleet.site("ewr")

    def full(path: Path, *rest: Any) -> None:
        if path.name == "next.key":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, *rest)

    serial = site.certificate().serial_number
    with monkeypatch.context() as patch:
        patch.setattr(private_files, "write", full)
        with pytest.raises(HoldfastError, match=r"next\.key: No space left on device$"):
            await asyncio.to_thread(agent.step, wait=False)
    await asyncio.to_thread(agent.step, wait=False)
    assert site.certificate().serial_number != serial


async def test_an_agent_that_was_ended_before_the_reload_reloads_at_its_next_start(running: Running) -> None:
    """Else the fleet would be told of a configuration that the node does not have."""
    await running.enrolled("ewr")
    site, log = running.fleet.site("ewr"), []
    before = site.config_file.read_bytes()
    for text, code in (('[[queue]]\nname = "a"\n', 1), ('[[queue]]\nname = "b"\n', 0)):
        push_for(running, text)
        said = {"version": site.known().version, "crl_number": 1}
        answer = await asyncio.to_thread(running.caller().changes, site, said, wait=False)
        for _ in range(2):  # the second as after an end in the middle of the first
            site.install(answer["provision"], None, time.time(), reloads=True)
        marker = site.path / "reloaded"
        agent = agent_of(running, "ewr", f"sh -c 'touch {marker}; exit {code}'", log)
        if code:
            with pytest.raises(HoldfastError, match="ended with 1"):
                await asyncio.to_thread(agent.step, wait=False)
            assert (site.known().version, site.known().applied) == (1, 1) and site.config_file.read_bytes() == before
        else:
            await asyncio.to_thread(agent.step, wait=False)
            assert (site.known().version, site.known().applied) == (3, 3)
            await asyncio.to_thread(agent_of(running, "ewr", "false", log).step, wait=False)  # nothing to reload
        assert marker.exists()
        marker.unlink()


async def test_a_command_that_holds_the_fleet_stops_no_site(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that its operator has suspended: requests of sites wait, up to a limit, and connections do not."""
    await running.enrolled("ewr")
    site, said = running.fleet.site("ewr"), {"version": 1, "crl_number": 1}
    with running.fleet.directory.changing():
        waiting = asyncio.create_task(asyncio.to_thread(running.caller().changes, site, said, wait=False))
        assert b'"authority"' in await running.say(b'{"do": "authority"}\n'), "others are answered"
        assert not waiting.done()
    async with asyncio.timeout(LIMIT_S):
        assert (await waiting)["renew"] is False
    monkeypatch.setattr(services, "BUSY_S_MAX", 0.3)
    with running.fleet.directory.changing(), pytest.raises(RequestRefused, match="cannot answer now"):
        await asyncio.to_thread(running.caller().changes, site, said, wait=False)
    assert any("another command has been changing" in line and "for 0.3 s" in line for line in running.log)


async def test_a_certificate_that_cannot_be_renewed_today_does_not_end_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "CERTIFICATE_S", 0.01)
    monkeypatch.setattr(services, "CERTIFICATE_RETRY_S", 0.01)
    async with serving(Fleet(tmp_path)) as running:
        write, failures = private_files.write, 2

        def full(path: Path, *rest: Any) -> None:
            nonlocal failures
            if path.name == "service.pem":
                failures -= 1
                if failures >= 0:
                    raise OSError(errno.ENOSPC, "No space left on device", str(path))
            write(path, *rest)

        monkeypatch.setattr(private_files, "write", full)

        async def is_over() -> bool:
            return failures < -1

        await eventually_async(is_over, limit_s=LIMIT_S)
        told = [line for line in running.log if "cannot renew the service's certificate" in line]
        assert len(told) == 2 and "No space left on device" in told[0]
        await running.enrolled("ewr")


async def test_a_service_that_cannot_listen_says_so_in_a_line(running: Running) -> None:
    another = Service(running.fleet.directory, running.fleet.authority, "0.1.0", print)
    with pytest.raises(HoldfastError, match=r"cannot listen on 127\.0\.0\.1:\d+ \(.*\); give another --listen"):
        await another.run(running.where, print)


async def test_an_authority_that_is_damaged_at_the_site_is_one_line(running: Running) -> None:
    await running.enrolled("ewr")
    site = running.fleet.site("ewr")
    for text in (b"", b"nonsense", b"\xff\xfe"):
        site.authority_file.write_bytes(text)
        with pytest.raises(ConfigError, match=r"ca\.pem") as found:
            await asyncio.to_thread(running.caller().changes, site, {}, wait=False)
        assert "\n" not in str(found.value)


async def test_a_service_outlives_a_register_that_is_damaged_for_a_while(running: Running) -> None:
    """As while somebody puts back a copy of the fleet's directory."""
    await running.enrolled("ewr")
    site, file = running.fleet.site("ewr"), running.fleet.directory.register_file
    whole = file.read_text()
    file.write_text("{")

    async def is_told() -> bool:
        return sum("it is damaged; put back a copy" in line for line in running.log) == 1

    await eventually_async(is_told, limit_s=LIMIT_S)
    file.write_text(whole)
    said = {"version": 1, "crl_number": 1}
    waiting = asyncio.create_task(asyncio.to_thread(running.caller().changes, site, said, wait=True))
    push_for(running, '[[queue]]\nname = "more"\n')
    async with asyncio.timeout(LIMIT_S):
        assert "provision" in await waiting


async def test_a_refusal_of_the_service_is_its_own_text(running: Running) -> None:
    await running.enrolled("ewr")
    with running.fleet.directory.changing() as register:
        register.sites["ewr"].certificates[0].revoked_s = 1
    with pytest.raises(RequestRefused, match="the site is not known by this certificate"):
        await asyncio.to_thread(agent_of(running, "ewr", None, []).step, wait=False)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program-anywhere", r"'no-such-program-anywhere' cannot be run \(No such file.*\); give a command"),
        ("'", r"for --reload \(No closing quotation\); expected a command"),
        ("", "invalid value '' for --reload; expected a command"),
        ("false", "ended with 1: it said nothing"),
        ("sh -c 'printf \"\\377 refused\"; exit 1'", "ended with 1: \ufffd refused"),
        ("sleep 30", r"has not ended in 0\.05 s"),
    ],
)
def test_a_command_that_fails_is_one_line(command: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "RELOAD_S_MAX", 0.05 if "sleep" in command else 20.0)
    with pytest.raises(HoldfastError, match=said) as found:
        reload_by("--reload", command).run()
    assert "\n" not in str(found.value)


def test_failures_are_tried_again_ever_more_rarely() -> None:
    waits: list[Any] = [retry_s(failures) for failures in range(1, 200)]
    assert waits[0] == agents.RETRY_S and waits[-1] == agents.RETRY_S_MAX and waits == sorted(waits)
