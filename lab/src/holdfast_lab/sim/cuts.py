"""Cuts writes on simulated links at any byte, or between frames."""

from collections.abc import Callable
from typing import Final

END_OF_STREAM: Final = b"FIN!" * 10
"""A segment that stands for the end of the stream; 40 bytes, as a FIN's packet has. Known by its identity."""


def cut_anywhere(data: bytes, next_size: Callable[[], int]) -> list[bytes]:
    """The data in pieces of the sizes that `next_size` gives, cut at any byte."""
    pieces: list[bytes] = []
    at, left = 0, next_size()
    while len(data) - at >= left:
        pieces.append(data[at : at + left])
        at += left
        left = next_size()
    if at < len(data):
        pieces.append(data[at:])
    return pieces


def cut_at_frames(data: bytes, most: int) -> list[bytes]:
    """The data as segments of about `most` bytes, cut between AMQP frames (AMQP 1.0 §2.3.1): whole frames are
    gathered until one reaches `most`."""
    segments: list[bytes] = []
    start = at = 0
    while at < len(data):
        if at - start >= most:
            segments.append(data[start:at])
            start = at
        at += frame_bytes(data, at)
    segments.append(data[start:])
    return segments


def frame_bytes(data: bytes, at: int) -> int:
    """The length of the frame, or of the protocol header, that begins there."""
    return 8 if data[at : at + 4] == b"AMQP" else max(8, int.from_bytes(data[at : at + 4], "big"))
