"""Asks one plugin class about a pod and a table, the way a host does, and gives back plain values.

`InProcess` calls the class through `PluginRuntime`; a transport that asks a served plugin has the same
methods, so a test that takes the fixture `ask` says nothing about where the plugin runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import NeedKind
from berth_sdk.pod import Pod
from berth_sdk.results import BindResult, PreFilterResult, QueuedPod
from berth_sdk.runtime.normalization import normalized
from berth_sdk.runtime.plugin_runtime import PluginRuntime, make_plugin
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable, ObjectStore
from berth_sdk.testing.handle import RecordingHandle

# For plugins that ask nothing of the host.
NO_HANDLE = cast(Handle, None)


@dataclass(frozen=True, slots=True)
class Plug:
    """A plugin class with its arguments, and the objects that it may read, by declared resource."""

    cls: type
    args: Mapping[str, Any] | None = None
    objects: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def runtime(self) -> PluginRuntime:
        """Return a new instance inside this process."""
        stores: dict[str, ObjectStore] = {}
        for need in getattr(self.cls, "needs", ()):
            if need.kind is NeedKind.OBJECT:
                stores[need.resource] = store = ObjectStore()
                for generation, item in enumerate(self.objects.get(need.resource, ()), 1):
                    shown = KubeObject.of(item)
                    store.put(shown.ref, shown, generation)
        handle = RecordingHandle(_no_snapshot, stores)
        return PluginRuntime(make_plugin(self.cls, self.args or {}, handle), handle=handle)


class Ask(Protocol):
    """The questions of tests. Filter follows PreFilter, Score follows PreScore, as in a cycle."""

    async def pre_filter(self, plug: Plug, pod: Pod, nodes: NodeTable) -> PreFilterResult:
        """PreFilter alone."""
        ...

    async def filter(self, plug: Plug, pod: Pod, nodes: NodeTable) -> list[Status]:
        """One verdict per node; all SUCCESS where PreFilter skips."""
        ...

    async def scenarios(self, plug: Plug, pod: Pod, scenarios: Scenarios) -> list[Status]:
        """One verdict per scenario, without PreFilter."""
        ...

    async def score(self, plug: Plug, pod: Pod, nodes: NodeTable) -> list[int] | Status:
        """Raw scores, or PreScore's status where that is not SUCCESS."""
        ...

    async def final_scores(self, plug: Plug, pod: Pod, nodes: NodeTable) -> list[int] | Status:
        """Scores after normalisation, or PreScore's status where that is not SUCCESS."""
        ...

    async def pre_enqueue(self, plug: Plug, pod: QueuedPod) -> Status:
        """PreEnqueue."""
        ...

    async def sort_key(self, plug: Plug, pod: QueuedPod) -> bytes:
        """QueueSort."""
        ...

    async def hint(self, plug: Plug, event: ClusterEvent, pod: Pod) -> bool:
        """QueueingHint."""
        ...

    async def bind(self, plug: Plug, pod: Pod, node_name: str) -> BindResult | None:
        """Bind."""
        ...


class InProcess:
    """The plugin in this process."""

    async def pre_filter(self, plug: Plug, pod: Pod, nodes: NodeTable) -> PreFilterResult:
        """PreFilter alone."""
        answer: PreFilterResult = await _value(plug.runtime().pre_filter(CycleState("cycle"), pod, nodes))
        return answer

    async def filter(self, plug: Plug, pod: Pod, nodes: NodeTable) -> list[Status]:
        """PreFilter, then Filter."""
        runtime = plug.runtime()
        state = CycleState("cycle")
        if hasattr(plug.cls, "pre_filter"):
            before: PreFilterResult = await _value(runtime.pre_filter(state, pod, nodes))
            if before.status.code is Code.SKIP:
                return [Status.success()] * len(nodes)
            if not before.status.is_success:
                return [before.status] * len(nodes)
        statuses: list[Status] = (await _value(runtime.filter(state, pod, nodes))).verdicts.to_list()
        return statuses

    async def scenarios(self, plug: Plug, pod: Pod, scenarios: Scenarios) -> list[Status]:
        """What if."""
        verdicts = await _value(plug.runtime().filter_scenarios(CycleState("cycle"), pod, scenarios))
        statuses: list[Status] = verdicts.to_list()
        return statuses

    async def score(self, plug: Plug, pod: Pod, nodes: NodeTable) -> list[int] | Status:
        """PreScore, then Score."""
        runtime = plug.runtime()
        state = CycleState("cycle")
        status: Status = await _value(runtime.pre_score(state, pod, nodes))
        if not status.is_success:
            return status
        scores: list[int] = (await _value(runtime.score(state, pod, nodes))).tolist()
        return scores

    async def final_scores(self, plug: Plug, pod: Pod, nodes: NodeTable) -> list[int] | Status:
        """PreScore, Score, then NormalizeScore."""
        runtime = plug.runtime()
        state = CycleState("cycle")
        status: Status = await _value(runtime.pre_score(state, pod, nodes))
        if not status.is_success:
            return status
        raw = await _value(runtime.score(state, pod, nodes))
        how = runtime.descriptor.normalization
        if how is ScoreNormalization.RPC:
            scores: list[int] = (await _value(runtime.normalize(state, pod, raw, nodes))).tolist()
            return scores
        final: list[int] = normalized(raw, how).tolist()
        return final

    async def pre_enqueue(self, plug: Plug, pod: QueuedPod) -> Status:
        """PreEnqueue."""
        status: Status = await _value(plug.runtime().pre_enqueue(pod))
        return status

    async def sort_key(self, plug: Plug, pod: QueuedPod) -> bytes:
        """QueueSort."""
        key: bytes = await _value(plug.runtime().sort_key(pod))
        return key

    async def hint(self, plug: Plug, event: ClusterEvent, pod: Pod) -> bool:
        """QueueingHint."""
        helps: bool = await _value(plug.runtime().queueing_hint(event, pod))
        return helps

    async def bind(self, plug: Plug, pod: Pod, node_name: str) -> BindResult | None:
        """Bind."""
        result: BindResult | None = await _value(plug.runtime().bind(CycleState("cycle"), pod, node_name))
        return result


IN_PROCESS: Final = InProcess()
"""For what does not travel: exceptions, and more reasons than the contract carries."""


def filter_now(plug: Plug, pod: Pod, nodes: NodeTable) -> list[Status]:
    """PreFilter, then Filter, of a plugin with plain methods: for tests that are not async."""
    runtime = plug.runtime()
    state = CycleState("cycle")
    if hasattr(plug.cls, "pre_filter"):
        before = cast(PreFilterResult, runtime.pre_filter(state, pod, nodes))
        if before.status.code is Code.SKIP:
            return [Status.success()] * len(nodes)
        if not before.status.is_success:
            return [before.status] * len(nodes)
    statuses: list[Status] = cast(Any, runtime.filter(state, pod, nodes)).verdicts.to_list()
    return statuses


def score_now(plug: Plug, pod: Pod, nodes: NodeTable) -> list[int] | Status:
    """PreScore, then Score, of a plugin with plain methods: for tests that are not async."""
    runtime = plug.runtime()
    state = CycleState("cycle")
    status = cast(Status, runtime.pre_score(state, pod, nodes))
    if not status.is_success:
        return status
    scores: list[int] = cast(Any, runtime.score(state, pod, nodes)).tolist()
    return scores


def _no_snapshot() -> NodeTable:
    raise AssertionError("outside of a call there is no snapshot")


async def _value(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
