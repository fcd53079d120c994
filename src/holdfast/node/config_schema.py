"""The tables and keys that a node's file may have, and of what kind each is (docs/configuration.md).

Rules of this file: no values are made here, and no limits: those are of the settings that a table becomes.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from holdfast.node import access
from holdfast.schema import COUNT, FLAG, NUMBER, SECONDS, TEXT, TEXTS, Keys, Kind, found, is_number, is_whole
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QUEUE_KEYS


def _is_weight(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and is_number(value[0]) and is_whole(value[1])


_SHARES: Final = Kind(
    "a table of numbers by node, as { jfk = 2, ewr = 1 }",
    lambda value: isinstance(value, dict) and all(map(is_number, value.values())),
)
_HOST_SHARES: Final = Kind(
    'a table of numbers by virtual host, as { "" = 2, acme = 1 }',
    lambda value: isinstance(value, dict) and all(map(is_number, value.values())),
)
_WEIGHTS: Final = Kind(
    "a list of pairs of utilisation and weight, as [[0.1, 1], [0.5, 5]]",
    lambda value: isinstance(value, list) and all(map(_is_weight, value)),
)
TABLES: Final[Mapping[str, Keys]] = {
    "node": {
        "name": TEXT,
        "data": TEXT,
        "listen": TEXTS,
        "roles": TEXTS,
        "hostnames": TEXTS,
        "users_file": TEXT,
        "plain_without_tls": FLAG,
        "create_queues": FLAG,
        "unknown_destination": TEXT,
    },
    "store": {"bytes_max": COUNT, "must_exist": FLAG},
    "tls": {
        "certificate_file": TEXT,
        "key_file": TEXT,
        "ca_file": TEXT,
        "crl_file": TEXT,
        "client_certificates": TEXT,
        "version_min": TEXT,
    },
    "dead_letters": {"messages_max": COUNT, "bytes_max": COUNT, "keep_s": SECONDS},
    "topology": {"file": TEXT},
    "admin": {"listen": TEXT},
    "audit": {"file": TEXT},
    "log": {"level": TEXT, "format": TEXT, "file": TEXT},
    "telemetry": {"file": TEXT, "messages": FLAG, "interval_s": SECONDS},
    "routing": {
        "heartbeat_s": SECONDS,
        "registration_s": NUMBER,
        "cost": TEXT,
        "records_max": COUNT,
        "neighbours_max": COUNT,
        "refresh_s": SECONDS,
        "forget_s": SECONDS,
    },
    "pacing": {
        "rate": COUNT,
        "period_s": SECONDS,
        "policy": TEXT,
        "lend": NUMBER,
        "shares": _SHARES,
        "hosts": TEXTS,
        "host_shares": _HOST_SHARES,
        "roots": TEXTS,
        "capacity_bytes": COUNT,
        "weights": _WEIGHTS,
        "when_full": TEXT,
        "room_low": NUMBER,
        "room_normal": NUMBER,
        "room_quiet_s": SECONDS,
    },
    "limits": {field.name: SECONDS if field.type is float else COUNT for field in fields(Limits)},
}
FETCH_KEYS: Final = ("from", "to")
_ADDRESSES: Final = Kind(
    'a table of addresses, as { flights = "/queue/flights" }',
    lambda value: isinstance(value, dict) and all(isinstance(item, str) for item in value.values()),
)


def _fault_in_fetch(value: Any) -> str:
    """The first of the tables that lacks a key, or has one too many."""
    for place, item in enumerate(value if isinstance(value, list) else (), 1):
        if not isinstance(item, dict):
            continue
        which = "the first" if place == 1 else f"number {place}"
        if missing := [key for key in FETCH_KEYS if key not in item]:
            return f"{which} has no {' and no '.join(missing)}"
        if others := [key for key in item if key not in FETCH_KEYS]:
            return f"{which} has {found(others[0])}"
    return ""


_FETCH: Final = Kind(
    'a list of tables as { from = "their.queue", to = "topic/flights" }',
    lambda value: (
        isinstance(value, list)
        and all(isinstance(item, dict) and item.keys() == set(FETCH_KEYS) for item in value)
        and all(isinstance(text, str) for item in value for text in item.values())
    ),
    fault_in=_fault_in_fetch,
)
_STEPS: Final = Kind(
    "a list of tables",
    lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
)
LISTS: Final[Mapping[str, Keys]] = {
    **access.LISTS,
    "neighbour": {
        "name": TEXT,
        "remote": TEXT,
        "local": TEXT,
        "source": TEXT,  # what `local` was called
        "keepalive_s": SECONDS,
        "hold_time_s": SECONDS,
        "probe_s": SECONDS,
        "hosts": TEXTS,
        "server_name": TEXT,
        "user": TEXT,
        "password_file": TEXT,
    },
    "remote": {
        "name": TEXT,
        "remote": TEXT,
        "local": TEXT,
        "server_name": TEXT,
        "hostname": TEXT,
        "user": TEXT,
        "password_file": TEXT,
        "addresses": _ADDRESSES,
        "fetch": _FETCH,
        "bytes_max": COUNT,
        "messages_max": COUNT,
        "when_full": TEXT,
        "deliveries_max": COUNT,
    },
    "queue": {
        "name": TEXT,
        **QUEUE_KEYS,
        "vhost": TEXT,
    },
    "subscription": {
        "name": TEXT,
        "topic": TEXT,
        "messages_max": COUNT,
        "bytes_max": COUNT,
        "when_full": TEXT,
        "idle_s": COUNT,
        "vhost": TEXT,
    },
    "user": {
        "name": TEXT,
        "password_file": TEXT,
        "certificate": TEXT,
        "connections_max": COUNT,
        "links_max": COUNT,
        "unsettled_bytes_max": COUNT,
        "requests_per_s": COUNT,
        "vhost": TEXT,
    },
    "link": {
        "name": TEXT,
        "from": TEXT,
        "to": TEXT,
        "selector": TEXT,
        "mode": TEXT,
        "steps": _STEPS,
        "start": Kind("first, next or a sequence", lambda value: isinstance(value, str) or is_whole(value)),
        "vhost": TEXT,
    },
    "route": {"destination": TEXT, "via": TEXT},
    "federation": {"topic": TEXT, "neighbour": TEXT, "mode": TEXT, "patterns": TEXTS, "direction": TEXT},
    "vhost": {"name": TEXT, "aliases": TEXTS, "connections_max": COUNT, "queues_max": COUNT},
    "trigger": {
        "name": TEXT,
        "queue": TEXT,
        "command": TEXTS,
        "messages": COUNT,
        "age_s": SECONDS,
        "rest_s": SECONDS,
        "timeout_s": SECONDS,
        "vhost": TEXT,
    },
}
NAMED_BY: Final[Mapping[str, str]] = {"route": "destination", "federation": "topic"}
"""The key that identifies an entry of a list; `name` in all lists but these."""
