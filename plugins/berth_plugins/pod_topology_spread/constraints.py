"""Topology spread constraints as they are written -> records. Used by PodTopologySpread.

Source: `pkg/scheduler/framework/plugins/podtopologyspread/common.go` and `plugin.go`, and
`pkg/scheduler/apis/config/validation/validation_pluginargs.go` (ValidatePodTopologySpreadArgs), v1.37.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from berth_sdk.errors import SelectorError
from berth_sdk.selectors import LabelSelector, is_label_key, mappings
from berth_sdk.slices import Work, at_once

from berth_plugins.args.findings import Findings, integer, maps
from berth_plugins.args.gates import EMPTY_SPREAD_SELECTORS, is_on
from berth_plugins.objects.tolerations import COMPARISON_GATE

HARD: Final = "DoNotSchedule"
SOFT: Final = "ScheduleAnyway"
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
SYSTEM: Final = "System"
LIST: Final = "List"
_HONOR: Final = "Honor"


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint. `honors_affinity`, `honors_taints`: nodes that the pod's required node affinity does
    not match, or whose taints the pod does not tolerate, do not count.
    """

    max_skew: int
    topology_key: str
    selector: LabelSelector
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


@dataclass(frozen=True, slots=True)
class Gates:
    """The feature gates of constraints. `comparison`: tolerations may have Lt and Gt. `empty_selectors`: an
    empty `labelSelector` counts every pod of the namespace, as the API says; off: no pod.
    """

    match_label_keys: bool = True
    comparison: bool = False
    empty_selectors: bool = True

    @staticmethod
    def of_args(args: Mapping[str, Any]) -> Gates:
        """Read the arguments. Raises PluginArgsError."""
        return Gates(
            is_on(args, "MatchLabelKeysInPodTopologySpread", default=True),
            is_on(args, COMPARISON_GATE, default=False),
            is_on(args, EMPTY_SPREAD_SELECTORS, default=True),
        )


def read_constraints(
    raw: Any, labels: Mapping[str, str], action: str, gates: Gates
) -> Work[tuple[Constraint, ...]]:
    """Return the entries of `topologySpreadConstraints` whose `whenUnsatisfiable` is `action`, in order.

    `labels`: the pod's labels, which `matchLabelKeys` adds to the selector. Raises SelectorError, whose text
    begins with the place.
    """
    path = "topologySpreadConstraints"
    found: list[Constraint] = []
    before: Mapping[str, Any] = {}
    for i, item in enumerate(mappings(raw, path)):
        if item.get("whenUnsatisfiable") == action:
            # Most pods have one selector for all constraints, which is read and hashed once.
            known = found[-1].selector if found and _selects_alike(item, before) else None
            found.append((yield from _constraint(item, labels, f"{path}[{i}]", gates, known)))
            before = item
            yield
    return tuple(found)


def _selects_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.get("labelSelector") == other.get("labelSelector") and one.get("matchLabelKeys") == other.get(
        "matchLabelKeys"
    )


def _constraint(
    raw: Mapping[str, Any],
    labels: Mapping[str, str],
    path: str,
    gates: Gates,
    selector: LabelSelector | None,
) -> Work[Constraint]:
    """Read a constraint. `selector`: its selector, where that was read before."""
    if selector is None:
        selector = yield from _selector(raw, labels, path, gates)
    affinity, taints = raw.get("nodeAffinityPolicy"), raw.get("nodeTaintsPolicy")
    return Constraint(
        max_skew=_int32(raw, "maxSkew", path, 0),
        topology_key=str(raw.get("topologyKey") or ""),
        selector=selector,
        min_domains=_int32(raw, "minDomains", path, 1),
        honors_affinity=affinity is None or affinity == _HONOR,
        honors_taints=taints == _HONOR,
    )


