"""What a command says of an error that ended it (running.py, receiving.py)."""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from holdfast.amqp.wire.conditions import MESSAGE_SIZE_EXCEEDED, NOT_IMPLEMENTED
from holdfast.client.errors import LinkError
from holdfast.client.verbs import receiving, running
from holdfast.client.verbs.running import PASSWORD_BYTES_MAX
from support.process import killed_at_the_end, run_holdfast


def test_a_sender_is_not_told_to_receive(capsys: pytest.CaptureFixture[str]) -> None:
    running.complain(argparse.Namespace(verb="send", address="q"), LinkError("too large", MESSAGE_SIZE_EXCEEDED))
    assert capsys.readouterr().err == "holdfast send: too large\n"


@pytest.mark.parametrize(
    ("address", "condition", "browse", "sequence", "advice"),
    [
        ("q", MESSAGE_SIZE_EXCEEDED, False, None, "; `holdfast receive q --to DIRECTORY` takes messages of any size"),
        ("topic/t", NOT_IMPLEMENTED, True, None, "; leave out --browse"),
        ("topic/t", NOT_IMPLEMENTED, False, 7, "; leave out --from-sequence"),
        ("topic/t", NOT_IMPLEMENTED, False, None, ""),
        ("q", NOT_IMPLEMENTED, True, None, ""),  # such as a peer that applies no selector
        ("q", None, True, None, ""),
    ],
)
def test_a_receiver_is_told_what_it_can_change(
    address: str, condition: str | None, browse: bool, sequence: int | None, advice: str
) -> None:
    args = argparse.Namespace(address=address, browse=browse, from_sequence=sequence)
    assert receiving.advice_for(args, LinkError("no", condition)) == advice


AT_ANN = ("--url", "amqp://ann@127.0.0.1:1", "--retry", "0")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_ends_who_waits_for_the_pipe_with_its_password(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """The loop does not run meanwhile."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "status", *AT_ANN, "--password-file", str(pipe),
        stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with killed_at_the_end(process):
        writer = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)  # once it is opened there
        process.send_signal(number)
        _, stderr = await asyncio.wait_for(process.communicate(), 20.0)
        os.close(writer)
    assert (process.returncode, stderr) == (code, b"")


async def test_a_password_comes_from_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = asyncio.create_task(asyncio.to_thread(pipe.write_text, "secret\n"))
    found = await run_holdfast("status", *AT_ANN, "--password-file", str(pipe))
    await writing
    assert "cannot connect: Connection refused" in found.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_who_is_asked_for_a_password(number: signal.Signals) -> None:
    """The loop does not run meanwhile."""
    ours, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "status", *AT_ANN,
        stdin=theirs, stdout=theirs, stderr=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    async with killed_at_the_end(process):
        assert process.stderr is not None
        await asyncio.wait_for(process.stderr.readuntil(b": "), 20.0)
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 20.0) == 128 + number
    os.close(ours)


@pytest.mark.parametrize("length", [6, PASSWORD_BYTES_MAX])
def test_a_password_is_the_first_line_however_that_ends(tmp_path: Path, length: int) -> None:
    file, password = tmp_path / "password", "s" * length
    for end in ("", "\n", "\r\nmore"):
        file.write_bytes((password + end).encode())
        assert running._password_in(str(file)) == password


async def test_a_file_without_an_end_is_no_password() -> None:
    found = await run_holdfast("status", *AT_ANN, "--password-file", "/dev/zero", limit_s=20.0)
    told = f"/dev/zero has more than {PASSWORD_BYTES_MAX} bytes in its first line; give a file with the password"
    assert (found.code, found.stderr) == (2, f"holdfast status: {told}\n")


@pytest.mark.parametrize("option", ["ca-file", "certificate-file", "key-file"])
async def test_a_pipe_is_no_certificate_and_is_not_waited_for(tmp_path: Path, option: str) -> None:
    pipe, empty = tmp_path / "pipe", tmp_path / "empty"
    os.mkfifo(pipe)
    empty.touch()
    given = {"certificate-file": str(empty)} if option == "key-file" else {}
    words = [word for name, file in {**given, option: str(pipe)}.items() for word in (f"--{name}", file)]
    found = await run_holdfast("status", "--url", "amqps://127.0.0.1:1", *words, limit_s=20.0)
    told = f"{option.replace('-', '_')} {pipe} cannot be read (no regular file); give a PEM file"
    assert (found.code, found.stderr) == (2, f"holdfast status: {told}\n")


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "."])
async def test_what_is_no_regular_file_is_not_sent_as_one(tmp_path: Path, kind: str) -> None:
    """Its size would have to be known, and nobody may ever write to a pipe."""
    file = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(file)
    found = await run_holdfast("send", "q", "--file", str(file), "--url", "amqp://127.0.0.1:1", limit_s=20.0)
    reason = "Is a directory" if kind == "." else "no regular file"
    told = f"{file} cannot be read ({reason}); give a file that can be read"
    assert (found.code, found.stderr) == (2, f"holdfast send: {told}\n")
