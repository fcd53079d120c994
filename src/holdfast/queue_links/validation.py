"""Invariants of links between queues (docs/adr/0020).

Rules of this file: reads, never changes; BrokenInvariant says what contradicts what.
"""

from holdfast.broker.cursors.shown import LINK_PREFIX
from holdfast.broker.entries.host_names import hosted
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.delivery_limits import DeliveryLimits
from holdfast.endpoints.transactions.transactions import Transactions
from holdfast.engine.invariants import must
from holdfast.queue_links.link import TAKEN_COUNT
from holdfast.queue_links.links import QueueLinks
from holdfast.state.catalog import Catalog
from holdfast.steps.windows import KEYS_MAX


def links(held: QueueLinks, catalog: Catalog, *, stopping: bool) -> None:
    """The entries that a link holds are in its batch, each copying link has its cursor, and windows have a deadline."""
    strange_windows = [link.name for link in held.windowed if held.by_name.get(link.config.key) is not link]
    must(not strange_windows, "windows of links that are gone are looked after", strange_windows)
    awaiting = held.handing.remote_room.links
    strange_waits = [link.name for link in awaiting if held.by_name.get(link.config.key) is not link]
    must(not strange_waits, "links that are gone wait for room in another node's queue", strange_waits)
    for name, link in held.by_name.items():
        where = f"link {name!r}"
        cursor = link.cursor
        must(link.config.key == name, "a link between queues stands under another name", name, link.config.key)
        here = cursor.queue.host == link.config.vhost and (link.target is None or link.target.host == cursor.queue.host)
        must(here, f"{where} leads out of its virtual host")
        must(catalog.has_cursor(cursor), f"{where}: its source is gone")
        must(link in cursor.consumers or stopping, f"{where} is no consumer of its source")
        is_own = cursor.name == (f"{LINK_PREFIX}{link.name}" if link.config.mode == "copy" else "")
        must(is_own, f"{where} reads another's cursor", cursor.name)
        must(not (link.ended and link.is_idle), f"{where} was deleted, and stays")
        must(len(link.taken) <= TAKEN_COUNT, f"{where} takes too much in a turn", len(link.taken))
        must(not link.taken or link in held.pending, f"{where} has taken what nobody hands over")
        known = {sequence for sequence, _ in link.taken}
        known.update(() if link.moving is None else link.moving.left)
        mine = {sequence for sequence, item in cursor.acquired.items() if item.consumer is link}
        must(mine <= known, f"{where} holds what is in no batch of its", sorted(mine - known)[:20])
        within = all(len(rows) <= KEYS_MAX for rows in link.windows.rows.values())
        must(within, f"{where} has too many windows in a step")
        must((link in held.windowed) == bool(link.windows.ids), f"{where}: nobody looks whether its windows are over")
        led = link.target is None or link in held.by_target.get(link.target, ())
        must(led, f"{where} does not hear of room in its target")
    for queue in catalog.queues.values():
        strange = [
            name
            for name in queue.named
            if name.startswith(LINK_PREFIX) and hosted(queue.host, name[len(LINK_PREFIX) :]) not in held.by_name
        ]
        must(not strange, f"queue {queue.name!r} keeps messages for links that are gone", strange)
    for target, waiting in held.by_target.items():
        gone = [link.name for link in waiting if held.by_name.get(link.config.key) is not link]
        must(not gone, f"links that are gone wait for room in queue {target.name!r}", gone)


def tied(
    held: QueueLinks,
    transactions: Transactions,
    limits: DeliveryLimits,
    dead_lettering: DeadLettering,
    catalog: Catalog,
) -> None:
    """An entry that is tied to a batch belongs to a transaction or a link, or is becoming a dead letter."""
    for cursor, sequences in catalog.rows.tied.items():
        known = {sequence for item in transactions.deciding for at, sequence in item.takes if at is cursor}
        known.update(limits.moving.of(cursor), dead_lettering.moving.of(cursor))
        for link in held.by_name.values():
            if link.cursor is cursor and link.moving is not None:
                known.update(link.moving.left)
        must(known >= sequences.keys(), f"cursor {cursor.name!r} of queue {cursor.queue.name!r} is tied to nothing")
