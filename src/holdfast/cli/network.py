"""The verbs of a whole network: network, topology, and those that take a node out of it and back.

Rules of this file: as those of the package.
"""

import argparse

from holdfast.cli.arguments import (
    POSITIVE_S,
    Verbs,
    add_client_options,
    add_json_option,
    add_verb,
    number_of,
    some_path,
    some_text,
)


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    """`topology`, `network` and their actions, `drain`, `resume`."""
    _add_topology(verbs)
    _add_network(verbs)
    _add_drain(verbs)


def _add_topology(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "topology",
        "checks a topology file, computes its shortest paths, shows a topic's tree, and forgets a node that left",
        "holdfast topology check topology.toml\nholdfast topology routes topology.toml --from ewr --json\n"
        "holdfast topology tree flights delayed.jfk\nholdfast topology forget ewr",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = add_verb(
        actions,
        "check",
        "checks a topology file, and lists nodes that no path reaches",
        "holdfast topology check topology.toml",
    )
    parser.add_argument("file", type=some_path, metavar="FILE", help="the topology, TOML")
    add_json_option(parser)
    parser.set_defaults(run=_run_topology_check)
    parser = add_verb(
        actions,
        "routes",
        "prints a node's shortest paths: destination, next hop, cost, path",
        "holdfast topology routes topology.toml --from ewr --json",
    )
    parser.add_argument("file", type=some_path, metavar="FILE", help="the topology, TOML")
    parser.add_argument("--from", dest="node", required=True, metavar="NODE", help="the node whose paths are printed")
    add_json_option(parser)
    parser.set_defaults(run=_run_topology_routes)
    parser = add_verb(
        actions,
        "tree",
        "prints where a message of a topic goes that is published at the node: destination, next hop, path",
        "holdfast topology tree flights delayed.jfk --url amqp://127.0.0.1:5672",
    )
    parser.add_argument("topic", metavar="TOPIC", help="the topic's name, without `topic/`")
    parser.add_argument("subject", metavar="SUBJECT", help="the message's subject: words joined by dots")
    add_json_option(parser)
    add_client_options(parser, retry_s=0.0)
    parser.set_defaults(run=_run_topology_tree)
    parser = add_verb(
        actions,
        "forget",
        "removes a node that left for good from the routing tables of all reachable nodes",
        "holdfast topology forget ewr --url amqp://127.0.0.1:5672",
    )
    parser.add_argument("node", type=some_text, metavar="NAME", help="the node; no topology file may name it any more")
    mail = parser.add_mutually_exclusive_group()
    mail.add_argument(
        "--dead-letter", action="store_true", help="what waits here for it becomes dead letters (default: it stays)"
    )
    mail.add_argument("--move-to", metavar="NODE", help="what waits here for it goes to the queues of that node")
    add_json_option(parser)
    add_client_options(parser, retry_s=0.0)
    parser.set_defaults(run=_run_topology_forget)


def _add_network(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "network",
        "shows all nodes at once",
        "holdfast network status --url amqp://127.0.0.1:5672\nholdfast network status --watch 5",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = add_verb(
        actions,
        "status",
        "prints a row for each node: messages, the oldest, sessions, links, version, room on disk",
        "holdfast network status --url amqp://127.0.0.1:5672\nholdfast network status --watch 5",
    )
    parser.add_argument(
        "--watch",
        type=POSITIVE_S,
        nargs="?",
        const=2.0,
        metavar="S",
        help="look again every S seconds (without a number 2), until Ctrl-C",
    )
    _add_limit(parser)
    add_json_option(parser, "the rows as one line of JSON for each look")
    add_client_options(parser, retry_s=0.0)
    parser.set_defaults(run=_run_network_status)


def _add_drain(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "drain",
        "has a node take no new messages, and waits until it is empty; it stays so until `holdfast resume`",
        "holdfast drain --url amqp://127.0.0.1:5672",
    )
    parser.add_argument("--no-wait", action="store_true", help="print what it holds, and do not wait until it is empty")
    _add_limit(parser)
    add_json_option(parser, "what is left as JSON")
    add_client_options(parser, retry_s=0.0)
    parser.set_defaults(run=_run_drain)
    parser = add_verb(
        verbs,
        "resume",
        "has a node that was drained take new messages again",
        "holdfast resume --url amqp://127.0.0.1:5672",
    )
    add_json_option(parser)
    add_client_options(parser, retry_s=0.0)
    parser.set_defaults(run=_run_resume)


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit",
        type=number_of(0.1, 60, "seconds", float),
        default=5.0,
        metavar="S",
        help="how long the other nodes may take to answer, in seconds (default %(default)g)",
    )


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_network_status(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.network import status

    return status(args)


def _run_drain(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.network import drain

    return drain(args)


def _run_resume(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.network import resume

    return resume(args)


def _run_topology_check(args: argparse.Namespace) -> int:
    from holdfast.node.topology_commands import check

    return check(args)


def _run_topology_routes(args: argparse.Namespace) -> int:
    from holdfast.node.topology_commands import routes

    return routes(args)


def _run_topology_tree(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.federation import tree

    return tree(args)


def _run_topology_forget(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.manage import forget

    return forget(args)
