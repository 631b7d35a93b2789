"""The end of the certificate of a call's peer, read from gRPC, and the limits on a server's connections.

TLS checks a certificate in the handshake alone, so a connection that is kept would outlive it. A plugin
server checks it at every call of a host, and a host at every call of a plugin. Source: RFC 5280, section 4.1.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

MOST_CONNECTIONS: Final = 128
HANDSHAKE_MS: Final = 20_000
SERVER_LIMITS: Final = (
    ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
)
"""Options of every gRPC server, which would take as many connections as there are descriptors."""
_PEM: Final = "x509_pem_cert"
"""The property of gRPC's auth context with the peer's certificate."""
_SEQUENCE: Final = 0x30
_UTC_TIME: Final = 0x17
_VERSION: Final = 0xA0
_LONG: Final = 0x80
_CENTURY_FROM: Final = 50
"""UTCTime has years of two digits: 50 to 99 are those of the 20th century."""


def has_ended(properties: Mapping[str, Any], now_s: float) -> bool:
    """Return True if the peer's certificate has expired; False without one.

    `properties`: the result of `auth_context()`. `now_s`: seconds since 1970.
    """
    return any(now_s >= not_after_s(bytes(pem)) for pem in properties.get(_PEM, ()))


@lru_cache(maxsize=64)
def not_after_s(pem: bytes) -> float:
    """Return the end of a certificate, in seconds since 1970.

    Raises ValueError for what is no certificate.
    """
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))).timestamp()
    except IndexError as err:
        raise ValueError("the certificate ends too early") from err


def _not_after(der: bytes) -> datetime:
    certificate = _inside(der, 0)
    at = _inside(der, certificate)
    if der[at] == _VERSION:
        at = _behind(der, at)
    for _ in ("serial number", "signature", "issuer"):
        at = _behind(der, at)
    validity = _inside(der, at)
    at = _behind(der, validity)  # past notBefore
    begin, end = _content(der, at)
    text = der[begin:end].decode("ascii")
    if der[at] == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _CENTURY_FROM else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _content(der: bytes, at: int) -> tuple[int, int]:
    """Return where the content of the value at `at` begins and ends."""
    size, begin = der[at + 1], at + 2
    if size & _LONG:
        count = size & ~_LONG
        size, begin = int.from_bytes(der[begin : begin + count], "big"), begin + count
    return begin, begin + size


def _inside(der: bytes, at: int) -> int:
    if der[at] != _SEQUENCE:
        raise ValueError("the certificate is no X.509 certificate")
    return _content(der, at)[0]


def _behind(der: bytes, at: int) -> int:
    return _content(der, at)[1]
