"""`holdfast status` as a person sees it: what is missing, lost or wrong stands there without --json."""

from typing import Any

import pytest

from holdfast.client.verbs.status_lines import ROWS_MAX, status_lines
from holdfast.lines import RED, Painted
from holdfast.management.status.queues import QUEUE_ATTRIBUTES

PLAIN: dict[str, Any] = {"node": "hub", "uptime_s": 5.0, "resident_bytes": 1_000_000, "queues": [], "origins": []}


OLDER = "this node's store is older than the marks that it has sent"


def test_status_tells_what_is_missing_and_lost() -> None:
    told = PLAIN | {
        "warnings": ["queue work: 2 messages wait for numbers 1 to 2"],
        "dead_letters": {"messages": 3, "bytes": 300, "dropped": 0},
        "origins": [
            {"origin": "u1", "name": "jfk", "mark": 0, "gaps": [[1, 2], [4, 4]], "waiting": 2, "late": 0},
            {"origin": "u2", "name": "ewr", "mark": 9, "gaps": [], "waiting": 0, "late": 0},
        ],
        "losses": [{"origin": "u3", "first": 1, "last": 4, "reason": OLDER}],
    }
    text = "\n".join(status_lines(told))
    assert "warning: queue work: 2 messages wait for numbers 1 to 2" in text
    assert "dead letters: 3" in text
    assert "1 to 2, 4" in text and "u1" in text and "u2" not in text
    assert "losses" in text and OLDER in text


QUEUE = dict.fromkeys(QUEUE_ATTRIBUTES, 0) | {
    "name": "flights", "uuid": "8798bb16-bfce-4b16-90c1-5b2039ae21bc", "messages": 1_234_567, "bytes": 12_345_678_901,
    "oldest_s": 86_400.5, "bytes_max": None, "messages_max": None, "subscriptions": [], "room": {},
    "when_full": "block",
}  # fmt: skip


def test_tables_are_narrow_and_have_first_what_matters_first() -> None:
    session = {
        "neighbour": "hub", "state": "Idle", "version": "0.1.0", "protocol": 1, "since_s": 12.5, "reason": "x" * 80,
        "last_end": None, "round_trip_s": 0.25, "hold_time_s": 9.0, "probe_s": 3.0, "attempts": 3, "established": 1,
        "lost": 1, "clock_offset_s": None, "damped": False, "disk_stalled": False, "probes": {}, "messages_in": 1,
        "messages_out": 2, "messages_shared": 0, "bytes_in": 10**9, "bytes_out": 10**9,
    }  # fmt: skip
    lines = status_lines(PLAIN | {"queues": [QUEUE, QUEUE | {"name": "x" * 30}], "sessions": [session]})
    assert max(map(len, lines)) <= 100
    heads = {lines[at]: lines[at + 1].split() for at in range(len(lines) - 1)}
    assert heads["queues"][:5] == ["name", "messages", "bytes", "oldest_s", "consumers"]
    assert "uuid" not in heads["queues"] and "messages_max" not in heads["queues"]
    assert heads["sessions"][:4] == ["neighbour", "state", "version", "since_s"]
    assert {"lost", "messages_out"} <= {*heads["sessions"]}
    (row,) = [line for line in lines if line.startswith("hub ")]
    assert isinstance(row, Painted) and row.colour == RED
    up = status_lines(PLAIN | {"sessions": [session | {"state": "Established"}]})
    assert not any(isinstance(line, Painted) for line in up)


def test_a_column_that_is_wide_alone_is_shown() -> None:
    lines = status_lines(PLAIN | {"queues": [QUEUE | {"name": "x" * 200}]})
    assert lines[-1] == "x" * 200 and lines[-2].strip() == "name"


def test_a_healthy_node_says_nothing_of_it() -> None:
    text = "\n".join(status_lines(PLAIN | {"warnings": [], "losses": [], "queues": [{"name": "q", "messages": 1}]}))
    assert "queues" in text
    assert not any(word in text for word in ("warning", "origins", "losses", "dead letters"))


def test_a_virtual_host_tells_nothing_of_the_node() -> None:
    assert status_lines(PLAIN)[0] == "node hub, up 5 s, 976.6 KiB resident"
    assert status_lines({"node": "hub", "vhost": "acme", "queues": []})[0] == "node hub, virtual host acme"


def test_what_was_lost_before_a_restart_is_told_in_all() -> None:
    letters = {"messages": 0, "bytes": 0, "dropped": 0, "dropped_bytes": 0}
    letters |= {"dropped_total": 7, "dropped_bytes_total": 2_048}
    lost = {"ranges": 3, "numbers": 12, "since": "2026-01-02T03:04:05.000Z"}
    text = "\n".join(status_lines(PLAIN | {"dead_letters": letters, "losses_total": lost}))
    assert "0 of the oldest were dropped since the node's start (0 B), 7 since the store was made (2.0 KiB)" in text
    assert "lost: 12 numbers in 3 ranges since 2026-01-02T03:04:05.000Z" in text


