"""The file of users: what `holdfast user` writes, and what a node makes of it while it runs (node/users_file.py)."""

import asyncio
import json
import os
import re
import stat
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import connect
from holdfast.client.errors import ConnectionFailed
from holdfast.engine.events import Event, UsersChanged, UsersFileProblem
from holdfast.errors import ConfigError
from holdfast.node import user_commands, users_file
from holdfast.peers import credentials
from holdfast.peers.user_list import BYTES_MAX, SEED_BYTES, USERS_MAX, StoredUser, UserList, parse, render
from support.eventually import eventually_async
from support.owners import owned
from support.process import NodeProcess, run_holdfast

KEY = credentials.make("secret", bytes(16), iterations=4_096)


def stored(*names: str, vhost: str = "") -> tuple[StoredUser, ...]:
    return tuple(StoredUser(name, vhost, KEY) for name in names)


def test_what_is_written_is_read_and_shows_no_password(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    users = (*stored("ann", "böb"), *stored("ann", vhost="acme"))
    users_file.write(path, UserList(users))
    found = users_file.read(path)
    assert found.users == users and len(found.seed) == SEED_BYTES
    users_file.write(path, found._replace(users=users[1:]))
    assert users_file.read(path) == (users[1:], found.seed), "the seed stays"
    assert found.seed.hex() not in repr(found) and repr(found.seed) not in repr(found)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and [each.name for each in tmp_path.iterdir()] == ["users.json"]
    assert "secret" not in path.read_text() and "secret" not in repr(users)
    assert KEY.as_text() not in repr(users)


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "users.json"
    users_file.write(path, UserList(stored("ann")))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        users_file.write(path, UserList(stored("bob")))
    assert users_file.read(path).users == stored("ann") and [each.name for each in tmp_path.iterdir()] == ["users.json"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a file of users: Expecting value"),
        ("[" * 100_000, "not a file of users: "),
        ("[]", "not a file of users of version 1"),
        ('{"version": 2, "users": []}', "not a file of users of version 1"),
        ('{"version": 1}', f"invalid users; expected a list of at most {USERS_MAX}"),
        ('{"version": 1, "users": [], "seed": "eA=="}', "invalid seed; expected 32 bytes in base 64"),
        ('{"version": 1, "users": [], "seed": "é"}', "invalid seed"),
        ('{"version": 1, "users": [], "seed": 5}', "invalid seed"),
        ('{"version": 1, "users": [1]}', "invalid user number 1; expected an object with name, vhost, credential"),
        ('{"version": 1, "users": [{"name": 5}]}', "invalid user number 1; expected an object"),
        ('{"version": 1, "users": [{"credential": "x"}]}', "invalid name '' of a user; expected 1 to 255 bytes"),
        ('{"version": 1, "users": [{"name": "ann", "credential": "x"}]}', "user 'ann': invalid credential; expected"),
    ],
)
def test_what_is_no_file_of_users_is_refused_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "users.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        users_file.read(path)
    assert str(caught.value).startswith(f"users_file {str(path)!r}") and told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_is_bounded_private_and_lists_nobody_twice(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    with pytest.raises(ConfigError, match=f"there are {USERS_MAX + 1} users; the limit is {USERS_MAX}"):
        users_file.write(path, UserList(stored(*map(str, range(USERS_MAX + 1)))))
    assert len(parse(render(UserList(stored(*map(str, range(USERS_MAX)))))).users) == USERS_MAX
    assert len(render(UserList(stored(*["x" * 200] * USERS_MAX)))) < BYTES_MAX
    with pytest.raises(ConfigError, match="user 'ann' is listed twice; list it once"):
        parse(render(UserList(stored("ann", "ann"))))
    users_file.write(path, UserList(stored("ann")))
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="may be read by others"):
        users_file.read(path)
    path.write_bytes(b" " * (BYTES_MAX + 1))
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=f"has more than {BYTES_MAX} bytes"):
        users_file.read(path)


