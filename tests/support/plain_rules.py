"""The rules of the default plugins, read plainly: one node at a time, from the JSON, no table.

Slow on purpose, and written apart from the plugins: the laws in `tests/plugins` hold the two together.
Each function answers what the plugin says of one node. Verdicts are (code word, reasons) or None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from berth_sdk.pod import Pod

Json = Mapping[str, Any]
Verdict = tuple[str, tuple[str, ...]] | None
UNSCHEDULABLE = "Unschedulable"
UNRESOLVABLE = "UnschedulableAndUnresolvable"


class Place:
    """A node's JSON with the pods on it."""

    def __init__(self, node: Json, pods: Sequence[Json]) -> None:
        self.name: str = node["metadata"]["name"]
        self.labels: Mapping[str, str] = node["metadata"].get("labels") or {}
        self.spec: Json = node.get("spec") or {}
        self.allocatable = _allocatable(node)
        self.images: Sequence[Json] = node["status"].get("images") or ()
        self.pods = [pod for pod in pods if pod["spec"].get("nodeName") == self.name]
        self.records = [Pod.from_object(pod) for pod in self.pods]

    def requested(self, resource: str) -> int:
        return sum(record.requests.get(resource, 0) for record in self.records)

    def non_zero(self, resource: str) -> int:
        return sum(record.non_zero_requests.get(resource, 0) for record in self.records)


def _allocatable(node: Json) -> dict[str, int]:
    # The strategies write plain integers: cores for cpu.
    return {
        name: value * 1000 if name == "cpu" else value
        for name, value in node["status"]["allocatable"].items()
    }


# --- taints ----------------------------------------------------------------------------------------


def _covers(toleration: Json, taint: Json) -> bool:
    if (toleration.get("effect") or "") not in ("", taint.get("effect") or ""):
        return False
    if (toleration.get("key") or "") not in ("", taint["key"]):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")


def _tolerated(pod: Json, taint: Json) -> bool:
    return any(_covers(toleration, taint) for toleration in pod["spec"].get("tolerations") or ())


def node_unschedulable(pod: Json, place: Place) -> Verdict:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if place.spec.get("unschedulable") and not _tolerated(pod, taint):
        return UNRESOLVABLE, ("node(s) were unschedulable",)
    return None


def taint_toleration(pod: Json, place: Place) -> Verdict:
    for taint in place.spec.get("taints") or ():
        if taint["effect"] in ("NoSchedule", "NoExecute") and not _tolerated(pod, taint):
            return UNRESOLVABLE, ("node(s) had untolerated taint(s)",)
    return None


def taint_toleration_score(pod: Json, place: Place) -> int:
    return sum(
        1
        for taint in place.spec.get("taints") or ()
        if taint["effect"] == "PreferNoSchedule" and not _tolerated(pod, taint)
    )


# --- node name and ports ---------------------------------------------------------------------------


def node_name(pod: Json, place: Place) -> Verdict:
    if pod["spec"].get("nodeName") in (None, "", place.name):
        return None
    return UNRESOLVABLE, ("node(s) didn't match the requested node name",)


def ports(pod: Json) -> list[tuple[str, str, int]]:
    found: list[Json] = []
    for container in pod["spec"].get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            found.extend(container.get("ports") or ())
    for container in pod["spec"]["containers"]:
        found.extend(container.get("ports") or ())
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for port in found
        if port.get("hostPort")
    ]


def node_ports(pod: Json, place: Place) -> Verdict:
    used = [port for other in place.pods for port in ports(other)]
    for ip, protocol, number in ports(pod):
        for other_ip, other_protocol, other_number in used:
            same = (protocol, number) == (other_protocol, other_number)
            if same and (ip == other_ip or "0.0.0.0" in (ip, other_ip)):
                return UNSCHEDULABLE, ("node(s) didn't have free ports for the requested pod ports",)
    return None


# --- node affinity ---------------------------------------------------------------------------------


def _int(text: str | None) -> int | None:
    return (
        int(text) if text is not None and text.lstrip("-").isascii() and text.lstrip("-").isdigit() else None
    )