def _selector(
    raw: Mapping[str, Any], labels: Mapping[str, str], path: str, gates: Gates
) -> Work[LabelSelector]:
    selector = yield from LabelSelector.read(raw.get("labelSelector"), f"{path}.labelSelector")
    keys = (raw.get("matchLabelKeys") or ()) if gates.match_label_keys else ()
    own = {key: labels[key] for key in keys if key in labels}
    # A null selector has no requirements to add to, and still matches nothing.
    if own and selector.requirements is not None:
        added = LabelSelector.equal_to(own).requirements or ()
        selector = LabelSelector((*added, *selector.requirements))
    return selector


def _int32(raw: Mapping[str, Any], key: str, path: str, default: int) -> int:
    value = raw.get(key)
    if value is None:
        return default
    # A whole float counts: arguments that came over the wire have no integers.
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise SelectorError(f"{path}.{key}: Invalid value: {value!r}: must be an integer")
    return int(value)


@dataclass(frozen=True, slots=True)
class DefaultConstraints:
    """The constraints of pods that list none, without their selector, which follows from the pod's owner.

    `of_system`: the constraints are kube-scheduler's own, which a node can meet without all their labels.
    """

    constraints: Mapping[str, tuple[Constraint, ...]]
    of_system: bool

    @staticmethod
    def of_args(args: Mapping[str, Any], gates: Gates) -> DefaultConstraints:
        """Read PodTopologySpreadArgs. Raises PluginArgsError with every error in the arguments."""
        kind = args.get("defaultingType") or SYSTEM
        items = maps(args, "defaultConstraints", "defaultConstraints")
        _check(kind, items)
        raw = _SYSTEM_CONSTRAINTS if kind == SYSTEM else items
        actions = {action: at_once(read_constraints(list(raw), {}, action, gates)) for action in (HARD, SOFT)}
        return DefaultConstraints(actions, kind == SYSTEM)


_SYSTEM_CONSTRAINTS: Final[Sequence[Mapping[str, Any]]] = (
    {"topologyKey": HOSTNAME, "whenUnsatisfiable": SOFT, "maxSkew": 3},
    {"topologyKey": ZONE, "whenUnsatisfiable": SOFT, "maxSkew": 5},
)


def _check(kind: Any, items: Sequence[Mapping[str, Any]]) -> None:
    findings = Findings()
    if kind not in (SYSTEM, LIST):
        findings.unsupported("defaultingType", kind, (SYSTEM, LIST))
    elif kind == SYSTEM and items:
        findings.invalid("defaultingType", kind, "when .defaultConstraints are not empty")
    seen: set[tuple[Any, Any]] = set()
    for i, item in enumerate(items):
        path = f"defaultConstraints[{i}]"
        _check_constraint(item, path, findings)
        identity = (item.get("topologyKey"), item.get("whenUnsatisfiable"))
        if identity in seen:
            findings.duplicate(path, f"{{{identity[0]}, {identity[1]}}}")
        seen.add(identity)
    findings.check()


def _check_constraint(item: Mapping[str, Any], path: str, findings: Findings) -> None:
    max_skew = integer(item, "maxSkew", f"{path}.maxSkew")
    if max_skew <= 0:
        findings.invalid(f"{path}.maxSkew", max_skew, "not in valid range (0, inf)")
    key, action = item.get("topologyKey") or "", item.get("whenUnsatisfiable") or ""
    if not key:
        findings.required(f"{path}.topologyKey", "can not be empty")
    elif not isinstance(key, str) or not is_label_key(key):
        findings.invalid(f"{path}.topologyKey", key, "not a label key, as example.com/zone")
    if not action:
        findings.required(f"{path}.whenUnsatisfiable", "can not be empty")
    elif action not in (HARD, SOFT):
        findings.unsupported(f"{path}.whenUnsatisfiable", action, (HARD, SOFT))
    if item.get("labelSelector") is not None:
        findings.forbidden(
            f"{path}.labelSelector", "constraint must not define a selector, as they deduced for each pod"
        )
