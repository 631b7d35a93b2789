"""The names in the certificate of whoever calls over TLS, as gRPC tells them.

Read at every call: by a plugin server of its hosts, by a host of its plugins on the way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_NAMES: Final = ("x509_common_name", "x509_subject_alternative_name")
"""The properties of gRPC's auth context that hold names of the peer's certificate."""
_TRANSPORT: Final = "transport_security_type"


def peer_names(properties: Mapping[str, Any]) -> tuple[str, ...]:
    """`properties`: what `auth_context()` answers, lists of bytes whatever the types of the package say.
    Common name first; empty without TLS.
    """
    return tuple(name.decode(errors="replace") for key in _NAMES for name in properties.get(key, ()))


def is_over_tls(properties: Mapping[str, Any]) -> bool:
    """Whether the call came over TLS."""
    return b"ssl" in properties.get(_TRANSPORT, ())


def bears(names: tuple[str, ...], wanted: str) -> bool:
    """Whether one of the names is `wanted`, as TLS compares them: `*.example` is any `name.example`."""
    wanted = wanted.lower()
    _, dot, above = wanted.partition(".")
    accepted = {wanted, f"*.{above}"} if dot else {wanted}
    return not accepted.isdisjoint(name.lower() for name in names)
