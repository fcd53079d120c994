"""The source's options: checked once, frozen, without a password in their text.

Rules of this file: Spark hands keys over in lower case and values as text; every mistake is a ConfigError
that names the option, what is wrong and what is expected.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.client.network.url import Url, parse_url
from holdfast.errors import ConfigError
from holdfast.units import MIB
from pyspark_holdfast.addresses import Address, addresses_of, escaped, listed
from pyspark_holdfast.bus import Start
from pyspark_holdfast.option_hints import SOURCE_HINTS, check_known

STARTS: Final = ("first", "next")
MODES: Final = ("take", "copy")

NAMES: Final = (
    "url", "urlFile", "passwordFile", "caFile", "address", "subscription", "mode", "startingFrom", "checkpoint",
    "sinkPath", "maxRowsPerTrigger", "bytesPerTrigger", "rowsPerPartition", "rowsPerBatch",
    "retrySeconds", "onUnreadable", "deadLetterPath", "failOnDataLoss", "startingOffsets", "maxOffsetsPerTrigger",
    "onNodeAway", "maxBytesPerTrigger", "minRowsPerTrigger", "minOffsetsPerTrigger", "maxDelaySeconds", "endingAt",
    "subscribe", "startingTimestamp", "endingOffsets", "endingTimestamp", "maxTriggerDelay", "maxMessageBytes",
)  # fmt: skip
"""As users write them; Spark does not tell case apart."""

KAFKA_STARTS: Final = {"earliest": "first", "latest": "next"}
AWAY: Final = {"goon": "goOn", "fail": "fail", "leaveout": "leaveOut"}
"""What `onNodeAway` may be, by its lower case."""
UNREADABLE: Final = {"row": "row", "fail": "fail", "deadletter": "deadLetter"}
"""What `onUnreadable` may be, by its lower case."""
SAME: Final = {
    "subscribe": "address",
    "startingOffsets": "startingFrom",
    "startingTimestamp": "startingFrom",
    "endingOffsets": "endingAt",
    "endingTimestamp": "endingAt",
    "maxOffsetsPerTrigger": "maxRowsPerTrigger",
    "minOffsetsPerTrigger": "minRowsPerTrigger",
    "maxTriggerDelay": "maxDelaySeconds",
}
"""Names of Spark's Kafka source for options that mean the same here."""

