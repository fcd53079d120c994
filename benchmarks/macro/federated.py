"""Federated topics over two hops: three Holdfast nodes beside three RabbitMQ servers with their federation plug-in.

Each repetition subscribes at the last broker and publishes at the first one; then so many keys as `--keys` says are
bound at the last, until the first knows them all. Both chains take turns. Prints one JSON object; progress on standard
error. `python benchmarks/macro/federated.py --help`; how to read it: benchmarks/README.md.
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import _process as process
from _chains import Chain, HoldfastChain, RabbitChain, hop_s
from _fan import Fan, Taker
from _figures import spread
from _load_run import LoadFailed
from _peers import PeerMissing
from _report import begin, emit, progress

FIGURE = "holdfast"
CHAINS = {"holdfast": HoldfastChain, "rabbitmq": RabbitChain}


class Runs:
    """The repetitions of one chain, in order."""

    def __init__(self) -> None:
        self.deliveries: list[float] = []
        self.broker_cpu: list[float] = []
        self.load_cpu: list[float] = []
        self.keys_s: dict[int, list[float]] = {}
        self.keys_per_s: dict[int, list[float]] = {}

    def report(self, chain: Chain, messages: int) -> dict[str, object]:
        return {
            "messages": messages,
            "deliveries_per_s": spread(self.deliveries),
            "broker_cores": spread(self.broker_cpu, 2),
            "load_cores": spread(self.load_cpu, 2),
            "keys_s": {str(count): spread(found, 2) for count, found in self.keys_s.items()},
            "keys_per_s": {str(count): spread(found) for count, found in self.keys_per_s.items()},
            "settings": chain.last.settings(),
        }


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=20_000, help="of a repetition (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="timed repetitions (default %(default)s)")
    parser.add_argument("--credit", type=int, default=2000, help="of the subscription (default %(default)s)")
    parser.add_argument(
        "--keys",
        default="1000,10000",
        help="bindings at the last broker, one figure each; 0: none (default %(default)s)",
    )
    parser.add_argument(
        "--many-keys", default="40000", help="the same, in the first repetition alone; 0: none (default %(default)s)"
    )
    parser.add_argument(
        "--hop-keys",
        default="1000,40000",
        help="keys that a node learns as it starts, one figure each; 0: none (default %(default)s)",
    )
    parser.add_argument("--peers", default="holdfast,rabbitmq", help="in this order (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the system's temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


def repeat_once(chain: Chain, turn: int, options: argparse.Namespace, directory: Path, runs: Runs | None) -> None:
    """One repetition with a subscription of its own; noted in `runs` unless it is the warm-up (None)."""
    word = f"run{turn}"
    taker = Taker(address=chain.source(word), subscribes=True)
    with Fan(
        chain.first, chain.target(), [taker], directory, size=options.size, credit=options.credit, kinds=1, words=word,
        takers_at=chain.last,
    ) as fan:  # fmt: skip
        chain.wait_until_known(word)
        cpu_s = sum(process.cpu_s(broker.pid) for broker in chain.brokers)
        result = fan.run(options.messages, options.messages)
        cpu_s = sum(process.cpu_s(broker.pid) for broker in chain.brokers) - cpu_s
    rate = result.delivered / result.seconds
    progress(f"{chain.name} {word}: {result.delivered:,} over two hops at {rate:,.0f}/s")
    if runs is not None:
        runs.deliveries.append(rate)
        runs.broker_cpu.append(cpu_s / result.seconds)
        runs.load_cpu.append(result.load_cpu_s / result.seconds)


def bind_once(chain: Chain, turn: int, count: int, runs: Runs) -> None:
    bound = chain.bind([f"keys{turn}.{count}.{number}" for number in range(count)])
    progress(f"{chain.name}: {count:,} keys bound after {bound.own_s:.2f} s, known two hops away {bound.known_s:.2f} s")
    runs.keys_s.setdefault(count, []).append(bound.known_s)
    runs.keys_per_s.setdefault(count, []).append(count / bound.own_s)


def hops(options: argparse.Namespace, directory: Path) -> dict[str, object]:
    """Seconds until a node knows what is bound at its neighbour, by the number of keys."""
    found: dict[str, object] = {}
    for count in (int(text) for text in options.hop_keys.split(",") if text not in ("", "0")):
        seconds = []
        for turn in range(options.repeat):
            seconds.append(hop_s(directory / f"hop-{count}-{turn}", [f"hop.{number}" for number in range(count)]))
            progress(f"holdfast: {count:,} keys known {seconds[-1]:.2f} s after the neighbour's start")
        found[str(count)] = spread(seconds, 2)
    return found


def _counts(turn: int, options: argparse.Namespace) -> list[int]:
    """How many keys are bound in that repetition; none in the warm-up, which is number 0."""
    texts = {0: "", 1: f"{options.keys},{options.many_keys}"}.get(turn, options.keys).split(",")
    return [int(text) for text in texts if text not in ("", "0")]


def measure(
    chains: Sequence[Chain], options: argparse.Namespace, directory: Path, absent: dict[str, str]
) -> dict[str, Runs]:
    """What each chain did; one that fails is left out, and `absent` says why."""
    found = {chain.name: Runs() for chain in chains}
    for turn in range(options.repeat + 1):
        for chain in chains:
            if chain.name in absent:
                continue
            runs = found[chain.name] if turn else None
            try:
                repeat_once(chain, turn, options, directory, runs)
                for count in _counts(turn, options):
                    bind_once(chain, turn, count, found[chain.name])
            except (LoadFailed, PeerMissing) as failed:
                absent[chain.name] = f"failed in repetition {turn}: {failed}"
                progress(f"{chain.name}: {absent[chain.name]}")
    return {name: runs for name, runs in found.items() if name not in absent}


def ratios(found: dict[str, Runs]) -> dict[str, object]:
    """Deliveries of ours, as a multiple of each other chain's."""
    own = found[FIGURE].deliveries if FIGURE in found else []
    return {
        name: spread([mine / theirs for mine, theirs in zip(own, runs.deliveries, strict=True)], 2)
        for name, runs in found.items()
        if own and name != FIGURE
    }


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    names = options.peers.split(",")
    if unknown := [name for name in names if name not in CHAINS]:
        print(f"invalid value {unknown[0]} for --peers; expected {', '.join(CHAINS)}", file=sys.stderr)
        return 2
    base, report = begin("federated", options)
    absent: dict[str, str] = {}
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=base, ignore_cleanup_errors=True) as made,
        contextlib.ExitStack() as started,
    ):
        directory, chains = Path(made), [CHAINS[name]() for name in names]
        for chain in chains:
            started.callback(chain.stop)
            try:
                chain.start(directory / chain.name)
                progress(f"{chain.name}: serves")
            except PeerMissing as missing:
                absent[chain.name] = str(missing)
                progress(f"{chain.name}: left out: {missing}")
        found = measure(chains, options, directory, absent)
        if FIGURE in found:
            report["hop_s"] = hops(options, directory)
        results = {
            chain.name: found[chain.name].report(chain, options.messages) for chain in chains if chain.name in found
        }
    report["results"] = results
    report["figure"] = results.get(FIGURE, {}).get("deliveries_per_s")
    report["ratio"] = ratios(found)
    emit(report, options.json_out, absent)
    return 0 if FIGURE in found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
