"""Messages of one transaction for one other node, which are shown there together (docs/adr/0073).

Rules of this file: pure. Their numbers are consecutive, because one turn assigns them; each message carries its place
among them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from holdfast.broker.entries import entry
from holdfast.custody.arrival.group_bounds import GROUP_BYTES_MAX
from holdfast.endpoints.spreading import Branch
from holdfast.endpoints.transactions.work import Post


def is_appended(post: Post) -> bool:
    """Whether the message is stored with the commit; a named producer's may have been stored by another link
    meanwhile."""
    message = post.message
    return message.producer is None or message.number not in message.producer.stored


class Together:
    """The groups of one transaction, one for each node. `apart`: those that exceed a bound, in words."""

    def __init__(self, posts: Iterable[Post], messages_max: int, spread: Mapping[Post, Iterable[Branch]]) -> None:
        """`spread`: where else messages to topics go."""
        self._counts: Counter[str] = Counter()
        self._places: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for post in posts:
            if not is_appended(post):
                continue
            nodes = [branch.destination for branch in spread.get(post, ()) if branch.queue.in_transit]
            for node in nodes if post.message.destination is None else [post.message.destination]:
                self._counts[node] += 1
                sizes[node] += len(post.message.value)
        self.apart: list[str] = []
        for node, count in list(self._counts.items()):
            if count > messages_max:
                self.apart.append(f"{count} messages for {node!r}; group_messages_max is {messages_max}")
            elif sizes[node] > GROUP_BYTES_MAX:
                self.apart.append(f"{sizes[node]} bytes for {node!r}; the limit is {GROUP_BYTES_MAX}")
            elif count > 1:
                continue
            del self._counts[node]

    def next(self, node: str) -> entry.Group | None:
        """The place of the next message for that node; None if it is shown by itself."""
        count = self._counts[node]
        if not count:
            return None
        self._places[node] += 1
        return entry.Group(self._places[node] - 1, count)
