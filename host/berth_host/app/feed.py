"""`Feed`: takes the changes of the cluster, so that another host can take over without a relist."""

from __future__ import annotations

from collections.abc import Callable

from berth_host.cluster.port import WatchEvent


class Feed:
    """`to`: the current receiver."""

    def __init__(self, to: Callable[[WatchEvent], None]) -> None:
        self.to = to

    def handle(self, event: WatchEvent) -> None:
        """Pass one change on."""
        self.to(event)
