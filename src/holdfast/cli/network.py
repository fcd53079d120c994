"""The verbs of a whole network: topology, fleet.

Rules of this file: as those of the package.
"""

import argparse
from pathlib import Path

from holdfast.cli.arguments import Verbs, add_client_options, add_json_option, add_verb


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    """In the order that help shows."""
    _add_topology(verbs)
    _add_fleet(verbs)


def _add_topology(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "topology",
        "checks a topology file, computes its shortest paths, and forgets a node that left",
        "holdfast topology check topology.toml\nholdfast topology routes topology.toml --from ewr --json\n"
        "holdfast topology forget ewr",
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
        "forget",
        "removes a node that left for good from the routing tables of all reachable nodes",
        "holdfast topology forget ewr --url amqp://127.0.0.1:5672",
    )
    parser.add_argument("node", metavar="NAME", help="the node; no topology file may name it any more")
    add_json_option(parser)
    add_client_options(parser, retry_s=0.0)
    parser.set_defaults(run=_run_topology_forget)


def _add_fleet(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "fleet",
        "runs a whole topology on this machine, cuts and heals its links, stops and starts its nodes",
        "holdfast fleet up topology.toml\nholdfast fleet cut ewr hub --silent\nholdfast fleet status --json\n"
        "holdfast fleet down",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = add_verb(
        actions,
        "up",
        "starts every node of a topology, and returns when all are ready",
        "holdfast fleet up topology.toml --dir ./try",
    )
    parser.add_argument("file", metavar="FILE", help="the topology, TOML; its addresses are ignored")
    _dir_option(parser, "where all of it is kept (default: ./FILE.fleet, without FILE's ending)")
    add_json_option(parser, "the fleet's state as JSON")
    parser.set_defaults(run=_run_fleet_up)
    parser = add_verb(
        actions,
        "down",
        "stops a fleet, and removes its files",
        "holdfast fleet down --keep",
    )
    parser.add_argument("--keep", action="store_true", help="keep stores and logs, for the next `up`")
    _dir_option(parser)
    parser.set_defaults(run=_run_fleet_down)
    parser = add_verb(
        actions,
        "status",
        "shows a fleet's nodes, and which links both ends report as up",
        "holdfast fleet status --json",
    )
    _dir_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=_run_fleet_status)
    parser = add_verb(
        actions,
        "cut",
        "cuts the link between two nodes: connections are reset, and so are new ones",
        "holdfast fleet cut ewr hub --silent",
    )
    parser.add_argument("a", metavar="A", help="one node of the link")
    parser.add_argument("b", metavar="B", help="the other node")
    parser.add_argument(
        "--silent",
        action="store_true",
        help="drop all bytes silently: connections stay open, and new ones get no answer",
    )
    _dir_option(parser)
    parser.set_defaults(run=_run_fleet_change)
    parser = add_verb(actions, "heal", "heals a link that was cut", "holdfast fleet heal ewr hub")
    parser.add_argument("a", metavar="A", help="one node of the link")
    parser.add_argument("b", metavar="B", help="the other node")
    _dir_option(parser)
    parser.set_defaults(run=_run_fleet_change)
    parser = add_verb(actions, "stop", "stops a node by SIGTERM, or kill -9", "holdfast fleet stop hub --kill")
    parser.add_argument("node", metavar="NODE", help="the node's name")
    parser.add_argument("--kill", action="store_true", help="use kill -9 instead of SIGTERM")
    _dir_option(parser)
    parser.set_defaults(run=_run_fleet_change)
    parser = add_verb(
        actions, "start", "starts a stopped node again, on its port and its store", "holdfast fleet start hub"
    )
    parser.add_argument("node", metavar="NODE", help="the node's name")
    _dir_option(parser)
    parser.set_defaults(run=_run_fleet_change)
    # What `up` starts; without help it is in no list.
    parser = actions.add_parser("supervise", allow_abbrev=False)
    parser.add_argument("dir")
    parser.set_defaults(run=_run_fleet_supervise)


def _dir_option(
    parser: argparse.ArgumentParser, what: str = "the fleet's directory (default: the only *.fleet here)"
) -> None:
    parser.add_argument("--dir", metavar="DIR", help=what)


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_topology_check(args: argparse.Namespace) -> int:
    from holdfast.node.topology_commands import check

    return check(args)


def _run_topology_routes(args: argparse.Namespace) -> int:
    from holdfast.node.topology_commands import routes

    return routes(args)


def _run_topology_forget(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.manage import forget

    return forget(args)


def _run_fleet_up(args: argparse.Namespace) -> int:
    from holdfast.node.topology import load_topology
    from holdfast_lab.real.fleet import up

    return up(args, load_topology(Path(args.file)))


def _run_fleet_supervise(args: argparse.Namespace) -> int:
    from holdfast.node.topology import load_topology
    from holdfast_lab.real.fleet_state import TOPOLOGY
    from holdfast_lab.real.fleet_supervisor import supervise

    return supervise(load_topology(Path(args.dir, TOPOLOGY)), Path(args.dir))


def _run_fleet_down(args: argparse.Namespace) -> int:
    from holdfast_lab.real.fleet import down

    return down(args)


def _run_fleet_status(args: argparse.Namespace) -> int:
    from holdfast_lab.real.fleet import status

    return status(args)


def _run_fleet_change(args: argparse.Namespace) -> int:
    from holdfast_lab.real.fleet import change

    return change(args)
