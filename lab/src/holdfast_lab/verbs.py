"""The lab's verbs on the command line of `holdfast`: fleet, sim, demo (entry points, `holdfast.verbs`).

Rules of this file: as those of `holdfast.cli`: parsing only, each verb's work is imported when it runs.
"""

import argparse
from pathlib import Path

from holdfast.cli import fleet
from holdfast.cli.arguments import COUNT, SEED, Verbs, add_json_option, add_verb, key_and_value, number_of, some_path


def add_fleet(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    actions = fleet.add(verbs)
    parser = add_verb(
        actions,
        "up",
        "on this machine: starts every node of a topology, and returns when all are ready",
        "holdfast fleet up topology.toml --dir ./try",
    )
    parser.add_argument("file", type=some_path, metavar="FILE", help="the topology, TOML; its addresses are ignored")
    _dir_option(parser, "where all of it is kept (default: ./FILE.fleet, without FILE's ending)")
    add_json_option(parser, "the fleet's state as JSON")
    parser.set_defaults(run=_run_fleet_up)
    parser = add_verb(
        actions,
        "down",
        "on this machine: stops a fleet, and removes its files",
        "holdfast fleet down --keep",
    )
    parser.add_argument("--keep", action="store_true", help="keep stores and logs, for the next `up`")
    _dir_option(parser)
    parser.set_defaults(run=_run_fleet_down)
    parser = add_verb(
        actions,
        "status",
        "on this machine: shows a fleet's nodes, and which links both ends report as up",
        "holdfast fleet status --json",
    )
    _dir_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=_run_fleet_status)
    parser = add_verb(
        actions,
        "cut",
        "on this machine: cuts the link between two nodes: connections are reset, and so are new ones",
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
    parser = add_verb(actions, "heal", "on this machine: heals a link that was cut", "holdfast fleet heal ewr hub")
    parser.add_argument("a", metavar="A", help="one node of the link")
    parser.add_argument("b", metavar="B", help="the other node")
    _dir_option(parser)
    parser.set_defaults(run=_run_fleet_change)
    parser = add_verb(
        actions, "stop", "on this machine: stops a node by SIGTERM, or kill -9", "holdfast fleet stop hub --kill"
    )
    parser.add_argument("node", metavar="NODE", help="the node's name")
    parser.add_argument("--kill", action="store_true", help="use kill -9 instead of SIGTERM")
    _dir_option(parser)
    parser.set_defaults(run=_run_fleet_change)
    parser = add_verb(
        actions,
        "start",
        "on this machine: starts a stopped node again, on its port and its store",
        "holdfast fleet start hub",
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
    parser.add_argument("--dir", type=some_path, metavar="DIR", help=what)


def add_sim(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "sim",
        "runs whole topologies in virtual time, with faults, from a seed",
        "holdfast sim list\nholdfast sim run line-cut --seed 7 --out ./line-cut\nholdfast sim swarm --seeds 100",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = add_verb(
        actions,
        "run",
        "runs a scenario, and says whether every promise held",
        "holdfast sim run satellite --seed 3 --json\nholdfast sim run ./mine.toml --seed 1 --out ./mine\n"
        "holdfast sim run traffic-level --set period_s=5 --set burst=20",
    )
    parser.add_argument(
        "scenario",
        metavar="SCENARIO",
        help="a name from `holdfast sim list`, or a file.toml; of a topology file: how bindings would spread",
    )
    parser.add_argument(
        "--seed", type=SEED, default=1, metavar="S", help="the seed of all random choices (default %(default)s)"
    )
    parser.add_argument(
        "--set",
        type=key_and_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change the experiment of a scenario `traffic-…` (docs/simulator.md lists the keys)",
    )
    _run_options(parser)
    parser = add_verb(
        actions,
        "sweep",
        "runs a grid of scenarios, settings and seeds on a Spark cluster, into one table; as `holdfast pipeline sweep`",
        "holdfast sim sweep traffic.toml --out ./traffic --master 'local[2]'",
    )
    parser.add_argument("file", type=some_path, metavar="FILE.toml", help="the grids")
    parser.add_argument(
        "--out", required=True, type=some_path, metavar="DIR", help="the table's directory, new or empty"
    )
    parser.add_argument("--master", default="local[*]", metavar="MASTER", help="Spark master (default %(default)s)")
    parser.add_argument(
        "--resume", action="store_true", help="continue the table of a sweep of this file that was ended or failed"
    )
    parser.set_defaults(run=_run_sim)
    parser = add_verb(
        actions,
        "swarm",
        "runs many seeds, each of which draws its topology, workloads and faults",
        "holdfast sim swarm --seeds 200 --first-seed 1000 --jobs 2 --out ./failures",
    )
    parser.add_argument(
        "--seeds", type=COUNT, default=100, metavar="N", help="the number of seeds (default %(default)s)"
    )
    parser.add_argument("--first-seed", type=SEED, default=1, metavar="S", help="the first seed (default %(default)s)")
    parser.add_argument(
        "--jobs",
        type=number_of(1, 1_024, "a number of processes"),
        metavar="J",
        help="run in J processes (default: one for each core)",
    )
    parser.add_argument(
        "--routing", action="store_true", help="only networks whose nodes compute their own routes (default: all kinds)"
    )
    parser.add_argument(
        "--out",
        type=some_path,
        metavar="DIR",
        help="directory for the report, and plan, events and picture of each seed that failed",
    )
    parser.add_argument(
        "--shrink", action="store_true", help="also search for a smaller plan that fails in the same way"
    )
    parser.add_argument("--canary", metavar="NAME", help=argparse.SUPPRESS)
    add_json_option(parser)
    parser.set_defaults(run=_run_sim)
    parser = add_verb(
        actions,
        "network",
        "checks a provider's network, and shows the labels of a packet's way through it",
        "holdfast sim network paper --path client1 root1\n"
        "holdfast sim network ./mine.toml --fail p4 --after 0.1 --path client1 root1",
    )
    parser.add_argument("file", metavar="NETWORK", help="a network's name (paper, extranet), or a file.toml")
    parser.add_argument("--path", nargs=2, metavar=("FROM", "TO"), help="two hosts: the way of one packet")
    parser.add_argument(
        "--fail", action="append", default=[], metavar="WHAT", help="a router, or a link ONE-OTHER, that fails first"
    )
    parser.add_argument(
        "--after",
        type=number_of(0, 3_600, "seconds", float),
        default=0.0,
        metavar="S",
        help="seconds from the failure to the packet (default %(default)s)",
    )
    add_json_option(parser)
    parser.set_defaults(run=_run_sim)
    parser = add_verb(
        actions,
        "burst",
        "shows what pacing does with a burst: one of six sites sends twenty times as much to a hub",
        "holdfast sim burst --picture ./burst.png",
    )
    parser.add_argument(
        "--seed", type=SEED, default=1, metavar="S", help="the seed of all random choices (default %(default)s)"
    )
    parser.add_argument(
        "--picture",
        default="burst.png",
        type=some_path,
        metavar="FILE",
        help="where the picture goes (default ./%(default)s)",
    )
    parser.set_defaults(run=_run_sim)
    parser = add_verb(
        actions,
        "live",
        "runs the traffic paper's experiment on real processes, a minute each, beside the model with the same messages",
        "holdfast sim live --policy fixed --policy weights",
    )
    parser.add_argument(
        "--policy",
        action="append",
        choices=("fixed", "weights", "backlog", "overflow", "level 0", "level 1"),
        metavar="POLICY",
        help="one of %(choices)s; repeat for more (default fixed, weights, level 0 and level 1)",
    )
    parser.add_argument("--seed", type=SEED, default=1, metavar="S", help="the first seed (default %(default)s)")
    parser.add_argument("--seeds", type=COUNT, default=1, metavar="N", help="how many seeds (default %(default)s)")
    add_json_option(parser)
    parser.set_defaults(run=_run_sim)
    parser = add_verb(actions, "list", "lists what `sim run` knows by name", "holdfast sim list")
    add_json_option(parser)
    parser.set_defaults(run=_run_sim)
    parser = add_verb(
        actions,
        "replay",
        "runs a kept plan again",
        "holdfast sim replay ./out/plan.json --seed 7",
    )
    parser.add_argument("file", type=some_path, metavar="FILE.json", help="plan.json of an earlier run's --out")
    parser.add_argument("--seed", type=SEED, metavar="S", help="the seed (default: the one in the file)")
    _run_options(parser)


def _run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=some_path, metavar="DIR", help="directory for result, event log, timeline and plan"
    )
    # For the tests that plant a defect on purpose, to see it found.
    parser.add_argument("--canary", metavar="NAME", help=argparse.SUPPRESS)
    add_json_option(parser)
    parser.set_defaults(run=_run_sim)


def add_demo(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "demo",
        "runs sixteen nodes with failing links on this machine, real flights through them, and Spark at their end",
        "holdfast demo --flights 1000 --out ./demo --keep",
    )
    parser.add_argument("--all", action="store_true", help="send every flight of the data set")
    parser.add_argument(
        "--flights", type=COUNT, default=1_800, metavar="N", help="the number of flights (default %(default)s)"
    )
    parser.add_argument(
        "--out",
        default="demo-out",
        type=some_path,
        metavar="DIR",
        help="directory for numbers and picture (default %(default)s)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the nodes' stores and the table")
    parser.set_defaults(run=_run_demo)


# ----------------------------------------------------------------------------------- run, lazily imported


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


def _run_sim(args: argparse.Namespace) -> int:
    from holdfast_lab.bindings import shown
    from holdfast_lab.sim_commands import sim

    if args.action == "run" and shown.is_topology(args.scenario):
        from holdfast.node.topology import load_topology

        return shown.show(load_topology(Path(args.scenario)), args)
    return sim(args)


def _run_demo(args: argparse.Namespace) -> int:
    from holdfast_lab.demo.command import run_demo

    return run_demo(args)
