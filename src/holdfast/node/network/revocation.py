"""Certificates that their authority has revoked, as a file of revocation lists names them (docs/security.md).

Rules of this file: the file is trusted as that of the authorities is, so signatures and dates of its lists are not
checked, and a list of any age holds. Of DER it reads no more than issuers, serial numbers and dates of certificates.
Source: RFC 5280, §4.1 and §5.1.
"""

import binascii
import re
from calendar import timegm
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.errors import ConfigError
from holdfast.regular_files import read_regular

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Some 100,000 revoked certificates."""

_PEM: Final = re.compile(rb"-----BEGIN X509 CRL-----([A-Za-z0-9+/=\s]+)-----END X509 CRL-----")
_INTEGER: Final = 0x02
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_TIMES: Final = (0x17, 0x18)


class Issued(NamedTuple):
    """Which certificate it is: its issuer's name in DER, and the serial number that the issuer gave it."""

    issuer: bytes
    serial: int


class _Item(NamedTuple):
    tag: int
    content: bytes
    whole: bytes


def issued(certificate: bytes) -> Issued:
    """Which certificate that is, in DER. ValueError if it is none."""
    items = _items(_inside(_inside(certificate)))
    if items and items[0].tag == _VERSION:
        items = items[1:]
    match items:
        case [_Item(tag=0x02) as serial, _Item(tag=0x30), _Item(tag=0x30) as issuer, *_]:
            return Issued(issuer.whole, _number(serial))
    raise ValueError("no certificate")


def validity(certificate: bytes) -> tuple[int, int]:
    """From when and until when that certificate is valid, in DER: milliseconds of the wall clock. ValueError if it is
    none."""
    items = _items(_inside(_inside(certificate)))
    if items and items[0].tag == _VERSION:
        items = items[1:]
    if len(items) > 3 and items[3].tag == _SEQUENCE:
        dates = _items(items[3].content)
        if len(dates) == 2:
            return _date(dates[0]), _date(dates[1])
    raise ValueError("no certificate")


def _date(item: _Item) -> int:
    """RFC 5280, §4.1.2.5: YYMMDDHHMMSSZ, up to 2049, or YYYYMMDDHHMMSSZ."""
    text = item.content.decode("ascii")
    if item.tag == _TIMES[0]:
        text = ("19" if text[:2] >= "50" else "20") + text
    if item.tag not in _TIMES or not re.fullmatch(r"\d{14}Z", text):
        raise ValueError("no date")
    year, *rest = int(text[:4]), *(int(text[place : place + 2]) for place in range(4, 14, 2))
    return timegm((year, *rest)) * 1000


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
    items = _items(_inside(_inside(revocations)))
    if items and items[0].tag == _INTEGER:  # the version
        items = items[1:]
    if [item.tag for item in items[:2]] != [_SEQUENCE, _SEQUENCE] or len(items) < 3 or items[2].tag not in _TIMES:
        raise ValueError("no revocation list")
    issuer, rest = items[1].whole, items[3:]
    if rest and rest[0].tag in _TIMES:
        rest = rest[1:]
    if not rest or rest[0].tag != _SEQUENCE:
        return set()  # it revokes nothing
    entries = [_items(entry.content) for entry in _items(rest[0].content)]
    if any(not entry or entry[0].tag != _INTEGER for entry in entries):
        raise ValueError("no revocation list")
    return {Issued(issuer, _number(entry[0])) for entry in entries}


def _number(item: _Item) -> int:
    return int.from_bytes(item.content, "big", signed=True)


def _inside(data: bytes) -> bytes:
    """The content of the sequence at the beginning of `data`."""
    first = _item(data, 0)
    if first.tag != _SEQUENCE:
        raise ValueError("no sequence")
    return first.content


def _items(data: bytes) -> list[_Item]:
    found: list[_Item] = []
    place = 0
    while place < len(data):
        item = _item(data, place)
        found.append(item)
        place += len(item.whole)
    return found


def _item(data: bytes, start: int) -> _Item:
    """The value that begins there. ValueError if it does not end within `data`."""
    if start + 2 > len(data):
        raise ValueError("cut short")
    length, place = data[start + 1], start + 2
    if length & 0x80:
        size = length & 0x7F
        if not 1 <= size <= 4 or place + size > len(data):
            raise ValueError("no length of DER")
        length, place = int.from_bytes(data[place : place + size], "big"), place + size
    end = place + length
    if end > len(data):
        raise ValueError("cut short")
    return _Item(data[start], data[place:end], data[start:end])
