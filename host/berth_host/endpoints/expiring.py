"""Answers that are good for some seconds: the API server's words on tokens and permissions."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")
MOST = 4096


class Expiring(Generic[V]):
    """At most `most` answers, the oldest go first. `now_s` reads a monotonic clock."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic, most: int = MOST) -> None:
        self._now_s = now_s
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        """The answer kept under `key`, while it is good."""
        found = self._kept.get(key)
        if found is None:
            return None
        ends_s, value = found
        if self._now_s() >= ends_s:
            del self._kept[key]
            return None
        return value

    def put(self, key: Hashable, value: V, ttl_s: float) -> None:
        """Keep `value` for `ttl_s` seconds; 0: not at all."""
        if ttl_s <= 0:
            return
        self._kept.pop(key, None)
        self._kept[key] = (self._now_s() + ttl_s, value)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
