"""What holds of custody at its destination and where it begins, after every event (docs/adr/0020).

Rules of this file: reads, never changes; BrokenInvariant says what contradicts what.
"""

from holdfast.broker.entries import entry
from holdfast.custody.arrival.destination import Destination
from holdfast.custody.names.identity import Identities
from holdfast.engine.invariants import must
from holdfast.state.catalog import WAITING, Catalog
from holdfast.state.validation import Entries


def origins(entries: Entries, destination: Destination, catalog: Catalog) -> None:
    """What waits lies in `$waiting`, and nothing is both waited for and finished."""
    held = catalog.queues.get(WAITING)
    lies = None if held is None else entries.get(held.queue_id)
    waiting = 0
    for origin in catalog.ledger.all_origins():
        where = f"origin {origin.origin}"
        waiting += len(origin.waiting)
        low = next(iter(origin.finished), (origin.mark + 2, 0))[0]
        must(low > origin.mark + 1, f"{where}: finished at or below its mark", low, origin.mark)
        for number, item in origin.waiting.items():
            must(number > origin.mark, f"{where}: {number} waits below the mark", origin.mark)
            must(number not in origin.finished, f"{where}: {number} waits and is finished")
            must(lies is None or item.held_at in lies, f"{where}: {number} waits and lies nowhere", item.held_at)
    if lies is not None:
        must(len(lies) == waiting, "messages that wait, and entries of $waiting", waiting, len(lies))
    for origin in destination.blocked:
        must(bool(origin.waiting), f"origin {origin.origin} is blocked, and nothing of it waits")


def identities(entries: Entries, identities: Identities, catalog: Catalog) -> None:
    """No number that lies in a transmission queue is still to be given."""
    for destination, queue in catalog.transmissions():
        numbers = [
            entry.identity_of(value).number
            for value in entries.get(queue.queue_id, {}).values()
            if value[1] & entry.CUSTODY and entry.origin_of(value) == identities.store_uuid.bytes
        ]
        following = catalog.ledger.identities.get(destination, 1)
        must(max(numbers, default=0) < following, f"{destination}: numbers that are still to be given", following)
        must(catalog.queues.get(queue.name) is queue, f"transmission queue {queue.name!r} is gone")
