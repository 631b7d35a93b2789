"""The admission plugins LimitRanger, DefaultTolerationSeconds, RuntimeClass and ResourceQuota.

Called by the embedded server for manifests. An object with a creationTimestamp has passed the admission of
the cluster that it comes from: it is not changed and not refused, but counts for the quotas of its namespace.
A RuntimeClass gives a pod its overhead, node selector and tolerations. A LimitRange gives containers default
requests and limits, and refuses amounts outside its limits. `quotas` has ResourceQuota.
Source, v1.36: `pkg/kubeapiserver/options/plugins.go` (the order),
`plugin/pkg/admission/{defaulttolerationseconds,runtimeclass,limitranger}/admission.go`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from berth_sdk.kube_object import KubeObject
from berth_sdk.pod_requests import requests_of
from berth_sdk.quantity import NANO, milli_value, nano_value, whole_value

from berth_sim.cluster.admission.amounts import is_binary_in, named_in, shape_of, written
from berth_sim.cluster.admission.quotas import Quotas
from berth_sim.cluster.validation.pod import not_overcommitted

_CONTAINERS: Final = ("containers", "initContainers")
Amounts = Mapping[str, Any]


def with_defaults(spec: Json, ranges: list[KubeObject]) -> Json:
    """Return the spec with default requests and limits of its containers; the first default found counts."""
    requests: Json = {}
    limits: Json = {}
    for item in _items(ranges, "Container"):
        # The API server fills in the missing defaults in this order when it stores a LimitRange.
        own_limits = {**(item.get("max") or {}), **(item.get("default") or {})}
        own_requests = {**(item.get("min") or {}), **own_limits, **(item.get("defaultRequest") or {})}
        limits, requests = {**own_limits, **limits}, {**own_requests, **requests}
    if not requests and not limits:
        return spec
    changes = {
        key: [_container(container, requests, limits) for container in spec[key]]
        for key in _CONTAINERS
        if spec.get(key)
    }
    return {**spec, **changes}


def _container(container: Json, requests: Json, limits: Json) -> Json:
    resources = container.get("resources") or {}
    said_limits = resources.get("limits") or {}
    # A container's own limit is its default request, before the LimitRange's default.
    said = {**said_limits, **(resources.get("requests") or {})}
    completed = {**resources, "limits": {**limits, **said_limits}, "requests": {**requests, **said}}
    return {**container, "resources": {key: value for key, value in completed.items() if value}}


def pod_problems(spec: Json, ranges: list[KubeObject]) -> list[str]:
    """Return a text for every limit that the pod violates, in the API server's words."""
    problems: list[str] = []
    for item in _items(ranges, "Container"):
        for key in _CONTAINERS:
            for container in spec.get(key) or ():
                resources = container.get("resources") or {}
                problems += _broken(item, resources.get("requests") or {}, resources.get("limits") or {})
    for item in _items(ranges, "Pod"):
        problems += _broken(item, _total(spec, "requests"), _total(spec, "limits"))
    return problems


def contradictions(spec: Json) -> list[str]:
    """Return a text, in the API server's words, for every request that conflicts with its limit.

    The limit may be a default.
    """
    return [
        f'spec.{key}[{i}].resources.requests: Invalid value: "{amount}": '
        f"must be {'equal to' if is_exact else 'less than or equal to'} {name} limit of {limits[name]}"
        for key in _CONTAINERS
        for i, container in enumerate(spec.get(key) or ())
        if (limits := (container.get("resources") or {}).get("limits"))
        for name, amount in ((container["resources"].get("requests")) or {}).items()
        if name in limits
        for is_exact in (not_overcommitted(name),)
        if nano_value(amount) > nano_value(limits[name])
        or (is_exact and nano_value(amount) != nano_value(limits[name]))
    ]


def claim_problems(spec: Json, ranges: list[KubeObject]) -> list[str]:
    """Return a text for every limit that the claim violates, in the API server's words."""
    requests = (spec.get("resources") or {}).get("requests") or {}
    problems: list[str] = []
    for item in _items(ranges, "PersistentVolumeClaim"):
        for name, bound in (item.get("min") or {}).items():
            problems += _min(item, name, bound, requests, {})
        for name, bound in (item.get("max") or {}).items():
            problems += _over(item, name, bound, requests, "request", required=True)
    return problems


