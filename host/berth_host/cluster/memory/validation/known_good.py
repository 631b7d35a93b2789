"""`KnownGood`: a cache of valid values, keyed by their JSON, because workloads repeat values."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import orjson

from berth_host.model.compact_json import compacted

# Only JSON's own types: a time must not equal the string that it is written as.
_EXACT: Final = (
    orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS
)


class KnownGood:
    """A cache of at most `most` values of at most `max_bytes` each; drops the least recently used one."""

    def __init__(self, most: int, max_bytes: int) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._values: OrderedDict[bytes, None] = OrderedDict()

    def key(self, value: Any) -> bytes | None:
        """Return the value as JSON; None if its JSON is ambiguous or longer than `max_bytes`."""
        try:
            key = orjson.dumps(value, option=_EXACT)
        except TypeError:
            return None
        # Other values are written as null too, such as NaN.
        return None if len(key) > self._max_bytes or b"null" in key else key

    def holds(self, key: bytes | None) -> bool:
        """Return True if the value with this key is known to be valid."""
        if key is None or key not in self._values:
            return False
        self._values.move_to_end(key)
        return True

    def add(self, key: bytes | None) -> None:
        """Record that the value with this key is valid."""
        if key is not None:
            self._values[compacted(key)] = None
            if len(self._values) > self._most:
                self._values.popitem(last=False)
