"""What a node measures, in the form that Prometheus reads (docs/operations.md has the table of names).

Rules of this file: it only translates. Names and labels are a contract with dashboards and alert rules; units are
seconds and bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from holdfast import __version__
from holdfast.node.admin.commits import BOUNDS_S, CommitTimes

TURN_FIRST_S: Final = 0.0001
"""The upper end of the first bucket of turns; each further one is twice as wide (management/status/turn_times.py)."""

QUEUE: Final = ("queue", "vhost")
_OF_QUEUE: Final = (
    ("messages", "messages", "Messages in the queue"),
    ("bytes", "bytes", "Bytes of its messages"),
    ("oldest_seconds", "oldest_s", "Age of its oldest message"),
    ("consumers", "consumers", "Consumers of the queue"),
    ("unsettled", "unsettled", "Messages that consumers hold"),
    ("messages_max", "messages_max", "Its limit of messages"),
    ("bytes_max", "bytes_max", "Its limit of bytes"),
)
_TOTALS_OF_QUEUE: Final = (
    ("in", "in_total", "Messages that came into the queue"),
    ("out", "out_total", "Messages that left it"),
    ("dropped", "dropped_total", "Messages that it dropped because it was full"),
    ("refused", "refused_total", "Messages that it refused because it was full"),
)
_OF_DESTINATION: Final = (
    ("messages", "messages", "Messages that wait for that node"),
    ("bytes", "bytes", "Their bytes"),
    ("oldest_seconds", "oldest_s", "Age of the oldest of them"),
    ("consumers", "consumers", "Neighbours to which they may go now"),
    ("unsettled", "unsettled", "Those that were sent and have no answer"),
    ("messages_max", "messages_max", "Its limit of messages"),
    ("bytes_max", "bytes_max", "Its limit of bytes"),
)
_TOTALS_OF_DESTINATION: Final = (
    ("in", "in_total", "Messages that were taken for it"),
    ("out", "out_total", "Messages that the next node has stored, or that ended here"),
    ("dropped", "dropped_total", "Messages that it dropped because it was full"),
    ("refused", "refused_total", "Messages that it refused because it was full"),
)
_OF_SESSION: Final = (
    ("lost", "lost", "How often the session was lost"),
    ("messages_in", "messages_in", "Messages from the neighbour"),
    ("messages_out", "messages_out", "Messages that the neighbour has stored"),
    ("messages_shared", "messages_shared", "Messages sent without their bodies, which the neighbour had"),
)
_OF_REMOTE: Final = (
    ("lost", "lost", "How often the connection was lost"),
    ("messages_in", "messages_in", "Messages that were fetched from it"),
    ("messages_out", "messages_out", "Messages that it accepted"),
)


class _Once:
    """A collector of what is given."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = list(found)

    def collect(self) -> Iterable[Metric]:
        return self._found