def test_failed_logins_are_told_with_who_and_where() -> None:
    row = {"address": "10.0.0.1", "user": "ann", "failed": 5, "since": "2026-01-02T03:04:05.000Z", "last": "2026-01-03"}
    told = {"logins": {"failed": 7, "delayed": 1, "refused": 2, "latest": [row, row | {"user": None, "failed": 2}]}}
    lines = status_lines(PLAIN | told)
    assert "failed logins: 7 since the node's start, 2 more refused unread" in lines
    at = lines.index("failed logins, the latest first")
    assert lines[at + 1].split() == ["address", "user", "failed", "since", "last"]
    assert lines[at + 2].split() == ["10.0.0.1", "ann", "5", "2026-01-02T03:04:05.000Z", "2026-01-03"]
    assert lines[at + 3].split()[:3] == ["10.0.0.1", "(unknown)", "2"]
    quiet = {"logins": {"failed": 0, "delayed": 0, "refused": 0, "latest": []}}
    assert "logins" not in "\n".join(status_lines(PLAIN | quiet))
    older = {"logins": {"failed": 3, "delayed": 0, "refused": 0}}
    assert "failed logins: 3 since the node's start" in status_lines(PLAIN | older)


def test_failures_and_a_former_store_are_told() -> None:
    told = {"failures": {"peers_ended": 2, "parts": 1}, "store": "u2", "former_store": "u1"}
    lines = status_lines(PLAIN | told)
    assert "failures: 2 connections ended, 1 part failed; see the log" in lines
    assert "store: new UUID since this start: u2, formerly u1" in lines
    told = {"failures": {"peers_ended": 0, "parts": 0}, "store": "u2", "former_store": None}
    text = "\n".join(status_lines(PLAIN | told))
    assert "failures" not in text and "store:" not in text


@pytest.mark.parametrize("state", ["full", "gone"])
def test_a_disk_without_room_is_told_once(state: str) -> None:
    """The node's own warning says it, with what to do."""
    told = {"warnings": ["the disk is full: WHY"], "disk": {"state": state, "reason": "WHY"}}
    assert "\n".join(status_lines(PLAIN | told)).count("WHY") == 1


def test_an_older_node_tells_less() -> None:
    assert status_lines({"node": "hub"})[0] == "node hub"


def test_the_header_has_the_store_as_origins_and_warnings_name_it() -> None:
    assert status_lines(PLAIN | {"store": "u1"})[0] == "node hub, up 5 s, 976.6 KiB resident, store u1"


def test_one_of_a_kind_is_no_plural() -> None:
    lost = {"ranges": 1, "numbers": 1, "since": "2026-01-02"}
    assert "lost: 1 number in 1 range since 2026-01-02; the latest are below, under losses" in status_lines(
        PLAIN | {"losses_total": lost}
    )


def test_many_are_cut_and_counted() -> None:
    losses = [{"origin": f"u{number}", "first": 1, "last": 1, "reason": "r"} for number in range(ROWS_MAX + 7)]
    lines = status_lines(PLAIN | {"losses": losses})
    assert "losses (7 more, see --json)" in lines
    assert f"u{ROWS_MAX + 6} " in lines[-1] and "u0 " not in lines[-1]
    many = [[number, number] for number in range(1, 10, 2)]
    lines = status_lines(PLAIN | {"origins": [{"origin": "u", "gaps": many, "waiting": 1}]})
    assert "1, 3, 5, and 2 more" in lines[-1]


def test_a_node_that_is_drained_says_so_first() -> None:
    drain = {"since": "2026-11-30T02:00:00.000Z", "messages": 1, "in_transmission": 3, "dead_letters": 0}
    lines = status_lines(PLAIN | {"drain": drain})
    assert lines[1] == "being drained since 2026-11-30T02:00:00.000Z: 1 message left, 3 for other nodes"
    assert not any("drained" in line for line in status_lines(PLAIN | {"drain": None}))


def test_a_remote_without_a_session_is_shown_in_red() -> None:
    told = {"remote": "mq", "state": "idle", "messages": 3, "reason": "Connection refused", "waiting": []}
    *_, heading, head, down, up = status_lines(PLAIN | {"remotes": [told, told | {"state": "up", "reason": ""}]})
    assert heading == "remotes" and head.split() == ["remote", "state", "messages", "reason"]
    assert isinstance(down, Painted) and down.colour == RED and not isinstance(up, Painted)
