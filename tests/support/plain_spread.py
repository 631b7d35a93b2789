"""The rules of PodTopologySpread, read plainly: one node at a time, from the JSON, no table.

Slow on purpose, and written apart from the plugin: the laws in
`tests/plugins/pod_topology_spread/test_rules.py` hold the two together. The smallest count is kept in two
places and updated pod by pod, as upstream does it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from support.plain_rules import (
    UNRESOLVABLE,
    UNSCHEDULABLE,
    Json,
    Place,
    Verdict,
    node_affinity,
    taint_toleration,
)

HARD = "DoNotSchedule"
SOFT = "ScheduleAnyway"
HOSTNAME = "kubernetes.io/hostname"
SKEW = "node(s) didn't match pod topology spread constraints"
LABEL = f"{SKEW} (missing required label)"
MOST = 2**31 - 1


@dataclass
class Constraint:
    """One constraint of one pod. `requirements` None: the selector is null."""

    raw: Json
    requirements: list[Json] | None

    @property
    def key(self) -> str:
        return str(self.raw["topologyKey"])

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.requirements is not None and all(_requirement(one, labels) for one in self.requirements)

    def includes(self, pod: Json, place: Place) -> bool:
        if self.raw.get("nodeAffinityPolicy", "Honor") == "Honor" and node_affinity(pod, place) is not None:
            return False
        return self.raw.get("nodeTaintsPolicy") != "Honor" or taint_toleration(pod, place) is None

    def count(self, pod: Json, place: Place) -> int:
        return sum(
            _namespace(other) == _namespace(pod)
            and not other["metadata"].get("deletionTimestamp")
            and self.matches(_labels(other))
            for other in place.pods
        )


def _labels(pod: Json) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}


def _namespace(pod: Json) -> str:
    return str(pod["metadata"].get("namespace") or "default")


def _requirement(one: Json, labels: Mapping[str, str]) -> bool:
    value = labels.get(one["key"])
    if one["operator"] == "In":
        return value is not None and value in one["values"]
    if one["operator"] == "NotIn":
        return value is None or value not in one["values"]
    return (value is not None) is bool(one["operator"] == "Exists")


def _requirements(selector: Json | None) -> list[Json] | None:
    if selector is None:
        return None
    equal = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    return [*equal, *(selector.get("matchExpressions") or ())]


# --- which constraints -----------------------------------------------------------------------------


@dataclass
class Cluster:
    """Nodes and pods, services and controllers as JSON. `defaults` None: those of the system."""

    nodes: Sequence[Json]
    pods: Sequence[Json]
    services: Sequence[Json] = field(default_factory=list)
    owners: Sequence[Json] = field(default_factory=list)
    defaults: Sequence[Json] | None = None

    def places(self) -> list[Place]:
        return [Place(node, self.pods) for node in self.nodes]


def constraints_of(pod: Json, action: str, cluster: Cluster) -> list[Constraint]:
    own = pod["spec"].get("topologySpreadConstraints") or []
    if own:
        return [_own(one, pod) for one in own if one["whenUnsatisfiable"] == action]
    defaults = cluster.defaults
    if defaults is None:
        defaults = [
            {"topologyKey": HOSTNAME, "maxSkew": 3, "whenUnsatisfiable": SOFT},
            {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 5, "whenUnsatisfiable": SOFT},
        ]
    wanted = _of_owners(pod, cluster)
    return [Constraint(one, wanted) for one in defaults if one["whenUnsatisfiable"] == action and wanted]


def _own(raw: Json, pod: Json) -> Constraint:
    requirements = _requirements(raw.get("labelSelector"))
    labels = _labels(pod)
    if requirements is not None:
        for key in raw.get("matchLabelKeys") or ():
            if key in labels:
                requirements.append({"key": key, "operator": "In", "values": [labels[key]]})
    return Constraint(raw, requirements)


def _of_owners(pod: Json, cluster: Cluster) -> list[Json]:
    labels: dict[str, str] = {}
    for service in cluster.services:
        selector = service["spec"].get("selector")
        same = _namespace(service) == _namespace(pod)
        if selector is not None and same and selector.items() <= _labels(pod).items():
            labels.update(selector)
    more: list[Json] = []
    for ref in pod["metadata"].get("ownerReferences") or ():
        for owner in cluster.owners:
            identity = (owner["apiVersion"], owner["kind"], owner["metadata"]["name"], _namespace(owner))
            if identity == (ref["apiVersion"], ref["kind"], ref["name"], _namespace(pod)):
                if owner["kind"] == "ReplicationController":
                    labels.update(owner["spec"].get("selector") or {})
                else:
                    more.extend(_requirements(owner["spec"].get("selector")) or ())
    return [*(_requirements({"matchLabels": labels}) or ()), *more]


# --- hard ------------------------------------------------------------------------------------------


class _Lowest:
    """The two smallest counts that upstream remembers."""

    def __init__(self) -> None:
        self.slots = [("", MOST), ("", MOST)]

    def update(self, value: str, count: int) -> None:
        first, second = self.slots
        if value == first[0]:
            self.slots = [(value, count), second]
        elif value == second[0]:
            self.slots = [first, (value, count)]
        elif count < first[1]:
            self.slots = [(value, count), first]
        elif count < second[1]:
            self.slots = [first, (value, count)]
        if self.slots[0][1] > self.slots[1][1]:
            self.slots.reverse()


class HardState:
    """The counts of PreFilter, which AddPod and RemovePod change."""

    def __init__(self, pod: Json, cluster: Cluster) -> None:
        self.pod = pod
        self.constraints = constraints_of(pod, HARD, cluster)
        self.keys = [one.key for one in self.constraints]
        self.counts: list[dict[str, int]] = [{} for _ in self.constraints]
        for place in cluster.places():
            if all(key in place.labels for key in self.keys):
                for counts, one in zip(self.counts, self.constraints, strict=True):
                    if one.includes(pod, place):
                        value = place.labels[one.key]
                        counts[value] = counts.get(value, 0) + one.count(pod, place)
        self.lowest = [_Lowest() for _ in self.constraints]
        for lowest, counts in zip(self.lowest, self.counts, strict=True):
            for value, count in counts.items():
                lowest.update(value, count)

    def change(self, other: Json, place: Place, by: int) -> None:
        if _namespace(other) != _namespace(self.pod) or not all(key in place.labels for key in self.keys):
            return
        for counts, lowest, one in zip(self.counts, self.lowest, self.constraints, strict=True):
            if one.matches(_labels(other)) and one.includes(self.pod, place):
                value = place.labels[one.key]
                counts[value] = counts.get(value, 0) + by
                lowest.update(value, counts[value])

    def verdict(self, place: Place) -> Verdict:
        for counts, lowest, one in zip(self.counts, self.lowest, self.constraints, strict=True):
            if one.key not in place.labels:
                return UNRESOLVABLE, (LABEL,)
            least = lowest.slots[0][1] if len(counts) >= one.raw.get("minDomains", 1) else 0
            own = int(one.matches(_labels(self.pod)))
            if counts.get(place.labels[one.key], 0) + own - least > one.raw["maxSkew"]:
                return UNSCHEDULABLE, (SKEW,)
        return None


def what_if(
    pod: Json, cluster: Cluster, place: Place, removed: Iterable[Json], added: Iterable[Json]
) -> Verdict:
    state = HardState(pod, cluster)
    for other in removed:
        state.change(other, place, -1)
    for other in added:
        state.change(other, place, 1)
    return state.verdict(place)


# --- soft ------------------------------------------------------------------------------------------


def scores(pod: Json, cluster: Cluster, feasible: Sequence[str]) -> tuple[list[int], list[int]] | None:
    """Raw and normalised; None: PreScore skips."""
    constraints = constraints_of(pod, SOFT, cluster)
    if not constraints:
        return None
    requires_all = bool(pod["spec"].get("topologySpreadConstraints")) or cluster.defaults is not None
    places = {place.name: place for place in cluster.places()}

    def lacks(place: Place) -> bool:
        return requires_all and not all(one.key in place.labels for one in constraints)

    counted = [places[name] for name in feasible if not lacks(places[name])]
    registered = [{place.labels.get(one.key, ""): 0 for place in counted} for one in constraints]
    for place in places.values():
        if not lacks(place):
            for counts, one in zip(registered, constraints, strict=True):
                value = place.labels.get(one.key, "")
                if value in counts and one.includes(pod, place):
                    counts[value] += one.count(pod, place)
    raw = []
    for name in feasible:
        place, total = places[name], 0.0
        if place in counted:
            for counts, one in zip(registered, constraints, strict=True):
                if one.key in place.labels:
                    alone = one.key == HOSTNAME
                    count = one.count(pod, place) if alone else counts[place.labels[one.key]]
                    size = len(counted) if alone else len(counts)
                    total += count * math.log(size + 2) + (one.raw["maxSkew"] - 1)
        raw.append(math.floor(abs(total) + 0.5) * (1 if total >= 0 else -1))
    valid = [score for name, score in zip(feasible, raw, strict=True) if places[name] in counted]
    highest = max([0, *valid])
    normalised = []
    for name, score in zip(feasible, raw, strict=True):
        if places[name] not in counted or score == -1:
            normalised.append(0)
        elif highest == 0:
            normalised.append(100)
        else:
            normalised.append(int(100 * (highest + min(valid) - score) / highest))
    return raw, normalised
