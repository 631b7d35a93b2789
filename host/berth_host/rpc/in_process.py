"""`InProcessTransport`: a plugin inside the host, asked with the host's own objects.

The trusted shortcut: same checks, timing and policy as over the wire (the client's), no encoding. The
loop waits for plain `def` calls of the scheduling cycle; an overrun is named once the call returns.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import numpy as np
from berth_sdk.errors import PluginAnswerError
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import Answer
from berth_sdk.pod import Pod
from berth_sdk.results import (
    BindResult,
    FilterResult,
    NodeRejections,
    PatchResult,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    QueuedPod,
    ReserveResult,
)
from berth_sdk.runtime.answers import PLAIN, begun, must_wait, settled
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.errors.plugins import (
    PluginError,
    PluginProtocolError,
    PluginRaisedError,
    PluginTimeoutError,
)
from berth_host.rpc import calls
from berth_host.rpc.calls import Call
from berth_host.rpc.cycle import CycleContext, CycleEnd, Reserved

T = TypeVar("T")
DEFAULT_CONCURRENCY: Final = 8
"""Binding-cycle calls of one plugin at once, where the plugin does not say."""
_BINDING: Final = ("unreserve", "pre_bind_pre_flight", "pre_bind", "bind", "post_bind")


class InProcessTransport:
    """The plugin inside the host. Arguments are the host's own objects, the tables read-only.

    Plain `def` calls of the scheduling cycle run on the loop, one at a time; those of the binding cycle
    run in `max_concurrency` threads. `async def` is awaited, with the deadline, at either.
    """

    def __init__(self, runtime: PluginRuntime) -> None:
        self.runtime = runtime
        self._name = runtime.descriptor.name
        self._threads: ThreadPoolExecutor | None = None
        # Methods that a thread is worth: plain ones that the plugin itself has.
        self._in_thread = frozenset(
            method
            for method in _BINDING
            if callable(own := getattr(runtime.plugin, method, None)) and not inspect.iscoroutinefunction(own)
        )

    @property
    def is_open(self) -> bool:
        """Always: it lives as long as the host."""
        return True

    def close(self) -> None:
        """Let the threads go; calls that run there are not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    # --- the queue ---------------------------------------------------------------------------------

    async def pre_enqueue(self, pods: Sequence[QueuedPod], deadline_s: float) -> list[Status]:
        """One status per pod."""
        ask = self.runtime.pre_enqueue
        return [await settled(self._ask(calls.PRE_ENQUEUE, deadline_s, ask, pod)) for pod in pods]

    async def sort_keys(self, pods: Sequence[QueuedPod], deadline_s: float) -> list[bytes]:
        """One key per pod."""
        ask = self.runtime.sort_key
        return [await settled(self._ask(calls.SORT_KEYS, deadline_s, ask, pod)) for pod in pods]

    async def queueing_hints(self, event: ClusterEvent, pods: Sequence[Pod], deadline_s: float) -> list[bool]:
        """One hint per pod."""
        ask = self.runtime.queueing_hint
        return [await settled(self._ask(calls.QUEUEING_HINTS, deadline_s, ask, event, pod)) for pod in pods]

    # --- the scheduling cycle ------------------------------------------------------------------------

    def pre_filter(self, cycle: CycleContext, nodes: NodeTable, deadline_s: float) -> Answer[PreFilterResult]:
        """PreFilter over all nodes."""
        return self._ask(
            calls.PRE_FILTER, deadline_s, self.runtime.pre_filter, cycle.state(self._name), cycle.pod, nodes
        )

    def filter(self, cycle: CycleContext, nodes: NodeTable, deadline_s: float) -> Answer[FilterResult]:
        """Filter over the candidates; scores are asked for when they are due: no round trip is saved here."""
        return self._ask(
            calls.FILTER, deadline_s, self.runtime.filter, cycle.state(self._name), cycle.pod, nodes
        )

    def simulate_filter(
        self, cycle: CycleContext, scenarios: Scenarios, deadline_s: float
    ) -> Answer[Verdicts]:
        """Filter under assumptions."""
        state = cycle.state(self._name)
        return self._ask(
            calls.SIMULATE_FILTER, deadline_s, self.runtime.filter_scenarios, state, cycle.pod, scenarios
        )

    def post_filter(
        self, cycle: CycleContext, rejections: NodeRejections, deadline_s: float
    ) -> Answer[PostFilterResult]:
        """No node is left."""
        state = cycle.state(self._name)
        return self._ask(
            calls.POST_FILTER, deadline_s, self.runtime.post_filter, state, cycle.pod, rejections
        )

    def pre_score(self, cycle: CycleContext, nodes: NodeTable, deadline_s: float) -> Answer[Status]:
        """PreScore over the feasible nodes."""
        return self._ask(
            calls.PRE_SCORE, deadline_s, self.runtime.pre_score, cycle.state(self._name), cycle.pod, nodes
        )

    def score(self, cycle: CycleContext, nodes: NodeTable, deadline_s: float) -> Answer[NDArray[np.int64]]:
        """Raw scores."""
        return self._ask(
            calls.SCORE, deadline_s, self.runtime.score, cycle.state(self._name), cycle.pod, nodes
        )

    def normalize_score(
        self, cycle: CycleContext, scores: NDArray[np.int64], nodes: NodeTable, deadline_s: float
    ) -> Answer[NDArray[np.int64]]:
        """The plugin's own normalisation."""
        state = cycle.state(self._name)
        return self._ask(
            calls.NORMALIZE_SCORE, deadline_s, self.runtime.normalize, state, cycle.pod, scores, nodes
        )

    def reserve(self, cycle: CycleContext, node_name: str, deadline_s: float) -> Answer[Reserved]:
        """Whether it is reserved, and what the plugin answered of the binding cycle."""
        state = cycle.state(self._name)
        answer = self._ask(calls.RESERVE, deadline_s, self.runtime.reserve, state, cycle.pod, node_name)
        if answer is None or isinstance(answer, ReserveResult):
            return _reserved(answer)
        return _reserved_later(answer)

    def permit(self, cycle: CycleContext, node_name: str, deadline_s: float) -> Answer[PermitResult | None]:
        """None: the plugin did not decide."""
        return self._ask(
            calls.PERMIT, deadline_s, self.runtime.permit, cycle.state(self._name), cycle.pod, node_name
        )

    # --- the binding cycle ---------------------------------------------------------------------------

    def unreserve(self, cycle: CycleContext, node_name: str, reason: str, deadline_s: float) -> Answer[None]:
        """In a thread only when the binding cycle asks; the scheduling cycle's plain calls are serial."""
        ask = self._bind_ask if cycle.binding else self._ask
        state = cycle.state(self._name)
        return ask(calls.UNRESERVE, deadline_s, self.runtime.unreserve, state, cycle.pod, node_name)

    def pre_bind_pre_flight(
        self, cycle: CycleContext, node_name: str, deadline_s: float
    ) -> Answer[PreFlightResult]:
        """Will PreBind do anything?"""
        state = cycle.state(self._name)
        return self._bind_ask(
            calls.PRE_BIND_PRE_FLIGHT,
            deadline_s,
            self.runtime.pre_bind_pre_flight,
            state,
            cycle.pod,
            node_name,
        )

    def pre_bind(
        self, cycle: CycleContext, node_name: str, patched: Sequence[PatchResult], deadline_s: float
    ) -> Answer[PreBindResult | None]:
        """One round; None: the plugin did not decide."""
        state = cycle.state(self._name)
        return self._bind_ask(
            calls.PRE_BIND, deadline_s, self.runtime.pre_bind, state, cycle.pod, node_name, patched
        )

    def bind(self, cycle: CycleContext, node_name: str, deadline_s: float) -> Answer[BindResult | None]:
        """None: the plugin did not decide."""
        return self._bind_ask(
            calls.BIND, deadline_s, self.runtime.bind, cycle.state(self._name), cycle.pod, node_name
        )

    def post_bind(self, cycle: CycleContext, node_name: str, deadline_s: float) -> Answer[None]:
        """For information."""
        return self._bind_ask(
            calls.POST_BIND, deadline_s, self.runtime.post_bind, cycle.state(self._name), cycle.pod, node_name
        )

    def end_cycle(self, cycle: CycleContext, outcome: CycleEnd) -> None:
        """Nothing to tell: the cycle's state goes with the context."""

    # --- how it is done ------------------------------------------------------------------------------

    def _ask(self, call: Call, deadline_s: float, method: Callable[..., Answer[T]], *args: Any) -> Answer[T]:
        """Call on the loop. What has to be awaited comes back as something to await, with the deadline."""
        try:
            answer = method(*args)
            if type(answer) in PLAIN:
                return answer
            answer = begun(answer)
        except PluginError:
            raise
        except (Exception, SystemExit) as err:
            raise self._failure(call, err) from err
        return self._mapped(call, self._bounded(call, deadline_s, answer)) if must_wait(answer) else answer

    def _bind_ask(
        self, call: Call, deadline_s: float, method: Callable[..., Answer[T]], *args: Any
    ) -> Answer[T]:
        """Call in a thread if the plugin's method is a plain one, else on the loop."""
        if method.__name__ not in self._in_thread:
            return self._ask(call, deadline_s, method, *args)
        return self._mapped(call, self._threaded(call, deadline_s, method, *args))

    async def _threaded(
        self, call: Call, deadline_s: float, method: Callable[..., Answer[T]], *args: Any
    ) -> T:
        if self._threads is None:
            count = self.runtime.descriptor.max_concurrency or DEFAULT_CONCURRENCY
            self._threads = ThreadPoolExecutor(count, thread_name_prefix=f"berth-{self._name}")
        context = contextvars.copy_context()
        answer = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: context.run(method, *args)
        )
        # A plain method may still have answered something to await.
        return await (self._bounded(call, deadline_s, answer) if must_wait(answer) else settled(answer))

    async def _mapped(self, call: Call, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except PluginError:
            raise
        except (Exception, SystemExit) as err:
            raise self._failure(call, err) from err

    async def _bounded(self, call: Call, deadline_s: float, answer: Awaitable[T]) -> T:
        deadline = asyncio.timeout(deadline_s)
        try:
            async with deadline:
                return await answer
        except TimeoutError as err:
            if not deadline.expired():
                raise  # the plugin's own
            raise PluginTimeoutError(self._name, call.rpc, deadline_s) from err

    def _failure(self, call: Call, err: Exception | SystemExit) -> PluginError:
        if isinstance(err, PluginAnswerError):
            return PluginProtocolError(self._name, call.rpc, f"broke the contract ({err})")
        return PluginRaisedError(self._name, call.rpc, f"raised {type(err).__name__}: {err}")


def _reserved(result: ReserveResult | None) -> Reserved:
    if result is None:
        return Reserved(None)
    pre_bind = result.pre_bind
    return Reserved(result.status, result.pre_flight, None if pre_bind is None else lambda: pre_bind)


async def _reserved_later(answer: Awaitable[ReserveResult | None]) -> Reserved:
    return _reserved(await answer)
