"""Runs seeds of the swarm one after the other in this process; ends at the first that fails.

    python -m mutation.seeds [--coverage FILE] SEED …

A line for each: `SEED ok` or `SEED failed FAILURE`. With `--coverage` none ends it, and the file says which seed
reached which line.
"""

import argparse
import logging


def failure_of(seed: int) -> str:
    """One line, empty where the seed ends as it must; whatever the drawing raises is one too."""
    from holdfast.harness.sim.run import execute  # once the coverage is watched, if it is
    from holdfast.harness.swarm import depth_of, draw_plan

    try:
        return execute(draw_plan(seed), seed, depth=depth_of(seed)).failure
    except Exception as error:  # a planted mistake may raise anything
        return f"{type(error).__name__}: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coverage", help="write which seed reached which line to this file")
    parser.add_argument("seeds", nargs="+", type=int)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the client library's warnings; a failure has its line
    running = None
    if options.coverage:
        import coverage

        running = coverage.Coverage(data_file=options.coverage, source_pkgs=["holdfast"], config_file=False)
        running.start()
    for seed in options.seeds:
        if running is not None:
            running.switch_context(str(seed))
        failure = failure_of(seed)
        print(f"{seed} failed {failure}" if failure else f"{seed} ok", flush=True)
        if failure and running is None:
            return 1
    if running is not None:
        running.stop()
        running.save()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
