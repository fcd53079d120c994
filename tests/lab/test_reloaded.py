"""What a node knows is compared with what its disk would give it at a start (holdfast_lab/judge/reloaded.py)."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast_lab.base.client_history import Violation
from holdfast_lab.judge.reloaded import check_reloaded, is_stored
from support.queue_links import copy, linked, move
from support.standing import (
    Standing,
    apart,
    committing,
    delaying,
    limiting,
    linking,
    publishing,
    rejecting,
    selecting,
    sending,
    serving,
    streaming,
    waiting,
)

STANDING = (
    apart, delaying, limiting, linking, publishing, rejecting, selecting, sending, serving, streaming, waiting,
)  # fmt: skip


@pytest.mark.parametrize("make", STANDING)
def test_a_node_whose_turns_are_stored_would_know_the_same_after_a_start(make: Callable[[], Standing]) -> None:
    core = make().core
    if is_stored(core):
        check_reloaded(core)


def test_most_of_them_are_stored() -> None:
    assert sum(is_stored(make().core) for make in STANDING) >= 8


def test_a_node_with_something_to_store_is_not_asked() -> None:
    assert not is_stored(committing().core)


def subscription(s: Any) -> Any:
    return s.work.named["copies"]


def _one_place_more(s: Any) -> None:
    next(blob for blob in s.core.blobs.by_number.values() if blob.places).places[1, 999] = None


FORGOTTEN: dict[str, tuple[Callable[[], Standing], Callable[[Any], object]]] = {
    "messages": (serving, lambda s: setattr(s.plain, "messages", s.plain.messages + 1)),
    "bytes": (serving, lambda s: setattr(s.plain, "bytes_held", 1)),
    "sequences from": (serving, lambda s: setattr(s.plain, "next_sequence", 1)),
    "time to live": (serving, lambda s: setattr(s.plain, "timed", (1, 2))),
    "subscriptions": (serving, lambda s: s.work.named.pop("copies")),
    "finished": (serving, lambda s: subscription(s).finished.add(5)),
    "mode": (serving, lambda s: setattr(subscription(s), "lease_epoch", 77)),
    "watermark": (serving, lambda s: setattr(s.plain.shared, "watermark_stored", 100)),
    "numbers of producer": (serving, lambda s: next(iter(s.core.catalog.producers.values())).stored.add(9)),
    "identities": (apart, lambda s: s.core.catalog.ledger.identities.update(hub=99)),
    "origin": (waiting, lambda s: setattr(s.origin, "passed", 99)),
    "hop": (waiting, lambda s: s.core.receiver_parts.hop_stored.update({b"a\0b": (bytes(16), 3)})),
    "queues that leave": (serving, lambda s: s.core.catalog.leaving.update({99: 0})),
    "services": (serving, lambda s: s.core.services.registered.update(orders="work")),
    "what they want": (publishing, lambda s: s.topic.bindings.popitem()),
    "entries of blob": (streaming, _one_place_more),
}


@pytest.mark.parametrize("what", FORGOTTEN)
def test_what_is_not_stored_is_found(what: str) -> None:
    make, forget = FORGOTTEN[what]
    found = make()
    forget(found)
    with pytest.raises(Violation, match=what):
        check_reloaded(found.core)


def test_a_link_that_is_stored_otherwise_is_found() -> None:
    rig, node, _ = linked(copy("work", "next"), move("other", "next"))
    rig.run(1)
    core = node.core
    assert core is not None and is_stored(core)
    check_reloaded(core)
    link = core.queue_links.by_name["work-next"]
    link.is_stopped = True
    with pytest.raises(Violation, match="is stopped"):
        check_reloaded(core)
    link.is_stopped = False
    del core.queue_links.by_name["other-next"]
    with pytest.raises(Violation, match="links that are gone"):
        check_reloaded(core)
