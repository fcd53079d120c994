"""The verb `federation`: topics that are spread over neighbours.

Rules of this file: as those of the package.
"""

import argparse

from holdfast.cli.arguments import Verbs, add_client_options, add_json_option, add_verb, some_text

MODES = ("dynamic", "static", "push")
DIRECTIONS = ("to", "from", "both")


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "federation",
        "lists, adds and removes the neighbours to which messages of a topic go",
        "holdfast federation add flights hub\nholdfast federation list --json",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does, example in (
        (
            "list",
            "lists the topics that go to neighbours, and how much is bound behind each",
            "holdfast federation list",
        ),
        (
            "add",
            "has messages of a topic go to a neighbour: what is bound there, or behind it",
            "holdfast federation add flights hub\n"
            "holdfast federation add flights hub --mode static --pattern 'delayed.#'\n"
            "holdfast federation add flights hub --direction both",
        ),
        ("remove", "has messages of a topic go to a neighbour no more", "holdfast federation remove flights hub"),
    ):
        parser = add_verb(actions, name, does, example)
        if name != "list":
            parser.add_argument("topic", type=some_text, metavar="TOPIC", help="the topic's name, without `topic/`")
            parser.add_argument(
                "neighbour", type=some_text, metavar="NEIGHBOUR", help="the name of a neighbour, or of a remote"
            )
        if name == "add":
            parser.add_argument(
                "--mode", choices=MODES, default="dynamic",
                help="dynamic: its bindings come here, and what they want goes there; static: what --pattern gives; "
                "push: everything (default: dynamic)",
            )  # fmt: skip
            parser.add_argument(
                "--direction", choices=DIRECTIONS, default="to",
                help="to: messages go to the neighbour; from: it is asked to send them here; both (default: to)",
            )  # fmt: skip
            parser.add_argument(
                "--pattern", action="append", default=[], metavar="PATTERN", dest="patterns",
                help="with --mode static: subjects that go there; may be given again",
            )  # fmt: skip
        add_json_option(parser)
        add_client_options(parser, retry_s=0.0)
        parser.set_defaults(run=_run_federation)


def _run_federation(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.federation import federation

    return federation(args)
