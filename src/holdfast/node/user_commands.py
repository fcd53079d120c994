"""`holdfast user`: changes and lists the users of a file (docs/security.md).

Rules of this file: a password comes from a prompt, a file or standard input, and goes nowhere but into its keys. A
change is on disk when the command ends well.
"""

import argparse
import getpass
import json
import os
import sys
from pathlib import Path
from typing import Final

from holdfast.broker.entries.host_names import hosted, shown
from holdfast.columns import table
from holdfast.errors import ConfigError, HoldfastError
from holdfast.lines import say
from holdfast.names import check_name
from holdfast.node import users_file
from holdfast.node.passwords import check_password, password_in
from holdfast.peers import credentials
from holdfast.peers.user_list import StoredUser, UserList, check_user

SALT_BYTES: Final = 16


def user(args: argparse.Namespace) -> int:
    """Carries out one action; the exit code. ConfigError, HoldfastError or OSError where it fails."""
    path = Path(args.file)
    if args.action == "list":
        _list(users_file.read(path).users, is_json=args.json)
        return 0
    name, host = check_user(args.name), args.vhost
    if host:
        check_name(host)
    who = f"user {shown(host, name)}"
    credential = None
    if args.action in ("add", "passwd"):
        _found(path, args.action, host, name)  # before a password is asked for
        credential = credentials.make(_password(args.password_file, who), os.urandom(SALT_BYTES))
    with users_file.changing(path):
        listed, found = _found(path, args.action, host, name)
        users = listed.users
        if credential is None:
            left = tuple(each for each in users if each is not found)
        else:
            made = StoredUser(name, host, credential)
            left = (*users, made) if found is None else tuple(made if each is found else each for each in users)
        users_file.write(path, listed._replace(users=left))
    done = {"add": "added", "passwd": "has another password", "remove": "removed"}[args.action]
    told = {"name": name, **({"vhost": host} if host else {}), "done": args.action}
    say(json.dumps(told, ensure_ascii=False) if args.json else f"{who} {done}")
    return 0


def _found(path: Path, action: str, host: str, name: str) -> tuple[UserList, StoredUser | None]:
    """The users of the file, and the one that is meant. HoldfastError where the action does not go with that."""
    users = UserList(()) if action == "add" and not path.exists() else users_file.read(path)
    found = next((each for each in users.users if each.key == hosted(host, name)), None)
    who = f"user {shown(host, name)}"
    if action == "add" and found is not None:
        raise HoldfastError(f"{who} is in {path} already; `holdfast user passwd` gives another password")
    if action != "add" and found is None:
        raise HoldfastError(f"{who} is not in {path}; `holdfast user list` shows who is")
    return users, found


def _password(file: str | None, who: str) -> str:
    """The password that is to be kept; of a prompt typed twice."""
    if file == "-":
        return check_password("standard input", sys.stdin.buffer.readline())
    if file is not None:
        return password_in("--password-file", file)
    if not sys.stdin.isatty():
        raise ConfigError("there is no terminal to ask for the password; give --password-file FILE, or - for a pipe")
    first = getpass.getpass(f"password of {who}: ")
    if getpass.getpass("again: ") != first:
        raise ConfigError("the two differ; nothing was changed")
    return check_password("the prompt", first.encode())


def _list(users: tuple[StoredUser, ...], *, is_json: bool) -> None:
    if is_json:
        rows = [{"name": each.name, **({"vhost": each.vhost} if each.vhost else {})} for each in users]
        say(json.dumps(rows, ensure_ascii=False))
        return
    for line in table(("name", "vhost"), [(each.name, each.vhost) for each in users]):
        say(line)