def rendered(fields: Mapping[str, Any], commits: CommitTimes) -> bytes:
    """The page. `fields`: the core's measurements (management/status/measured.py)."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(_all(fields, commits)))
    return generate_latest(registry)


def _all(told: Mapping[str, Any], commits: CommitTimes) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "holdfast_info", "The node, its version and its store", labels=("node", "version", "store")
    )
    info.add_metric((str(told["node"]), __version__, str(told["store"])), 1)
    yield info
    yield from _of_process(told)
    yield from _of_disk(told, commits)
    yield from _of_clients(told)
    queues = told["queues"]
    yield from _of_queues("holdfast_queue", [row for row in queues if not row["name"].startswith("@")], QUEUE)
    yield from _of_queues("holdfast_custody", [row for row in queues if row["name"].startswith("@")], ("destination",))
    yield _gauge("holdfast_queues", "Queues of the node", told["queues_total"])
    yield _gauge("holdfast_queues_left_out", "Queues that have no metrics of their own", told["queues_left_out"])
    yield _gauge("holdfast_messages", "Messages in all queues", told["messages_total"])
    yield from _of_sessions(told["sessions"])
    yield from _of_remotes(told.get("remotes", ()))
    letters = told["dead_letters"]
    yield _gauge("holdfast_dead_letters_messages", "Dead letters", letters["messages"])
    yield _gauge("holdfast_dead_letters_bytes", "Their bytes", letters["bytes"])
    yield _counter("holdfast_dead_letters_dropped", "Dead letters deleted at a limit", letters["dropped_total"])
    yield _counter("holdfast_lost_numbers", "Messages given up as lost", told["losses_total"]["numbers"])
    yield _gauge("holdfast_warnings", "Conditions that a person can act on", len(told["warnings"]))
    failures = told["failures"]
    yield _counter("holdfast_failures", "Failures that were contained", failures["peers_ended"] + failures["parts"])
    yield _counter("holdfast_log_lines_left_out", "Lines beyond log_lines_per_minute", told["log_lines_left_out"])


def _of_process(told: Mapping[str, Any]) -> Iterator[Metric]:
    yield _gauge("holdfast_uptime_seconds", "Since the node started", told["uptime_s"])
    yield _gauge("holdfast_resident_bytes", "Memory of the process", told["resident_bytes"])
    memory, descriptors, turns = told["memory"], told["descriptors"], told["turns"]
    yield _gauge("holdfast_memory_bytes", "Memory that is held for peers", memory["bytes"])
    yield _gauge("holdfast_memory_bytes_max", "Its limit", memory["bytes_max"])
    yield _counter("holdfast_memory_refused", "Requests and links refused for want of memory", memory["refused"])
    if descriptors["left"] is not None:
        yield _gauge("holdfast_descriptors_left", "File descriptors that are free", descriptors["left"])
    counts = list(turns["histogram"].values())
    bounds = [TURN_FIRST_S * 2**place for place in range(len(counts) - 1)]
    yield _histogram("holdfast_turn_seconds", "Processor time of a turn", bounds, counts, turns["cpu_s"])


def _of_disk(told: Mapping[str, Any], commits: CommitTimes) -> Iterator[Metric]:
    disk = told["disk"]
    yield _gauge("holdfast_disk_ok", "1 while the store takes messages", float(disk["state"] == "ok"))
    yield _counter("holdfast_disk_stalls", "How often a commit had no answer in time", disk["stalls"])
    yield _gauge("holdfast_store_file_bytes", "Size of the store's file", disk["file_bytes"])
    yield _gauge("holdfast_store_bytes_max", "What it may grow to", disk["bytes_max"])
    yield _gauge("holdfast_store_free_bytes", "What its file system has left", disk["free_bytes"])
    yield _gauge("holdfast_store_room_bytes", "What may be stored before producers wait", told["room_bytes"])
    yield _histogram(
        "holdfast_commit_seconds", "From a commit to its answer", BOUNDS_S, commits.counts, commits.seconds
    )


def _of_clients(told: Mapping[str, Any]) -> Iterator[Metric]:
    yield _gauge("holdfast_drained", "1 while the node is drained: it takes no new messages", told["drain"] is not None)
    yield _gauge("holdfast_connections", "Open connections", told["connections"])
    users, logins = told["users_total"], told["logins"]
    for name, key, text in (
        ("refused", "refused", "Connections and links refused at a limit of their user"),
        ("requests", "requests", "Requests to $management"),
        ("requests_delayed", "requests_delayed", "Requests that waited for their user's rate"),
    ):
        yield _counter(f"holdfast_{name}", text, users[key])
    yield _counter("holdfast_logins_failed", "Logins with a wrong password or name", logins["failed"])
    yield _counter("holdfast_logins_delayed", "Logins that had to wait", logins["delayed"])
    yield _counter("holdfast_logins_refused", "Logins that were not checked", logins["refused"])


def _of_queues(prefix: str, rows: Sequence[Mapping[str, Any]], labels: tuple[str, ...]) -> Iterator[Metric]:
    now, totals = (_OF_QUEUE, _TOTALS_OF_QUEUE) if labels == QUEUE else (_OF_DESTINATION, _TOTALS_OF_DESTINATION)
    for made, names in ((GaugeMetricFamily, now), (CounterMetricFamily, totals)):
        for name, key, text in names:
            family = made(f"{prefix}_{name}", text, labels=labels)
            for row in rows:
                if row[key] is not None:
                    named = (row["name"], row["vhost"]) if labels == QUEUE else (row["name"][1:],)
                    family.add_metric(named, float(row[key]))
            yield family


def _of_sessions(rows: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    up = GaugeMetricFamily("holdfast_session_up", "1 while the session is Established", labels=("neighbour",))
    since = GaugeMetricFamily("holdfast_session_since_seconds", "Since its state changed", labels=("neighbour",))
    trip = GaugeMetricFamily("holdfast_session_round_trip_seconds", "Measured on the link", labels=("neighbour",))
    for row in rows:
        label = (row["neighbour"],)
        up.add_metric(label, float(row["state"] == "Established"))
        since.add_metric(label, float(row["since_s"]))
        if row["round_trip_s"] is not None:
            trip.add_metric(label, float(row["round_trip_s"]))
    yield from (up, since, trip, *_totals("holdfast_session", _OF_SESSION, "neighbour", rows))


def _of_remotes(rows: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    up = GaugeMetricFamily("holdfast_remote_up", "1 while the node is connected to it", labels=("remote",))
    since = GaugeMetricFamily("holdfast_remote_since_seconds", "Since its state changed", labels=("remote",))
    waiting = GaugeMetricFamily("holdfast_remote_messages", "Messages that wait for it", labels=("remote",))
    for row in rows:
        label = (row["remote"],)
        up.add_metric(label, float(row["state"] == "up"))
        since.add_metric(label, float(row["since_s"]))
        waiting.add_metric(label, float(row["messages"]))
    yield from (up, since, waiting, *_totals("holdfast_remote", _OF_REMOTE, "remote", rows))


def _totals(
    prefix: str, names: Sequence[tuple[str, str, str]], label: str, rows: Sequence[Mapping[str, Any]]
) -> Iterator[Metric]:
    """A counter for each of the names, with the value of each row, which `label` tells apart."""
    for name, key, text in names:
        family = CounterMetricFamily(f"{prefix}_{name}", text, labels=(label,))
        for row in rows:
            family.add_metric((row[label],), float(row[key]))
        yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=float(value))


def _histogram(name: str, text: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> Metric:
    """`counts`: of each bucket, and behind the last bound."""
    ends = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    return HistogramMetricFamily(
        name, text, buckets=list(zip(ends, map(float, accumulate(counts)), strict=True)), sum_value=float(total)
    )
