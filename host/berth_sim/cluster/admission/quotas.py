"""ResourceQuota: the usage of each namespace, and refusals of pods and claims that exceed it.

Called by `Gatekeeping`. Source: apiserver `admission/plugin/resourcequota/controller.go`, and
`pkg/quota/v1/evaluator/core/{pods,persistent_volume_claims}.go`, v1.36.
Differs: `status.used` of a quota, which a cluster dump contains, is taken as the usage of all objects of the
dump. Objects of other kinds are not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from berth_sdk.kube_object import KubeObject
from berth_sdk.pod_requests import requests_of
from berth_sdk.quantity import NANO, nano_value

from berth_sim.cluster.admission.amounts import is_binary, is_binary_in, named_in, shape_of, written

_CONTAINERS: Final = ("containers", "initContainers")
_SHORT: Final = ("cpu", "memory", "ephemeral-storage")
_PODS: Final = ("pods", "count/pods")
_CLAIMS: Final = ("persistentvolumeclaims", "count/persistentvolumeclaims")
_CLASS_SUFFIX: Final = ".storageclass.storage.k8s.io/"
_DONE: Final = ("Succeeded", "Failed")
Json = dict[str, Any]
Usage = dict[str, int]


class Quotas:
    """The quotas by namespace, and the usage charged to each."""

    def __init__(self) -> None:
        self._quotas: dict[str, dict[str, KubeObject]] = defaultdict(dict)
        self._used: dict[str, Usage] = {}
        """By the uid of the quota: another quota of the same name has not counted the same objects."""
        self._charged: dict[tuple[str, str], list[tuple[str, Usage]]] = {}

    def keep(self, obj: KubeObject) -> None:
        """Store a new or changed quota."""
        self._quotas[obj.ref.namespace][obj.ref.name] = obj
        said = obj.get("status.used") or {}
        self._used.setdefault(obj.ref.uid, {name: nano_value(amount) for name, amount in said.items()})

    def drop(self, namespace: str, name: str) -> None:
        """Remove a deleted quota."""
        if (quota := self._quotas[namespace].pop(name, None)) is not None:
            self._used.pop(quota.ref.uid, None)

    def uncounted(self) -> list[str]:
        """Return one sentence per quota with a limit that the embedded cluster does not count."""
        return [
            f"ResourceQuota {quota.ref.key}: {', '.join(names)} is not counted: pods and claims are"
            for quotas in self._quotas.values()
            for quota in quotas.values()
            if (names := [name for name in quota.get("spec.hard") or {} if not _is_counted(name)])
        ]

    def refusal(self, kind: str, obj: Mapping[str, Any], *, is_restored: bool) -> str:
        """Return the API server's refusal of a new pod or claim; "" if it is admitted and was charged."""
        metadata = obj["metadata"]
        quotas = self._quotas.get(metadata.get("namespace") or "default")
        if not quotas or (obj.get("status") or {}).get("phase") in _DONE:
            return ""
        usage = pod_usage(obj) if kind == "Pod" else claim_usage(obj)
        charges: list[tuple[str, Usage]] = []
        for quota in sorted(quotas.values(), key=lambda one: one.ref.name):
            if not _covers(quota, kind, obj):
                continue
            hard = {name: nano_value(amount) for name, amount in (quota.get("spec.hard") or {}).items()}
            if is_restored:
                if quota.get("status.used") is not None:
                    continue
            elif problem := _problem(quota, kind, obj, hard, usage, self._used[quota.ref.uid]):
                return problem
            charges.append((quota.ref.uid, {name: usage[name] for name in hard if name in usage}))
        for uid, charge in charges:
            _add(self._used[uid], charge, 1)
        self._charged[kind, f"{metadata.get('namespace') or 'default'}/{metadata['name']}"] = charges
        return ""

    def release(self, kind: str, key: str) -> None:
        """Subtract the usage of a deleted pod or claim from its quotas."""
        for quota, charge in self._charged.pop((kind, key), ()):
            if quota in self._used:
                _add(self._used[quota], charge, -1)


def _add(used: Usage, charge: Usage, sign: int) -> None:
    for name, amount in charge.items():
        used[name] = used.get(name, 0) + sign * amount


def _is_counted(name: str) -> bool:
    plain = name.removeprefix("requests.").removeprefix("limits.")
    return (
        name in (*_PODS, *_CLAIMS)
        or plain in (*_SHORT, "storage")
        or plain.startswith("hugepages-")
        or (name.startswith("requests.") and "/" in plain)
        or _CLASS_SUFFIX in name
    )


def pod_usage(pod: Mapping[str, Any]) -> Usage:
    """Return a pod's usage in billionths, by a quota's resource names."""
    spec = pod["spec"]
    usage = dict.fromkeys(_PODS, NANO)
    for name, amount in _summed(spec, "requests").items():
        usage[f"requests.{name}"] = amount
        if name in _SHORT or name.startswith("hugepages-"):
            usage[name] = amount
    for name, amount in _summed(spec, "limits").items():
        usage[f"limits.{name}"] = amount
    return usage


