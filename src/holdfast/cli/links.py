"""The verb `link`: links between queues.

Rules of this file: as those of the package.
"""

import argparse

from holdfast.cli.arguments import Verbs, add_client_options, add_json_option, add_verb, some_path, some_text


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "link",
        "lists, creates, stops, starts and deletes links that move or copy messages between queues",
        "holdfast link create clean --from raw --to flights@hub --selector cancelled\nholdfast link list --json",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does, example in (
        ("list", "lists the links between queues, and how many messages each has moved", "holdfast link list"),
        (
            "create",
            "creates a link from a queue of the node to another queue, a topic, or a queue of another node",
            "holdfast link create audit --from flights --to archive --copy",
        ),
        ("stop", "stops a link until it is started again, over restarts too", "holdfast link stop audit"),
        ("start", "starts a link that was stopped: it goes on where it stopped", "holdfast link start audit"),
        ("delete", "deletes a link; messages stay where they are", "holdfast link delete audit"),
    ):
        parser = add_verb(actions, name, does, example)
        if name != "list":
            parser.add_argument("name", type=some_text, metavar="NAME", help="the link's name")
        if name == "create":
            parser.add_argument(
                "--from", dest="source", type=some_text, required=True, metavar="QUEUE", help="where messages are taken"
            )
            parser.add_argument(
                "--to", dest="target", type=some_text, required=True, metavar="ADDRESS",
                help="where they go: QUEUE, topic/NAME or QUEUE@NODE",
            )  # fmt: skip
            parser.add_argument(
                "--selector", default="", metavar="CONDITION", help="only messages that match (default: all)"
            )
            parser.add_argument(
                "--steps-file",
                type=some_path,
                metavar="FILE",
                help="TOML with `steps`, as in [[link]] of a node's file (docs/links.md)",
            )
            parser.add_argument(
                "--copy", action="store_true", help="leave the messages in the queue, and send copies on"
            )
            parser.add_argument(
                "--start", type=_start, default="first", metavar="PLACE",
                help="with --copy: begin with the first message in the queue (first, the default), with the next one "
                "that comes (next), or at this sequence number",
            )  # fmt: skip
        add_json_option(parser)
        add_client_options(parser, retry_s=0.0)
        parser.set_defaults(run=_run_link)


def _start(text: str) -> str | int:
    from holdfast.broker.beginnings import check_start
    from holdfast.errors import ConfigError

    start = int(text) if text.isdecimal() and text.isascii() else text
    try:
        check_start("--start", start)
    except ConfigError:
        raise argparse.ArgumentTypeError(f"invalid value {text!r}; expected first, next or a sequence") from None
    return start


def _run_link(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.links import link

    return link(args)
