"""`holdfast sim …`: simulated runs from the command line (docs/simulator.md).

Rules of this file: what is typed in, what is printed and what is written to `--out`; runs are made elsewhere. One
that fails says why and how it is replayed, in two lines on standard error. Exit 1 where any run failed. What plans need
is imported where one is run: the traffic paper's scenarios start in a fraction of that time.
"""

import argparse
import json
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ConfigError
from holdfast.lines import json_line, say
from holdfast.signals import ending_in_order
from holdfast_lab.base.progress import Progress
from holdfast_lab.plan.result import Result
from holdfast_lab.vpn.settings import SCENARIOS, experiment

if TYPE_CHECKING:
    from holdfast_lab.plan.plan import Plan

NAME_COLUMNS: Final = 34

Tell = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Run:
    """What is to be run. `plan` None for a history, which is a program and not data."""

    name: str
    seed: int
    plan: "Plan | None"
    span_s: float
    go: Callable[[bool, Tell], Result]
    replay: str
    """The command that makes the same run again."""


def sim(args: argparse.Namespace) -> int:
    """`args.action` says which; returns the exit code."""
    # A client that reconnects says so in its log: here that is what runs are made of.
    logging.getLogger("holdfast").addHandler(logging.NullHandler())
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "run": _run,
        "swarm": _swarm,
        "list": _list,
        "replay": _replay,
        "sweep": _sweep,
        "network": _network,
        "burst": _burst,
        "live": _live,
    }
    return actions[args.action](args)


# --------------------------------------------------------------------------------------------------------- one run


def _run(args: argparse.Namespace) -> int:
    settings = dict(args.set)
    if len(settings) < len(args.set):
        raise ConfigError("--set names a key twice; give each key once")
    if args.scenario in SCENARIOS:
        return _carry_out(_of_traffic(args.scenario, args.seed, settings), args)
    if settings:
        raise ConfigError(f"scenario {args.scenario!r} has nothing to --set; expected one of {', '.join(SCENARIOS)}")
    return _carry_out(_chosen(args.scenario, args.seed, args.canary), args)


def _of_traffic(name: str, seed: int, settings: Mapping[str, str]) -> Run:
    from holdfast_lab import traffic

    what = experiment(name, seed, settings)
    again = _command("run", name, seed, None)
    for key, value in settings.items():
        again += f" --set {shlex.quote(f'{key}={value}')}"
    return Run(name, seed, None, what.span_s, lambda _, tell: traffic.run(name, what, tell), again)


def _replay(args: argparse.Namespace) -> int:
    from holdfast_lab.plan import scenario_file

    kept = scenario_file.read_plan_file(Path(args.file))
    seed = args.seed if args.seed is not None else kept.seed
    if seed is None:
        raise ConfigError(f"{args.file} holds a plan without its seed; give it with --seed")
    again = _command("replay", args.file, seed, args.canary)
    return _carry_out(_of_plan(kept.plan.name, kept.plan, seed, again), args)


def _chosen(name: str, seed: int, canary: str | None) -> Run:
    """A scenario by name or path, a history, or the swarm's pseudo scenario. ConfigError names what there is."""
    from holdfast_lab import histories
    from holdfast_lab.plan import scenario_file
    from holdfast_lab.runs import swarm

    again = _command("run", name, seed, canary)
    if scenario_file.is_path(name) or name in dict(scenario_file.names()):
        return _of_plan(name, scenario_file.load(name, seed), seed, again)
    if name in SCENARIOS:
        return _of_traffic(name, seed, {})
    history = histories.HISTORIES.get(name)
    if history is not None:
        return Run(name, seed, None, 0.0, partial(history.run, seed), again)
    if name in swarm.SWARMS:
        return _of_plan(name, swarm.draw_plan(seed, name), seed, again)
    known = ", ".join(name for name, _, _ in _all())
    raise ConfigError(f"invalid scenario {name!r}; expected a path or one of {known}")


def _command(action: str, what: str, seed: int, canary: str | None) -> str:
    parts = ["holdfast", "sim", action, what, "--seed", str(seed)]
    if canary is not None:
        parts += ["--canary", canary]
    return shlex.join(parts)


def _of_plan(name: str, plan: "Plan", seed: int, replay: str) -> Run:
    from holdfast_lab.runs.run import execute

    def go(keep_notes: bool, tell: Tell) -> Result:
        return execute(plan, seed, keep_notes=keep_notes, progress=tell)

    return Run(name, seed, plan, plan.safety_s, go, replay)


def _planted(canary: str | None) -> AbstractContextManager[None]:
    """That defect, in this process, for as long as the block lasts."""
    if canary is None:
        return nullcontext()
    from holdfast_lab import canaries

    return canaries.plant(canary)