def _summed(spec: Json, which: str) -> Usage:
    shape = shape_of(spec, which)
    names = named_in(shape)
    if spec.get("overhead") and any(named_in({key: shape.get(key, ())}) for key in _CONTAINERS):
        shape["overhead"] = spec["overhead"]
        names |= spec["overhead"].keys()
    found = requests_of(shape, None).requests
    return {
        name: amount * (NANO // 1000 if name == "cpu" else NANO)
        for name, amount in found.items()
        if name in names
    }


def claim_usage(claim: Mapping[str, Any]) -> Usage:
    """Return a claim's usage in billionths, by a quota's resource names."""
    spec = claim.get("spec") or {}
    usage = dict.fromkeys(_CLAIMS, NANO)
    storage = nano_value(((spec.get("resources") or {}).get("requests") or {}).get("storage") or 0)
    usage["requests.storage"] = storage
    if name := spec.get("storageClassName"):
        usage[f"{name}{_CLASS_SUFFIX}requests.storage"] = storage
        usage[f"{name}{_CLASS_SUFFIX}persistentvolumeclaims"] = NANO
    return usage


def _covers(quota: KubeObject, kind: str, obj: Mapping[str, Any]) -> bool:
    """Return True if the object is in all scopes of the quota."""
    scopes = [{"scopeName": name, "operator": "Exists"} for name in quota.get("spec.scopes") or ()]
    scopes += quota.get("spec.scopeSelector.matchExpressions") or ()
    if scopes and kind != "Pod":
        return False
    return all(_in_scope(scope, obj["spec"]) for scope in scopes)


def _in_scope(scope: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    name: str = scope["scopeName"]
    if name == "PriorityClass":
        own, values = spec.get("priorityClassName") or "", scope.get("values") or ()
        holds: bool = {
            "Exists": bool(own),
            "DoesNotExist": not own,
            "In": own in values,
            "NotIn": own not in values,
        }[scope.get("operator") or "Exists"]
        return holds
    if name in ("Terminating", "NotTerminating"):
        return (spec.get("activeDeadlineSeconds") is not None) == (name == "Terminating")
    if name in ("BestEffort", "NotBestEffort"):
        amounts = [spec, *(one for key in _CONTAINERS for one in spec.get(key) or ())]
        resources = [one.get("resources") or {} for one in amounts]
        best = not any(
            set(one.get(which) or {}) & {"cpu", "memory"}
            for one in resources
            for which in ("requests", "limits")
        )
        return best is (name == "BestEffort")
    affinity = spec.get("affinity") or {}
    terms = [
        term.get("podAffinityTerm") or term
        for which in ("podAffinity", "podAntiAffinity")
        for listed in (affinity.get(which) or {}).values()
        for term in listed
    ]
    return any(bool(term.get("namespaces")) or term.get("namespaceSelector") is not None for term in terms)


def _problem(
    quota: KubeObject, kind: str, obj: Mapping[str, Any], hard: Usage, usage: Usage, used: Usage
) -> str:
    if kind == "Pod" and (missing := _missing(obj["spec"], hard)):
        return f"failed quota: {quota.ref.name}: must specify {missing}"
    over = sorted(
        name
        for name in hard
        if name in usage and usage[name] and used.get(name, 0) + usage[name] > hard[name]
    )
    if not over:
        return ""
    said = quota.get("spec.hard") or {}
    binary = {name: _is_binary(kind, obj.get("spec") or {}, name) for name in over}
    asked = ",".join(f"{name}={written(usage[name], binary=binary[name])}" for name in over)
    taken = ",".join(f"{name}={written(used.get(name, 0), binary=binary[name])}" for name in over)
    limits = ",".join(f"{name}={written(hard[name], binary=is_binary(said[name]))}" for name in over)
    return f"exceeded quota: {quota.ref.name}, requested: {asked}, used: {taken}, limited: {limits}"


def _missing(spec: Mapping[str, Any], hard: Usage) -> str:
    """Return the limited amounts that containers lack, such as `limits.cpu for: c; requests.cpu for: c`."""
    wanted = [
        name
        for name in sorted(hard)
        if name.removeprefix("requests.").removeprefix("limits.") in ("cpu", "memory")
    ]
    found = []
    for name in wanted:
        which, resource = (
            ("limits", name[7:])
            if name.startswith("limits.")
            else ("requests", name.removeprefix("requests."))
        )
        if resource in ((spec.get("resources") or {}).get(which) or {}):
            continue
        lacking = sorted(
            container["name"]
            for key in _CONTAINERS
            for container in spec.get(key) or ()
            if resource not in ((container.get("resources") or {}).get(which) or {})
        )
        if lacking:
            found.append(f"{name} for: {','.join(lacking)}")
    return "; ".join(found)


def _is_binary(kind: str, spec: Mapping[str, Any], name: str) -> bool:
    """Return True if the object gives the amount of this quota name in powers of 1024."""
    if kind == "Pod":
        which = "limits" if name.startswith("limits.") else "requests"
        return is_binary_in(spec, which, name.removeprefix("requests.").removeprefix("limits."))
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return name.endswith("requests.storage") and is_binary(storage)
