"""`ServedPlugin`: one plugin of one profile in the server, with the lanes of its calls."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.runtime.early import Early
from berth_sdk.serve.endings import MadePlugin
from berth_sdk.serve.lanes import BindingLane, CallContext, LaneFullError, SchedulingLane

DEFAULT_CONCURRENCY: Final = 8
"""Calls of binding cycles that run at a time, if neither the plugin nor the host sets a number."""
MAX_BINDING_CALLS: Final = 192
"""Calls of binding cycles of one process; the other threads are for calls of the scheduling cycle."""
BINDING_METHODS: Final = frozenset({"pre_bind_pre_flight", "pre_bind", "bind", "post_bind"})


class Lanes:
    """The lanes of one plugin, shared by its profiles."""

    def __init__(self, room: threading.BoundedSemaphore) -> None:
        """Begin with the default limit. `room`: for binding-cycle calls of all plugins, also waiting ones."""
        self.room = room
        self.scheduling = SchedulingLane()
        self._limit = DEFAULT_CONCURRENCY
        self.binding = BindingLane(self._limit)

    def limit(self, max_concurrency: int) -> None:
        """Set the number of binding-cycle calls that run at a time; 0: the default."""
        wanted = max_concurrency or DEFAULT_CONCURRENCY
        if wanted != self._limit:
            self._limit = wanted
            self.binding = BindingLane(wanted)


class ServedPlugin:
    """A plugin instance, its profile, and the points at which the host calls it there."""

    def __init__(
        self,
        made: MadePlugin,
        lanes: Lanes,
        *,
        profile: str,
        enabled: Iterable[ExtensionPoint],
    ) -> None:
        self.runtime = runtime = made.runtime
        self.calls = made.calls
        self.name = runtime.descriptor.name
        self.profile = profile
        self.enabled = frozenset(enabled)
        self.early = Early(runtime, self.enabled)
        self._lanes = lanes

    def turn(self, method: str, context: CallContext) -> AbstractContextManager[None]:
        """Wait until the method may run, and keep the turn for the block.

        Raises CallCancelledError, and LaneFullError if too many calls of binding cycles wait.
        """
        if method in BINDING_METHODS:
            return self._binding_turn(method, context)
        return self._lanes.scheduling.entered(context)

    @contextmanager
    def _binding_turn(self, method: str, context: CallContext) -> Iterator[None]:
        room = self._lanes.room
        if not room.acquire(blocking=False):
            raise LaneFullError
        try:
            if inspect.iscoroutinefunction(getattr(self.runtime.plugin, method, None)):
                yield  # runs on the loop, without a lane
            else:
                with self._lanes.binding.entered(context):
                    yield
        finally:
            room.release()
