"""A pod -> its plan for PodTopologySpread: its constraints, the pods that count, and the nodes that count.

All pods with the same counts share one plan, even if they differ otherwise.

Source: `pkg/scheduler/framework/plugins/podtopologyspread/filtering.go` (getConstraints) and `scoring.go`
(initPreScoreState), v1.36.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from berth_sdk.handle import Handle
from berth_sdk.node_selectors import RequiredNodeAffinity, many_conditions
from berth_sdk.pod import OwnerRef, Pod
from berth_sdk.selected_pods import SelectedPods
from berth_sdk.selectors import LabelSelector, Operator
from berth_sdk.signature import of_spec
from berth_sdk.slices import Work, at_once

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
from berth_plugins.pod_topology_spread.domains import Area, Areas, Conditions, Participants

MAX_PLANS: Final = 1024
MAX_CONSTRAINTS: Final = 16_384
"""The number of constraints in all kept plans, of which one pod may have ten thousand."""
MANY_CONSTRAINTS: Final = 64
"""The number of constraints of one pod up to which they are read in one step, plans are shared, and each
constraint has its area.
"""
_MOST_ALIKE: Final = 256
"""The number of specs with the plans of the last pod that had them."""


class _Alike(NamedTuple):
    """A pod with its plans. `versions`: of the objects that default selectors follow from."""

    spec: object
    namespace: str
    labels: Mapping[str, str]
    owner: OwnerRef | None
    versions: tuple[int, ...]
    plans: tuple[Plan, Plan]


class Plan:
    """The counts needed for one kind of pod and one action. Each list has one entry per constraint, and is
    made when it is first read.

    - `labelled`: the nodes that have all topology labels, where a node without one of them does not count;
      None: such a node counts.
    - `selects_self`: 1 where the selector matches the pod itself.
    """

    def __init__(
        self, kind: Kind, namespace: str, selects_self: Sequence[int], *, empty_selectors: bool = True
    ) -> None:
        self._kind = kind
        self._namespaces = frozenset((namespace,))
        self._empty_selectors = empty_selectors
        self.constraints = kind.constraints
        self.selects_self = selects_self

    @property
    def labelled(self) -> Participants | None:
        """See the class."""
        return self._kind.labelled

    @property
    def participants(self) -> Sequence[Participants]:
        """The nodes that count."""
        return self._kind.participants

    @property
    def areas(self) -> Sequence[Area]:
        """The domains, and the nodes that count in them."""
        return self._kind.areas

    @cached_property
    def tallies(self) -> Sequence[SelectedPods | None]:
        """The pods that count; None: no pod, because the selector is empty, for a host that emulates a
        version of kube-scheduler.
        """
        # One object for each selector: it is hashed once.
        selectors = {id(one.selector): one.selector for one in self.constraints}
        made = {
            key: SelectedPods(self._namespaces, selector, exclude_terminating=True)
            if self._empty_selectors or not selector.is_empty
            else None
            for key, selector in selectors.items()
        }
        return tuple(made[id(one.selector)] for one in self.constraints)

    @cached_property
    def changing(self) -> Sequence[SelectedPods]:
        """The tallies of what-if questions. They include terminating pods and empty selectors, as
        upstream.
        """
        return tuple(SelectedPods(self._namespaces, one.selector) for one in self.constraints)

    @cached_property
    def selectors(self) -> Sequence[LabelSelector]:
        """The selectors of the constraints, each once."""
        return tuple(dict.fromkeys(one.selector for one in self.constraints))

    @cached_property
    def selected_labels(self) -> Sequence[frozenset[tuple[str, str]]]:
        """For each selector that matches some pod: labels that every pod has that it matches."""
        return tuple(
            frozenset(
                (one.key, next(iter(one.values)))
                for one in selector.requirements
                if one.operator is Operator.IN and len(one.values) == 1
            )
            for selector in self.selectors
            if selector.requirements is not None
        )

    @cached_property
    def topology_keys(self) -> frozenset[str]:
        """The topology keys of the constraints."""
        return frozenset(one.topology_key for one in self.constraints)


class Kind:
    """Constraints that were read once, with their areas. `plans`: by which of the constraints select the
    pod. `labelled`: as in `Plan`.
    """

    def __init__(
        self,
        constraints: tuple[Constraint, ...],
        labelled: Participants | None,
        participants: Callable[[Constraint], Participants],
        area: Callable[[str, Participants], Area],
    ) -> None:
        """`participants`, `area`: make those of one constraint."""
        self.constraints = constraints
        self.labelled = labelled
        self.plans: dict[tuple[int, ...], Plan] = {}
        self._participants = participants
        self._area = area

    # A pod whose labels no node has needs none of these.

    @cached_property
    def participants(self) -> tuple[Participants, ...]:
        """The nodes that count, for each constraint."""
        return tuple(map(self._participants, self.constraints))

    @cached_property
    def areas(self) -> tuple[Area, ...]:
        """The areas of the constraints."""
        keys = [one.topology_key for one in self.constraints]
        return tuple(map(self._area, keys, self.participants))


class Plans:
    """The plans of pods, limited in number. The least recently used plan is dropped first."""

    def __init__(self, args: Mapping[str, Any], handle: Handle, *, max_plans: int = MAX_PLANS) -> None:
        """`args`: PodTopologySpreadArgs. Raises PluginArgsError."""
        self._gates = Gates.of_args(args)
        self._defaults = DefaultConstraints.of_args(args, self._gates)
        self._selectors = DefaultSelectors(handle)
        self._max = max_plans
        self._areas = Areas()
        self._kinds: OrderedDict[Hashable, Kind] = OrderedDict()
        self._weight = 0
        """The number of constraints of `_kinds`."""
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()
        self._alike: dict[int, _Alike] = {}
        """By the identity of a spec, the last pod with it: see `alike`."""

    def alike(self, pod: Pod) -> tuple[Plan, Plan] | None:
        """Return what `both` returns, which is the same for pods of one controller until an object changes
        that their default selector follows from.
        """
        spec = pod.shared_spec
        if spec is None:
            return self.both(pod)
        known = self._alike.get(id(spec))
        if known is not None and (
            known.spec is spec
            and known.namespace == pod.namespace
            and known.labels == pod.labels
            and known.owner == pod.owner
            and known.versions == self._selectors.versions()
        ):
            return known.plans
        before = self._selectors.versions()
        found = self.both(pod)
        if found is not None and before == self._selectors.versions():
            if len(self._alike) >= _MOST_ALIKE:
                self._alike.clear()
            # With the spec, so that no other spec gets its identity.
            self._alike[id(spec)] = _Alike(spec, pod.namespace, pod.labels, pod.owner, before, found)
        return found

    def both(self, pod: Pod) -> tuple[Plan, Plan] | None:
        """Return the plans of `pod` for its hard and for its soft constraints. None: it has too many to read
        them here. Raises as `plan` does.
        """
        spec = spec_of(pod)
        own = spec.get("topologySpreadConstraints") or ()
        selector: LabelSelector | None = None
        if not own:
            selector = self._default_selector(pod, (HARD, SOFT))
            if selector is None:
                return _NOTHING, _NOTHING
        if (isinstance(own, Sequence) and len(own) > MANY_CONSTRAINTS) or many_conditions(
            spec, MANY_CONSTRAINTS
        ):
            return None
        if selector is not None:
            hard, soft = (self._of_defaults(pod, spec, action, selector) for action in (HARD, SOFT))
            return at_once(hard), at_once(soft)
        return at_once(self.plan(pod, HARD)), at_once(self.plan(pod, SOFT))

    def plan(self, pod: Pod, action: str) -> Work[Plan]:
        """Return the plan of `pod` for `whenUnsatisfiable: action`, without constraints if the pod has none.

        Raises SelectorError for a constraint that cannot be read, and ObjectError for a pod without its
        object.
        """
        spec = spec_of(pod)
        if spec.get("topologySpreadConstraints"):
            return (yield from self._of_own(self._own_key(pod, spec), pod, spec, action))
        selector = self._default_selector(pod, (action,))
        return _NOTHING if selector is None else (yield from self._of_defaults(pod, spec, action, selector))

    def has_defaults(self, pod: Pod, action: str) -> bool:
        """Return True when default constraints with `whenUnsatisfiable: action` apply to `pod`, provided that
        its default selector selects pods. Raises ObjectError for a pod without its object.
        """
        return bool(self._defaults.constraints[action]) and not spec_of(pod).get("topologySpreadConstraints")

    def _default_selector(self, pod: Pod, actions: Sequence[str]) -> LabelSelector | None:
        """Return the selector of a pod's default constraints; None: none with one of `actions` applies to
        the pod.
        """
        if not any(map(self._defaults.constraints.get, actions)):
            return None
        selector = self._selectors.selector(pod)
        return None if selector.is_empty else selector

    def _own_key(self, pod: Pod, spec: Mapping[str, Any]) -> Hashable:
        # Only these labels become part of a constraint. `_of_kind` tests which pods a constraint selects.
        keys = _label_keys(spec["topologySpreadConstraints"]) if self._gates.match_label_keys else ()
        return of_spec(pod), pod.namespace, *[pod.labels.get(key) for key in keys]

    def _of_own(self, key: Hashable, pod: Pod, spec: Mapping[str, Any], action: str) -> Work[Plan]:
        kind = self._kinds.get((action, key))
        if kind is None:
            raw = spec["topologySpreadConstraints"]
            constraints = yield from read_constraints(raw, pod.labels, action, self._gates)
            kind = yield from self._keep_kind((action, key), constraints, pod, spec, requires_all=True)
        else:
            self._kinds.move_to_end((action, key))
        return self._of_kind(kind, pod)

    def _of_defaults(
        self, pod: Pod, spec: Mapping[str, Any], action: str, selector: LabelSelector
    ) -> Work[Plan]:
        if not self._defaults.constraints[action]:
            return _NOTHING
        requires_all = not self._defaults.of_system
        key = (of_spec(pod), pod.namespace, action, selector)
        kind = self._kinds.get(key)
        if kind is None:
            constraints = tuple(replace(one, selector=selector) for one in self._defaults.constraints[action])
            kind = yield from self._keep_kind(key, constraints, pod, spec, requires_all=requires_all)
        else:
            self._kinds.move_to_end(key)
        return self._of_kind(kind, pod)

    def _of_kind(self, kind: Kind, pod: Pod) -> Plan:
        if not kind.constraints:
            return _NOTHING
        own: dict[int, int] = {}
        for one in kind.constraints:
            if id(one.selector) not in own:
                own[id(one.selector)] = int(one.selector.matches(pod.labels))
        means = tuple([own[id(one.selector)] for one in kind.constraints])
        plan = kind.plans.get(means)
        if plan is None:
            plan = self._shared_plan(kind, pod, means) if len(means) <= MANY_CONSTRAINTS else None
            if plan is None:
                plan = self._new_plan(kind, pod, means)
            kind.plans[means] = plan
        return plan

    def _shared_plan(self, kind: Kind, pod: Pod, means: tuple[int, ...]) -> Plan:
        """Return the plan of other specs with equal constraints, if there are any."""
        key = (pod.namespace, kind.constraints, tuple(map(id, kind.areas)), means, kind.labelled is None)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._new_plan(kind, pod, means)
            if len(self._plans) > self._max:
                self._plans.popitem(last=False)
        return plan

    def _new_plan(self, kind: Kind, pod: Pod, means: tuple[int, ...]) -> Plan:
        return Plan(kind, pod.namespace, means, empty_selectors=self._gates.empty_selectors)

    def _keep_kind(
        self,
        key: Hashable,
        constraints: tuple[Constraint, ...],
        pod: Pod,
        spec: Mapping[str, Any],
        *,
        requires_all: bool,
    ) -> Work[Kind]:
        keys = tuple(dict.fromkeys(one.topology_key for one in constraints)) if requires_all else ()
        own_affinity: RequiredNodeAffinity | None = None
        if any(one.honors_affinity for one in constraints):
            affinity = yield from RequiredNodeAffinity.read(spec)
            own_affinity = affinity if affinity != RequiredNodeAffinity() else None
        found: dict[tuple[bool, bool], Participants] = {}

        def participants(*, honors_affinity: bool, honors_taints: bool) -> Participants:
            which = (honors_affinity and own_affinity is not None, honors_taints)
            if which not in found:
                conditions = Conditions(
                    keys,
                    own_affinity if which[0] else None,
                    pod.tolerations if honors_taints else None,
                    self._gates.comparison,
                )
                found[which] = self._areas.participants(conditions)
            return found[which]

        def of_constraint(one: Constraint) -> Participants:
            return participants(honors_affinity=one.honors_affinity, honors_taints=one.honors_taints)

        labelled = participants(honors_affinity=False, honors_taints=False) if keys else None
        kind = self._kinds[key] = Kind(constraints, labelled, of_constraint, self._areas.area)
        self._weight += _weight(kind)
        while len(self._kinds) > self._max or (self._weight > MAX_CONSTRAINTS and len(self._kinds) > 1):
            _, dropped = self._kinds.popitem(last=False)
            self._weight -= _weight(dropped)
        return kind


def _weight(kind: Kind) -> int:
    return len(kind.constraints)


def _label_keys(raw: Any) -> Iterator[str]:
    """Yield the `matchLabelKeys` of all constraints, as far as they can be read."""
    for item in raw if isinstance(raw, Sequence) else ():
        yield from (isinstance(item, Mapping) and item.get("matchLabelKeys")) or ()


_NOTHING: Final = Plan(Kind((), None, lambda _: Participants(Conditions(())), Area), "", ())
