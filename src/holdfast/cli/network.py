"""The verb of a whole network: topology.

Rules of this file: as those of the package.
"""

import argparse

from holdfast.cli.arguments import Verbs, add_client_options, add_json_option, add_verb


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    """`topology`, and its actions."""
    _add_topology(verbs)


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
    parser.add_argument("file", metavar="FILE", help="the topology, TOML")
    add_json_option(parser)
    parser.set_defaults(run=_run_topology_check)
    parser = add_verb(
        actions,
        "routes",
        "prints a node's shortest paths: destination, next hop, cost, path",
        "holdfast topology routes topology.toml --from ewr --json",
    )
    parser.add_argument("file", metavar="FILE", help="the topology, TOML")
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
    parser.add_argument("node", metavar="NAME", help="the node; no topology file may name it any more")
    add_json_option(parser)
    add_client_options(parser, retry_s=0.0)
    parser.set_defaults(run=_run_topology_forget)


# ----------------------------------------------------------------------------------- run, lazily imported


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