def _carry_out(run: Run, args: argparse.Namespace) -> int:
    out = _out_directory(args.out)
    with _planted(args.canary), Progress(lines=sys.stderr) as progress:

        def tell(elapsed_s: float) -> None:
            text = f"{run.name} seed {run.seed}: {elapsed_s:.1f} s of virtual time"
            progress.show(int(1_000 * elapsed_s), max(1, int(1_000 * run.span_s)), text)

        tell(0.0)
        result = run.go(out is not None, tell)
    if out is not None:
        _write(out, run, result)
    if args.json:
        say(json_line(answer(run.name, result)))
    else:
        say(*_lines(run, result))
        if out is not None:
            say(f"written to {out}: {', '.join(sorted(item.name for item in out.iterdir()))}")
    if not result.ok:
        say(f"failed: {run.name} seed {run.seed}: {' '.join(result.failure.split())}", file=sys.stderr)
        say(f"replay: {run.replay}", file=sys.stderr)
    return 0 if result.ok else 1


def answer(name: str, result: Result) -> dict[str, Any]:
    """What `--json` prints of a run."""
    return {
        "scenario": name,
        "seed": result.seed,
        "ok": result.ok,
        "digest": result.digest,
        "virtual_s": round(result.virtual_s, 6),
        "wall_s": round(result.wall_s, 3),
        "metrics": result.metrics,
        "failure": result.failure,
        "hops": result.hops,
        **({"series": result.series} if result.series else {}),
    }


def _lines(run: Run, result: Result) -> list[str]:
    verdict = "ok" if result.ok else "FAILED"
    numbers = {key: value for key, value in result.metrics.items() if isinstance(value, (int, float))}
    lines = [
        f"{verdict}: {run.name}, seed {run.seed}: {result.virtual_s:,.1f} s of virtual time in {result.wall_s:.2f} s",
        *(f"  {name:<22} {value:>10,}" for name, value in numbers.items()),
    ]
    faults = result.metrics.get("faults")
    if faults:
        lines.append("  faults: " + ", ".join(f"{kind} {count}" for kind, count in faults.items()))
    return [*lines, f"digest {result.digest}"]


# --------------------------------------------------------------------------------------------------------- --out


def _out_directory(name: str | None) -> Path | None:
    """Made before the run, so that a mistake costs none."""
    if name is None:
        return None
    out = Path(name)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"invalid value {name!r} for --out ({error.strerror}); expected a directory") from None
    return out


def _write(out: Path, run: Run, result: Result) -> None:
    """result.json, events.ndjson, timeline.svg and, for a plan, plan.json."""
    from holdfast_lab.runs import timeline

    # What programs do when they are sent home, after the verdict, is not part of the run.
    notes = [note for note in result.notes if note.at <= result.virtual_s]
    texts = {
        "result.json": json.dumps(answer(run.name, result) | {"replay": run.replay}, indent=1) + "\n",
        "events.ndjson": "".join(json.dumps(note._asdict(), ensure_ascii=False) + "\n" for note in notes),
        "timeline.svg": timeline.draw(notes, title=f"{run.name}, seed {run.seed}", end_s=result.virtual_s),
    }
    if run.plan is not None:
        from holdfast_lab.plan import scenario_file

        texts["plan.json"] = scenario_file.plan_file_text(run.plan, run.seed)
    _put(out, texts)


def _put(out: Path, texts: Mapping[str, str]) -> None:
    try:
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out: cannot write {out} ({error.strerror})") from None


# --------------------------------------------------------------------------------------------------------- swarm


def _keep(out: Path, which: str, seed: int, *, ended: bool, shrink: bool) -> None:
    """A failed seed's own directory: its plan, its event log and picture; with `shrink` a smaller plan as well.

    One that did not end is not run again: it would hang us too.
    """
    from holdfast_lab.plan import scenario_file
    from holdfast_lab.runs.shrink import shrink as smallest

    run = _chosen(which, seed, None)
    assert run.plan is not None
    there = _out_directory(str(out / f"seed-{seed}"))
    assert there is not None
    if not ended:
        _put(there, {"plan.json": scenario_file.plan_file_text(run.plan, seed)})
        return
    result = run.go(True, lambda _: None)
    _write(there, run, result)
    if shrink and not result.ok:
        small = smallest(run.plan, seed, result.failure)
        _put(there, {"shrunk.json": scenario_file.plan_file_text(small, seed)})


