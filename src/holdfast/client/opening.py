"""How a program gets a connection: its arguments checked, whom TLS trusts, the first attempt waited for.

Rules of this file: nothing lives here; the connection does the rest.
"""

import socket
import uuid
from pathlib import Path
from random import Random
from typing import Final

from holdfast.amqp.login.mechanisms import EXTERNAL, MECHANISMS
from holdfast.client.connection import Connection
from holdfast.client.network.tls import tls_of
from holdfast.client.network.transport import CONNECT_LIMIT_S, Dial
from holdfast.client.network.url import Url, parse_url
from holdfast.dialling import dial as dial_all
from holdfast.errors import ConfigError

RETRY_S: Final = 60.0
IDLE_TIME_OUT_S: Final = 10.0
CONTAINER_ID_BYTES_MAX: Final = 512
"""In UTF-8. Names of links begin with it, and have at most 1024 bytes."""


async def _dial(host: str, port: int) -> socket.socket:
    """All addresses of a name at once, or nearly: one that drops everything does not hide the next."""
    return await dial_all(host, port, time_out_s=CONNECT_LIMIT_S)


async def connect(
    url: str | Url,
    *,
    retry_s: float = RETRY_S,
    container_id: str | None = None,
    idle_time_out_s: float = IDLE_TIME_OUT_S,
    ca_file: str | Path | None = None,
    certificate_file: str | Path | None = None,
    key_file: str | Path | None = None,
    server_name: str | None = None,
    mechanism: str | None = None,
    wait: bool = True,
    rng: Random | None = None,
    dial: Dial | None = _dial,
) -> "Connection":
    """Connects to the node at `url`: `amqp://[user:password@]host[:port]`, or `amqps://…` for TLS.

    - `retry_s`: seconds without progress, at the start or after a break, until it gives up; 0 tries once, `inf` for
      ever.
    - `container_id`: the AMQP container-id; made up if None.
    - `idle_time_out_s`: a node that sends nothing for so many seconds is lost.
    - `ca_file`: authorities that may have signed the node's certificate, in PEM; those that this machine trusts if
      None.
    - `certificate_file`, `key_file`: the certificate, in PEM, that the node is shown where it asks for one, and its key
      (None: in the same file). Without a user in the URL it is the login (SASL EXTERNAL).
    - `server_name`: the name that the node's certificate must have; that of the URL if None.
    - `mechanism`: of SASL, the only one to log in by. If None: over TLS and on this machine PLAIN; otherwise SCRAM, so
      that the password is not sent; EXTERNAL with a certificate and no user, if the node offers it.
    - `wait`: False returns before there is a connection; `Connection.opened` waits for it.
    - `rng`: for the jitter of waits.
    - `dial`: connects a socket to a host and a port, or raises OSError; None leaves that to the event loop's
      `create_connection`, without TLS.

    Raises ConfigError, AuthenticationFailed, ConnectionFailed.
    """
    place = parse_url(url) if isinstance(url, str) else url
    if not retry_s >= 0:
        raise ConfigError(f"invalid value {retry_s} for retry_s; expected at least 0")
    length = len((container_id or "").encode("utf-8", "surrogatepass"))
    if length > CONTAINER_ID_BYTES_MAX:
        raise ConfigError(f"container_id has {length} bytes; the limit is {CONTAINER_ID_BYTES_MAX}")
    tls = tls_of(place, ca_file=ca_file, certificate_file=certificate_file, key_file=key_file, server_name=server_name)
    if mechanism is not None and mechanism not in MECHANISMS:
        expected = f"expected one of {', '.join(MECHANISMS)}"
        raise ConfigError(f"invalid value {mechanism[:40]!r} for mechanism; {expected}")
    if mechanism == EXTERNAL and (tls is None or not tls.identified):
        raise ConfigError("mechanism EXTERNAL needs amqps:// and a certificate_file; give both")
    if dial is None and place.tls:  # a password must not go out in the clear
        raise ConfigError(f"{place} needs dial; expected what connects a socket")
    connection = Connection(
        place,
        retry_s=retry_s,
        container_id=container_id or f"holdfast-{socket.gethostname()}-{uuid.uuid4().hex[:12]}",
        idle_time_out_s=idle_time_out_s,
        tls=tls,
        mechanism=mechanism,
        rng=rng or Random(),
        dial=dial,
    )
    if wait:
        try:
            await connection.opened()
        except BaseException:
            await connection.abort()
            raise
    return connection
