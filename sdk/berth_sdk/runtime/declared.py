"""What one plugin may read, by the `needs` of its class. Used by `plugin_runtime`, and so by both transports
and by `testing`.

A plugin that did not declare the whole pod gets records in which reading it raises UndeclaredError. Each is
made once, and kept beside the record that the host has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from berth_sdk.errors import UndeclaredError
from berth_sdk.handle import Handle, ObjectReader
from berth_sdk.needs import NeedKind
from berth_sdk.pod import Pod
from berth_sdk.results import NominatedPod, QueuedPod, WaitingPod
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.tables import NodeTable

_QUEUED: Final = ("pre_enqueue", "sort_key", "less")
"""The methods that are handed pods as the queue holds them."""
_POD_FIRST: Final = ("sign", "sign_spec", "sign_queue")


class Declared:
    """The parts that a plugin declared."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.plugin = descriptor.name
        self.whole_pod = descriptor.wants_whole_pod
        self.has_snapshot = descriptor.keeps_state
        self.resources = frozenset(need.resource for need in descriptor.needs if need.kind is NeedKind.OBJECT)

    def pod(self, pod: Pod) -> Pod:
        """Return the pod of a call as the plugin may read it."""
        return pod if self.whole_pod else pod.as_summary()

    def queued(self, pod: QueuedPod) -> QueuedPod:
        """Return a pod of the queue as the plugin may read it."""
        return pod if self.whole_pod else replace(pod, pod=pod.pod.as_summary())

    def name(self, err: UndeclaredError) -> None:
        """Write the plugin's name into the error."""
        err.plugin = err.plugin or self.plugin

    def methods(self, methods: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """Return the methods of a plugin, to be called with the host's own records."""
        return {method: self._calling(method, function) for method, function in methods.items()}

    def _calling(self, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
        seen = function if self.whole_pod else self._seeing(method, function)
        name = self.name
        if inspect.iscoroutinefunction(function):

            async def call_async(*args: Any) -> Any:
                try:
                    return await seen(*args)
                except UndeclaredError as err:
                    name(err)
                    raise

            return call_async

        def call(*args: Any) -> Any:
            try:
                return seen(*args)
            except UndeclaredError as err:
                name(err)
                raise

        return call

    def _seeing(self, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if method in _QUEUED:
            return lambda *pods: function(*[self.queued(pod) for pod in pods])
        if method in _POD_FIRST:
            return lambda pod, *rest: function(pod.as_summary(), *rest)
        if method == "reconcile":
            return function
        # (state, pod, ...), and (event, pod).
        return lambda first, pod, *rest: function(first, pod.as_summary(), *rest)


class DeclaredHandle:
    """The handle that a plugin gets: the transport's own, for the parts that the plugin declared."""

    def __init__(self, handle: Handle, declared: Declared) -> None:
        self._handle = handle
        self._declared = declared

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def objects(self, resource: str) -> ObjectReader:
        """Return the objects of a declared resource. Raises UndeclaredError for others."""
        if resource not in self._declared.resources:
            raise UndeclaredError(
                f"objects of {resource!r}", f"Need.objects({resource!r})", self._declared.plugin
            )
        return self._handle.objects(resource)

    def snapshot(self) -> NodeTable:
        """Return every node. Raises UndeclaredError in a plugin that declared no state."""
        if not self._declared.has_snapshot:
            raise UndeclaredError("the snapshot (handle.snapshot)", "Need.nodes()", self._declared.plugin)
        return self._handle.snapshot()

    def waiting_pods(self, *, only_mine: bool = False) -> list[WaitingPod]:
        """Return the pods held at Permit, as the plugin may read them."""
        waiting: Sequence[WaitingPod] = self._handle.waiting_pods(only_mine=only_mine)
        if self._declared.whole_pod:
            return list(waiting)
        return [replace(one, pod=one.pod.as_summary()) for one in waiting]

    def list_nominated_pods(self, node_names: Iterable[str] | None = None) -> list[NominatedPod]:
        """Return the nominated pods, as the plugin may read them."""
        nominated: Sequence[NominatedPod] = self._handle.list_nominated_pods(node_names)
        if self._declared.whole_pod:
            return list(nominated)
        return [replace(one, pod=one.pod.as_summary()) for one in nominated]


def declared_handle(handle: Handle, descriptor: Descriptor) -> Handle:
    """Return the handle for a plugin with this descriptor."""
    return cast("Handle", DeclaredHandle(handle, Declared(descriptor)))
