"""The verb `federation`: topics that are forwarded to neighbours, or from them.

Rules of this file: as those of the package.
"""

import argparse
from typing import Final

from holdfast.cli.arguments import Verbs, add_client_options, add_json_option, add_verb, some_text

LIST_COLUMNS: Final = """\
columns:
  state       up; asked: this node has asked the neighbour to forward the topic, and it does not yet; down: there is no
              session; plain: the neighbour knows no federation; no neighbour, left out: the entry does not apply
  configured  whether the entry is in this node's file; remove it there
  asked       whether the neighbour asked for the entry; remove it at the neighbour
  origins     how many nodes behind the neighbour have bindings of the topic (mode dynamic)
  rows        how many bindings they have together"""
MODES = ("dynamic", "static", "push")
DIRECTIONS = ("to", "from", "both")


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "federation",
        "lists, adds and removes entries by which topics are forwarded to neighbours or from them",
        "holdfast federation add flights hub\nholdfast federation list --json",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does, example in (
        (
            "list",
            "lists the topics that are forwarded, and how much is bound behind each neighbour",
            "holdfast federation list",
        ),
        (
            "add",
            "forwards a topic to or from a neighbour: what is bound there, or behind it",
            "holdfast federation add flights hub\n"
            "holdfast federation add flights hub --mode static --pattern 'delayed.#'\n"
            "holdfast federation add flights hub --direction both",
        ),
        ("remove", "stops forwarding a topic to or from a neighbour", "holdfast federation remove flights hub"),
    ):
        parser = add_verb(actions, name, does, example)
        if name == "list":
            parser.description = f"{parser.description}\n\n{LIST_COLUMNS}"
        else:
            parser.add_argument("topic", type=some_text, metavar="TOPIC", help="the topic's name, without `topic/`")
            parser.add_argument(
                "neighbour", type=some_text, metavar="NEIGHBOUR", help="the name of a neighbour, or of a remote"
            )
        if name == "add":
            parser.add_argument(
                "--mode", choices=MODES, default="dynamic",
                help="dynamic: what subscriptions at the receiving node want; static: what --pattern matches; "
                "push: everything (default: dynamic)",
            )  # fmt: skip
            parser.add_argument(
                "--direction", choices=DIRECTIONS, default="to",
                help="to: messages go to the neighbour; from: it is asked to send them here; both (default: to)",
            )  # fmt: skip
            parser.add_argument(
                "--pattern", action="append", default=[], metavar="PATTERN", dest="patterns",
                help="with --mode static: subjects that are forwarded; may be given again",
            )  # fmt: skip
        add_json_option(parser)
        add_client_options(parser, retry_s=0.0)
        parser.set_defaults(run=_run_federation)


def _run_federation(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.federation import federation

    return federation(args)
