"""One plugin of one profile in the server: the plugin's instance, and the lanes of its calls."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.runtime.early import Early
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.serve.lanes import BindingLane, CallContext, LaneFullError, SchedulingLane

DEFAULT_CONCURRENCY: Final = 8
"""How many calls of binding cycles run at once if neither the plugin nor the host says a number."""
MAX_BINDING_CALLS: Final = 192
"""For one process; the other threads are for calls of the scheduling cycle."""
BINDING_METHODS: Final = frozenset({"pre_bind_pre_flight", "pre_bind", "bind", "post_bind"})


class Lanes:
    """Shared by all profiles of one plugin."""

    def __init__(self, room: threading.BoundedSemaphore) -> None:
        """`room`: for the binding-cycle calls of all plugins, waiting calls included."""
        self.room = room
        self.scheduling = SchedulingLane()
        self._limit = DEFAULT_CONCURRENCY
        self.binding = BindingLane(self._limit)

    def limit(self, max_concurrency: int) -> None:
        """Set how many calls of binding cycles run at once; 0: the default."""
        wanted = max_concurrency or DEFAULT_CONCURRENCY
        if wanted != self._limit:
            self._limit = wanted
            self.binding = BindingLane(wanted)


class ServedPlugin:
    """A plugin instance, its profile, and the points at which the host calls it there."""

    def __init__(
        self,
        runtime: PluginRuntime,
        lanes: Lanes,
        *,
        profile: str,
        enabled: Iterable[ExtensionPoint],
    ) -> None:
        self.runtime = runtime
        self.name = runtime.descriptor.name
        self.profile = profile
        self.enabled = frozenset(enabled)
        self.early = Early(runtime, self.enabled)
        self._lanes = lanes

    def turn(self, method: str, context: CallContext) -> AbstractContextManager[None]:
        """Wait until the method may run, and keep the turn for the block.

        Raises CallCancelledError, and LaneFullError when too many calls of binding cycles wait.
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
                yield  # it runs on the loop, beside anything
            else:
                with self._lanes.binding.entered(context):
                    yield
        finally:
            room.release()