def _expression(expression: Json, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    values = expression.get("values") or []
    operator = expression["operator"]
    if operator in ("Gt", "Lt"):
        number, bound = _int(value), _int(values[0])
        if number is None or bound is None:
            return False
        return number > bound if operator == "Gt" else number < bound
    return {
        "In": value is not None and value in values,
        "NotIn": value is None or value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[operator]


def _is_readable(term: Json) -> bool:
    """The strategies write one kind of broken term: an unknown operator."""
    expressions = [*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ())]
    return all(one["operator"] != "Near" for one in expressions)


def _term(term: Json, place: Place) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    names = {"metadata.name": place.name}
    return all(_expression(one, place.labels) for one in expressions) and all(
        _expression(one, names) for one in fields
    )


def stanza(pod: Json, kind: str) -> Any:
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return affinity.get(f"{kind}DuringSchedulingIgnoredDuringExecution")


def node_affinity(pod: Json, place: Place) -> Verdict:
    """Filter; a pod that PreFilter turns away as a whole is not asked about here."""
    selector = pod["spec"].get("nodeSelector") or {}
    fits = all(place.labels.get(key) == value for key, value in selector.items())
    required = stanza(pod, "required")
    if required is not None:
        terms = [one for one in required.get("nodeSelectorTerms") or () if _is_readable(one)]
        fits = fits and any(_term(one, place) for one in terms)
    return None if fits else (UNRESOLVABLE, ("node(s) didn't match Pod's node affinity/selector",))


def node_affinity_score(pod: Json, place: Place) -> int:
    return sum(
        one["weight"]
        for one in stanza(pod, "preferred") or ()
        if one["weight"] and _term(one["preference"], place)
    )


# --- resources -------------------------------------------------------------------------------------


def node_resources_fit(pod: Json, place: Place) -> Verdict:
    requests = Pod.from_object(pod).requests
    reasons = []
    never = False
    if len(place.pods) + 1 > place.allocatable.get("pods", 0):
        reasons.append("Too many pods")
    for name, amount in requests.items():
        whole = place.allocatable.get(name, 0)
        if amount > 0 and amount > whole - place.requested(name):
            reasons.append(f"Insufficient {name}")
            never = never or amount > whole
    return (UNRESOLVABLE if never else UNSCHEDULABLE, tuple(sorted(reasons))) if reasons else None


def fit_score(pod: Json, place: Place, kind: str, resources: Sequence[tuple[str, int]], shape: Json) -> int:
    asked = Pod.from_object(pod).score_requests
    total = weights = 0
    for name, weight in resources:
        amount = asked.get(name, 0)
        whole = place.allocatable.get(name, 0)
        if whole == 0 or ("/" in name and amount == 0):
            continue
        used = place.non_zero(name) if name in ("cpu", "memory") else place.requested(name)
        need = used + amount
        if kind == "LeastAllocated":
            score = 0 if need > whole else (whole - need) * 100 // whole
        elif kind == "MostAllocated":
            score = min(need, whole) * 100 // whole
        else:
            score = _on_shape(shape, 100 if need > whole else need * 100 // whole)
            if score <= 0:
                continue
        total += score * weight
        weights += weight
    if weights == 0:
        return 0
    # Halves go up: no sum here is negative.
    return math.floor(total / weights + 0.5) if kind == "RequestedToCapacityRatio" else total // weights


def _on_shape(shape: Json, used: int) -> int:
    points: list[tuple[int, int]] = [(point["utilization"], point["score"] * 10) for point in shape["shape"]]
    if used <= points[0][0]:
        return points[0][1]
    for i in range(1, len(points)):
        if used <= points[i][0]:
            (left, low), (right, high) = points[i - 1], points[i]
            return low + math.trunc((high - low) * (used - left) / (right - left))
    return points[-1][1]


def balanced_score(pod: Json, place: Place, names: Sequence[str]) -> int | None:
    """None: the pod asks for none of the resources, PreScore skips."""
    requests = Pod.from_object(pod).requests
    if not any(requests.get(name, 0) for name in names):
        return None
    without, with_pod = [], []
    for name in names:
        amount = requests.get(name, 0)
        whole = place.allocatable.get(name, 0)
        if whole == 0 or ("/" in name and amount == 0):
            continue
        without.append(min(place.requested(name) / whole, 1.0))
        with_pod.append(min((place.requested(name) + amount) / whole, 1.0))
    return 50 + (50 + _evenness(with_pod) - _evenness(without)) // 2


def _evenness(fractions: Sequence[float]) -> int:
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        total = 0.0
        for fraction in fractions:
            total += fraction
        mean = total / len(fractions)
        squares = 0.0
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = math.sqrt(squares / len(fractions))
    return int((1 - deviation) * 100)


# --- images ----------------------------------------------------------------------------------------


def image_score(pod: Json, place: Place, places: Sequence[Place]) -> int:
    containers = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    total = 0
    for container in containers:
        name = container.get("image", "")
        if name.rfind(":") <= name.rfind("/"):
            name += ":latest"
        holders = [other for other in places if any(name in image["names"] for image in other.images)]
        if place in holders:
            size = next(image["sizeBytes"] for image in place.images if name in image["names"])
            total += int(float(size) * (len(holders) / len(places)))
    least, most = 23 * 1024 * 1024, 1000 * 1024 * 1024 * len(containers)
    total = min(max(total, least), most)
    return 100 * (total - least) // (most - least)
