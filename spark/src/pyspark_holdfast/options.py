"""The source's options: checked once, frozen, without a password in their text.

Rules of this file: Spark hands keys over in lower case and values as text; every mistake is a ConfigError
that names the option, what is wrong and what is expected.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from holdfast.client.network.url import Url, parse_url
from holdfast.errors import ConfigError
from holdfast.units import MIB

STARTS: Final = ("first", "next")
MODES: Final = ("take", "copy")

NAMES: Final = (
    "url", "urlFile", "passwordFile", "caFile", "address", "subscription", "mode", "startingFrom", "checkpoint",
    "sinkPath", "maxRowsPerTrigger", "bytesPerTrigger", "rowsPerPartition", "rowsPerBatch",
    "retrySeconds",
)  # fmt: skip
"""As users write them; Spark does not tell case apart."""

FORMER: Final = {
    "maxBytesPerTrigger": "it is called bytesPerTrigger now: a trigger aims at it, it is not a limit",
    "leaseSeconds": "it was removed, since it had no effect: a query that starts fences the one before it at once",
}

ROWS_PER_BATCH_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """`checkpoint` and `sink_path` are local directories; `checkpoint` is the query's own checkpointLocation.

    A trigger takes at most `rows_max` entries; it aims at `bytes_aim` bytes, by the average size of what the queue
    holds. A task reads `rows_per_partition` sequences; an Arrow batch holds at most `rows_per_batch` rows. `retry_s`:
    how long a node that cannot be reached is tried again before the query fails.
    """

    url: Url
    address: str
    subscription: str | None
    mode: str = "take"
    starting_from: str = "first"
    checkpoint: Path | None = None
    sink_path: Path | None = None
    rows_max: int = 100_000
    bytes_aim: int = 256 * MIB
    rows_per_partition: int = 50_000
    rows_per_batch: int = 2_000
    retry_s: float = 60.0
    ca_file: Path | None = None


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """`options` as Spark gives them, in any case. Raises ConfigError at the first wrong one."""
    given = {key.lower(): value for key, value in options.items()}
    known = {name.lower() for name in NAMES}
    former = {name.lower(): (name, reason) for name, reason in FORMER.items()}
    for key in given:
        if key in former:
            name, reason = former[key]
            raise ConfigError(f"option {name!r}: {reason}")
        if key not in known:
            raise ConfigError(f"unknown option {key!r}; expected one of {', '.join(NAMES)}")
    for one, other in (("url", "urlFile"),):
        if (one in given) == (other.lower() in given):
            raise ConfigError(f"options {one!r} and {other!r} exclude each other; give exactly one of them")
    url = _url(given["url"] if "url" in given else _first_line_of("urlFile", given["urlfile"]).strip())
    if "passwordfile" in given:
        password = _first_line_of("passwordFile", given["passwordfile"])
        if not url.user or url.password:
            raise ConfigError("option 'passwordFile' needs a url that names a user and no password")
        url = url.with_password(password)
    if not given.get("address"):
        raise ConfigError("option 'address' is missing; expected a queue's name")
    return SourceOptions(
        url=url,
        address=given["address"],
        subscription=given.get("subscription") or None,
        mode=_one_of("mode", given.get("mode", "take"), MODES),
        starting_from=_one_of("startingFrom", given.get("startingfrom", "first"), STARTS),
        checkpoint=local_path("checkpoint", given["checkpoint"]) if "checkpoint" in given else None,
        sink_path=local_path("sinkPath", given["sinkpath"]) if "sinkpath" in given else None,
        rows_max=_whole("maxRowsPerTrigger", given, 100_000),
        bytes_aim=_whole("bytesPerTrigger", given, 256 * MIB),
        rows_per_partition=_whole("rowsPerPartition", given, 50_000),
        rows_per_batch=_whole("rowsPerBatch", given, 2_000, highest=ROWS_PER_BATCH_MAX),
        retry_s=_seconds("retrySeconds", given, 60.0, 0.0, 86_400.0),
        ca_file=local_path("caFile", given["cafile"]) if given.get("cafile") else None,
    )


def local_path(name: str, text: str) -> Path:
    """A path, or a `file:` URI, of this machine; ConfigError for any other file system."""
    try:
        parts = urlsplit(text)
    except ValueError:
        text = f"invalid value {text!r} for option {name!r}; expected a directory of this machine"
        raise ConfigError(text) from None
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    if "://" in text or parts.scheme in ("hdfs", "s3", "s3a", "abfs", "gs"):
        raise ConfigError(
            f"invalid value {text!r} for option {name!r}; expected a directory that this machine can sync to its disk"
        )
    return Path(text).absolute()


def _url(text: str) -> Url:
    try:
        return parse_url(text)
    except ConfigError as error:
        raise ConfigError(f"option 'url': {error}") from None


def _first_line_of(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} of option {name!r} cannot be read ({error})") from None


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise ConfigError(f"invalid value {value!r} for option {name!r}; expected one of {', '.join(choices)}")
    return value.lower()


def _whole(name: str, given: Mapping[str, str], default: int, *, highest: int | None = None) -> int:
    text = given.get(name.lower(), str(default))
    if not text.isascii() or not text.isdigit() or int(text) < 1 or (highest is not None and int(text) > highest):
        expected = "a whole number from 1" + (f" to {highest}" if highest is not None else "")
        raise ConfigError(f"invalid value {text!r} for option {name!r}; expected {expected}")
    return int(text)


def _seconds(name: str, given: Mapping[str, str], default: float, least: float, most: float) -> float:
    text = given.get(name.lower(), str(default))
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        expected = f"a number of seconds from {least:g} to {most:g}"
        raise ConfigError(f"invalid value {text!r} for option {name!r}; expected {expected}")
    return value