def _swarm(args: argparse.Namespace) -> int:
    from holdfast_lab import canaries
    from holdfast_lab.runs import swarm

    if args.shrink and args.out is None:
        raise ConfigError("--shrink needs --out; add it: the smaller plans are written there")
    out = _out_directory(args.out)
    canary = None
    if args.canary is not None:
        with _planted(args.canary):  # a name that nobody has is found here, and not in each worker
            canary = partial(canaries.plant_to_stay, args.canary)
    which = swarm.ROUTING if args.routing else swarm.SWARM
    failures = 0
    with ending_in_order(), Progress(lines=sys.stderr) as progress:

        def tell(done: int, failure: str) -> None:
            nonlocal failures
            failures += bool(failure)
            progress.show(done, args.seeds, f"{done:,} of {args.seeds:,} seeds, {failures} failed")

        progress.show(0, args.seeds, f"0 of {args.seeds:,} seeds")
        seeds = range(args.first_seed, args.first_seed + args.seeds)
        report = swarm.run_seeds(seeds, which=which, jobs=args.jobs, tell=tell, canary=canary)
    found = {
        "seeds": report.seeds,
        "failed": [failure.seed for failure in report.failed],
        "wall_s": round(report.wall_s, 3),
        "virtual_s": round(report.virtual_s, 3),
        "hops": report.hops,
        "failures": [
            {"seed": failure.seed, "failure": failure.failure, "replay": failure.replay_command}
            for failure in report.failed
        ],
        "coverage": {kind: dict(sorted(counts.items())) for kind, counts in report.coverage.counts.items()},
        "unreached": report.coverage.unreached(),
    }
    if out is not None:
        _put(out, {"result.json": json.dumps(found, indent=1) + "\n"})
        for failure in report.failed:
            with _planted(args.canary):
                _keep(out, which, failure.seed, ended=failure.ended, shrink=args.shrink)
    if args.json:
        say(json_line(found))
    else:
        say(report.lines()[0], *report.coverage.lines())
    for failure in report.failed:
        say(f"failed: seed {failure.seed}: {' '.join(failure.failure.split())}", file=sys.stderr)
        planted = "" if args.canary is None else f" --canary {shlex.quote(args.canary)}"
        say(f"replay: {failure.replay_command}{planted}", file=sys.stderr)
        if out is not None:
            say(f"written to {out / f'seed-{failure.seed}'}", file=sys.stderr)
    return 1 if report.failed else 0


# ------------------------------------------------------------------------------------------------- sweep, network


def _sweep(args: argparse.Namespace) -> int:
    """Spark runs it, started as a user would, in the place of this process: the lab imports no pipeline."""
    words = ["pipeline", "sweep", args.file, "--out", args.out, "--master", args.master]
    words += ["--resume"] if args.resume else []
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "holdfast", *words])


def _burst(args: argparse.Namespace) -> int:
    from holdfast_lab.demo.burst import burst

    return burst(args)


def _live(args: argparse.Namespace) -> int:
    from holdfast_lab.demo.live import live

    return live(args)


def _network(args: argparse.Namespace) -> int:
    """What a provider's network holds, or the way of one packet through it."""
    from holdfast_lab.mpls.clock import Clock
    from holdfast_lab.mpls.network_file import read_network
    from holdfast_lab.mpls.provider import Provider

    network = read_network(args.file)
    provider = Provider(Clock(), network)
    for what in args.fail:
        provider.fail(what)
    provider.clock.run(args.after)
    if args.path is not None:
        source, destination = args.path
        way = provider.trace(source, destination)
        say(*([json_line({"from": source, "to": destination, "path": way})] if args.json else way))
        return 0
    found = provider.summary()
    if args.json:
        say(json_line(found))
        return 0
    say(*(f"{name:<12} {', '.join(str(one) for one in values)}" for name, values in found.items()))
    return 0


# --------------------------------------------------------------------------------------------------------- list


def _all() -> list[tuple[str, str, str]]:
    """(name, what it is, what it shows), in the order in which `sim list` prints them."""
    from holdfast_lab import histories
    from holdfast_lab.plan import scenario_file
    from holdfast_lab.runs import swarm

    return [
        *((name, "scenario", sentence) for name, sentence in scenario_file.names()),
        *((name, "history", history.sentence) for name, history in histories.HISTORIES.items()),
        *((name, "traffic", sentence) for name, sentence in SCENARIOS.items()),
        *((name, "swarm", sentence) for name, sentence in swarm.SWARMS.items()),
    ]


def _list(args: argparse.Namespace) -> int:
    found = _all()
    if args.json:
        say(json_line([{"name": name, "kind": kind, "shows": shows} for name, kind, shows in found]))
        return 0
    if not sys.stdout.isatty():
        for name, _, shows in found:
            say(f"{name}  {shows}")
        return 0
    width = shutil.get_terminal_size().columns
    name_width = min(NAME_COLUMNS, max(len(name) for name, _, _ in found))
    say(f"{'NAME':<{name_width}}  {'KIND':<8}  SHOWS")
    for name, kind, shows in found:
        line = f"{name:<{name_width}}  {kind:<8}  {shows}"
        say(line if len(line) <= width else line[: max(name_width + 12, width - 1)] + "…")
    return 0
