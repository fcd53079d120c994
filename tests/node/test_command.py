"""The node as a process: its ready line, its end, and what it says of mistakes."""

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from holdfast.node import command

LIMIT_S = 60.0


class Process:
    """`holdfast node …`; left with `async with`, it is killed if it still runs."""

    def __init__(self, *arguments: object) -> None:
        self._arguments = [str(argument) for argument in arguments]

    async def __aenter__(self) -> "Process":
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "holdfast",
            "node",
            *self._arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.communicate()

    async def ready(self) -> dict[str, str]:
        assert self.process.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            line = (await self.process.stdout.readline()).decode()
        assert line.startswith("ready ") and line.endswith("\n"), await self.end()
        return dict(word.split("=", 1) for word in line.split()[1:])

    async def end(self) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)."""
        async with asyncio.timeout(LIMIT_S):
            output, error = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, output.decode(), error.decode()


async def run(*arguments: object) -> tuple[int, str, str]:
    async with Process(*arguments) as process:
        return await process.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_ready_then_a_signal_ends_it_with_0(tmp_path: Path, number: signal.Signals) -> None:
    async with Process("--name", "ewr", "--listen", "127.0.0.1:0", "--data", tmp_path / "d") as node:
        ready = await node.ready()
        assert ready["name"] == "ewr"
        host, _, port = ready["amqp"].rpartition(":")
        assert host == "127.0.0.1"
        async with asyncio.timeout(LIMIT_S):
            _, writer = await asyncio.open_connection(host, int(port))
        node.process.send_signal(number)
        async with asyncio.timeout(LIMIT_S):
            await node.process.wait()
        code, output, error = await node.end()
        writer.close()
    assert (code, output) == (0, "")
    assert "Traceback" not in error
    lines = [line.partition(" INFO ")[2] for line in error.splitlines() if " INFO node " in line or " INFO SIG" in line]
    assert lines[0].startswith("node ewr starts, holdfast ") and lines[0].endswith(f"listens on {ready['amqp']}")
    assert ready["store"] in lines[0] and str(tmp_path / "d") in lines[0]
    assert lines[1:] == [f"{number.name}: node ewr stops", "node ewr has stopped"]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGPIPE])
async def test_a_signal_without_a_meaning_is_told_once_and_ends_nothing(tmp_path: Path, number: signal.Signals) -> None:
    async with Process("--name", "ewr", "--listen", "127.0.0.1:0", "--data", tmp_path / "d") as node:
        host, _, port = (await node.ready())["amqp"].rpartition(":")
        for _ in range(3):
            node.process.send_signal(number)
        async with asyncio.timeout(LIMIT_S):
            _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        node.process.send_signal(signal.SIGTERM)
        code, output, error = await node.end()
    assert (code, output) == (0, "")
    told = [] if number is signal.SIGPIPE else [f"WARNING {number.name} ignored: it has no meaning here"]
    assert [line.split(" ", 2)[2] for line in error.splitlines() if "ignored" in line] == told


async def test_a_signal_before_the_node_is_ready_ends_nothing(tmp_path: Path) -> None:
    async with Process("--name", "ewr", "--listen", "127.0.0.1:0", "--data", tmp_path / "d") as node:
        async with asyncio.timeout(LIMIT_S):
            while not (tmp_path / "d").exists():  # noqa: ASYNC110  # the first that is seen of it
                await asyncio.sleep(0.001)
        node.process.send_signal(signal.SIGHUP)
        await node.ready()
        node.process.send_signal(signal.SIGTERM)
        assert (await node.end())[0] == 0


async def test_a_second_node_on_the_same_data_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "d"
    async with Process("--listen", "127.0.0.1:0", "--data", data) as node:
        await node.ready()
        code, output, error = await run("--listen", "127.0.0.1:0", "--data", data)
    assert (code, output) == (1, "")
    assert error.count("\n") == 1
    assert str(data) in error


async def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    async with Process("--listen", "127.0.0.1:0", "--data", tmp_path / "d") as node:
        address = (await node.ready())["amqp"]
        code, output, error = await run("--listen", address, "--data", tmp_path / "e")
    assert (code, output) == (1, "")
    assert error == f"holdfast node: listen {address}: the port is in use already; choose another, or 0 for any\n"


async def test_an_open_address_without_users_is_refused(tmp_path: Path) -> None:
    code, output, error = await run("--listen", "0.0.0.0:0", "--data", tmp_path / "d")
    assert (code, output) == (2, "")
    assert "without a [[user]]" in error
    assert not (tmp_path / "d").exists()


async def test_a_mistake_in_the_file_is_one_line(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text("[node]\nnmae = 'x'\n")
    code, output, error = await run(config)
    assert (code, output) == (2, "")
    assert error.startswith(f"holdfast node: {config}: unknown key 'nmae' in node")
    assert error.count("\n") == 1


@pytest.mark.parametrize("key", ["certificate_file", "ca_file", "crl_file"])
async def test_a_file_of_tls_that_is_not_there_is_a_mistake_also_before_tls_is_spoken(tmp_path: Path, key: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f"[node]\nlisten = ['127.0.0.1:0']\n[tls]\n{key} = '{tmp_path}/none'\n")
    code, output, error = await run(file, "--data", tmp_path / "d")
    assert (code, output) == (2, "")
    told = f"tls {key} {tmp_path}/none cannot be used (No such file or directory); expected a readable file in PEM"
    assert error == f"holdfast node: {file}: {told}\n"


async def test_the_file_says_where_and_every_listener_is_printed(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(
        f"[node]\nname = 'lga'\ndata = '{tmp_path / 'd'}'\nlisten = ['127.0.0.1:0', '127.0.0.1:0']\n"
        f"[telemetry]\nfile = '{tmp_path / 't.ndjson'}'\n"
    )
    async with Process(config) as node:
        ready = await node.ready()
        assert ready["name"] == "lga"
        assert ready["amqp"] != ready["amqp2"]
        node.process.terminate()
        assert (await node.end())[0] == 0
    assert (tmp_path / "d").is_dir()
    assert (tmp_path / "t.ndjson").exists()


@pytest.mark.parametrize("hangs", [True, False])
def test_the_end_does_not_wait_for_a_store_that_cannot_be_closed(caplog: pytest.LogCaptureFixture, hangs: bool) -> None:
    """The disk may have stopped after the last commit."""
    goes_on = threading.Event()

    class Store:
        closed = False

        def close(self) -> None:
            if hangs:
                goes_on.wait()
            self.closed = True

    store = Store()
    assert command._close(store, 0.01) == (1 if hangs else 0)
    assert store.closed != hangs
    assert ("ending with the store not closed" in caplog.text) == hangs
    goes_on.set()


def test_what_goes_wrong_while_the_store_is_closed_is_raised() -> None:
    class Store:
        def close(self) -> None:
            raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        command._close(Store(), 5.0)


async def test_a_reader_of_the_ready_line_may_be_gone(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "node", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "d")),
        stdout=writing,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(writing)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(LIMIT_S):
            while "the ready line is lost" not in (line := (await process.stderr.readline()).decode()):
                assert line, "ended without a word"
            process.terminate()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
