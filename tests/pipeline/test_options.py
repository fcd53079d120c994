"""The source's options: what is accepted, what is refused, and where a password may not show."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.client.network.url import Url
from holdfast.errors import ConfigError
from pyspark_holdfast import postgresql
from pyspark_holdfast.option_hints import SINK_HINTS, SOURCE_HINTS
from pyspark_holdfast.options import NAMES, local_path, parse_options
from pyspark_holdfast.sink_options import SINK_NAMES

LEAST = {"url": "amqp://127.0.0.1:5672", "address": "flights"}


def test_defaults_and_case() -> None:
    options = parse_options({**LEAST, "MAXROWSPERTRIGGER": "7", "startingfrom": "NEXT", "checkpoint": "/tmp/c"})
    assert (options.rows_max, options.starting_from, options.mode) == (7, "next", "take")
    assert options.checkpoint == Path("/tmp/c")
    assert options.subscription is None


def test_the_kafka_source_s_names() -> None:
    options = parse_options(
        {**LEAST, "startingOffsets": "latest", "maxOffsetsPerTrigger": "5", "failOnDataLoss": "False"}
    )
    assert (options.starting_from, options.rows_max, options.fail_on_data_loss) == ("next", 5, False)
    options = parse_options({**LEAST, "startingOffsets": "EARLIEST", "endingOffsets": "latest"})
    assert (options.starting_from, options.fail_on_data_loss, options.ending_at) == ("first", True, None)
    options = parse_options({"url": LEAST["url"], "subscribe": "a,b", "startingTimestamp": "1700000000123"})
    assert [address.name for address in options.addresses] == ["a", "b"] and options.begins
    assert options.starting_from == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    for text, delay_s in (("15m", 900.0), ("1 hour", 3600.0), ("200ms", 0.2), ("30 SECONDS", 30.0)):
        assert parse_options({**LEAST, "maxTriggerDelay": text}).delay_s == delay_s


def test_what_is_done_with_the_unreadable() -> None:
    assert parse_options(LEAST).on_unreadable == "row"
    options = parse_options({**LEAST, "onUnreadable": "DeadLetter", "deadLetterPath": "/a/b"})
    assert (options.on_unreadable, options.dead_letter_path) == ("deadLetter", Path("/a/b"))
    assert options.message_bytes_max is None
    assert parse_options({**LEAST, "onUnreadable": "fail", "maxMessageBytes": "5"}).message_bytes_max == 5


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"startingOffsets": "5"}, "invalid value '5' for option 'startingOffsets'; expected one of earliest, latest"),
        ({"startingOffsets": "latest", "startingFrom": "next"}, "mean the same; give one of them"),
        ({"maxOffsetsPerTrigger": "5", "maxRowsPerTrigger": "5"}, "mean the same; give one of them"),
        ({"maxOffsetsPerTrigger": "0"}, "invalid value '0' for option 'maxOffsetsPerTrigger'"),
        ({"failOnDataLoss": "no"}, "invalid value 'no' for option 'failOnDataLoss'; expected one of true, false"),
        ({"onUnreadable": "skip"}, "expected one of row, fail, deadletter"),
        ({"onUnreadable": "deadLetter"}, "'deadLetterPath' belongs to onUnreadable=deadLetter; give both or neither"),
        ({"deadLetterPath": "/a"}, "'deadLetterPath' belongs to onUnreadable=deadLetter; give both or neither"),
        ({"maxMessageBytes": "5"}, "option 'maxMessageBytes' needs onUnreadable=deadLetter or fail"),
        ({"maxMessageBytes": "0", "onUnreadable": "fail"}, "invalid value '0' for option 'maxMessageBytes'"),
        ({"adress": "x"}, "unknown option 'adress'; expected one of url, urlFile"),
        (
            {"SUBSCRIBEPATTERN": "a.*"},
            "option 'subscribePattern': there are no regular expressions; give 'address', in",
        ),
        ({"path": "flights"}, "option 'path': load() takes none; give the queue as option 'address'"),
        (
            {"checkpointLocation": "/c"},
            "option 'checkpointLocation': it is the writer's; give the source the same path",
        ),
        ({"address": ""}, "address"),
        ({"url": "http://x"}, "with scheme 'http'; expected amqp://"),
        ({"url": "amqp://"}, "option 'url': invalid URL 'amqp://', without a host; expected amqp://"),
        (
            {"url": "amqp://[::1:5672"},
            "option 'url': invalid URL 'amqp://[:…', without a valid host or port; expected",
        ),
        (
            {"url": "amqp://jane@[::1:5672", "passwordFile": "/dev/null"},
            "option 'url': invalid URL '[::1:5672', without",
        ),
        ({"url": "amqp://host:99999"}, "without a valid host or port"),
        ({"checkpoint": "//[x"}, "invalid value '//[x' for option 'checkpoint'; expected a directory"),
        ({"urlFile": "/nowhere"}, "exactly one"),
        ({"mode": "peek"}, "take, copy"),
        (
            {"startingFrom": "0"},
            "invalid value '0' for option 'startingFrom'; expected first, next, a sequence from 1, or",
        ),
        ({"startingFrom": "2026-11-29"}, "or a time with its zone"),
        ({"startingFrom": "1900-01-01T00:00:00Z"}, "or a time with its zone"),
        ({"startingFrom": "9999-12-31T23:59:59-01:00"}, "or a time with its zone"),
        ({"startingFrom": "1970-01-01T00:00:00+05:00"}, "or a time with its zone"),
        ({"onNodeAway": "wait"}, "invalid value 'wait' for option 'onNodeAway'; expected one of goon, fail"),
        ({"url": "amqp://a:1,,amqp://b:1"}, "option 'url': invalid list"),
        ({"url": "amqp://a:1, amqp://a:1"}, "option 'url' names amqp://a:1 more than once"),
        ({"address": "a,"}, "option 'address': invalid list 'a,'; expected names with one comma between them"),
        ({"address": "a, b, a"}, "option 'address' names queue 'a' more than once; give it once"),
        ({"address": ",".join(map(str, range(1001)))}, "option 'address' has 1001 parts; expected at most 1000"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger"),
        ({"maxRowsPerTrigger": "1e3"}, "1e3"),
        ({"rowsPerBatch": "100001"}, "100000"),
        ({"leaseSeconds": "60"}, "'leaseSeconds': it was removed"),
        ({"maxBytesPerTrigger": "0"}, "invalid value '0' for option 'maxBytesPerTrigger'"),
        ({"maxBytesPerTrigger": "1", "bytesPerTrigger": "1"}, "exclude each other; give one of them"),
        ({"minRowsPerTrigger": "9", "maxRowsPerTrigger": "8"}, "'minRowsPerTrigger' is 9; expected at most"),
        ({"minRowsPerTrigger": "9", "minOffsetsPerTrigger": "9"}, "mean the same; give one of them"),
        ({"maxDelaySeconds": "-1"}, "invalid value '-1' for option 'maxDelaySeconds'"),
        ({"bytesPerTrigger": "0"}, "bytesPerTrigger"),
        ({"retrySeconds": "-1"}, "retrySeconds"),
        ({"checkpoint": "hdfs://x/y"}, "hdfs://x/y"),
        ({"passwordFile": "/nowhere"}, "/nowhere"),
        ({"url": "amqp://jane:se,cret@host"}, "one of its 2 parts is no URL; expected amqp://[user:password@]host"),
        ({"checkpoint": ""}, "option 'checkpoint' is empty; expected a directory"),
        ({"sinkPath": ""}, "option 'sinkPath' is empty"),
        ({"checkpoint": "file:place"}, "for option 'checkpoint'; expected file:/ and a path from the root"),
        ({"checkpoint": "file:"}, "for option 'checkpoint'; expected file:/ and a path from the root"),
        ({"sinkPath": "file://host/x"}, "for option 'sinkPath'; expected file:/ and a path from the root"),
        ({"sinkPath": "a\0b"}, "option 'sinkPath' is no path; expected a directory of this machine"),
        ({"passwordFile": "a\0b"}, "of option 'passwordFile' cannot be read"),
        ({"checkpoint": "wasb:/x"}, "invalid value 'wasb:/x' for option 'checkpoint'"),
        ({"maxRowsPerTrigger": "9" * 5000}, "for option 'maxRowsPerTrigger'; expected a whole number from 1"),
        ({"startingFrom": "9" * 5000}, "for option 'startingFrom'; expected first, next, a sequence"),
        ({"startingTimestamp": "9" * 18}, "expected a time in milliseconds since 1970"),
        ({"startingTimestamp": "now"}, "expected a time in milliseconds since 1970"),
        ({"startingTimestamp": "1", "startingOffsets": "latest"}, "mean the same; give one of them"),
        ({"subscribe": "a"}, "options 'address' and 'subscribe' mean the same; give one of them"),
        ({"endingOffsets": "5"}, "invalid value '5' for option 'endingOffsets'; expected one of latest"),
        ({"endingAt": "first"}, "invalid value 'first' for option 'endingAt'; expected next, a sequence from 1, or"),
        ({"endingAt": "1", "endingTimestamp": "1"}, "mean the same; give one of them"),
        ({"maxTriggerDelay": "15 weeks"}, "option 'maxTriggerDelay'; expected an interval up to a day, such as 15m"),
        ({"maxTriggerDelay": "25h"}, "expected an interval up to a day"),
        ({"maxTriggerDelay": "1m", "maxDelaySeconds": "60"}, "mean the same; give one of them"),
    ],
)
def test_refused_in_one_line_that_names_it(changed: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({**LEAST, **changed})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value) and "se,cret" not in str(caught.value) and "jane:" not in str(caught.value)


def test_the_largest_arrow_batch_is_accepted() -> None:
    assert parse_options({**LEAST, "rowsPerBatch": "100000"}).rows_per_batch == 100_000


def test_password_from_a_file_is_in_no_text(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("pa:ss@word \nsecond line\n")
    options = parse_options({**LEAST, "url": "amqp://jane@host:1", "passwordFile": str(file)})
    assert (options.url.user, options.url.password) == ("jane", "pa:ss@word ")
    assert "pa:" not in repr(options) and "pa%" not in repr(options)
    assert str(options.url) == "amqp://host:1"


def test_url_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("amqp://h:5\n")
    assert parse_options({"urlFile": str(file), "address": "q"}).url == Url(host="h", port=5)


def test_several_nodes_and_queues(tmp_path: Path) -> None:
    options = parse_options({"url": "amqp://a:1, amqps://b", "address": "x, flights-*", "onNodeAway": "FAIL"})
    assert options.urls == (Url(host="a", port=1), Url(host="b", port=5671, tls=True))
    assert [(address.name, address.is_pattern) for address in options.addresses] == [("x", False), ("flights-*", True)]
    assert (options.on_node_away, options.is_single) == ("fail", False)
    one = options.at(options.urls[1], "odd, *name\\")
    assert (one.url.host, one.address, one.is_single) == ("b", "odd, *name\\", True)
    file = tmp_path / "urls"
    file.write_text("amqp://h:5\n\namqp://i:5\n")
    assert [url.host for url in parse_options({"urlFile": str(file), "address": "q"}).urls] == ["h", "i"]


def test_one_password_for_all_nodes(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret")
    given = {"url": "amqp://jane@a:1,amqp://joe@b:1", "address": "q", "passwordFile": str(file)}
    assert [(url.user, url.password) for url in parse_options(given).urls] == [("jane", "secret"), ("joe", "secret")]
    with pytest.raises(ConfigError, match="needs a url that names a user"):
        parse_options({**given, "url": "amqp://jane@a:1,amqp://b:1"})


def test_where_a_subscription_begins() -> None:
    def start(text: str) -> object:
        return parse_options({**LEAST, "startingFrom": text}).starting_from

    assert (start("First"), start("17")) == ("first", 17)
    assert start("2026-11-29T18:00:00+01:00") == datetime(2026, 11, 29, 17, tzinfo=UTC)


def test_paths() -> None:
    for text in ("file:///a/b%20c", "file:/a/b%20c", "file://localhost/a/b%20c"):
        assert local_path("checkpoint", text) == Path("/a/b%20c"), "as Spark takes its checkpointLocation"
    assert local_path("checkpoint", "file:///a#b?c") == Path("/a#b?c")
    assert local_path("checkpoint", "/a/b") == Path("/a/b")
    assert local_path("checkpoint", "a").is_absolute()


def test_no_hint_hides_an_option() -> None:
    for names, hints in ((NAMES, SOURCE_HINTS), (SINK_NAMES, SINK_HINTS), (postgresql.NAMES, postgresql.HINTS)):
        assert not {name.lower() for name in names} & {name.lower() for name in hints}
        for hint in hints.values():
            for name in re.findall(r"'(\w+)'", hint):
                assert name in names, "what a hint names is an option"
