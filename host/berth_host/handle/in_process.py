"""`InProcessHandle`: the handle of an in-process plugin. Made by `app`, one per plugin.

Plain `def` plugins of the binding cycle call it from their own threads; such a call is carried over to the
loop, which owns everything behind it, and the thread waits for the answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, TypeVarTuple

from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import HandleError
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroupReader
from berth_sdk.results import (
    Cancellation,
    Decision,
    NodeScores,
    NominatedPod,
    Nomination,
    PostFilterResult,
    WaitingPod,
)
from berth_sdk.runtime.answers import settled
from berth_sdk.scenarios import Scenario
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable

from berth_host.handle import calls
from berth_host.handle.backend import (
    HandleBackend,
    NoOpenCallError,
    QuestionUnderWayError,
    ScenarioError,
    UnknownNodesError,
)
from berth_host.handle.calls import HandleCall

Args = TypeVarTuple("Args")
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
        """Return the pods held at Permit; `only_mine`: only pods that this plugin holds."""
        return self._ask(calls.WAITING_PODS, only_mine)

    def allow(self, waiting: WaitingPod, plugin: str = "") -> Decision:
        """End the wait of one plugin; empty: this plugin's own."""
        return self._ask(calls.DECIDE, waiting.pod.uid, waiting.cycle_id, True, plugin)

    def reject(self, waiting: WaitingPod, message: str = "") -> Decision:
        """Send the pod back to the queue."""
        return self._ask(calls.DECIDE, waiting.pod.uid, waiting.cycle_id, False, message)

    def cancel_binding(self, pod: Pod, message: str = "", *, cycle_id: str = "") -> Cancellation:
        """Take the node from a pod while its PreBind plugins run."""
        return self._ask(calls.CANCEL_BINDING, pod.uid, cycle_id, message)

    def objects(self, resource: str) -> ObjectReader:
        """Return the objects of a declared resource."""
        return self._run(lambda: self._backend.objects(resource))

    def snapshot(self) -> NodeTable:
        """Return every node as the current cycle sees it."""
        return self._run(self._backend.snapshot)

    def pod_groups(self) -> PodGroupReader:
        """Return the groups of pods as the host knows them now."""
        return self._run(self._backend.pod_groups)

    async def evaluate_preemption(
        self,
        state: CycleState,
        *,
        min_candidate_nodes_percentage: int = 0,
        min_candidate_nodes_absolute: int = 0,
    ) -> PostFilterResult:
        """Run the host's own preemption; to be awaited on the loop."""
        limits = (min_candidate_nodes_percentage, min_candidate_nodes_absolute)
        return await self._await(calls.EVALUATE_PREEMPTION, state.cycle_id, *limits)

    async def run_filters(self, state: CycleState, scenarios: Iterable[Scenario]) -> list[Status]:
        """Run the other plugins' filters over these scenarios; to be awaited on the loop."""
        return await self._answer(self._backend.run_filters(self._plugin, state.cycle_id, tuple(scenarios)))

    async def run_scores(self, state: CycleState, node_names: Iterable[str]) -> NodeScores:
        """Run PreScore and Score over these nodes; to be awaited on the loop."""
        return await self._await(calls.RUN_SCORES, state.cycle_id, tuple(node_names))

    def list_nominated_pods(self, node_names: Iterable[str] | None = None) -> list[NominatedPod]:
        """Return the pods that are promised one of these nodes, or (None) any."""
        return self._ask(calls.NOMINATED_PODS, None if node_names is None else tuple(node_names))

    def nominate(self, pod: Pod, node_name: str | None) -> Nomination:
        """Promise a pending pod a node; None: the node that its status names; "": none."""
        return self._ask(calls.NOMINATE, pod.uid, node_name)

    def requeue(self, pods: Iterable[Pod] = (), *, reason: str = "", skip_backoff: bool = False) -> int:
        """Try pods again; none given: all that this plugin rejected."""
        return self._ask(calls.REQUEUE, [pod.uid for pod in pods] or None, reason, skip_backoff, "")

    def invalidate_sort_keys(self, pods: Iterable[Pod] = ()) -> None:
        """Mark the keys of these pods as stale; none given: all."""
        self._ask(calls.INVALIDATE_SORT_KEYS, [pod.uid for pod in pods] or None)

    def record_event(
        self, regarding: ObjectRef, reason: str, note: str, *, action: str = "", type: str = "Normal"
    ) -> None:
        """Write a Kubernetes event about a pod."""
        self._ask(calls.RECORD_EVENT, regarding, type, reason, action, note)

    def _ask(self, call: HandleCall[*Args, T], *args: *Args) -> T:
        """Return the answer of a row whose function answers at once."""
        # A row's answer may be awaitable; the rows that are put here answer at once.
        local: Callable[..., T] = call.local  # type: ignore[assignment]
        return self._run(lambda: local(self._backend, self._plugin, *args))

    async def _await(self, call: HandleCall[*Args, T], *args: *Args) -> T:
        """Return the answer of a row whose function is awaited. Raises HandleError."""
        return await self._answer(call.local(self._backend, self._plugin, *args))

    async def _answer(self, asked: T | Awaitable[T]) -> T:
        try:
            return await settled(asked)
        except (NoOpenCallError, QuestionUnderWayError, ScenarioError, UnknownNodesError) as err:
            raise HandleError(str(err)) from err

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
