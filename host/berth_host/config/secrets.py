"""Masks secrets wherever a configuration is shown: check-config, /configz, the log.

`--write-config-to` writes a file to start from, so there secrets stay.
Source of the mask: kubectl config view.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from berth_host.config.source.node import Json

MASK: Final = "DATA+OMITTED"
_ENDINGS: Final = (
    "keydata",
    "key-data",
    "token",
    "password",
    "passwd",
    "secret",
    "apikey",
    "api-key",
    "api_key",
)


def masked(value: Json) -> Json:
    """Return `value` with every text under the name of a secret replaced by MASK."""
    if isinstance(value, dict):
        return masked_object(value)
    if isinstance(value, list):
        return [masked(item) for item in value]
    return value


def masked_object(value: Mapping[str, Json]) -> dict[str, Json]:
    """Return an object with its secrets masked; empty ones stay empty."""
    return {
        key: MASK if item and isinstance(item, str) and key.lower().endswith(_ENDINGS) else masked(item)
        for key, item in value.items()
    }
