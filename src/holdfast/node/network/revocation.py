"""Certificates that their authority has revoked, as a file of revocation lists names them (docs/security.md).

Rules of this file: the file is trusted as that of the authorities is, so signatures and dates of its lists are not
checked, and a list of any age holds. Source: RFC 5280, §5.1.
"""

import binascii
import re
from pathlib import Path
from typing import Final

from holdfast.errors import ConfigError
from holdfast.node.network.der import FILE_BYTES_MAX, INTEGER, SEQUENCE, TIMES, Issued, inside, items_in, number
from holdfast.regular_files import read_regular

_PEM: Final = re.compile(rb"-----BEGIN X509 CRL-----([A-Za-z0-9+/=\s]+)-----END X509 CRL-----")


def read_revoked(path: Path) -> frozenset[Issued]:
    """What the lists of the file revoke, in PEM and one behind the other. ConfigError that names the file."""
    try:
        data, _ = read_regular(path, FILE_BYTES_MAX)
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from None
    if len(data) > FILE_BYTES_MAX:
        raise _unusable(path, f"it has more than {FILE_BYTES_MAX} bytes")
    lists = _PEM.findall(data)
    if not lists:
        raise _unusable(path, "no list is in it")
    revoked: set[Issued] = set()
    try:
        for text in lists:
            revoked.update(_listed(binascii.a2b_base64(text)))
    except ValueError:  # binascii.Error is one
        raise _unusable(path, "a list in it is damaged") from None
    return frozenset(revoked)


def _unusable(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"tls crl_file {path} cannot be used ({reason}); expected certificate revocation lists in PEM")


def _listed(revocations: bytes) -> set[Issued]:
    """Those of one list, in DER."""
    items = items_in(inside(inside(revocations)))
    if items and items[0].tag == INTEGER:  # the version
        items = items[1:]
    if [item.tag for item in items[:2]] != [SEQUENCE, SEQUENCE] or len(items) < 3 or items[2].tag not in TIMES:
        raise ValueError("no revocation list")
    issuer, rest = items[1].whole, items[3:]
    if rest and rest[0].tag in TIMES:
        rest = rest[1:]
    if not rest or rest[0].tag != SEQUENCE:
        return set()  # it revokes nothing
    entries = [items_in(entry.content) for entry in items_in(rest[0].content)]
    if any(not entry or entry[0].tag != INTEGER for entry in entries):
        raise ValueError("no revocation list")
    return {Issued(issuer, number(entry[0])) for entry in entries}
