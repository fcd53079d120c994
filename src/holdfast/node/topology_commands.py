"""`holdfast topology`: a topology file checked, and a node's shortest paths in it (docs/topology.md).

Rules of this file: answers go to standard output, warnings to standard error. A wrong file or node is a ConfigError:
exit code 2. The names of `routes --json` are other programs' too: add, never change.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from holdfast.columns import table
from holdfast.errors import ConfigError
from holdfast.lines import json_line, say
from holdfast.node.topology import load_topology, node_of
from holdfast.routing.paths import shortest_paths
from holdfast.routing.topology import cost_number, warnings


def check(args: argparse.Namespace) -> int:
    """0: the file is a topology, whatever it is warned of. `args`: file, json."""
    topology = load_topology(Path(args.file), allow_pipe=True)
    told = warnings(topology)
    supers = [node.name for node in topology.supers()]
    if args.json:
        answer = {
            "nodes": len(topology.nodes),
            "links": len(topology.links),
            "super_nodes": supers,
            "warnings": told,
        }
        say(json_line(answer))
        return 0
    named = f"super nodes {', '.join(supers)}" if supers else "no super node"
    say(f"{args.file}: {len(topology.nodes)} nodes, {len(topology.links)} links, {named}")
    for line in told:
        say(f"holdfast topology {args.action}: {args.file}: warning: {line}", file=sys.stderr)
    return 0


def routes(args: argparse.Namespace) -> int:
    """0: the table of `args.node`, by the destinations' names. `args`: file, node, json."""
    topology = load_topology(Path(args.file), allow_pipe=True)
    try:
        node_of(topology, args.file, args.node)
    except ConfigError:
        text = f"invalid value {args.node!r} for --from; expected the name of a [[node]] in {args.file}"
        raise ConfigError(text) from None
    rows: list[dict[str, Any]] = [
        {
            "destination": destination,
            "next_hop": path.next_hop,
            "cost": cost_number(path.cost_micro),
            "path": list(path.nodes),
        }
        for destination, path in sorted(shortest_paths(topology.edges(), args.node).items())
    ]
    if args.json:
        say(json_line(rows))
        return 0
    cells = [[row["destination"], row["next_hop"], str(row["cost"]), " ".join(row["path"])] for row in rows]
    say(*table(["destination", "next_hop", "cost", "path"], cells))
    return 0
