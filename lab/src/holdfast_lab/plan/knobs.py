"""Bounds of the nodes' own work that a run may turn down, so that what takes megabytes in life takes kilobytes here.

Rules of this file: what a knob turns bounds a share of work and promises nothing: with any value that stands here a run
must end as well as with the nodes' own. A knob is turned where it is read, in all nodes of a run, and turned back. The
idea is FoundationDB's, "Simulation and Testing", whose runs draw their knobs too. Two kinds are no bounds: where serial
numbers begin (`FIRST_…`, the client's too), so that they wrap within a run, and CHECK_EVERY, how often the simulator
checks a node's invariants.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from holdfast.errors import ConfigError

KNOBS: Final[dict[str, tuple[int, ...]]] = {
    "amqp.links.partial:APART_BYTES": (1, 300),
    "amqp.session.transfers:PART_BYTES": (200, 3_000),
    "amqp.settings:FIRST_DELIVERY_COUNT": (2**32 - 1, 2**32 - 30, 2**31 - 10),
    "amqp.settings:FIRST_TRANSFER_ID": (2**32 - 2, 2**32 - 30, 2**32 - 200, 2**31 - 10),
    "broker.cursors.cursor:WATERMARK_AHEAD": (1, 8),
    "broker.cursors.cursor:PUMP_BYTES": (1, 2_000),
    "broker.cursors.cursor:READ_BYTES": (1, 2_000),
    "broker.cursors.cursor:READ_COUNT": (1, 7),
    "broker.cursors.cursor:RETIRES_MAX": (5, 50),
    "broker.cursors.runs:RUN_COUNT": (1, 3),
    "broker.cursors.exclusions:SCAN_MAX": (1, 8),
    "broker.head:FRONT_COUNT": (1, 4),
    "broker.queue:RECLAIM_COUNT": (2, 20),
    "broker.queue:RETIRES_MAX": (5, 50),
    "client.resume:FIRST_TAG": (2**32 - 2, 2**32 - 30, 2**32 - 80, 2**32 - 130),
    "peers.neighbours.trace_aliases:TRACES_MAX": (1, 3),
    "state.blobs:DROP_PIECES": (1, 2),
    "broker.purge:RECLAIM_COUNT": (1, 10),
    "broker.purge:RETIRES_MAX": (5, 50),
    "custody.dead_lettering:MOVED_COUNT": (1, 10),
    "custody.arrival.destination:LOOKS_MAX": (2, 20),
    "custody.arrival.destination:ORIGINS_A_TURN": (1, 2),
    "custody.arrival.destination:RELEASE_BYTES": (1, 2_000),
    "custody.arrival.destination:RELEASE_COUNT": (1, 5),
    "endpoints.browser:BROWSE_LIMIT": (1, 10),
    "endpoints.browser:READ_COUNT": (1, 7),
    "core.relief:ENDED_A_TURN": (1, 2),
    "custody.expiry:RETIRES_MAX": (5, 50),
    "peers.limits.guard:EFFORT_A_TURN": (100, 1_000),
    "custody.hop.sender:PUMP_BYTES": (1, 2_000),
    "custody.names.identity:RENEW_COUNT": (1, 10),
    "core.offering:PUMP_LIMIT": (1, 10),
    "endpoints.resumption.consumer:FIRST_TAG": (2**32 - 2, 2**32 - 30),
    "links.large_receives:RESERVED_SHARE": (1, 2),  # here, where another was: so no seed draws anything else
    "endpoints.resumption.consumer:RESUME_COUNT": (1, 5),
    "custody.returns:GIVEN_BACK_MAX": (1, 10),
    "links.large_sends:NEIGHBOUR_TURN_BYTES": (500, 3_000),
    "links.large_sends:PUMP_BYTES": (500, 6_000),
    "links.large_sends:STEP_BYTES": (500, 3_000),
    "links.large_sends:TURN_BYTES": (500, 3_000),
    "endpoints.settlements:EFFORT_A_TURN": (40, 400),
    "endpoints.settlements:SETTLED_BYTES_MAX": (1, 3_000),
    "links.large_receives:COMMIT_BYTES": (1, 5_000),
    "links.large_receives:PIECE_BYTES": (200, 3_000),
    "core.turn_end:RETIRE_COUNT": (1, 20),
    "peers.use:LINKS_WOKEN": (1, 2),
    "custody.arrival.path_check:TRACES_MAX": (1, 3),
    "holdfast_lab.sim.node:CHECK_EVERY": (7, 40),
    "holdfast_lab.sim.reads:BYTES_A_TURN": (1_000, 10_000),
    "engine.reads:LIGHT_BYTES": (64, 600),
    "broker.cursors.matches:HITS_MAX": (1, 3, 20),
    "broker.cursors.selections:READ_COUNT": (1, 7),
    "broker.cursors.selections:SCAN_BYTES": (1, 2_000),
    "broker.cursors.selections:WATERMARK_AHEAD": (1, 8),
    "federation.federation:CHECKED_ROWS": (1, 5),
    "federation.keeping:WRITES_ENOUGH": (1, 5),
    "federation.own:ROWS_MAX": (1, 3),
    "federation.serving:PARTS_KEPT": (1, 2),
    "federation.serving:PART_ROWS": (1, 2),
    "federation.serving:ROWS_MAX": (1, 3),
    "federation.sets:STEPS_MAX": (1, 4),
    "federation.taking:OPEN_MAX": (1, 3),
    "peering.binding_control:KEYS_MAX": (1, 3),
    "broker.cursors.looking:FOR_OTHERS_MAX": (1, 3, 20),
}
"""By module, below `holdfast` if not of the lab, and name: what a run may turn it to."""

BOUNDS: Final[dict[str, tuple[int, ...]]] = {
    "broker.cursors.exclusions:ASIDE_MAX": (1, 3),
    "broker.topic:LISTENER_MESSAGES_MAX": (4, 12),
    "broker.cursors.exclusions:GIVEN_BACK_BYTES": (2**18,),
    "broker.cursors.halting:GIVEN_BACK_MIN": (1, 8),
}
"""As KNOBS, of bounds that promise something: turned only where the run expects it, by the scenes that are about it."""


def place_of(knob: str) -> tuple[Any, str]:
    """The module that a knob is in, and its name there."""
    module, _, name = knob.partition(":")
    return import_module(module if module.startswith("holdfast_lab.") else f"holdfast.{module}"), name


@contextmanager
def turned(knobs: Mapping[str, int]) -> Iterator[None]:
    """Turns those knobs for the duration of the block. Raises ConfigError for an unknown one."""
    before: list[tuple[Any, str, int]] = []
    try:
        for knob, value in knobs.items():
            if knob not in KNOBS and knob not in BOUNDS:
                known = ", ".join((*KNOBS, *BOUNDS))
                raise ConfigError(f"invalid value {knob!r} for knobs; expected one of {known}")
            place, name = place_of(knob)
            before.append((place, name, getattr(place, name)))
            setattr(place, name, value)
        yield
    finally:
        for place, name, value in reversed(before):
            setattr(place, name, value)
