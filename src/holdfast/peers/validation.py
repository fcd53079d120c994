"""Invariants of connections, users and the accounts of memory (docs/adr/0020).

Rules of this file: reads, never changes; BrokenInvariant says what contradicts what.
"""

from collections import Counter

from holdfast.engine.invariants import must
from holdfast.peers.connections import Connections
from holdfast.peers.limits.guard import Guard
from holdfast.peers.limits.memory import Memory
from holdfast.peers.limits.refusals import Refusals
from holdfast.peers.peer import Peer
from holdfast.peers.users import Users


def alive(connections: Connections, peer: Peer, whose: str) -> None:
    """The connection of `whose` is open."""
    must(connections.holds(peer), f"{whose} connection is gone", peer.number)


def engines(connections: Connections) -> None:
    """Each connection has its number as its key, and its sessions belong to it."""
    for number, peer in connections.items():
        must(peer.number == number, "a connection stands under another number", number, peer.number)
        for session in peer.amqp.sessions:
            must(session.connection is peer.amqp, f"connection {number} has another's session")


def memory(accounts: Memory, connections: Connections) -> None:
    """Each account is what its holders have, and the account of all memory is the sum of the others."""
    for account, size in accounts.counted().items():
        must(account.held == size, f"account {account.name}: bytes, and those of its holders", account.held, size)
    asked = sum(peer.request_bytes + peer.reply_bytes for peer in connections.values())
    must(accounts.requests.held >= asked, "bytes of requests and answers", accounts.requests.held, asked)
    total = sum(account.held for account in accounts.accounts)
    must(accounts.total.held == total, "the account of all memory, and its parts", accounts.total.held, total)


def guard(guard: Guard, refusals: Refusals, connections: Connections) -> None:
    """Connections are counted by address, and no table of the guard has a closed one."""
    counted = (peer for peer in connections.values() if not peer.dialled and peer not in refusals.due)
    hosts = Counter(peer.address.rpartition(":")[0] for peer in counted)
    must(guard.by_address == dict(hosts), "connections by address", guard.by_address, dict(hosts))
    for peer in (*guard.half_open, *guard.waiting, *refusals.due):
        alive(connections, peer, "guard: a")


def users(users: Users, connections: Connections) -> None:
    """The counts of each user match its connections and consumers, including suspended ones, and its consumers wait
    for nothing that will not come."""
    unsettled = users.unsettled()
    for use in users.all():
        mine = [peer for peer in connections.values() if peer.use is use]
        must(use.connections == len(mine), f"{use.name}: connections", use.connections, len(mine))
        total = sum(peer.counted_links for peer in mine)
        must(use.links == total, f"{use.name}: links", use.links, total)
        held = unsettled[use]
        must(use.unsettled_bytes == held, f"{use.name}: unsettled bytes", use.unsettled_bytes, held)
        waiting = use.waiting_consumers
        woken = use.is_full or use in users.waking or not waiting
        must(woken, f"{use.name}: its consumers wait, though there is room", len(waiting))
        blocked = len(use.blocked_consumers)
        must(
            use.round_length <= blocked,
            f"{use.name}: consumers of the round, and those that wait",
            use.round_length,
            blocked,
        )
