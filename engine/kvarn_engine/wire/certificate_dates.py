"""When the certificates of a PEM file expire. Called by `tls`; it checks no signature and trusts nothing.

The standard library shows a certificate's dates only for an open connection, so the few bytes of DER are read here:
Certificate { TBSCertificate { [0] version?, serial, algorithm, issuer, Validity { notBefore, notAfter }, ... } ... }.
"""

import binascii
import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_FIELDS_BEFORE_VALIDITY = 3


class BadCertificate(Exception):
    """A file holds no certificate, or one that cannot be read."""


@dataclass(frozen=True, slots=True)
class Element:
    tag: int
    content: bytes
    rest: bytes
    """What follows it inside its parent."""


def expiry_times(pem: bytes) -> list[float]:
    """Unix times of notAfter, one for each certificate of the file, in its order. Raises BadCertificate."""
    blocks = _BLOCK.findall(pem)
    if not blocks:
        raise BadCertificate("holds no PEM certificate")
    try:
        return [_not_after(ssl.PEM_cert_to_DER_cert(block.decode("ascii"))) for block in blocks]
    except (ValueError, IndexError, binascii.Error) as error:
        raise BadCertificate(f"holds a certificate that cannot be read ({error})") from None


def _not_after(der: bytes) -> float:
    rest = _inside(_inside(der))
    first = _element(rest)
    if first.tag == _VERSION:
        rest = first.rest
    for _ in range(_FIELDS_BEFORE_VALIDITY):
        rest = _element(rest).rest
    not_before = _element(_inside(rest))
    return _time(_element(not_before.rest))


def _inside(data: bytes) -> bytes:
    element = _element(data)
    if element.tag != _SEQUENCE:
        raise ValueError(f"tag {element.tag:#x} where a sequence is due")
    return element.content


def _element(data: bytes) -> Element:
    length, start = data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    content = data[start : start + length]
    if len(content) != length:
        raise ValueError("it is cut off")
    return Element(data[0], content, data[start + length :])


def _time(element: Element) -> float:
    formats = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
    if element.tag not in formats:
        raise ValueError(f"tag {element.tag:#x} where a time is due")
    moment = datetime.strptime(element.content.decode("ascii"), formats[element.tag])
    # RFC 5280: two digits below 50 are of this century; strptime draws the line at 69.
    if element.tag == _UTC_TIME and moment.year >= 2050:
        moment = moment.replace(year=moment.year - 100)
    return moment.replace(tzinfo=UTC).timestamp()
