"""NodeResourcesFit: a pod's requests against the nodes' free resources -> verdict and score.

Called at PreFilter, Filter, PreScore, Score and PlacementScore. DynamicResources checks an extended resource
of a device class on nodes that do not offer the resource themselves.

Source: `pkg/scheduler/framework/plugins/noderesources/fit.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ASSIGNED_POD, TARGET_POD, ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import (
    Account,
    Answer,
    Concerned,
    DependsOn,
    NodeColumn,
    Plugin,
    ScoreNormalization,
)
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.pod_group import Assignment, GroupView, Placement
from berth_sdk.selectors import is_label_key
from berth_sdk.slices import Work, in_slices
from berth_sdk.status import MAX_NODE_SCORE, SUCCESS, Code, Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.args.findings import Findings, strings
from berth_plugins.args.gates import EXACT_HINTS, SHRUNK_NODES, is_on
from berth_plugins.dynamic_resources.device_classes import (
    CLASS_KIND,
    CLASSES,
    IMPLICIT_PREFIX,
    DeviceClasses,
    may_be_served,
)
from berth_plugins.node_resources.strategies import read_strategy
from berth_plugins.objects.of_events import as_node, as_object, as_pod, holds_place
from berth_plugins.objects.resource_names import PLAIN, is_counted, is_extended, is_scalar

TOO_MANY_PODS: Final = "Too many pods"
_DEMAND: Final = "demand"
_SCORED: Final = "score requests"
_TABLE_BITS: Final = 10
MAX_BITS: Final = 60
_BITS: Final = 2 << np.arange(MAX_BITS, dtype=np.int64)
_MOST_LISTED: Final = 32
"""The number of rows up to which a Python loop groups them. numpy would need four passes."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The requests that Filter has to check: positive amounts, cpu in milli, all else in base units.

    `served`: the names that a device class provides.
    """

    amounts: tuple[tuple[str, int], ...]
    served: frozenset[str] = frozenset()
    names: tuple[str, ...] = field(init=False)
    column: NDArray[np.int64] = field(init=False, compare=False)
    """int64[k, 1]: the k amounts."""
    _statuses: dict[int, Status] = field(init=False, compare=False, default_factory=dict)
    """Statuses by pattern (see `grouped`), made once for all pods with the same demand."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(name for name, _ in self.amounts))
        object.__setattr__(self, "column", _column([amount for _, amount in self.amounts]))

    @staticmethod
    def of(pod: Pod) -> Demand:
        """Return cpu, memory and ephemeral storage first, then the rest by name, since a map from the wire
        has no order. Names that no node counts are left out.
        """
        plain = [(name, pod.requests.get(name, 0)) for name in PLAIN]
        scalar = sorted((name, value) for name, value in pod.requests.items() if is_scalar(name))
        return Demand(tuple((name, value) for name, value in (*plain, *scalar) if value > 0))

    def grouped(
        self, full: NDArray[np.bool_], lacking: NDArray[np.bool_], never: NDArray[np.bool_]
    ) -> Verdicts:
        """Return one group of rows per combination of reasons, for at most `MAX_BITS` resources.

        `full`: bool[n], no room for one more pod. `lacking`: bool[k, n], too little of each resource.
        `never`: bool[n], more than the whole node has. A row's pattern: bit 0 the pods, bit i + 1 the
        resource i, the bit above them: unresolvable.
        """
        count = len(self.amounts)
        pattern = _BITS[:count].dot(lacking)
        pattern += full
        pattern += never * (2 << count)
        if len(pattern) <= _MOST_LISTED:
            patterns = pattern.tolist()
            found = sorted({0, *patterns})
            code_of = {value: code for code, value in enumerate(found)}
            groups = np.array([code_of[value] for value in patterns], dtype=np.int32)
        elif count <= _TABLE_BITS:
            # A table over all patterns is faster than sorting the rows.
            seen = np.bincount(pattern) > 0
            seen[0] = True
            groups = (np.cumsum(seen, dtype=np.int32) - np.int32(1)).take(pattern)
            found = np.flatnonzero(seen).tolist()
        else:
            unique, inverse = np.unique(np.append(0, pattern), return_inverse=True)
            groups = inverse[1:].astype(np.int32)
            found = unique.tolist()
        return Verdicts(groups, tuple([self._status(value) for value in found]))

    def judged(self, nodes: NodeTable) -> Work[Verdicts]:
        """Return the verdicts for more than `MAX_BITS` resources. The API admits tens of thousands.

        The resources that no node offers are the same for all nodes, and take no columns.
        """
        full = nodes.pod_count >= nodes.allocatable("pods")
        everywhere = np.zeros(len(self.names), dtype=np.bool_)
        never = np.zeros(len(nodes), dtype=np.bool_)
        positions, lacking = [], [full]
        for i, (name, amount) in enumerate(self.amounts):
            if nodes.offers(name):
                allocatable = nodes.allocatable(name)
                lacks = allocatable - nodes.requested(name) < amount
                if name in self.served:
                    # Where the node offers none, devices take its place.
                    lacks &= allocatable > 0
                if lacks.any():
                    never |= lacks & (allocatable < amount)
                    positions.append(i)
                    lacking.append(lacks)
            elif name not in self.served:
                everywhere[i] = True
            yield
        never |= everywhere.any()
        # One group of nodes per combination of reasons.
        patterns = np.packbits(np.stack([never, *lacking], axis=1), axis=1)
        rows = np.ascontiguousarray(patterns).view(np.dtype((np.void, patterns.shape[1]))).ravel()
        _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
        statuses = [SUCCESS]
        code_of = np.zeros(len(first), dtype=np.int32)
        for code, row in enumerate(first.tolist()):
            missing = everywhere.copy()
            missing[[at for at, lacks in zip(positions, lacking[1:], strict=True) if lacks[row]]] = True
            reasons = [f"Insufficient {self.names[i]}" for i in np.flatnonzero(missing)]
            if full[row]:
                reasons.insert(0, TOO_MANY_PODS)
            if reasons:
                unresolvable = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if never[row] else Code.UNSCHEDULABLE
                code_of[code] = len(statuses)
                statuses.append(Status(unresolvable, tuple(reasons)))
            yield
        return Verdicts(code_of.take(inverse.ravel()), tuple(statuses))

    def _status(self, pattern: int) -> Status:
        status = self._statuses.get(pattern)
        if status is None:
            names = (TOO_MANY_PODS, *(f"Insufficient {name}" for name in self.names))
            reasons = tuple(reason for bit, reason in enumerate(names) if pattern >> bit & 1)
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if pattern >> len(names) else Code.UNSCHEDULABLE
            status = self._statuses[pattern] = Status(code, reasons) if pattern else SUCCESS
        return status


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Score's input: k resources; the pod's requests for them (int64[k, 1]); their weights."""

    names: tuple[str, ...]
    amounts: NDArray[np.int64]
    weights: tuple[int, ...]


class NodeResourcesFit(Plugin):
    """Rejects nodes that lack a requested resource, and names every such resource. Scores the others by the
    configured strategy.
    """

    accounts: ClassVar[Sequence[Account]] = (Account.RESOURCES,)
    normalization: ScoreNormalization | None = ScoreNormalization.NONE
    needs: Sequence[Need] = (Need.nodes(), Need.objects(CLASSES))
    depends_on: DependsOn | None = DependsOn.ROW
    reads: Sequence[NodeColumn] | None = (
        NodeColumn.ALLOCATABLE,
        NodeColumn.REQUESTED,
        NodeColumn.NON_ZERO_REQUESTED,
        NodeColumn.POD_COUNT,
    )
    sign_fields: Sequence[PodField] | None = (PodField.REQUESTS,)
    events: Sequence[EventInterest] | None = (
        EventInterest(ASSIGNED_POD, ("delete", "update.scaleDown"), Hint.ASK_PLUGIN),
        EventInterest(TARGET_POD, ("update.scaleDown",), Hint.ASK_PLUGIN),
        EventInterest("Node", ("add", "update.allocatable"), Hint.ASK_PLUGIN),
        EventInterest(CLASS_KIND, ("add", "update"), Hint.ASK_PLUGIN),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: NodeResourcesFitArgs. Raises PluginArgsError with every error in the arguments."""
        super().__init__(args, handle)
        self._exact_hints = is_on(args, EXACT_HINTS, default=True)
        self._leaves_shrunk_nodes = is_on(args, SHRUNK_NODES, default=True)
        findings = Findings()
        self._ignored = frozenset(strings(args, "ignoredResources", "ignoredResources"))
        self._ignored_groups = frozenset(strings(args, "ignoredResourceGroups", "ignoredResourceGroups"))
        _check_ignored(args, findings)
        self._strategy = read_strategy(args, findings)
        findings.check()
        self._classes = DeviceClasses(lambda: handle.objects(CLASSES))

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return the amounts, as Filter and as Score read them."""
        return tuple(pod.requests.items()), tuple(pod.score_requests.items())

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Sum up the pod's requests once. Never skips: every pod counts against a node's number of pods."""
        state.write(_DEMAND, self._demand(pod))
        return Status.success()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Verdicts]:
        """Return all reasons of each node. Unresolvable where a request exceeds the node's whole
        allocatable.
        """
        demand: Demand = state.get(_DEMAND) or state.get_or_make(_DEMAND, lambda: self._demand(pod))
        if len(demand.names) > MAX_BITS:
            return in_slices(demand.judged(nodes))
        full = nodes.pod_count >= nodes.allocatable("pods")
        allocatable = nodes.allocatable_of(demand.names)
        lacking = allocatable - nodes.requested_of(demand.names) < demand.column
        if not (np.count_nonzero(full) or np.count_nonzero(lacking)):
            return Verdicts.feasible(len(nodes))
        for i, name in enumerate(demand.names):
            if name in demand.served:
                # Where the node offers none, devices take its place.
                lacking[i] &= allocatable[i] > 0
        never: NDArray[np.bool_] = np.logical_or.reduce(lacking & (allocatable < demand.column), axis=0)
        return demand.grouped(full, lacking, never)

    def count_copies(self, pod: Pod, nodes: NodeTable) -> NDArray[np.int64] | None:
        """Return int64[n]: how many pods with these requests each node takes, where the first one passes
        Filter. None where devices may take the place of a resource.
        """
        demand = self._demand(pod)
        if demand.served:
            return None
        copies = nodes.allocatable("pods") - nodes.pod_count
        for name, amount in demand.amounts:
            copies = np.minimum(copies, (nodes.allocatable(name) - nodes.requested(name)) // amount)
        return copies

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Store the requests that the strategy adds for this pod. Never skips."""
        state.write(_SCORED, self._scored(pod))
        return Status.success()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n], 0..100."""
        scored: Scored = state.get(_SCORED) or state.get_or_make(_SCORED, lambda: self._scored(pod))
        if scored.names == PLAIN[:2]:
            used = nodes.non_zero_requested_of_both
        else:
            used = np.array(
                [
                    nodes.non_zero_requested(name) if name in PLAIN[:2] else nodes.requested(name)
                    for name in scored.names
                ],
                dtype=np.int64,
            ).reshape(len(scored.names), len(nodes))
        return self._strategy.combine(
            used, scored.amounts, nodes.allocatable_of(scored.names), scored.weights, len(nodes)
        )

    def placement_score(
        self, state: CycleState, group: GroupView, placement: Placement, assignments: Sequence[Assignment]
    ) -> int:
        """Return the share of the placement's resources that is in use with the group, 0..100: the mean over
        the strategy's resources by their weights, whatever the strategy is.
        """
        nodes, pods = placement.nodes, [one.pod for one in assignments]
        total = weights = 0
        for name, weight in self._strategy.resources:
            allocatable = sum(nodes.allocatable(name).tolist()) if is_counted(name) else 0
            amount = sum(pod.score_requests.get(name, 0) for pod in pods)
            if not allocatable or not (amount or name in PLAIN):
                continue
            used = nodes.non_zero_requested(name) if name in PLAIN[:2] else nodes.requested(name)
            total += weight * (min(amount + sum(used.tolist()), allocatable) * MAX_NODE_SCORE // allocatable)
            weights += weight
        return total // weights if weights else 0

    def sign_queue(self, pod: Pod) -> Hashable:
        """Return the requested amounts, and the nominated node where its end may help."""
        nominated = pod.nominated_node if self._leaves_shrunk_nodes and not pod.group_key else ""
        return tuple(pod.requests.items()), nominated

    def hint_keys(self, pod: Pod) -> Sequence[Hashable]:
        """Return the key of `sign_queue`."""
        return (self.sign_queue(pod),)

    def pre_queueing_hint(self, event: ClusterEvent) -> Concerned:
        """Return the requests that fit the empty node, or that contain what a pod gave up."""
        if event.resource == "Pod":
            return _requests_with_room_from_pod(event)
        if event.resource == "Node":
            return _requests_with_room_from_node(event)
        return None

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if room appeared: a pod was deleted or shrank, a node was added or grew, or a device
        class now provides a requested resource.
        """
        if event.resource == "Pod":
            return _room_from_pod(event, pod)
        if event.resource == "Node":
            # The hint of 1.36 considers neither ignored resources nor resources that device classes provide.
            demand = self._demand(pod) if self._exact_hints else Demand.of(pod)
            return _room_from_node(event, demand) or (
                self._leaves_shrunk_nodes and _lost_nominated_node(event, pod, demand)
            )
        return _room_from_class(event, pod)

    def _demand(self, pod: Pod) -> Demand:
        amounts = tuple(one for one in Demand.of(pod).amounts if not self._is_ignored(one[0]))
        extended = [name for name, _ in amounts if name not in PLAIN and may_be_served(name)]
        return Demand(
            amounts, frozenset(name for name in extended if self._classes.serving(name) is not None)
        )

    def _is_ignored(self, name: str) -> bool:
        if not (self._ignored or self._ignored_groups) or not is_extended(name):
            return False
        return name in self._ignored or name.split("/", 1)[0] in self._ignored_groups

    def _scored(self, pod: Pod) -> Scored:
        """Return the strategy's resources that nodes count. A scalar resource that the pod does not request
        has no effect on the score.
        """
        names, amounts, weights = [], [], []
        for name, weight in self._strategy.resources:
            amount = pod.score_requests.get(name, 0)
            if is_counted(name) and (amount or name in PLAIN):
                names.append(name)
                amounts.append(amount)
                weights.append(weight)
        return Scored(tuple(names), _column(amounts), tuple(weights))


def _column(numbers: Sequence[int]) -> NDArray[np.int64]:
    return np.array(numbers, dtype=np.int64).reshape(-1, 1)


def _check_ignored(args: Mapping[str, Any], findings: Findings) -> None:
    problem = "not a resource name, as example.com/gpu"
    for i, name in enumerate(strings(args, "ignoredResources", "ignoredResources")):
        if not is_label_key(name):
            findings.invalid(f"ignoredResources[{i}]", name, problem)
    for i, group in enumerate(strings(args, "ignoredResourceGroups", "ignoredResourceGroups")):
        path = f"ignoredResourceGroups[{i}]"
        if "/" in group:
            findings.invalid(path, group, "resource group name can't contain '/'")
        if not is_label_key(group):
            findings.invalid(path, group, problem)


def _room_from_pod(event: ClusterEvent, pod: Pod) -> bool:
    if event.new is None:
        return holds_place(as_pod(event.old))
    changed = as_pod(event.new)
    if changed.uid == pod.uid:
        return True
    if not changed.node_name:
        return False
    before = as_pod(event.old).requests
    return any(
        value and is_counted(name) and max(before.get(name, 0), 0) > max(changed.requests.get(name, 0), 0)
        for name, value in pod.requests.items()
    )


def _requests_with_room_from_pod(event: ClusterEvent) -> Concerned:
    if event.new is None:
        return None if holds_place(as_pod(event.old)) else ()
    before, after = as_pod(event.old).requests, as_pod(event.new)
    if not after.node_name:
        return ()
    freed = {name for name, value in before.items() if value > max(after.requests.get(name, 0), 0)}

    def has_room(key: tuple[Sequence[tuple[str, int]], str]) -> bool:
        for name, amount in key[0]:  # noqa: SIM110 (called for each of ten thousand keys)
            if name in freed and amount:
                return True
        return False

    return has_room if freed else ()


def _requests_with_room_from_node(event: ClusterEvent) -> Concerned:
    node = as_node(event.new)
    offered = {name: max(node.allocatable.get(name, 0), 0) for name in PLAIN}

    def has_room(key: tuple[Sequence[tuple[str, int]], str]) -> bool:
        if key[1] == node.name:
            return True
        for name, amount in key[0]:  # noqa: SIM110 (as above)
            # Whether a device class provides the other resources is for the hint to find out.
            if name in offered and amount > offered[name]:
                return False
        return True

    return has_room


def _room_from_node(event: ClusterEvent, demand: Demand) -> bool:
    node = as_node(event.new)
    if not _fits_empty(node, demand):
        return False
    if event.old is None:
        return True
    before = as_node(event.old).allocatable
    after = node.allocatable
    if after.get("pods", 0) > before.get("pods", 0):
        return True
    # Where a node offers none of a resource that a device class provides, devices take its place.
    return any(
        after.get(name, 0) > before.get(name, 0)
        or (name in demand.served and not after.get(name) and before.get(name, 0) > 0)
        for name in demand.names
    )


def _lost_nominated_node(event: ClusterEvent, pod: Pod, demand: Demand) -> bool:
    """Return True if the node to which the pod is nominated is no longer large enough, even when it is empty.

    Extended resources do not count: a device plugin that restarts offers none for a moment. Members of groups
    have no other node before their whole group has.
    """
    node = as_node(event.new)
    if event.old is None or pod.group_key or pod.nominated_node != node.name:
        return False
    is_too_small = any(
        name in PLAIN and amount > node.allocatable.get(name, 0) for name, amount in demand.amounts
    )
    return is_too_small and _fits_empty(as_node(event.old), demand)


def _fits_empty(node: Node, demand: Demand) -> bool:
    offered = node.allocatable
    return offered.get("pods", 0) >= 1 and all(
        amount <= offered.get(name, 0) or (name in demand.served and not offered.get(name))
        for name, amount in demand.amounts
    )


def _room_from_class(event: ClusterEvent, pod: Pod) -> bool:
    device_class = as_object(event.new)
    provided = device_class.get("spec.extendedResourceName")
    if event.old is None:
        if IMPLICIT_PREFIX + device_class.ref.name in pod.requests:
            return True
    elif (as_object(event.old).get("spec.extendedResourceName") or "") == (provided or ""):
        return False
    return provided is not None and provided in pod.requests
