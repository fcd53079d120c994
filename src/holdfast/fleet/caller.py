"""A site's requests to the enrolment service of its fleet: one connection for each.

Rules of this file: the first answer is trusted only if the authority has the fingerprint in the token; later ones only
over TLS with a certificate of that authority. If the site's clock is wrong, the error or warning says so.
"""

import base64
import json
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast import __version__
from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet import authority as ca
from holdfast.fleet.authority import SERVICE_NAME
from holdfast.fleet.site import SiteDirectory, trusted
from holdfast.fleet.tokens import Token
from holdfast.fleet.wire import ANSWER_BYTES_MAX, WAIT_S_MAX, line, signed_part
from holdfast.lines import one_line
from holdfast.names import HostPort
from holdfast.schema import is_whole

TIME_OUT_S: Final = 60.0
"""The maximum time without a byte from the service."""
CLOCK_S_WARNED: Final = 300
"""A site's clock that differs by more causes a warning."""
CLOCK_S_MAX: Final = 86_400
"""With a larger difference new certificates are not valid: they begin a day before they were made."""
TEXT_MAX: Final = 500

Answer = dict[str, Any]


class Unreachable(HoldfastError):
    """The service does not answer; it may answer later."""


class RequestRefused(HoldfastError):
    """The service has refused the request; the text is the service's."""


class Caller:
    """Asks the service at `where`. `clock`: this machine's, in seconds since 1970; `warn` takes a line for a person."""

    def __init__(self, where: HostPort, clock: Callable[[], float], warn: Callable[[str], None]) -> None:
        self._where = where
        self._clock = clock
        self._warn = warn

    def enrol(self, site: SiteDirectory, token: Token) -> str:
        """The sealed provision for the site that the token is for. ConfigError if the answer is not from the fleet of
        the token."""
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        nobody.check_hostname = False
        nobody.verify_mode = ssl.CERT_NONE
        answer = self._ask(nobody, lambda nonce: {"do": "authority"})
        pem = _text(answer, "authority")
        trusted(pem, token.fingerprint)
        request = {"do": "enrol", "node": token.node, "secret": token.secret, "request": site.request()}
        return _text(self._ask(_trusting(pem), lambda nonce: request), "provision")

    def renew(self, site: SiteDirectory, said: Mapping[str, Any]) -> str:
        """The sealed provision with a new certificate."""
        return _text(self._signed(site, "renew", {**said, "request": site.request()}), "provision")

    def changes(self, site: SiteDirectory, said: Mapping[str, Any], *, wait: bool) -> Answer:
        """What has changed for the site: `renew`, and `provision` if there is one. `wait`: the service may delay its
        answer until there is a change."""
        return self._signed(site, "sync", {**said, "wait": wait}, within_s=TIME_OUT_S + WAIT_S_MAX)

    def _signed(self, site: SiteDirectory, do: str, said: Mapping[str, Any], within_s: float = TIME_OUT_S) -> Answer:
        serial = f"{site.certificate().serial_number:x}"
        body = json.dumps({**said, "software": __version__}, ensure_ascii=False)

        def request(nonce: str) -> Answer:
            signature = base64.b64encode(site.sign(signed_part(nonce, do, body))).decode()
            return {"do": do, "serial": serial, "body": body, "signature": signature}

        return self._ask(_trusting(ca.pem_of(site.authority())), request, within_s)

    def _ask(self, context: ssl.SSLContext, request: Callable[[str], Answer], within_s: float = TIME_OUT_S) -> Answer:
        try:
            with (
                socket.create_connection((self._where.host, self._where.port), timeout=TIME_OUT_S) as plain,
                context.wrap_socket(plain, server_hostname=SERVICE_NAME) as secure,
                secure.makefile("rb") as stream,
            ):
                nonce = _text(_parsed(stream.readline(ANSWER_BYTES_MAX)), "nonce")
                secure.sendall(line(request(nonce)))
                secure.settimeout(within_s)
                answer = _parsed(stream.readline(ANSWER_BYTES_MAX))
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(self._distrust(error)) from None
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no answer"
            raise Unreachable(
                f"the fleet's service at {self._where} does not answer ({one_line(str(reason))})"
            ) from None
        self._compare_clock(answer)
        if "refused" in answer:
            raise RequestRefused(_text(answer, "refused"))
        return answer

    def _distrust(self, error: ssl.SSLCertVerificationError) -> str:
        reason = one_line(str(error.verify_message))
        if error.verify_code in (9, 10):  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
            return f"the service's certificate is not good at this time ({reason}): set this machine's clock"
        return f"{self._where} is not this fleet's service ({reason}); look who answers there"

    def _compare_clock(self, answer: Answer) -> None:
        time_s = answer.get("time_s")
        if not is_whole(time_s):
            return
        off_s = int(self._clock() - time_s)
        if abs(off_s) <= CLOCK_S_WARNED:
            return
        text = f"this machine's clock is {_in_words(abs(off_s))} {'ahead of' if off_s > 0 else 'behind'} the fleet's"
        if abs(off_s) > CLOCK_S_MAX:
            raise ConfigError(f"{text}; set it, because certificates are good at their time alone")
        self._warn(f"{text}; set it")


def _in_words(seconds: int) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds // 60} minutes"


def _trusting(pem: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=pem)
    return context


def _parsed(data: bytes) -> Answer:
    try:
        answer = json.loads(data) if data.endswith(b"\n") else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise OSError("it ends the connection, or says something else")
    return answer


def _text(answer: Mapping[str, Any], name: str) -> str:
    value = answer.get(name)
    if not isinstance(value, str):
        raise HoldfastError(
            f"the service's answer has no {name}: it runs another version of Holdfast; upgrade the site"
        )
    return value if name == "provision" or "BEGIN" in value else one_line(value)[:TEXT_MAX]
