"""`Attempt`: one pod's scheduling cycle through one plugin, point by point. Made by `PluginHost.attempt`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth_sdk.cycle_state import CycleState, SharedState
from berth_sdk.errors import PluginAnswerError
from berth_sdk.extension_points import ExtensionPoint, ScoreNormalization
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.results import (
    BindResult,
    FilterResult,
    NodeRejections,
    ObjectPatch,
    PatchOutcome,
    PatchResult,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    ReserveResult,
)
from berth_sdk.runtime.normalization import normalized
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import MAX_NODE_SCORE, MIN_NODE_SCORE, Code, Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.testing.handle import RecordingHandle
from berth_sdk.testing.promises import check_promise

if TYPE_CHECKING:
    from berth_sdk.testing.host import PluginHost

MAX_ROUNDS: Final = 64
"""The number of PreBind rounds after which a test fails, because the plugin never finishes."""
T = TypeVar("T")


@dataclass(slots=True)
class Cycle:
    """The data that the plugins of one cycle share. `pod`: with the patches applied. `shared`: the values
    that plugins published.
    """

    cycle_id: str
    pod: Pod
    nodes: NodeTable
    shared: SharedState


@dataclass(frozen=True, slots=True)
class Seat:
    """One plugin of a test host, and its handle."""

    runtime: PluginRuntime
    handle: RecordingHandle


class Attempt:
    """One cycle. `place` takes the pod from Reserve to PostBind through all plugins of the host, as a real
    host does.

    The other methods call this plugin alone at one extension point, in any order. Each call is a new one,
    except for PreBind answers that `reserve` already gave.

    `state`: the plugin's store of this cycle. `shared`: values that other plugins published, by
    `<plugin>/<key>`. `patched`: the outcomes of PreBind's patches. `skips_pre_bind`: Reserve returned SKIP.
    `holds_nothing`: the same, and the plugin does not hold the pod at Permit.
    """

    def __init__(self, host: PluginHost, seat: Seat, cycle: Cycle, beside: Sequence[Seat] = ()) -> None:
        self._host = host
        self._runtime = seat.runtime
        self._cycle = cycle
        self.nodes = cycle.nodes
        self.shared = cycle.shared
        self.state = CycleState(cycle.cycle_id, plugin=self.name, shared=self.shared)
        self.patched: list[PatchResult] = []
        self._reserved: ReserveResult | None = None
        self.holds_nothing = False
        self.skips_pre_bind = False
        self._early: PreBindResult | None = None
        self._results: tuple[PatchResult, ...] = ()
        self._members = (self, *(Attempt(host, other, cycle) for other in beside))

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self._runtime.descriptor.name

    @property
    def pod(self) -> Pod:
        """The pod, with the patches applied."""
        return self._cycle.pod

    @pod.setter
    def pod(self, pod: Pod) -> None:
        self._cycle.pod = pod

    # --- all points together -------------------------------------------------------------------

    def place(self, node_name: str) -> Status:
        """Take the pod from Reserve to PostBind on this node, in the order of a host, and return `outcome`.

        The host calls Reserve, Permit, PreBind and Bind of every plugin, in order. After a failure or an
        exception, the host calls Unreserve of every Reserve plugin, in reverse order. Where no plugin binds
        the pod, the host binds it.

        WAIT: a plugin holds the pod at Permit, or PreBind asked for time. The pod continues after
        `handle.allow`, `handle.reject` or `PluginHost.advance`. Raises ValueError for a pod that `place` is
        already working on, and KeyError for an unknown node if the host has any nodes.
        """
        return self._host.place(self._cycle, self._members, node_name)

    @property
    def outcome(self) -> Status | None:
        """The result of `place`: SUCCESS for a bound pod, WAIT before the end, None without a call of
        `place`.

        A failure has the code, the message and the plugin that a real host would give it.
        """
        return self._host.outcome(self._cycle.cycle_id)

    # --- the scheduling cycle ------------------------------------------------------------------

    def pre_filter(self) -> PreFilterResult:
        """Run PreFilter over all nodes."""
        result: PreFilterResult = self._host.run(self._runtime.pre_filter(self.state, self.pod, self.nodes))
        return result

    def filter(self, *names: str) -> dict[str, Status]:
        """Return the verdict on each node, or on the named nodes.

        Raises PluginAnswerError for a class whose verdicts follow from more than its `depends_on` names.
        """
        nodes = self.nodes.take(self._positions(names)) if names else self.nodes
        before = self.state.clone()
        verdicts = self._verdicts(self.state, nodes)
        self._check_promise("filter", verdicts, nodes, lambda table: self._verdicts(before.clone(), table))
        return verdicts

    def what_if(self, node_name: str, *, removed: Iterable[Pod] = (), added: Iterable[Pod] = ()) -> Status:
        """Return the verdict on a node without the pods `removed` and with the pods `added`."""
        scenario = Scenario(node_name, tuple(removed), tuple(added))
        verdicts: Verdicts = self._host.run(
            self._runtime.filter_scenarios(self.state, self.pod, Scenarios(self.nodes, [scenario]))
        )
        return verdicts.status(0)

    def post_filter(self, rejections: Mapping[str, Status] | None = None) -> PostFilterResult:
        """Run PostFilter. `rejections`: the rejected nodes; None: the nodes that the plugin's own Filter
        rejects.
        """
        if rejections is None:
            rejections = {name: status for name, status in self.filter().items() if not status.is_success}
        result: PostFilterResult = self._host.run(
            self._runtime.post_filter(self.state, self.pod, NodeRejections(dict(rejections)))
        )
        return result

    def pre_score(self, *names: str) -> Status:
        """Run PreScore alone, over all nodes, or the named ones, and return its answer."""
        nodes = self.nodes.take(self._positions(names)) if names else self.nodes
        status: Status = self._host.run(self._runtime.pre_score(self.state, self.pod, nodes))
        return status

    def score(self, *names: str) -> dict[str, int]:
        """Run PreScore, Score and normalisation over all nodes, or the named ones. Empty after SKIP.

        Raises PluginAnswerError for final scores outside 0..100, for a PreScore that fails and for a class
        whose scores follow from more than its `depends_on` names, and ScoreRefusedError for a failed Status
        in place of scores.
        """
        nodes = self.nodes.take(self._positions(names)) if names else self.nodes
        status = self.pre_score(*names)
        if status.code is Code.SKIP:
            return {}
        if not status.is_success:
            raise PluginAnswerError(
                f"{self.name}.pre_score returned {status.code.kube_name}: {status.message}"
            )
        before = self.state.clone()
        # The check asks again, and the runtime writes the new scores over those that it returned before.
        raw: NDArray[np.int64] = self._host.run(self._runtime.score(self.state, self.pod, nodes)).copy()
        self._check_promise(
            "score",
            dict(zip(nodes.names, raw.tolist(), strict=True)),
            nodes,
            lambda table: self._scores(before.clone(), table),
        )
        normalization = self._runtime.descriptor.normalization
        if normalization is ScoreNormalization.RPC:
            final: NDArray[np.int64] = self._host.run(
                self._runtime.normalize(self.state, self.pod, raw, nodes)
            )
        else:
            final = normalized(raw, normalization)
        for name, score in zip(nodes.names, final.tolist(), strict=True):
            if not MIN_NODE_SCORE <= score <= MAX_NODE_SCORE:
                raise PluginAnswerError(
                    f"{self.name} scores node {name} with {score}: it must be 0..100 after normalisation"
                )
        return dict(zip(nodes.names, final.tolist(), strict=True))

    def reserve(self, node_name: str) -> Status:
        """Run Reserve. PreBind answers in its result are stored and replace the later calls."""
        self._reserved = self._early = None
        self.holds_nothing = self.skips_pre_bind = False
        with self._host.at_work():
            result = self._host.decided("reserve", self._runtime.reserve(self.state, self.pod, node_name))
        if result.status.is_success:
            self._reserved, self._early = result, result.pre_bind
        self.holds_nothing = self.skips_pre_bind = result.status.code is Code.SKIP
        return result.status

    def unreserve(self, node_name: str) -> None:
        """Run Unreserve, which also ends the pod's wait at Permit."""
        self._host.room.discard(self.pod.uid, self._cycle.cycle_id)
        with self._host.at_work():
            self._host.run(self._runtime.unreserve(self.state, self.pod, node_name))

    def permit(self, node_name: str) -> PermitResult:
        """Run Permit. A pod that the plugin holds is in `handle.waiting_pods()` afterwards."""
        _, answers = self._host.ask_permit(self._cycle, [self], node_name)
        return answers[-1]

    def ask_permit(self, node_name: str) -> PermitResult:
        """Return the plugin's Permit answer, without holding the pod."""
        result: PermitResult = self._host.decided(
            "permit", self._runtime.permit(self.state, self.pod, node_name)
        )
        self.holds_nothing = self.holds_nothing and result.status.code is not Code.WAIT
        return result

    def wait_on_permit(self) -> Status:
        """Return WAIT while a plugin holds the pod, else the decision. SUCCESS if no plugin held the pod."""
        return self._host.room.outcome(self.pod.uid, self._cycle.cycle_id)

    # --- the binding cycle ---------------------------------------------------------------------

    def pre_bind_pre_flight(self, node_name: str) -> PreFlightResult:
        """Return whether PreBind has work to do."""
        if self._reserved is not None and self._reserved.pre_flight is not None:
            return self._reserved.pre_flight
        result: PreFlightResult = self._host.run(
            self._runtime.pre_bind_pre_flight(self.state, self.pod, node_name)
        )
        return result

    def pre_bind(self, node_name: str) -> PreBindResult:
        """Run PreBind in rounds, applying its patches to this host's objects, until it asks for no patch.

        After a result that asked for a later call, the next call of this method is the next round: the plugin
        sees the outcomes of its patches. Returns the result that fails, succeeds, or asks for a later call.
        """
        early, self._early = self._early, None
        for _ in range(MAX_ROUNDS):
            patched, self._results = self._results, ()
            with self._host.at_work():
                result: PreBindResult = early or self._host.decided(
                    "pre_bind", self._runtime.pre_bind(self.state, self.pod, node_name, patched)
                )
            early = None
            if not result.status.is_success or not result.patches:
                return result
            patched = self._apply(result.patches)
            self.patched.extend(patched)
            if result.is_done(patched):
                return PreBindResult(result.status)
            self._results = patched
            if result.ask_again_after_s is not None:
                return PreBindResult(result.status, ask_again_after_s=result.ask_again_after_s)
        raise PluginAnswerError(f"{self.name}.pre_bind still asks for patches after {MAX_ROUNDS} rounds")

    def bind(self, node_name: str) -> BindResult:
        """Run Bind. The result may ask the host to bind."""
        with self._host.at_work():
            return self._host.decided("bind", self._runtime.bind(self.state, self.pod, node_name))

    def post_bind(self, node_name: str) -> None:
        """Run PostBind."""
        with self._host.at_work():
            self._host.run(self._runtime.post_bind(self.state, self.pod, node_name))

    def takes_part_in(self, point: ExtensionPoint) -> bool:
        """Return True if the plugin has a method of this extension point."""
        return point in self._runtime.descriptor.points

    # --- plumbing ------------------------------------------------------------------------------

    def _verdicts(self, state: CycleState, nodes: NodeTable) -> dict[str, Status]:
        result: FilterResult = self._host.run(self._runtime.filter(state, self.pod, nodes))
        return dict(zip(nodes.names, result.verdicts.to_list(), strict=True))

    def _scores(self, state: CycleState, nodes: NodeTable) -> dict[str, int]:
        raw: NDArray[np.int64] = self._host.run(self._runtime.score(state, self.pod, nodes))
        return dict(zip(nodes.names, raw.tolist(), strict=True))

    def _check_promise(
        self,
        method: str,
        before: Mapping[str, T],
        nodes: NodeTable,
        ask: Callable[[NodeTable], Mapping[str, T]],
    ) -> None:
        check_promise(f"{self.name}.{method}", self._runtime.descriptor.depends_on, before, nodes, ask)

    def _positions(self, names: tuple[str, ...]) -> list[int]:
        positions = {name: self.nodes.position(name) for name in names}
        unknown = [name for name, position in positions.items() if position is None]
        if unknown:
            raise KeyError(f"the cluster has no node {', '.join(unknown)}")
        return sorted(position for position in positions.values() if position is not None)

    def _apply(self, patches: Iterable[ObjectPatch]) -> tuple[PatchResult, ...]:
        results: list[PatchResult] = []
        for patch in patches:
            failed = bool(results) and results[-1].outcome is not PatchOutcome.APPLIED
            results.append(
                PatchResult(outcome=PatchOutcome.SKIPPED, ref=patch.ref) if failed else self._applied(patch)
            )
        return tuple(results)

    def _applied(self, patch: ObjectPatch) -> PatchResult:
        now = self._current(patch)
        if now is None:
            return PatchResult(outcome=PatchOutcome.NOT_FOUND, ref=patch.ref)
        wanted = patch.expected_resource_version
        if (wanted and wanted != now.ref.resource_version) or (
            patch.ref.uid and patch.ref.uid != now.ref.uid
        ):
            return PatchResult(outcome=PatchOutcome.CONFLICT, ref=now.ref, object=now)
        body = merged(now.parsed, patch.merge_patch)
        metadata = dict(body.get("metadata") or {})
        metadata["resourceVersion"] = str(int(metadata.get("resourceVersion") or 0) + 1)
        body = {**body, "metadata": metadata}
        if patch.resource == "pods":
            self.pod = Pod.from_object(body)
            item = KubeObject.of(body)
        else:
            item = self._host.put_object(patch.resource, body)
        return PatchResult(outcome=PatchOutcome.APPLIED, ref=item.ref, object=item)

    def _current(self, patch: ObjectPatch) -> KubeObject | None:
        if patch.resource == "pods":
            return self.pod.object if patch.ref.key == self.pod.key else None
        return self._host.get_object(patch.resource, patch.ref.name, patch.ref.namespace)


def merged(target: Any, patch: Any) -> Any:
    """Return `target` with a JSON merge patch applied (RFC 7386).

    >>> merged({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})
    {'b': {'c': 2, 'd': 3}}
    """
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