def _items(ranges: list[KubeObject], kind: str) -> Iterator[Json]:
    for one in ranges:
        for item in one.get("spec.limits") or ():
            if item.get("type") == kind:
                yield item


def _total(spec: Json, which: str) -> Json:
    """Return the pod's requests or limits: pod-level ones, else the sums over the containers."""
    shape = shape_of(spec, which)
    names = named_in(shape)
    found = requests_of(shape, None).requests
    return {name: _text(shape, name, amount) for name, amount in found.items() if name in names}


def _text(spec: Json, name: str, amount: int) -> str:
    nano = amount * (NANO // 1000 if name == "cpu" else NANO)
    return written(nano, binary=is_binary_in(spec, "requests", name))


def _broken(item: Json, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, bound in (item.get("min") or {}).items():
        yield from _min(item, name, bound, requests, limits)
    for name, bound in (item.get("max") or {}).items():
        yield from _over(item, name, bound, limits, "limit", required=True)
        if name in limits and nano_value(limits[name]) <= nano_value(bound):
            yield from _over(item, name, bound, requests, "request", required=False)
    for name, bound in (item.get("maxLimitRequestRatio") or {}).items():
        yield from _ratio(item, name, bound, requests, limits)


def _min(item: Json, name: str, bound: Any, requests: Amounts, limits: Amounts) -> Iterator[str]:
    head = f"minimum {name} usage per {item['type']} is {bound}"
    if name not in requests:
        yield f"{head}.  No request is specified"
    elif nano_value(requests[name]) < nano_value(bound):
        yield f"{head}, but request is {requests[name]}"
    elif name in limits and nano_value(limits[name]) < nano_value(bound):
        yield f"{head}, but limit is {limits[name]}"


def _over(item: Json, name: str, bound: Any, amounts: Amounts, what: str, *, required: bool) -> Iterator[str]:
    head = f"maximum {name} usage per {item['type']} is {bound}"
    if name not in amounts:
        if required:
            yield f"{head}.  No {what} is specified"
    elif nano_value(amounts[name]) > nano_value(bound):
        yield f"{head}, but {what} is {amounts[name]}"


def _ratio(item: Json, name: str, bound: Any, requests: Amounts, limits: Amounts) -> Iterator[str]:
    head = f"{name} max limit to request ratio per {item['type']} is {bound}"
    value = milli_value if name == "cpu" else whole_value
    request = value(requests[name]) if name in requests else 0
    limit = value(limits[name]) if name in limits else 0
    if not request:
        yield f"{head}, but no request is specified or request is 0"
    elif not limit:
        yield f"{head}, but no limit is specified or limit is 0"
    elif limit * 1000 > request * milli_value(bound):
        yield f"{head}, but provided ratio is {limit / request:f}"


_UNDEFINED: Final = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


def with_runtime_class(spec: Json, classes: Mapping[str, KubeObject]) -> tuple[Json, str]:
    """Return the completed spec and the API server's refusal ("": none)."""
    name = spec.get("runtimeClassName") or ""
    overhead = spec.get("overhead") or {}
    if not name:
        return spec, _UNDEFINED if overhead else ""
    found = classes.get(name)
    if found is None:
        return spec, f'pod rejected: RuntimeClass "{name}" not found'
    fixed = found.get("overhead.podFixed") or {}
    if overhead and fixed and not _equal(overhead, fixed):
        return spec, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    if overhead and not fixed:
        return spec, _UNDEFINED
    selector = dict(spec.get("nodeSelector") or {})
    for key, wanted in (found.get("scheduling.nodeSelector") or {}).items():
        if selector.setdefault(key, wanted) != wanted:
            where = f"[{key}] = "
            return spec, (
                f"conflict: runtimeClass.scheduling.nodeSelector{where}{wanted}; "
                f"pod.spec.nodeSelector{where}{selector[key]}"
            )
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [one for one in found.get("scheduling.tolerations") or () if one not in tolerations]
    completed = {"overhead": fixed, "nodeSelector": selector, "tolerations": tolerations}
    return {**spec, **{key: value for key, value in completed.items() if value}}, ""


def _equal(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        nano_value(first[name]) == nano_value(second[name]) for name in first
    )


READ: Final = ("LimitRange", "ResourceQuota", "RuntimeClass")
"""The kinds that only admission reads, not scheduling."""
_TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_S: Final = 300
Json = dict[str, Any]


class Gatekeeping:
    """The objects that admission reads, and its steps: `completed`, `contradictions`, then `refusal`."""

    def __init__(self) -> None:
        self._ranges: dict[str, dict[str, KubeObject]] = defaultdict(dict)
        self._classes: dict[str, KubeObject] = {}
        self.quotas = Quotas()

    def keep(self, obj: KubeObject) -> None:
        """Store a new or changed object of a kind in READ."""
        if obj.kind == "LimitRange":
            self._ranges[obj.ref.namespace][obj.ref.name] = obj
        elif obj.kind == "RuntimeClass":
            self._classes[obj.ref.name] = obj
        else:
            self.quotas.keep(obj)

    def drop(self, obj: KubeObject) -> None:
        """Remove a deleted object of a kind in READ."""
        if obj.kind == "LimitRange":
            self._ranges[obj.ref.namespace].pop(obj.ref.name, None)
        elif obj.kind == "RuntimeClass":
            self._classes.pop(obj.ref.name, None)
        else:
            self.quotas.drop(obj.ref.namespace, obj.ref.name)

    def completed(self, kind: str, obj: Json) -> tuple[Json, str]:
        """Return the object with the fields that the plugins add, and the refusal ("": none)."""
        if kind != "Pod" or is_restored(obj):
            return obj, ""
        spec = with_defaults(obj.get("spec") or {}, self._of(obj))
        spec = _with_tolerations(spec)
        spec, refusal = with_runtime_class(spec, self._classes)
        return {**obj, "spec": spec}, refusal

    @staticmethod
    def contradictions(kind: str, obj: Json) -> list[str]:
        """Return the problems of a pod after admission has filled in defaults: a default limit may be lower
        than the pod's own request.
        """
        return [] if kind != "Pod" or is_restored(obj) else contradictions(obj.get("spec") or {})

    def refusal(self, kind: str, obj: Json) -> str:
        """Return why a completed object with all its defaults is refused; "" if it is admitted."""
        if kind not in ("Pod", "PersistentVolumeClaim"):
            return ""
        restored = is_restored(obj)
        if not restored:
            judge = pod_problems if kind == "Pod" else claim_problems
            problems = judge(obj.get("spec") or {}, self._of(obj))
            if problems:
                return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        return self.quotas.refusal(kind, obj, is_restored=restored)

    def _of(self, obj: Mapping[str, Any]) -> list[KubeObject]:
        ranges = self._ranges.get(obj["metadata"].get("namespace") or "default")
        return [ranges[name] for name in sorted(ranges)] if ranges else []


def is_restored(obj: Mapping[str, Any]) -> bool:
    """Return True if an object comes from a cluster: it has a creationTimestamp."""
    return bool((obj.get("metadata") or {}).get("creationTimestamp"))


def is_new_for_certain(obj: Mapping[str, Any]) -> bool:
    """Return True if an object cannot come from a cluster, because it names no namespace.

    A pod with a namespace but no creationTimestamp may be a manifest, or come from a dump whose times were
    removed.
    """
    return not is_restored(obj) and not (obj.get("metadata") or {}).get("namespace")


def _with_tolerations(spec: Json) -> Json:
    """Return the spec with tolerations, for five minutes, of a not ready and of an unreachable node."""
    said = spec.get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_S}
        for key in _TOLERATED
        if not any(
            (one.get("key") or key) == key and (one.get("effect") or "NoExecute") == "NoExecute"
            for one in said
        )
    ]
    return {**spec, "tolerations": [*said, *added]} if added else spec
