"""One attempt to reach a node: a connected socket, TLS on it if the URL asks for it, and a Wire that uses it.

Rules of this file: nothing is tried again here; what fails is an OSError.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from holdfast.client.network.tls import Tls
from holdfast.client.network.url import Url
from holdfast.client.network.wire import Wire
from holdfast.dialling import is_local, is_loopback

Dial = Callable[[str, int], Coroutine[Any, Any, socket.socket]]
"""Connects a socket to a host and port, or raises OSError."""

CONNECT_LIMIT_S: Final = 5.0
"""Time limit of one attempt: a SYN that is lost is better sent anew than waited for."""
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)


async def open_wire(url: Url, new_wire: Callable[[bool], Wire], *, tls: Tls | None, dial: Dial | None) -> Wire:
    """A connected wire, made by `new_wire`, which is told whether what is said stays on this machine. `dial` None: the
    event loop connects the socket, without TLS.

    Raises OSError: also for a time-out, a name that is not found, and a certificate that is not trusted.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_LIMIT_S):
        if dial is None:
            local = is_local(url.host)
            _, wire = await loop.create_connection(lambda: new_wire(local), url.host, url.port)
            return wire
        connected = await dial(url.host, url.port)
        try:
            local = connected.family not in _INTERNET or is_loopback(connected.getpeername()[0])
            context, server_name = (None, None) if tls is None else (tls.context, tls.server_name)
            _, wire = await loop.create_connection(
                lambda: new_wire(local), sock=connected, ssl=context, server_hostname=server_name
            )
            return wire
        except BaseException:
            connected.close()
            raise


def is_untrusted(error: OSError) -> bool:
    """The node's certificate is not trusted: another attempt would find the same."""
    import ssl

    return isinstance(error, ssl.SSLCertVerificationError)
