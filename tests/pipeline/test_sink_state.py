"""What the sink keeps in a query's checkpoint: where numbers begin, through crashes at any of its writes."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from holdfast.broker.stored.producers import NAME_BYTES_MAX
from holdfast.errors import ConfigError, StorageError
from pyspark_holdfast import checkpoint as checkpoint_module
from pyspark_holdfast import sink_state
from pyspark_holdfast.sending import producer_name
from pyspark_holdfast.sink_options import PRODUCER_BYTES_MAX, parse_sink_options
from pyspark_holdfast.sink_state import DIRECTORY, Sent, SinkState

LEAST = {"url": "amqp://127.0.0.1:5672"}


def checkpoint(tmp_path: Path, planned: int = 0) -> Path:
    """As Spark has written it before it asks the sink to write batch `planned`."""
    place = tmp_path / "checkpoint"
    (place / "offsets").mkdir(parents=True, exist_ok=True)
    (place / "metadata").write_text('{"id":"7f-1"}')
    for batch in range(planned + 1):
        (place / "offsets" / str(batch)).write_text("v1\n{}")
    return place


def test_numbers_go_on_behind_those_of_the_batch_before(tmp_path: Path) -> None:
    place = checkpoint(tmp_path)
    state = SinkState(place, None)
    plan = state.plan()
    assert plan == (0, "spark-7f-1", {}, True)
    state.begin(0)
    assert not state.plan().fresh
    state.end(plan, [Sent(0, {"a": 3}), Sent(1, {}), Sent(2, {"a": 1, "b": 2})])
    checkpoint(tmp_path, 1)
    plan = SinkState(place, None).plan()
    assert plan == (1, "spark-7f-1", {"a": {0: 4, 2: 2}, "b": {2: 3}}, True)
    state.begin(1)
    state.end(plan, [Sent(0, {"a": 1}), Sent(7, {"a": 5})])
    checkpoint(tmp_path, 2)
    numbers = SinkState(place, None).plan().numbers
    assert numbers == {"a": {0: 5, 2: 2, 7: 6}, "b": {2: 3}} and [*numbers] == ["b", "a"], "the last used is the last"


def test_a_batch_is_sent_again_with_its_own_numbers(tmp_path: Path) -> None:
    """Also where the sink has ended it, and Spark has not."""
    place = checkpoint(tmp_path)
    state = SinkState(place, None)
    for batch in range(4):
        checkpoint(tmp_path, batch)
        plan = state.plan()
        state.begin(batch)
        state.end(plan, [Sent(0, {"a": 10})])
        again = SinkState(place, None).plan()
        assert again == plan._replace(fresh=False)
        SinkState(place, None).end(again, [Sent(0, {"a": 10})])
    assert sorted(file.name for file in (place / DIRECTORY).iterdir()) == ["2", "2.begun", "3", "3.begun"]


def test_a_batch_that_is_computed_again_in_other_partitions_is_told(tmp_path: Path) -> None:
    place = checkpoint(tmp_path)
    state = SinkState(place, None)
    plan = state.plan()
    state.end(plan, [Sent(0, {"a": 10}), Sent(1, {"a": 5})])
    for other in ([Sent(0, {"a": 15})], [Sent(0, {"a": 10}), Sent(1, {"a": 5}), Sent(2, {"a": 1})]):
        with pytest.raises(ConfigError, match="batch 0 was computed again with other rows in its partitions"):
            state.end(plan, other)
    assert SinkState(place, None)._read(0) == ("spark-7f-1", {"a": {0: 11, 1: 6}})


def test_a_checkpoint_without_the_sinks_files_is_refused(tmp_path: Path) -> None:
    place = checkpoint(tmp_path, 1)
    with pytest.raises(ConfigError, match="batch 0 was not written by this sink, or its file in holdfast-sink is gone"):
        SinkState(place, None).plan()
    (place / DIRECTORY).mkdir()
    (place / DIRECTORY / "0").write_text('{"producer": "spark-7f-1", "next": [')
    with pytest.raises(ConfigError, match="cannot be read"):
        SinkState(place, None).plan()
    shutil.rmtree(place / "offsets")
    with pytest.raises(ConfigError, match="has no planned batch"):
        SinkState(place, None).plan()
    checkpoint(tmp_path)
    (place / "metadata").write_text("{}")
    with pytest.raises(ConfigError, match="expected Spark's file of a query's id"):
        SinkState(place, None).plan()


def test_another_producer_is_refused(tmp_path: Path) -> None:
    place = checkpoint(tmp_path)
    state = SinkState(place, "one")
    state.end(state.plan(), [])
    checkpoint(tmp_path, 1)
    assert SinkState(place, "one").plan().producer == "one-7f-1"
    with pytest.raises(ConfigError, match="was written as 'one-7f-1', and this is 'two-7f-1'"):
        SinkState(place, "two").plan()
    # A checkpoint of an earlier version goes on under its name.
    (place / DIRECTORY / "0").write_text('{"producer": "one", "next": {"a": {"0": 4}}}')
    assert SinkState(place, "one").plan()[1:3] == ("one", {"a": {0: 4}})


def test_a_new_checkpoint_has_numbers_of_its_own_under_the_same_producer(tmp_path: Path) -> None:
    """Under the same name its rows would be dropped for those of the checkpoint before."""
    name, names = "p" * PRODUCER_BYTES_MAX, set()
    for query in ("0f3cbf4e-7ad2-4d6a-9c0f-a6f7a2a1d0b1", "7e1f2b3c-1111-4222-8333-444455556666"):
        place = checkpoint(tmp_path)
        (place / "metadata").write_text(json.dumps({"id": query}))
        names.add(producer_name(SinkState(place, name).plan().producer, 9_999_999_999))
        shutil.rmtree(place)
    assert len(names) == 2 and max(len(one) for one in names) <= NAME_BYTES_MAX


def test_both_files_are_on_disk_before_they_have_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name without its content would be a torn checkpoint; a name that is lost, a batch that is sent twice. And what
    Spark has planned is there before: a batch that is planned anew would have other rows under the same numbers."""
    place, done = checkpoint(tmp_path), []
    replace = os.replace

    def sync(path: Path, count: int = 1) -> None:
        path.stat()
        done.append(f"sync {path.relative_to(tmp_path)}")

    for module in (sink_state, checkpoint_module):
        monkeypatch.setattr(module, "sync_file", sync)
    monkeypatch.setattr(os, "fsync", lambda file: sync(Path(f"/proc/self/fd/{file}").readlink()))
    monkeypatch.setattr(checkpoint_module, "sync_directories", sync)
    monkeypatch.setattr(os, "replace", lambda old, new, **_: (done.append(f"to {new.name}"), replace(old, new))[1])
    state = SinkState(place, None)
    plan = state.plan()
    state.begin(0)
    state.end(plan, [Sent(0, {"a": 3})])
    part = f"sync checkpoint/{DIRECTORY}/"
    after = [f"sync checkpoint/{DIRECTORY}", "sync checkpoint"]
    plan = [f"sync checkpoint/{name}" for name in ("metadata", "offsets/0", "offsets")]
    begun = [*plan, f"{part}.0.begun.", "to 0.begun", *after]
    named = [re.sub(r"\.[0-9a-f]{32}$", ".", step) for step in done]
    assert named == [*begun, f"{part}.0.", "to 0", *after]