ROWS_PER_BATCH_MAX: Final = 100_000
EPOCH_YEAR: Final = 1970
DELAY_S_MAX: Final = 86_400.0
DIGITS_MAX: Final = 18
"""Of a whole number; Python refuses to read thousands of them."""

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")
_INTERVAL: Final = re.compile(r"(\d{1,9}) ?(ms|s|m|h|milliseconds?|seconds?|minutes?|hours?)")
_UNITS_S: Final = {
    name: length_s
    for names, length_s in (
        ("ms millisecond milliseconds", 0.001),
        ("s second seconds", 1.0),
        ("m minute minutes", 60.0),
        ("h hour hours", 3600.0),
    )
    for name in names.split()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """`checkpoint` and `sink_path` are local directories; `checkpoint` is the query's own checkpointLocation.

    A trigger takes at most `rows_max` entries; it aims at `bytes_aim` bytes, by the average size of what the queue
    holds, or takes at most `bytes_max`, which the node counts. With less than `rows_min` entries it waits, for at most
    `delay_s` after the batch before. A task reads `rows_per_partition` sequences; an Arrow batch holds at most
    `rows_per_batch` rows. `retry_s`: how long a node that cannot be reached is tried again before the query fails.
    `on_unreadable`: row, fail or deadLetter, which has `dead_letter_path`; the last two also for a message whose row
    has more than `message_bytes_max` bytes. `on_node_away`, of several nodes: goOn, fail or leaveOut. `begins`: whether
    `starting_from` was given. `ending_at`, of a batch query: a sequence, or a time; neither is read.
    """

    urls: tuple[Url, ...]
    addresses: tuple[Address, ...]
    subscription: str | None
    mode: str = "take"
    starting_from: Start = "first"
    checkpoint: Path | None = None
    sink_path: Path | None = None
    rows_max: int = 100_000
    bytes_aim: int = 256 * MIB
    rows_per_partition: int = 50_000
    rows_per_batch: int = 2_000
    retry_s: float = 60.0
    ca_file: Path | None = None
    on_unreadable: str = "row"
    dead_letter_path: Path | None = None
    fail_on_data_loss: bool = True
    on_node_away: str = "goOn"
    bytes_max: int | None = None
    rows_min: int = 1
    delay_s: float = 900.0
    begins: bool = False
    ending_at: int | datetime | None = None
    message_bytes_max: int | None = None

    @property
    def url(self) -> Url:
        """The only node, or the first."""
        return self.urls[0]

    @property
    def address(self) -> str:
        """The only queue, or the first."""
        return self.addresses[0].name

    @property
    def is_single(self) -> bool:
        """Whether they name one queue of one node."""
        return len(self.urls) == 1 and len(self.addresses) == 1 and not self.addresses[0].is_pattern

    def at(self, url: Url, queue: str | None = None) -> "SourceOptions":
        """The same for one node, and one of its queues."""
        addresses = self.addresses if queue is None else (Address(escaped(queue)),)
        return replace(self, urls=(url,), addresses=addresses)


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """`options` as Spark gives them, in any case. Raises ConfigError at the first wrong one."""
    given = {key.lower(): value for key, value in options.items()}
    check_known(given, NAMES, SOURCE_HINTS)
    for other in dict.fromkeys(SAME.values()):
        names = [name for name in (other, *(one for one in SAME if SAME[one] == other)) if name.lower() in given]
        if len(names) > 1:
            raise ConfigError(f"options {names[0]!r} and {names[1]!r} mean the same; give one of them")
    urls = urls_of(given)
    addresses = given.get("address") or given.get("subscribe")
    if not addresses:
        raise ConfigError("option 'address' is missing; expected a queue's name, or several with commas")
    on_unreadable = UNREADABLE[one_of("onUnreadable", given.get("onunreadable", "row"), tuple(UNREADABLE))]
    if (on_unreadable == "deadLetter") != ("deadletterpath" in given):
        raise ConfigError("option 'deadLetterPath' belongs to onUnreadable=deadLetter; give both or neither")
    if "maxmessagebytes" in given and on_unreadable == "row":
        raise ConfigError("option 'maxMessageBytes' needs onUnreadable=deadLetter or fail: no row tells such a message")
    on_node_away = AWAY[one_of("onNodeAway", given.get("onnodeaway", "goOn"), tuple(AWAY))]
    if on_node_away == "leaveOut" and "sinkpath" not in given:
        raise ConfigError(
            "option 'onNodeAway' is leaveOut; expected 'sinkPath' too: a table of files says whether it has a batch"
        )
    if "maxbytespertrigger" in given and "bytespertrigger" in given:
        raise ConfigError("options 'maxBytesPerTrigger' and 'bytesPerTrigger' exclude each other; give one of them")
    rows_max = whole(_given(given, "maxOffsetsPerTrigger", "maxRowsPerTrigger"), given, 100_000)
    rows_min = whole(_given(given, "minOffsetsPerTrigger", "minRowsPerTrigger"), given, 1)
    if rows_min > rows_max:
        raise ConfigError(f"option 'minRowsPerTrigger' is {rows_min}; expected at most maxRowsPerTrigger, {rows_max}")
    return SourceOptions(
        urls=urls,
        addresses=addresses_of(addresses),
        subscription=given.get("subscription") or None,
        mode=one_of("mode", given.get("mode", "take"), MODES),
        starting_from=_start(given),
        checkpoint=local_path("checkpoint", given["checkpoint"]) if "checkpoint" in given else None,
        sink_path=local_path("sinkPath", given["sinkpath"]) if "sinkpath" in given else None,
        rows_max=rows_max,
        bytes_aim=whole("bytesPerTrigger", given, 256 * MIB),
        rows_per_partition=whole("rowsPerPartition", given, 50_000),
        rows_per_batch=whole("rowsPerBatch", given, 2_000, highest=ROWS_PER_BATCH_MAX),
        retry_s=seconds("retrySeconds", given, 60.0, 0.0, 86_400.0),
        ca_file=local_path("caFile", given["cafile"]) if given.get("cafile") else None,
        on_unreadable=on_unreadable,
        dead_letter_path=local_path("deadLetterPath", given["deadletterpath"]) if "deadletterpath" in given else None,
        fail_on_data_loss=one_of("failOnDataLoss", given.get("failondataloss", "true"), ("true", "false")) == "true",
        on_node_away=on_node_away,
        bytes_max=whole("maxBytesPerTrigger", given, 1) if "maxbytespertrigger" in given else None,
        rows_min=rows_min,
        delay_s=_delay(given),
        begins=any(name in given for name in ("startingfrom", "startingoffsets", "startingtimestamp")),
        ending_at=_end(given),
        message_bytes_max=whole("maxMessageBytes", given, 1) if "maxmessagebytes" in given else None,
    )


def _given(given: Mapping[str, str], one: str, other: str) -> str:
    """Which of two names of an option is given; the second if none is."""
    return one if one.lower() in given else other


def url_of(given: Mapping[str, str]) -> Url:
    """The only node, of options in lower case, with the login that they name. Raises ConfigError."""
    _check_one_url(given)
    text = given["url"] if "url" in given else _first_line_of("urlFile", given["urlfile"]).strip()
    return _with_login(given, _url(text))


def urls_of(given: Mapping[str, str]) -> tuple[Url, ...]:
    """The nodes, as `url_of`: several with commas, or one in each line of `urlFile`."""
    _check_one_url(given)
    if "url" in given:
        texts = listed("url", given["url"])
    else:
        texts = listed("urlFile", text_of("urlFile", given["urlfile"]), ",\n")
    urls = tuple(_with_login(given, _url(text, of=len(texts))) for text in texts)
    for url in urls:
        if urls.count(url) > 1:
            raise ConfigError(f"option 'url' names {url} more than once; give it once")
    return urls


def _check_one_url(given: Mapping[str, str]) -> None:
    if "url" not in given and "urlfile" not in given:
        raise ConfigError("option 'url' is missing; expected the node's, amqp://host:port, or 'urlFile'")
    if "url" in given and "urlfile" in given:
        raise ConfigError("options 'url' and 'urlFile' exclude each other; give exactly one of them")


def _with_login(given: Mapping[str, str], url: Url) -> Url:
    if "passwordfile" not in given:
        return url
    password = _first_line_of("passwordFile", given["passwordfile"])
    if not url.user or url.password:
        raise ConfigError("option 'passwordFile' needs a url that names a user and no password")
    return url.with_password(password)


def _start(given: Mapping[str, str]) -> Start:
    if "startingoffsets" in given:
        return KAFKA_STARTS[one_of("startingOffsets", given["startingoffsets"], tuple(KAFKA_STARTS))]
    if "startingtimestamp" in given:
        return _milliseconds("startingTimestamp", given["startingtimestamp"])
    text = given.get("startingfrom", "first")
    if text.lower() in STARTS:
        return text.lower()
    return _place("startingFrom", text, "first, next")


def _end(given: Mapping[str, str]) -> int | datetime | None:
    """Where a batch query ends; None at what is there now."""
    if "endingoffsets" in given:
        one_of("endingOffsets", given["endingoffsets"], ("latest",))
        return None
    if "endingtimestamp" in given:
        return _milliseconds("endingTimestamp", given["endingtimestamp"])
    text = given.get("endingat", "next")
    return None if text.lower() == "next" else _place("endingAt", text, "next")


def _place(name: str, text: str, others: str) -> int | datetime:
    """A sequence, or a time."""
    if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX and int(text) >= 1:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise ValueError
        time = time.astimezone(UTC)
        if time.year < EPOCH_YEAR:
            raise ValueError
    except (ValueError, OverflowError):
        raise ConfigError(
            f"invalid value {text!r:.80} for option {name!r}; expected {others}, a sequence from 1, or a time with its "
            "zone, such as 2026-11-29T17:00:00Z"
        ) from None
    return time


def _milliseconds(name: str, text: str) -> datetime:
    """A time as Kafka has it, in milliseconds since 1970."""
    try:
        if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
            raise ValueError
        return datetime(EPOCH_YEAR, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(text))
    except (ValueError, OverflowError):
        raise ConfigError(
            f"invalid value {text!r:.80} for option {name!r}; expected a time in milliseconds since 1970"
        ) from None


def _delay(given: Mapping[str, str]) -> float:
    text = given.get("maxtriggerdelay")
    if text is None:
        return seconds("maxDelaySeconds", given, 900.0, 0.0, DELAY_S_MAX)
    found = _INTERVAL.fullmatch(text.strip().lower())
    delay_s = int(found[1]) * _UNITS_S[found[2]] if found else None
    if delay_s is None or delay_s > DELAY_S_MAX:
        raise ConfigError(
            f"invalid value {text!r:.80} for option 'maxTriggerDelay'; expected an interval up to a day, such as 15m"
        )
    return delay_s


def local_path(name: str, text: str) -> Path:
    """A path, or a `file:` URI, of this machine; ConfigError for any other file system. As Hadoop reads a URI, nothing
    in it is escaped: Spark's own options of the same text must be the same place."""
    path = text
    if text.startswith("file:"):
        path = text.removeprefix("file:")
        if path.startswith("//"):
            host, slash, rest = path[2:].partition("/")
            path = slash + rest if host in ("", "localhost") else ""
        if not path.startswith("/"):
            raise ConfigError(
                f"invalid value {text!r:.80} for option {name!r}; expected file:/ and a path from the root"
            )
    if not path or "\0" in path:
        raise ConfigError(
            f"option {name!r} is {'empty' if not text else 'no path'}; expected a directory of this machine"
        )
    if path is text and ("://" in text or text.startswith("//") or _SCHEME.match(text)):
        raise ConfigError(
            f"invalid value {text!r} for option {name!r}; expected a directory that this machine can sync to its disk"
        )
    return Path(path).absolute()


def _url(text: str, of: int = 1) -> Url:
    try:
        return parse_url(text)
    except ConfigError as error:
        if of > 1:  # the text is not shown: a password with a comma would be cut in two
            raise ConfigError(
                f"option 'url': one of its {of} parts is no URL; expected amqp://[user:password@]host[:port] with a "
                "comma between two, and %2C for a comma within"
            ) from None
        raise ConfigError(f"option 'url': {error}") from None


def _first_line_of(name: str, path: str) -> str:
    return text_of(name, path).partition("\n")[0].rstrip("\r")


def text_of(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # no UTF-8, or a path that can be none
        raise ConfigError(f"{path} of option {name!r} cannot be read ({error})") from None


def one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise ConfigError(f"invalid value {value!r} for option {name!r}; expected one of {', '.join(choices)}")
    return value.lower()


def whole(name: str, given: Mapping[str, str], default: int, *, highest: int | None = None) -> int:
    text = given.get(name.lower(), str(default))
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    if not is_number or int(text) < 1 or (highest is not None and int(text) > highest):
        expected = "a whole number from 1" + (f" to {highest}" if highest is not None else "")
        raise ConfigError(f"invalid value {text!r:.80} for option {name!r}; expected {expected}")
    return int(text)


def seconds(name: str, given: Mapping[str, str], default: float, least: float, most: float) -> float:
    text = given.get(name.lower(), str(default))
    try:
        value = float(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        expected = f"a number of seconds from {least:g} to {most:g}"
        raise ConfigError(f"invalid value {text!r} for option {name!r}; expected {expected}")
    return value
