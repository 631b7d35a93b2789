"""The data that one plugin may read, by the `needs` of its class. `plugin_runtime` uses it.

The plugin gets views of every pod, table and object. Reading an undeclared part of a view raises
UndeclaredError. A view is made once, and kept with the host's record or table.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import HandleError, UndeclaredError
from berth_sdk.handle import Handle, ObjectReader
from berth_sdk.kube_object import KubeObject
from berth_sdk.limits import node_limits, pod_limits
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment, GroupView, Placement
from berth_sdk.results import LiveReservation, NominatedPod, QueuedPod, WaitingPod
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scenarios import Scenarios
from berth_sdk.selection import StateSelection
from berth_sdk.tables import NodeTable
from berth_sdk.tables.limited_tables import LimitedNodeTable, table_class
from berth_sdk.undeclared import Drops, trimmed

P = TypeVar("P", Pod, QueuedPod)
NO_SNAPSHOT: Final = "the host has not sent the snapshot yet: read it in a call, not in __init__"
_IN_A_CALL: Final = "declare them in the class, or read them in a call"
_ONE_POD: Final = ("pre_enqueue", "sort_key", "sign_spec", "sign_queue", "hint_keys")
"""The methods with one pod as the only argument."""
_OVER_NODES: Final = ("pre_filter", "filter_nodes", "pre_score", "score_nodes")
"""The methods with the arguments (state, pod, nodes)."""


class Declared:
    """The data that a plugin declared."""

    def __init__(self, descriptor: Descriptor) -> None:
        selection = StateSelection.of(descriptor.needs)
        self.plugin = descriptor.name
        self.whole_pod = descriptor.wants_whole_pod
        self.has_snapshot = descriptor.keeps_state
        self.resources = dict(selection.resources)
        """The fields that the plugin drops, by declared resource."""
        self.shared = frozenset(descriptor.reads_shared)
        self._seen_groups: dict[int, tuple[GroupView, GroupView]] = {}
        """By identity: the groups of the last tree, and what the plugin may read of each. A cycle asks many
        times, about the tree and about each group in it.
        """
        self._pod_limits = pod_limits(selection)
        self._table: type[LimitedNodeTable] = table_class(
            node_limits(selection, descriptor.keeps_state), self._pod_limits, self.whole_pod
        )

    def pod(self, pod: P) -> P:
        """Return the pod of a call as the plugin may read it."""
        return pod if self.whole_pod else pod.as_summary()

    def nodes(self, nodes: NodeTable) -> NodeTable:
        """Return a table as the plugin may read it."""
        return nodes if isinstance(nodes, LimitedNodeTable) else nodes.seen_as(self._table)

    def scenarios(self, scenarios: Scenarios) -> Scenarios:
        """Return what-ifs as the plugin may read them."""
        nodes = scenarios.nodes.seen_as(self._table)
        return scenarios.limited(nodes, *nodes.limited_changes(scenarios.removed, scenarios.added))

    def group(self, group: GroupView) -> GroupView:
        """Return the group of a call as the plugin may read it."""
        if self.whole_pod:
            return group
        known = self._seen_groups.get(id(group))
        if known is None or known[0] is not group:
            self._seen_groups = {}
            return _summarised(group, self._seen_groups)
        return known[1]

    def placement(self, placement: Placement) -> Placement:
        """Return a placement as the plugin may read it."""
        return Placement(placement.name, self.nodes(placement.nodes))

    def assignments(self, assignments: Sequence[Assignment]) -> Sequence[Assignment]:
        """Return assignments with their pods as the plugin may read them."""
        return [Assignment(self.pod(one.pod), one.node_name) for one in assignments]

    def live(self, reservation: LiveReservation) -> LiveReservation:
        """Return a reservation with its pod as the plugin may read it."""
        return reservation if self.whole_pod else replace(reservation, pod=reservation.pod.as_summary())

    def name(self, err: UndeclaredError) -> None:
        """Write the plugin's name into the error."""
        err.plugin = err.plugin or self.plugin

    def methods(self, methods: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """Return functions that call the methods of a plugin. They take the host's own records."""
        return {method: self._calling(method, function) for method, function in methods.items()}

    def _calling(self, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):
            return self._calling_async(self._seeing(method, function))
        if method in _OVER_NODES:
            return self._calling_over_nodes(function)
        if method in _ONE_POD:
            return self._calling_about_pod(function)
        if method == "sign":
            return self._calling_to_sign(function)
        seen, name = self._seeing(method, function), self.name

        def call(*args: Any) -> Any:
            try:
                return seen(*args)
            except UndeclaredError as err:
                name(err)
                raise

        return call

    def _calling_async(self, seen: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any) -> Any:
            try:
                return await seen(*args)
            except UndeclaredError as err:
                self.name(err)
                raise

        return call

    def _calling_over_nodes(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function for a method over nodes, with one frame, as every cycle calls several."""
        whole_pod, table, shared, name = self.whole_pod, self._table, self.shared, self.name

        def call(state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
            state.readable = shared
            try:
                return function(state, pod if whole_pod else pod.as_summary(), nodes.seen_as(table))
            except UndeclaredError as err:
                name(err)
                raise

        return call

    def _calling_about_pod(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function for a method about one pod, with one frame, as the queue calls it per pod."""
        whole_pod, name = self.whole_pod, self.name

        def call(pod: Any) -> Any:
            try:
                return function(pod if whole_pod else pod.as_summary())
            except UndeclaredError as err:
                name(err)
                raise

        return call

    def _calling_to_sign(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function for `sign`, with one frame."""
        whole_pod, table, name = self.whole_pod, self._table, self.name

        def call(pod: Pod, nodes: NodeTable) -> Any:
            try:
                return function(pod if whole_pod else pod.as_summary(), nodes.seen_as(table))
            except UndeclaredError as err:
                name(err)
                raise

        return call

    def _seeing(self, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
        pod_of, table, shared = self.pod, self._table, self.shared
        if method == "close":
            return function
        if method in _ONE_POD:
            return lambda pod: function(pod_of(pod))
        if method == "less":
            return lambda first, second: function(pod_of(first), pod_of(second))
        if method == "sensitive_to":
            limit = self._pod_limits.limit
            return lambda pod, other: function(pod_of(pod), limit(other))
        if method == "reconcile":
            return lambda live: function([self.live(one) for one in live])
        if method == "pre_queueing_hint":
            return function
        if method == "queueing_hint":
            return function if self.whole_pod else lambda event, pod: function(event, pod.as_summary())

        if method in _ABOUT_GROUP:
            return self._about_group(method, function)

        def about_pod(state: CycleState, pod: Pod, *rest: Any) -> Any:
            state.readable = shared
            return function(state, pod_of(pod), *rest)

        if method == "filter_scenarios":
            return lambda state, pod, scenarios: about_pod(state, pod, self.scenarios(scenarios))
        if method == "normalize":
            return lambda state, pod, scores, nodes: about_pod(state, pod, scores, nodes.seen_as(table))
        if method in _OVER_NODES:
            return lambda state, pod, nodes: about_pod(state, pod, nodes.seen_as(table))
        return about_pod

    def _about_group(self, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
        rest_of = _ABOUT_GROUP[method]

        def about_group(state: CycleState, group: GroupView, *rest: Any) -> Any:
            above: CycleState | None = state
            while above is not None:
                above.readable = self.shared
                above = above.parent
            return function(state, self.group(group), *rest_of(self, *rest))

        return about_group


_ABOUT_GROUP: Final[Mapping[str, Callable[..., tuple[Any, ...]]]] = {
    "placement_generate": lambda seen, parent: (seen.placement(parent),),
    "placement_score": lambda seen, placement, assignments: (
        seen.placement(placement),
        seen.assignments(assignments),
    ),
    "normalize_placements": lambda seen, scores, placements: (
        scores,
        [seen.placement(one) for one in placements],
    ),
    "placement_feasible": lambda seen, progress: (progress,),
    "pod_group_post_filter": lambda seen, tries: (tries,),
}
"""By method about a group: (what was declared, the arguments after the group) -> the arguments as the plugin
may read them.
"""


def _summarised(group: GroupView, seen: dict[int, tuple[GroupView, GroupView]]) -> GroupView:
    """Return a group for a plugin that did not declare Need.whole_pod(). `seen`: gets the group, and those
    below it.
    """
    made = GroupView(
        replace(group.group, object=None),
        tuple(pod.as_summary() for pod in group.pods),
        tuple(pod.as_summary() for pod in group.scheduled),
        tuple(_summarised(child, seen) for child in group.children),
    )
    seen[id(group)] = group, made
    return made


class DeclaredHandle:
    """The handle of a plugin: the transport's handle, limited to the data that the plugin declared.

    `is_made`: False while the plugin's `__init__` runs, as the host has not sent the snapshot before.
    """

    def __init__(self, handle: Handle, descriptor: Descriptor) -> None:
        """`descriptor`: of the class; `made` brings that of the instance."""
        self.is_made = False
        self._handle = handle
        self._declared = Declared(descriptor)
        self._late: list[str] = []
        """The resources that `__init__` asked for and that the class does not declare."""

    def made(self, descriptor: Descriptor) -> None:
        """Take the descriptor of the instance, after `__init__`.

        Raises UndeclaredError if `__init__` asked for objects that neither class nor instance declares.
        """
        self._declared = Declared(descriptor)
        self.is_made = True
        for resource in self._late:
            if resource not in self._declared.resources:
                raise self._undeclared(resource)

    def _undeclared(self, resource: str) -> UndeclaredError:
        return UndeclaredError(
            f"objects of {resource!r}", f"Need.objects({resource!r})", self._declared.plugin
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def objects(self, resource: str) -> ObjectReader:
        """Return the objects of a declared resource. Raises UndeclaredError for others.

        While `__init__` runs, the reader of a resource that the class does not declare can be made, and read
        later: `__init__` may declare the resource by its arguments (`self.needs`).
        """
        dropped = self._declared.resources.get(resource)
        if dropped is None and not self.is_made:
            self._late.append(resource)
            return _LateReader(self, resource)
        if dropped is None:
            raise self._undeclared(resource)
        reader = self._handle.objects(resource)
        if not dropped:
            return reader
        return _TrimmedReader(reader, Drops(dropped, f"objects of {resource!r}", "Need.objects"))

    def snapshot(self) -> NodeTable:
        """Return all nodes.

        Raises UndeclaredError if the plugin declared no state, and HandleError in `__init__`.
        """
        if not self._declared.has_snapshot:
            raise UndeclaredError("the snapshot (handle.snapshot)", "Need.nodes()", self._declared.plugin)
        if not self.is_made:
            raise HandleError(NO_SNAPSHOT)
        return self._declared.nodes(self._handle.snapshot())

    def waiting_pods(self, *, only_mine: bool = False) -> list[WaitingPod]:
        """Return the pods that wait at Permit, as the plugin may read them."""
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


class _LateReader:
    """The objects of a resource that `__init__` asked for before it was known which ones it declares."""

    def __init__(self, handle: DeclaredHandle, resource: str) -> None:
        self._handle = handle
        self._resource = resource
        self._reader: ObjectReader | None = None

    @property
    def version(self) -> int:
        """A number that grows with any change of the objects."""
        return self._found().version

    def get(self, name: str, namespace: str = "") -> KubeObject | None:
        """Return one object, or None."""
        return self._found().get(name, namespace)

    def moved_since(self, version: int) -> builtins.list[tuple[str, str]] | None:
        """Return the changed objects since `version`; None: any object may have changed."""
        return self._found().moved_since(version)

    def list(self, namespace: str | None = None) -> builtins.list[KubeObject]:
        """Return all objects, or those of one namespace, by namespace and name."""
        return self._found().list(namespace)

    def _found(self) -> ObjectReader:
        if self._reader is None:
            if not self._handle.is_made:
                raise HandleError(f"objects of {self._resource!r} cannot be read in __init__: {_IN_A_CALL}")
            self._reader = self._handle.objects(self._resource)
        return self._reader


class _TrimmedReader:
    """The objects of one resource without the fields that the plugin drops.

    Returns the same object as long as the host's object is the same.
    """

    def __init__(self, reader: ObjectReader, drops: Drops) -> None:
        self._reader = reader
        self._drops = drops
        self._seen: dict[str, tuple[KubeObject, KubeObject]] = {}

    @property
    def version(self) -> int:
        """A number that grows with any change of the objects."""
        return self._reader.version

    def get(self, name: str, namespace: str = "") -> KubeObject | None:
        """Return one object, or None."""
        item = self._reader.get(name, namespace)
        if item is None:
            self._seen.pop(f"{namespace}/{name}" if namespace else name, None)
            return None
        return self._trimmed(item)

    def moved_since(self, version: int) -> builtins.list[tuple[str, str]] | None:
        """Return the changed objects since `version`; None: any object may have changed."""
        return self._reader.moved_since(version)

    def list(self, namespace: str | None = None) -> builtins.list[KubeObject]:
        """Return all objects, or those of one namespace, by namespace and name."""
        items = self._reader.list(namespace)
        seen = [self._trimmed(item) for item in items]
        if namespace is None and len(self._seen) > len(items):
            kept = {item.ref.key for item in items}
            self._seen = {key: one for key, one in self._seen.items() if key in kept}
        return seen

    def _trimmed(self, item: KubeObject) -> KubeObject:
        key = item.ref.key
        known = self._seen.get(key)
        if known is None or known[0] is not item:
            known = self._seen[key] = (item, trimmed(item, self._drops))
        return known[1]
