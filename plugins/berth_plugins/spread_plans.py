"""A pod -> what PodTopologySpread has to count for it: its constraints, which pods count, on which nodes.

Made once per kind of pod (`berth_sdk.signature`) and kept while what it follows from stands still.
Source: `pkg/scheduler/framework/plugins/podtopologyspread/filtering.go` (getConstraints) and `scoring.go`
(initPreScoreState), v1.36.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from berth_sdk.handle import Handle
from berth_sdk.node_selectors import RequiredNodeAffinity
from berth_sdk.pod import OwnerRef, Pod
from berth_sdk.selected_pods import SelectedPods
from berth_sdk.selectors import LabelSelector
from berth_sdk.signature import signature

from berth_plugins._objects import spec_of
from berth_plugins.default_selector import DefaultSelectors
from berth_plugins.spread_constraints import Constraint, DefaultConstraints, Gates, read_constraints
from berth_plugins.spread_domains import Area, AreaKey, Areas

MAX_PLANS: Final = 1024


class Plan:
    """What to count for one kind of pod and one action. One entry per constraint in each list.

    `tallies`: the pods that count; None: nobody does, as the selector is empty. `changing`: those by which
    a what-if changes the count, where terminating pods and empty selectors count, as upstream has it.
    `selects_self`: 1 where the selector matches the pod itself. `requires_all`: a node without all the labels
    is ignored.
    """

    __slots__ = ("areas", "changing", "constraints", "requires_all", "selects_self", "tallies")

    def __init__(
        self, constraints: Sequence[Constraint], areas: Sequence[Area], pod: Pod, *, requires_all: bool
    ) -> None:
        self.constraints = tuple(constraints)
        self.areas = tuple(areas)
        self.requires_all = requires_all
        own = frozenset((pod.namespace,))
        self.tallies = tuple(
            None if one.selector.is_empty else SelectedPods(own, one.selector, exclude_terminating=True)
            for one in constraints
        )
        self.changing = tuple(SelectedPods(own, one.selector) for one in constraints)
        self.selects_self = tuple(int(one.selector.matches(pod.labels)) for one in constraints)


@dataclass(slots=True)
class _Derived:
    """The plan of a pod without constraints of its own. `stamp`: what its selector was derived from."""

    stamp: Hashable
    selector: LabelSelector
    plan: Plan


class Plans:
    """Bounded; the plans used least recently are dropped."""

    def __init__(self, args: Mapping[str, Any], handle: Handle, *, max_plans: int = MAX_PLANS) -> None:
        """`args`: PodTopologySpreadArgs. Raises PluginArgsError."""
        self._gates = Gates.of_args(args)
        self._defaults = DefaultConstraints.of_args(args, self._gates)
        self._selectors = DefaultSelectors(handle)
        self._max = max_plans
        self._areas = Areas()
        self._own: OrderedDict[tuple[bytes, str], Plan] = OrderedDict()
        self._derived: OrderedDict[tuple[bytes, OwnerRef | None, str], _Derived] = OrderedDict()

    def plan(self, pod: Pod, action: str) -> Plan:
        """The plan of `pod` for `whenUnsatisfiable: action`; without constraints if it has none. Raises
        SelectorError for a constraint that cannot be read, ObjectError for a pod without its object.
        """
        spec = spec_of(pod)
        if spec.get("topologySpreadConstraints"):
            return self._of_own(pod, spec, action)
        if not self._defaults.constraints[action]:
            return _NOTHING
        return self._of_defaults(pod, spec, action)

    def stamp(self, pod: Pod) -> Hashable:
        """As long as it stays equal, so do the plans of pods equal to `pod`. Raises ObjectError."""
        if spec_of(pod).get("topologySpreadConstraints") or not any(self._defaults.constraints.values()):
            return ()
        return self._selectors.stamp(pod)

    def _of_own(self, pod: Pod, spec: Mapping[str, Any], action: str) -> Plan:
        key = (signature(pod), action)
        plan = self._own.get(key)
        if plan is None:
            raw = spec["topologySpreadConstraints"]
            constraints = read_constraints(raw, pod.labels, action, self._gates)
            plan = self._own[key] = self._made(constraints, pod, spec, requires_all=True)
            if len(self._own) > self._max:
                self._own.popitem(last=False)
        else:
            self._own.move_to_end(key)
        return plan

    def _of_defaults(self, pod: Pod, spec: Mapping[str, Any], action: str) -> Plan:
        key = (signature(pod), pod.owner, action)
        stamp = self._selectors.stamp(pod)
        known = self._derived.get(key)
        if known is None or known.stamp != stamp:
            selector = self._selectors.selector(pod)
            if known is not None and known.selector == selector:
                known.stamp = stamp
            else:
                known = _Derived(stamp, selector, self._with_selector(selector, pod, spec, action))
            self._derived[key] = known
        self._derived.move_to_end(key)
        if len(self._derived) > self._max:
            self._derived.popitem(last=False)
        return known.plan

    def _with_selector(self, selector: LabelSelector, pod: Pod, spec: Mapping[str, Any], action: str) -> Plan:
        if selector.is_empty:
            return _NOTHING
        constraints = [replace(one, selector=selector) for one in self._defaults.constraints[action]]
        return self._made(constraints, pod, spec, requires_all=not self._defaults.of_system)

    def _made(
        self, constraints: Sequence[Constraint], pod: Pod, spec: Mapping[str, Any], *, requires_all: bool
    ) -> Plan:
        keys = tuple(one.topology_key for one in constraints) if requires_all else ()
        affinity = RequiredNodeAffinity.of_spec(spec)
        areas = [
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
        ]
        return Plan(constraints, areas, pod, requires_all=requires_all)


_NOTHING: Final = Plan((), (), Pod(name=""), requires_all=True)