def test_what_cannot_be_written_is_said_in_a_line(tmp_path: Path) -> None:
    place = checkpoint(tmp_path)
    (place / DIRECTORY).write_text("a file")
    with pytest.raises(StorageError, match=r"0\.begun cannot be written"):
        SinkState(place, None).begin(0)
    (place / "offsets" / "0").unlink()
    with pytest.raises(StorageError, match=r"cannot be synced to disk .*offsets/0"):
        SinkState(place, None).begin(0)


def test_the_file_is_json_of_few_bytes(tmp_path: Path) -> None:
    place = checkpoint(tmp_path)
    state = SinkState(place, None)
    state.end(state.plan(), [Sent(0, {"a": 3})])
    assert json.loads((place / DIRECTORY / "0").read_text()) == {"producer": "spark-7f-1", "next": {"a": {"0": 4}}}


# --------------------------------------------------------------------------------------------------- options


def test_options_of_the_sink(tmp_path: Path) -> None:
    options = parse_sink_options({**LEAST, "CheckpointLocation": str(tmp_path), "address": "a", "STALLSECONDS": "5"})
    assert (options.checkpoint, options.address, options.stall_s, options.retry_s) == (tmp_path, "a", 5.0, 60.0)
    options = parse_sink_options({**LEAST, "producer": "p" * PRODUCER_BYTES_MAX})
    assert (options.checkpoint, options.address, options.stall_s) == (None, None, None)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"adress": "x"}, "unknown option 'adress'; expected one of url, urlFile"),
        ({"Topic": "x"}, "option 'topic': give 'address', or a column of that name"),
        ({"urlFile": "/nowhere"}, "exactly one"),
        ({"producer": "p" * (PRODUCER_BYTES_MAX + 1)}, "for option 'producer'; expected at most 128 bytes"),
        ({"stallSeconds": "0"}, "invalid value '0' for option 'stallSeconds'"),
        ({"retrySeconds": "x"}, "invalid value 'x' for option 'retrySeconds'"),
        ({"checkpointLocation": "s3://x/y"}, "expected a directory that this machine can sync"),
    ],
)
def test_a_wrong_option_is_said_in_a_line(changed: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sink_options({**LEAST, **changed})
    assert said in str(caught.value) and "\n" not in str(caught.value)
