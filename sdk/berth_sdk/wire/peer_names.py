"""The names in the certificate of the peer of a TLS connection, read from gRPC.

A plugin server reads them at every call of a host, and a host at every call of a plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_NAMES: Final = ("x509_common_name", "x509_subject_alternative_name")
"""The properties of gRPC's auth context with the names of the peer's certificate."""
_TRANSPORT: Final = "transport_security_type"


def peer_names(properties: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names, the common name first; empty without TLS.

    `properties`: the result of `auth_context()`, lists of bytes, unlike in the types of the package.
    """
    return tuple(name.decode(errors="replace") for key in _NAMES for name in properties.get(key, ()))


def is_over_tls(properties: Mapping[str, Any]) -> bool:
    """Return True if the call came over TLS."""
    return b"ssl" in properties.get(_TRANSPORT, ())


def bears(names: tuple[str, ...], wanted: str) -> bool:
    """Return True if one of the names is `wanted`, as in TLS: `*.example` equals any `name.example`."""
    wanted = wanted.lower()
    _, dot, above = wanted.partition(".")
    accepted = {wanted, f"*.{above}"} if dot else {wanted}
    return not accepted.isdisjoint(name.lower() for name in names)
