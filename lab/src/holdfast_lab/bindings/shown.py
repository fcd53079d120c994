"""`holdfast sim run TOPOLOGY`: how bindings would spread over the nodes of a topology file, and which way messages go.

Rules of this file: what is drawn, printed and answered; nodes do not spread bindings yet, so this shows the model.
Every link spreads the topic, in the direction of a link that has one. One seed, one output.
"""

import argparse
import hashlib
import time
from functools import partial
from random import Random
from typing import Final

from holdfast.errors import ConfigError
from holdfast.federation.settings import Entry
from holdfast.lines import json_line, say
from holdfast.routing.topology import Topology
from holdfast.text_files import read_text, toml_of
from holdfast_lab.bindings import checks
from holdfast_lab.bindings.drawn import DELAYS_S, PATTERNS, TOPIC, WORDS
from holdfast_lab.bindings.world import World

NODES_MAX: Final = 60
"""Each node holds a set of each other: more take minutes."""

BINDS: Final = 6
MESSAGES: Final = 8
CUT_S: Final = 12.0
SETTLED_S: Final = 30.0
FILE_BYTES_MAX: Final = 4 * 1024 * 1024


def show(topology: Topology, args: argparse.Namespace) -> int:
    """Runs the model over it; returns the exit code."""
    for option, value in (("--out", args.out), ("--canary", args.canary)):
        if value is not None:
            raise ConfigError(f"{option} with a topology; leave it out: what happens is printed")
    if len(topology.nodes) > NODES_MAX:
        raise ConfigError(f"{args.scenario} has {len(topology.nodes)} nodes; expected at most {NODES_MAX}")
    began, lines = time.monotonic(), list[str]()
    world = world_of(topology, args.seed)
    world.tell = lambda text: lines.append(f"{world.now:9.3f}  {text}")
    failure = _run(world, Random(f"shown {args.seed}"))
    metrics = {
        "nodes": len(world.sites),
        "binds": len(world.binds),
        "confirmed": sum(bind.complete for bind in world.binds),
        "messages": len(world.published),
        "delivered": sum(sum(one.got.values()) for one in world.published.values()),
        "hops": sum(world.singles.values()),
        "control_bytes": sum(world.control.values()),
    }
    digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()
    answer = {
        "scenario": args.scenario, "seed": args.seed, "ok": not failure, "digest": digest,
        "virtual_s": round(world.now, 6), "wall_s": round(time.monotonic() - began, 3), "metrics": metrics,
        "failure": failure, "hops": metrics["hops"],
    }  # fmt: skip
    if args.json:
        say(json_line(answer))
    else:
        say(*lines, *(f"  {name:<22} {value:>10,}" for name, value in metrics.items()), f"digest {digest}")
    return 1 if failure else 0


def world_of(topology: Topology, seed: int) -> World:
    """The model of that network. How long a link takes is drawn: a topology file does not say it."""
    rng = Random(f"delays {seed}")
    low, high = DELAYS_S
    links, closed = [], []
    entries: dict[str, list[Entry]] = {}
    for link in topology.links:
        links.append((link.from_, link.to, low * (high / low) ** rng.random()))
        entries.setdefault(link.from_, []).append(Entry(TOPIC, link.to))
        if link.direction == "both":
            entries.setdefault(link.to, []).append(Entry(TOPIC, link.from_))
        else:
            closed.append((link.to, link.from_))
    world = World(seed)
    world.build(links, entries, one_way=closed)
    return world


def _run(world: World, rng: Random) -> str:
    """Binds, messages, a link that breaks, and a bind that goes. What is wrong at the end, in one line."""
    names, ends = sorted(world.sites), sorted(world.links)
    world.run(20.0)
    binds = [world.bind(rng.choice(names), TOPIC, rng.choice(PATTERNS)) for _ in range(BINDS)]
    world.run(SETTLED_S)
    for number in range(MESSAGES):
        world.publish(rng.choice(names), TOPIC, f"{rng.choice(WORDS)}.{rng.choice(WORDS)}")
        world.run(2.0)
        if number == MESSAGES // 2:
            a, b = rng.choice(ends)
            world.tell(f"cut {a} {b}")
            world.cut(a, b)
            world.at(CUT_S, partial(_mend, world, a, b))
            gone = binds[0]
            if gone is not None:
                world.unbind(gone)
    world.run(SETTLED_S + 2 * world.bounds.refresh_s)
    return checks.verdict(world)


def _mend(world: World, a: str, b: str) -> None:
    world.tell(f"mend {a} {b}")
    world.mend(a, b)


def is_topology(name: str) -> bool:
    """Whether a topology file is meant, and no scenario: it lists its nodes. Not, where it cannot be read."""
    try:
        document = toml_of(read_text("topology", name, FILE_BYTES_MAX)) if name.endswith(".toml") else {}
    except ConfigError:
        return False
    return isinstance(document.get("node"), list)
