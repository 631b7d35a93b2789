"""JSON merge patches (RFC 7386): a patch applied to an object, without changing either.

Called by the embedded server's `patch` and by `scheduler/object_writes`. Unchanged parts are shared with
the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(target: Any, patch: Any) -> Any:
    """`target` as it is after `patch`: null removes a key, maps are merged, all else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
