"""The verb `service`: names of services.

Rules of this file: as those of the package.
"""

import argparse

from holdfast.cli.arguments import Verbs, add_client_options, add_json_option, add_verb, some_text


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "service",
        "lists, registers, finds and removes names of services",
        "holdfast service register billing orders@hub\nholdfast send '$service/billing' orders.csv --format csv",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does, example in (
        ("list", "lists the services, and the address of each", "holdfast service list"),
        (
            "register",
            "registers a name for an address: $service/NAME means that address from then on",
            "holdfast service register billing orders@hub\nholdfast service register billing orders --replace",
        ),
        ("find", "prints the address of a service", "holdfast service find billing"),
        ("remove", "removes a name; queues and messages stay as they are", "holdfast service remove billing"),
    ):
        parser = add_verb(actions, name, does, example)
        if name != "list":
            parser.add_argument("name", type=some_text, metavar="NAME", help="the service's name")
        if name == "register":
            parser.add_argument(
                "address", type=some_text, metavar="ADDRESS", help="what it means: QUEUE, topic/NAME or QUEUE@NODE"
            )
            parser.add_argument(
                "--replace", action="store_true", help="also if the name is registered for another address"
            )
        add_json_option(parser)
        add_client_options(parser, retry_s=0.0)
        parser.set_defaults(run=_run_service)


def _run_service(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.services import service

    return service(args)
