"""`InProcessHandle`: the handle of a plugin inside the host. Made by `app`, one per plugin.

Plain `def` plugins of the binding cycle call it from their own threads; such a call is carried over to the
loop, which owns everything behind it, and the thread waits for the answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import HandleError
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import (
    Cancellation,
    Decision,
    NodeScores,
    NominatedPod,
    Nomination,
    PostFilterResult,
    WaitingPod,
)
from berth_sdk.tables import NodeTable

from berth_host.handle.backend import (
    HandleBackend,
    NoOpenCallError,
    QuestionUnderWayError,
    UnknownNodesError,
)

T = TypeVar("T")
THREAD_TIMEOUT_S = 10.0


class InProcessHandle:
    """See `berth_sdk.handle.Handle`."""

    def __init__(self, plugin: str, backend: HandleBackend) -> None:
        self._plugin = plugin
        self._backend = backend
        self._owner = threading.get_ident()
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None

    def waiting_pods(self, *, only_mine: bool = False) -> list[WaitingPod]:
        """Pods held at Permit; `only_mine`: only pods that this plugin holds."""
        return self._run(lambda: self._backend.waiting_pods(self._plugin, only_mine))

    def allow(self, waiting: WaitingPod, plugin: str = "") -> Decision:
        """End the wait of one plugin; empty: this plugin's own."""
        uid, cycle_id = waiting.pod.uid, waiting.cycle_id
        return self._run(lambda: self._backend.allow(self._plugin, uid, cycle_id, plugin))

    def reject(self, waiting: WaitingPod, message: str = "") -> Decision:
        """Send the pod back to the queue."""
        uid, cycle_id = waiting.pod.uid, waiting.cycle_id
        return self._run(lambda: self._backend.reject(self._plugin, uid, cycle_id, message))

    def cancel_binding(self, pod: Pod, message: str = "", *, cycle_id: str = "") -> Cancellation:
        """Take the node from a pod while its PreBind plugins run."""
        return self._run(lambda: self._backend.cancel_binding(self._plugin, pod.uid, cycle_id, message))

    def objects(self, resource: str) -> ObjectReader:
        """The objects of a declared resource."""
        return self._run(lambda: self._backend.objects(resource))

    def snapshot(self) -> NodeTable:
        """Every node as the current cycle sees it."""
        return self._run(self._backend.snapshot)

    async def evaluate_preemption(
        self,
        state: CycleState,
        *,
        min_candidate_nodes_percentage: int = 0,
        min_candidate_nodes_absolute: int = 0,
    ) -> PostFilterResult:
        """The host's own preemption, to be awaited on the loop."""
        try:
            return await self._backend.evaluate_preemption(
                self._plugin,
                state.cycle_id,
                min_candidate_nodes_percentage,
                min_candidate_nodes_absolute,
            )
        except NoOpenCallError as err:
            raise HandleError(str(err)) from err

    async def run_scores(self, state: CycleState, node_names: Iterable[str]) -> NodeScores:
        """PreScore and Score over these nodes, to be awaited on the loop."""
        try:
            return await self._backend.run_scores(self._plugin, state.cycle_id, tuple(node_names))
        except (NoOpenCallError, QuestionUnderWayError, UnknownNodesError) as err:
            raise HandleError(str(err)) from err

    def list_nominated_pods(self, node_names: Iterable[str] | None = None) -> list[NominatedPod]:
        """The pods that are promised one of these nodes, or (None) any."""
        names = None if node_names is None else tuple(node_names)
        return self._run(lambda: self._backend.nominated_pods(self._plugin, names))

    def nominate(self, pod: Pod, node_name: str | None) -> Nomination:
        """Promise a pending pod a node; None: the node that its status names; "": none."""
        return self._run(lambda: self._backend.nominate(self._plugin, pod.uid, node_name))

    def requeue(self, pods: Iterable[Pod] = (), *, reason: str = "", skip_backoff: bool = False) -> int:
        """Try pods again; none given: all that this plugin rejected."""
        uids = [pod.uid for pod in pods] or None
        return self._run(lambda: self._backend.requeue(self._plugin, uids, reason, skip_backoff))

    def invalidate_sort_keys(self, pods: Iterable[Pod] = ()) -> None:
        """Keys are stale; none given: all."""
        uids = [pod.uid for pod in pods] or None
        self._run(lambda: self._backend.invalidate_sort_keys(self._plugin, uids))

    def record_event(
        self, regarding: ObjectRef, reason: str, note: str, *, action: str = "", type: str = "Normal"
    ) -> None:
        """Write a Kubernetes event about a pod."""
        self._run(lambda: self._backend.record_event(self._plugin, regarding, type, reason, action, note))

    def _run(self, call: Callable[[], T]) -> T:
        if threading.get_ident() == self._owner:
            return call()
        if self._loop is None or self._loop.is_closed():
            raise HandleError("the host does not run: a plugin's threads may call it only while it does")

        async def on_loop() -> T:
            return call()

        future = asyncio.run_coroutine_threadsafe(on_loop(), self._loop)
        try:
            return future.result(THREAD_TIMEOUT_S)
        except TimeoutError as err:
            future.cancel()
            raise HandleError(f"the host did not answer within {THREAD_TIMEOUT_S:.0f} s") from err
