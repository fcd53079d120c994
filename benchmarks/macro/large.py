"""One message larger than memory through a node, or over a hop between two: bytes a second, and the growth of memory.

A message of `--megabytes` goes in block by block, then out in parts; its sum is compared, and anonymous memory is
watched from the moment before. Prints one JSON object; progress on standard error. How to read it:
benchmarks/README.md.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _figures import spread
from _peers import Holdfast, require_real_disk
from _process import written_bytes
from _report import emit, frame, progress

from holdfast.amqp.wire.performatives import Accepted
from holdfast_lab.real.large_client import Highest, LargeClient, sum_of

MB = 1_000_000
GROWTH_MB_MAX = 30.0
LIMIT_S = 3_600.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=4_000, help="of the message (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=1, help="fresh nodes (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the system's temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


async def measure(node: Holdfast, size: int) -> dict[str, float]:
    """Figures of one message in and out; AssertionError where it is not the same."""
    figures: dict[str, float] = {}
    written = written_bytes(node.pid)
    async with await LargeClient.connect(node.port) as client:
        link = await client.sender("large")
        highest = Highest(node.pid)
        began = time.monotonic()
        await client.send(link, size)
        await client.until(lambda: client.outcomes, LIMIT_S)
        assert [type(state) for _, state in client.outcomes] == [Accepted]
        figures["in_mb_per_s"] = size / MB / (time.monotonic() - began)
    figures["written_per_stored_byte"] = (written_bytes(node.pid) - written) / size
    progress(f"in: {figures['in_mb_per_s']:.0f} MB/s")
    async with await LargeClient.connect(node.port) as client:
        began = time.monotonic()
        await client.receiver("large")
        await client.until(lambda: client.sums, LIMIT_S)
        figures["out_mb_per_s"] = size / MB / (time.monotonic() - began)
        assert client.sums == [sum_of(size)]
    figures["anonymous_growth_mb"] = await highest.growth() / MB
    progress(f"out: {figures['out_mb_per_s']:.0f} MB/s; memory grew by {figures['anonymous_growth_mb']:.1f} MB")
    return figures


def main() -> int:
    options = parse(sys.argv[1:])
    runs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-large-", dir=options.data) as directory:
        place = Path(directory)
        require_real_disk(place)
        report = frame("large", place, {"megabytes": options.megabytes, "repeat": options.repeat})
        for number in range(options.repeat):
            node = Holdfast()
            node.start(place / str(number))
            try:
                runs.append(asyncio.run(measure(node, options.megabytes * MB)))
            finally:
                node.stop()
    report["goals"] = {"anonymous_growth_mb": GROWTH_MB_MAX}
    report["results"] = {name: spread([run[name] for run in runs]) for name in runs[0]}
    report["reached"] = max(run["anonymous_growth_mb"] for run in runs) <= GROWTH_MB_MAX
    emit(report, options.json_out)
    return 0 if report["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
