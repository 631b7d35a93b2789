"""Applies JSON merge patches (RFC 7386) to objects.

Called by the embedded server's `patch` and by `cycle/patches`. Neither argument is changed; the
result shares the unchanged parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(target: Any, patch: Any) -> Any:
    """Return `target` after `patch`: null removes a key, maps are merged, any other value replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
