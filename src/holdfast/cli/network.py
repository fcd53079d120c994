"""The verbs of a whole network: topology.

Rules of this file: as those of the package.
"""

import argparse

from holdfast.cli.arguments import Verbs, add_json_option, add_verb


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    """In the order that help shows."""
    _add_topology(verbs)


def _add_topology(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "topology",
        "checks a topology file, and computes its shortest paths",
        "holdfast topology check topology.toml\nholdfast topology routes topology.toml --from ewr --json",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = add_verb(
        actions,
        "check",
        "says whether a topology file is one, and who in it is cut off",
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
    parser.add_argument("--from", dest="node", required=True, metavar="NODE", help="the node whose table it is")
    add_json_option(parser)
    parser.set_defaults(run=_run_topology_routes)


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_topology_check(args: argparse.Namespace) -> int:
    from holdfast.node.topology_commands import check

    return check(args)


def _run_topology_routes(args: argparse.Namespace) -> int:
    from holdfast.node.topology_commands import routes

    return routes(args)