async def user(action: str, path: Path, *words: str, password: str | None = None) -> Any:
    more = () if password is None else ("--password-file", "-")
    return await run_holdfast("user", action, *words, "--file", str(path), *more, stdin=password)


async def test_the_verb_adds_changes_removes_and_lists(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    assert (await user("add", path, "ann", password="one\n")).code == 0
    assert (await user("add", path, "ann", "--vhost", "acme", password="two\n")).code == 0
    first = users_file.read(path).users
    assert [(each.vhost, each.name) for each in first] == [("", "ann"), ("acme", "ann")]
    assert first[0].credential.verify("one") and first[1].credential.verify("two")
    assert (await user("passwd", path, "ann", password="three\n")).code == 0
    assert users_file.read(path).users[0].credential.verify("three") and users_file.read(path).users[1] == first[1]
    told = await user("list", path, "--json")
    assert json.loads(told.stdout) == [{"name": "ann"}, {"name": "ann", "vhost": "acme"}]
    assert (await user("remove", path, "ann")).code == 0 and users_file.read(path).users == first[1:]
    for action, words, password, text in (
        ("add", ("ann", "--vhost", "acme"), "x\n", "user 'ann' of virtual host 'acme' is in"),
        ("passwd", ("bob",), "x\n", "user 'bob' is not in"),
        ("remove", ("bob",), None, "user 'bob' is not in"),
        ("add", ("bob",), "\n", "invalid first line of 0 bytes in standard input"),
        ("add", ("bob",), None, "there is no terminal to ask for the password"),
    ):
        found = await user(action, path, *words, password=password)
        assert found.code != 0 and text in found.stderr and "Traceback" not in found.stderr, found.stderr
    assert users_file.read(path).users == first[1:]


async def logs_in(node: NodeProcess, password: str) -> bool:
    try:
        connection = await connect(f"amqp://ann:{password}@127.0.0.1:{node.port}", retry_s=0)
    except ConnectionFailed:
        return False
    await connection.close()
    return True


async def test_a_node_reads_it_at_start_and_when_it_changes(tmp_path: Path) -> None:
    path, config = tmp_path / "users.json", tmp_path / "hub.toml"
    config.write_text(
        f'[node]\nname = "hub"\ndata = "{tmp_path}/hub.holdfast"\nlisten = ["127.0.0.1:0"]\nusers_file = "{path}"\n'
        '[[access]]\nname = "all"\nusers = ["ann"]\naddresses = ["*"]\nallow = ["administer"]\n'
    )
    users_file.write(path, UserList(()))
    async with await NodeProcess.start(None, config=config, listen=None) as node:
        assert not await logs_in(node, "one"), "a file without users lets nobody in"
        assert (await user("add", path, "ann", password="one\n")).code == 0
        await eventually_async(lambda: logs_in(node, "one"), step_s=0.5, what="the new user logs in")
        stays = await connect(f"amqp://ann:one@127.0.0.1:{node.port}", retry_s=0)
        assert (await user("passwd", path, "ann", password="two\n")).code == 0
        await eventually_async(lambda: logs_in(node, "two"), step_s=0.5, what="the new password is known")
        assert not await logs_in(node, "one")
        await node.logged("its user was removed, or has another password")
        await stays.abort()
        path.write_text("broken")
        await node.logged("the previous users are kept")
        assert await logs_in(node, "two")
        assert "one" not in node.stderr.split() and "two" not in node.stderr.split()


async def test_a_node_does_not_start_without_its_file(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text(f'[node]\nname = "hub"\ndata = "{tmp_path}/hub.holdfast"\nusers_file = "{tmp_path}/none.json"\n')
    found = await run_holdfast("node", str(config))
    assert found.code == 2 and "none.json' cannot be read (No such file or directory)" in found.stderr


@pytest.mark.parametrize(("typed", "told"), [(["one", "one"], None), (["one", "two"], "the two differ")])
def test_a_password_that_is_asked_for_is_typed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: list[str], told: str | None
) -> None:
    path = tmp_path / "users.json"
    asked: list[str] = []

    def prompt(text: str) -> str:
        asked.append(text)
        return typed[len(asked) - 1]

    monkeypatch.setattr(user_commands.getpass, "getpass", prompt)
    monkeypatch.setattr(user_commands.sys.stdin, "isatty", lambda: True, raising=False)
    args = Namespace(action="add", name="ann", vhost="", file=str(path), password_file=None, json=False)
    if told is None:
        assert user_commands.user(args) == 0 and users_file.read(path).users[0].credential.verify("one")
    else:
        with pytest.raises(ConfigError, match=told):
            user_commands.user(args)
        assert not path.exists()
    assert asked == ["password of user 'ann': ", "again: "]


def test_what_is_no_regular_file_is_refused_and_holds_nobody_up(tmp_path: Path) -> None:
    """A pipe that nobody writes to would be waited for."""
    pipe = tmp_path / "users.json"
    os.mkfifo(pipe, 0o600)
    (tmp_path / "loop").symlink_to("loop")
    with users_file.changing(tmp_path / "loop"):
        pass
    for path, told in (
        (pipe, "cannot be read (no regular file)"),
        (tmp_path, "cannot be read (Is a directory)"),
        (tmp_path / "loop", "cannot be read (Too many levels of symbolic links)"),
    ):
        with pytest.raises(ConfigError, match=re.escape(told)):
            users_file.read(path)


def test_a_file_that_could_not_be_read_is_tried_again_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the process had no descriptor left at that look."""
    path, fed = tmp_path / "users.json", list[Event]()
    users_file.write(path, UserList(stored("ann", "bob")))
    loop = asyncio.new_event_loop()
    watch = users_file.UsersWatch(loop, path, fed.append)
    watch.start()
    watch.close()
    users_file.write(path, users_file.read(path)._replace(users=stored("bob")))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing)
        told = watch.look()
        assert isinstance(told, str) and "cannot be read (Too many open files)" in told
        assert watch.look() is None, "told once"
    watch._found(told)
    found = watch.look()
    assert isinstance(found, UserList) and found.users == stored("bob")
    assert watch.look() is None
    watch.use(found)
    watch.use(found)
    assert [len(event.users) for event in fed if isinstance(event, UsersChanged)] == [2, 1]
    assert [event.problem for event in fed if isinstance(event, UsersFileProblem)] == [told, ""]
    loop.close()


def test_a_file_that_is_put_back_as_it_was_can_be_used_again(tmp_path: Path) -> None:
    path, fed = tmp_path / "users.json", list[Event]()
    users_file.write(path, UserList(stored("ann")))
    loop = asyncio.new_event_loop()
    watch = users_file.UsersWatch(loop, path, fed.append)
    watch.start()
    watch.close()
    for other in (tmp_path / "away", path):
        (path if other != path else tmp_path / "away").rename(other)
        told = watch.look()
        assert isinstance(told, str)
        watch._found(told)
    assert watch.look() is None
    problems = [event.problem for event in fed if isinstance(event, UsersFileProblem)]
    assert len(problems) == 2 and "cannot be read (No such file" in problems[0] and not problems[1]
    loop.close()


def failing(*given: object, **more: object) -> int:
    raise OSError(24, "Too many open files")


def test_a_new_file_of_roots_belongs_to_the_owner_of_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node reads it, and runs as another user."""
    given = owned(monkeypatch, {tmp_path: 7}, me=0)
    users_file.write(tmp_path / "users.json", UserList(()))
    assert given == [(7, 7)]
    given = owned(monkeypatch, {tmp_path: 7}, me=1000)
    users_file.write(tmp_path / "mine.json", UserList(()))
    assert given == [], "nobody else may give a file away"
