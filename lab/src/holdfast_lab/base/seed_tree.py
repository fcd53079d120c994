"""A named random stream for each use, all from one seed: an additional draw from one stream does not change another.

Rules of this file: names are the whole address of a stream; Python's own hash, which differs between processes, is
never used.
"""

from hashlib import blake2b
from random import Random


class SeedTree:
    """A place in the tree. `stream("loss")` twice gives two streams that begin alike: keep the one you were given."""

    __slots__ = ("_path", "seed")

    def __init__(self, seed: int, path: str = "") -> None:
        self.seed = seed
        self._path = path

    def child(self, name: str) -> "SeedTree":
        """The tree below `name`."""
        return SeedTree(self.seed, f"{self._path}/{name}")

    def stream(self, name: str) -> Random:
        """The random stream called `name` here."""
        text = f"{self.seed}:{self._path}/{name}".encode()
        return Random(int.from_bytes(blake2b(text, digest_size=16).digest(), "big"))
