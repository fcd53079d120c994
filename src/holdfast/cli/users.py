"""The verb `user`: the users of a file that nodes read.

Rules of this file: as those of the package. No option takes a password: who lists processes would see it.
"""

import argparse

from holdfast.cli.arguments import Verbs, add_json_option, add_verb, some_path, some_text


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "user",
        "adds, changes, removes and lists the users of a node's users_file",
        "holdfast user add ann --file /etc/holdfast/users.json\nholdfast user list --file /etc/holdfast/users.json",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does, example in (
        ("add", "adds a user; asks for the password", "holdfast user add ann --file users.json"),
        ("passwd", "gives a user another password", "holdfast user passwd ann --file users.json"),
        ("remove", "removes a user; nodes end its connections", "holdfast user remove ann --file users.json"),
        ("list", "lists the users, without anything of their passwords", "holdfast user list --file users.json"),
    ):
        parser = add_verb(actions, name, does, example)
        if name != "list":
            parser.add_argument("name", type=some_text, metavar="NAME", help="the user's name")
            parser.add_argument("--vhost", default="", metavar="HOST", help="the user's virtual host")
        parser.add_argument(
            "--file",
            required=True,
            type=some_path,
            metavar="FILE",
            help="the users_file of the node; `add` makes it if there is none",
        )
        if name in ("add", "passwd"):
            parser.add_argument(
                "--password-file", type=some_path, metavar="FILE",
                help="a file whose first line is the password (default: asked for; - reads standard input)",
            )  # fmt: skip
        add_json_option(parser)
        parser.set_defaults(run=_run_user)


def _run_user(args: argparse.Namespace) -> int:
    from holdfast.node.user_commands import user

    return user(args)
