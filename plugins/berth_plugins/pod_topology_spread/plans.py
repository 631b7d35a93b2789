"""A pod -> its plan for PodTopologySpread: its constraints, the pods that count, and the nodes that count.

All pods with the same counts share one plan, even if they differ otherwise.

Source: `pkg/scheduler/framework/plugins/podtopologyspread/filtering.go` (getConstraints) and `scoring.go`
(initPreScoreState), v1.36.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from berth_sdk.handle import Handle
from berth_sdk.node_selectors import RequiredNodeAffinity
from berth_sdk.pod import Pod
from berth_sdk.selected_pods import SelectedPods
from berth_sdk.signature import of_spec

from berth_plugins.objects.of_events import spec_of
from berth_plugins.pod_topology_spread.constraints import (
    HARD,
    SOFT,
    Constraint,
    DefaultConstraints,
    Gates,
    read_constraints,
)
from berth_plugins.pod_topology_spread.default_selector import DefaultSelectors
from berth_plugins.pod_topology_spread.domains import Area, AreaKey, Areas

MAX_PLANS: Final = 1024


class Plan:
    """The counts needed for one kind of pod and one action. Each list has one entry per constraint.

    - `tallies`: the pods that count; None: no pod, because the selector is empty, for a host that emulates a
      version of kube-scheduler.
    - `changing`: the tallies of what-if questions. They include terminating pods and empty selectors, as
      upstream.
    - `selects_self`: 1 where the selector matches the pod itself.
    - `requires_all`: a node without all the labels is ignored.
    """

    __slots__ = ("areas", "changing", "constraints", "requires_all", "selects_self", "tallies")

    def __init__(
        self,
        constraints: Sequence[Constraint],
        areas: Sequence[Area],
        pod: Pod,
        *,
        requires_all: bool,
        empty_selectors: bool = True,
    ) -> None:
        self.constraints = tuple(constraints)
        self.areas = tuple(areas)
        self.requires_all = requires_all
        own = frozenset((pod.namespace,))
        self.tallies = tuple(
            SelectedPods(own, one.selector, exclude_terminating=True)
            if empty_selectors or not one.selector.is_empty
            else None
            for one in constraints
        )
        self.changing = tuple(SelectedPods(own, one.selector) for one in constraints)
        self.selects_self = tuple(int(one.selector.matches(pod.labels)) for one in constraints)


class _Kind:
    """Constraints that were read once, with their areas. `plans`: by which of the constraints select the
    pod.
    """

    __slots__ = ("areas", "constraints", "plans")

    def __init__(self, constraints: tuple[Constraint, ...], areas: tuple[Area, ...]) -> None:
        self.constraints = constraints
        self.areas = areas
        self.plans: dict[tuple[bool, ...], Plan] = {}


class Plans:
    """The plans of pods, limited in number. The least recently used plan is dropped first."""

    def __init__(self, args: Mapping[str, Any], handle: Handle, *, max_plans: int = MAX_PLANS) -> None:
        """`args`: PodTopologySpreadArgs. Raises PluginArgsError."""
        self._gates = Gates.of_args(args)
        self._defaults = DefaultConstraints.of_args(args, self._gates)
        self._selectors = DefaultSelectors(handle)
        self._max = max_plans
        self._areas = Areas()
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()

    def both(self, pod: Pod) -> tuple[Plan, Plan]:
        """Return the plans of `pod` for its hard and for its soft constraints. Raises as `plan` does."""
        spec = spec_of(pod)
        if spec.get("topologySpreadConstraints"):
            key = self._own_key(pod, spec)
            return self._of_own(key, pod, spec, HARD), self._of_own(key, pod, spec, SOFT)
        return self._of_defaults(pod, spec, HARD), self._of_defaults(pod, spec, SOFT)

    def plan(self, pod: Pod, action: str) -> Plan:
        """Return the plan of `pod` for `whenUnsatisfiable: action`, without constraints if the pod has none.

        Raises SelectorError for a constraint that cannot be read, and ObjectError for a pod without its
        object.
        """
        spec = spec_of(pod)
        if spec.get("topologySpreadConstraints"):
            return self._of_own(self._own_key(pod, spec), pod, spec, action)
        return self._of_defaults(pod, spec, action)

    def has_defaults(self, pod: Pod, action: str) -> bool:
        """Return True when default constraints with `whenUnsatisfiable: action` apply to `pod`, provided that
        its default selector selects pods. Raises ObjectError for a pod without its object.
        """
        return bool(self._defaults.constraints[action]) and not spec_of(pod).get("topologySpreadConstraints")

    def _own_key(self, pod: Pod, spec: Mapping[str, Any]) -> Hashable:
        # Only these labels become part of a constraint. `_of_kind` tests which pods a constraint selects.
        keys = _label_keys(spec["topologySpreadConstraints"]) if self._gates.match_label_keys else ()
        return of_spec(pod), pod.namespace, *[pod.labels.get(key) for key in keys]

    def _of_own(self, key: Hashable, pod: Pod, spec: Mapping[str, Any], action: str) -> Plan:
        kind = self._kinds.get((action, key))
        if kind is None:
            constraints = read_constraints(spec["topologySpreadConstraints"], pod.labels, action, self._gates)
            kind = self._keep_kind((action, key), constraints, pod, spec, requires_all=True)
        else:
            self._kinds.move_to_end((action, key))
        return self._of_kind(kind, pod, requires_all=True)

    def _of_defaults(self, pod: Pod, spec: Mapping[str, Any], action: str) -> Plan:
        if not self._defaults.constraints[action]:
            return _NOTHING
        selector = self._selectors.selector(pod)
        if selector.is_empty:
            return _NOTHING
        requires_all = not self._defaults.of_system
        key = (of_spec(pod), pod.namespace, action, selector)
        kind = self._kinds.get(key)
        if kind is None:
            constraints = tuple(replace(one, selector=selector) for one in self._defaults.constraints[action])
            kind = self._keep_kind(key, constraints, pod, spec, requires_all=requires_all)
        else:
            self._kinds.move_to_end(key)
        return self._of_kind(kind, pod, requires_all=requires_all)

    def _of_kind(self, kind: _Kind, pod: Pod, *, requires_all: bool) -> Plan:
        if not kind.constraints:
            return _NOTHING
        means = tuple([one.selector.matches(pod.labels) for one in kind.constraints])
        plan = kind.plans.get(means)
        if plan is None:
            # Other specs may have equal constraints.
            key = (pod.namespace, kind.constraints, tuple(map(id, kind.areas)), means, requires_all)
            plan = self._plans.get(key)
            if plan is None:
                plan = self._plans[key] = Plan(
                    kind.constraints,
                    kind.areas,
                    pod,
                    requires_all=requires_all,
                    empty_selectors=self._gates.empty_selectors,
                )
                if len(self._plans) > self._max:
                    self._plans.popitem(last=False)
            kind.plans[means] = plan
        return plan

    def _keep_kind(
        self,
        key: Hashable,
        constraints: tuple[Constraint, ...],
        pod: Pod,
        spec: Mapping[str, Any],
        *,
        requires_all: bool,
    ) -> _Kind:
        keys = tuple(one.topology_key for one in constraints) if requires_all else ()
        affinity = RequiredNodeAffinity.of_spec(spec)
        areas = tuple(
            self._areas.area(
                AreaKey(
                    one.topology_key,
                    keys,
                    affinity if one.honors_affinity and affinity != RequiredNodeAffinity() else None,
                    pod.tolerations if one.honors_taints else None,
                    self._gates.comparison,
                )
            )
            for one in constraints
        )
        kind = self._kinds[key] = _Kind(constraints, areas)
        if len(self._kinds) > self._max:
            self._kinds.popitem(last=False)
        return kind


def _label_keys(raw: Any) -> Iterator[str]:
    """Yield the `matchLabelKeys` of all constraints, as far as they can be read."""
    for item in raw if isinstance(raw, Sequence) else ():
        yield from (isinstance(item, Mapping) and item.get("matchLabelKeys")) or ()


_NOTHING: Final = Plan((), (), Pod(name=""), requires_all=True)
