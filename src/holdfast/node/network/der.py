"""Reads which certificate a DER encoding is of, and from when until when it is valid; and elements of DER.

Rules of this file: no signature is checked here. Of DER it reads what certificates and revocation lists have in front.
Source: RFC 5280, §4.1; ITU-T X.690.
"""

import re
from calendar import timegm
from typing import Final, NamedTuple

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of a file of certificates or revocation lists: some 100,000 revoked certificates."""

INTEGER: Final = 0x02
SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
TIMES: Final = (0x17, 0x18)


class Issued(NamedTuple):
    """Which certificate it is: its issuer's name in DER, and the serial number that the issuer gave it."""

    issuer: bytes
    serial: int


class Item(NamedTuple):
    """A value of DER: its tag, its content, and all of it."""

    tag: int
    content: bytes
    whole: bytes


def issued(certificate: bytes) -> Issued:
    """Which certificate that is, in DER. ValueError if it is none."""
    match _fields(certificate):
        case [Item(tag=0x02) as serial, Item(tag=0x30), Item(tag=0x30) as issuer, *_]:
            return Issued(issuer.whole, number(serial))
    raise ValueError("no certificate")


def validity(certificate: bytes) -> tuple[int, int]:
    """From when and until when that certificate is valid, in DER: milliseconds of the wall clock. ValueError if it is
    none."""
    items = _fields(certificate)
    if len(items) > 3 and items[3].tag == SEQUENCE:
        dates = items_in(items[3].content)
        if len(dates) == 2:
            return _date(dates[0]), _date(dates[1])
    raise ValueError("no certificate")


def _fields(certificate: bytes) -> list[Item]:
    """From the serial number on. ValueError if it is no certificate."""
    items = items_in(inside(inside(certificate)))
    return items[1:] if items and items[0].tag == _VERSION else items


def _date(item: Item) -> int:
    """RFC 5280, §4.1.2.5: YYMMDDHHMMSSZ, up to 2049, or YYYYMMDDHHMMSSZ."""
    text = item.content.decode("ascii")
    if item.tag == TIMES[0]:
        text = ("19" if text[:2] >= "50" else "20") + text
    if item.tag not in TIMES or not re.fullmatch(r"\d{14}Z", text):
        raise ValueError("no date")
    year, *rest = int(text[:4]), *(int(text[place : place + 2]) for place in range(4, 14, 2))
    return timegm((year, *rest)) * 1000


def number(item: Item) -> int:
    """The value of an integer."""
    return int.from_bytes(item.content, "big", signed=True)


def inside(data: bytes) -> bytes:
    """The content of the sequence at the beginning of `data`. ValueError if there is none."""
    first = _item(data, 0)
    if first.tag != SEQUENCE:
        raise ValueError("no sequence")
    return first.content


def items_in(data: bytes) -> list[Item]:
    """The values of which a sequence's content consists. ValueError if one does not end within `data`."""
    found: list[Item] = []
    place = 0
    while place < len(data):
        item = _item(data, place)
        found.append(item)
        place += len(item.whole)
    return found


def _item(data: bytes, start: int) -> Item:
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
    return Item(data[start], data[place:end], data[start:end])
