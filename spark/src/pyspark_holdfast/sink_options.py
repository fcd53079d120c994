"""The sink's options: checked once, frozen (docs/spark.md, "Writing").

Rules of this file: as of `options.py`, which has what both share. `checkpointLocation` is Spark's own option, which it
hands over with the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.client.network.url import Url
from holdfast.errors import ConfigError
from pyspark_holdfast.option_hints import SINK_HINTS, check_known
from pyspark_holdfast.options import local_path, seconds, url_of

SINK_NAMES: Final = (
    "url", "urlFile", "passwordFile", "caFile", "address", "producer", "checkpointLocation", "retrySeconds",
    "stallSeconds",
)  # fmt: skip
PRODUCER_BYTES_MAX: Final = 128
"""A node takes 150 bytes, of which the query's id and the partition's number need some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """`address` None: the column `address` says it. `producer` None: a name is made up. `stall_s` None: a node that
    takes nothing is waited for without a limit."""

    url: Url
    address: str | None = None
    producer: str | None = None
    checkpoint: Path | None = None
    retry_s: float = 60.0
    stall_s: float | None = None
    ca_file: Path | None = None


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """`options` as Spark gives them, in any case. Raises ConfigError at the first wrong one."""
    given = {key.lower(): value for key, value in options.items()}
    check_known(given, SINK_NAMES, SINK_HINTS)
    producer = given.get("producer") or None
    if producer is not None and len(producer.encode()) > PRODUCER_BYTES_MAX:
        raise ConfigError(
            f"invalid value {producer!r:.80} for option 'producer'; expected at most {PRODUCER_BYTES_MAX} bytes"
        )
    checkpoint = given.get("checkpointlocation")
    return SinkOptions(
        url=url_of(given),
        address=given.get("address") or None,
        producer=producer,
        checkpoint=local_path("checkpointLocation", checkpoint) if checkpoint else None,
        retry_s=seconds("retrySeconds", given, 60.0, 0.0, 86_400.0),
        stall_s=seconds("stallSeconds", given, 0.0, 0.1, 86_400.0) if "stallseconds" in given else None,
        ca_file=local_path("caFile", given["cafile"]) if given.get("cafile") else None,
    )
