"""To which peers a failure belongs: found in its traceback, from the objects that the running functions were called on,
or with.

Source: docs/adr/0019-containment.md.
"""

from types import CodeType, FrameType
from typing import Final

from holdfast.amqp.connection import Connection, Link, Session
from holdfast.broker.queue import Queue
from holdfast.links.ingress import Ingress
from holdfast.links.outgoing import Egress
from holdfast.peers.connections import Connections
from holdfast.peers.peer import Peer

OURS: Final = "holdfast."


def peer_of(connections: Connections, owner: object) -> Peer | None:
    """The peer of a link, a session, an engine and so on; None if the object belongs to none, or to all."""
    for _ in range(4):
        if isinstance(owner, Peer):
            return owner if hasattr(owner, "egress") else None  # otherwise the failure came while it was created
        if isinstance(owner, Queue):  # others use it too, whoever created it
            return None
        if isinstance(owner, Connection):
            return next((peer for peer in connections.values() if peer.amqp is owner), None)
        following = None
        for name in ("peer", "connection", "session", "sender", "link", "bringer"):
            following = getattr(owner, name, None)
            if isinstance(following, (Peer, Connection, Session, Link, Ingress, Egress)):
                break
        else:
            return None
        owner = following
    return None


def peers_in(connections: Connections, frame: FrameType) -> list[Peer]:
    """The peers that the function was called on, or with."""
    code: CodeType = frame.f_code
    names = [*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], *code.co_freevars]
    values = frame.f_locals
    return [peer for name in names if name in values and (peer := peer_of(connections, values[name])) is not None]


def links_in(frames: list[FrameType]) -> list[Ingress | Egress]:
    """The links that the functions were called on, or with, except those that were still being created: one that was
    being removed is in no table."""
    found: dict[Ingress | Egress, None] = {}
    unmade: dict[Ingress | Egress, None] = {}
    for frame in frames:
        for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]:
            value = frame.f_locals.get(name)
            if isinstance(value, (Ingress, Egress)):
                (unmade if frame.f_code.co_name == "__init__" and name == "self" else found)[value] = None
    return [link for link in found if link not in unmade]


def frames_of(error: BaseException) -> list[FrameType]:
    """Our own functions that were running, the outermost first."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        if module_of(trace.tb_frame).startswith(OURS):
            frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def place_of(frames: list[FrameType]) -> str:
    if not frames:
        return "an unknown place"
    code = frames[-1].f_code
    return f"{code.co_filename.rpartition('/')[2]}:{frames[-1].f_lineno} {code.co_qualname}"
