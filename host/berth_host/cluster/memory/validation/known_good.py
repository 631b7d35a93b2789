"""`KnownGood`: values that passed every check, remembered as JSON: workloads bring the same ones again."""

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
    """At most `most` values of at most `max_bytes` each; the one used least recently goes first."""

    def __init__(self, most: int, max_bytes: int) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._values: OrderedDict[bytes, None] = OrderedDict()

    def key(self, value: Any) -> bytes | None:
        """The value as JSON, for comparison; None: it cannot be told from others so, or is too long."""
        try:
            key = orjson.dumps(value, option=_EXACT)
        except TypeError:
            return None
        # JSON writes other things as null too, such as a number that is none.
        return None if len(key) > self._max_bytes or b"null" in key else key

    def holds(self, key: bytes | None) -> bool:
        """Whether the value with this key passed."""
        if key is None or key not in self._values:
            return False
        self._values.move_to_end(key)
        return True

    def add(self, key: bytes | None) -> None:
        """It passed."""
        if key is not None:
            self._values[compacted(key)] = None
            if len(self._values) > self._most:
                self._values.popitem(last=False)
