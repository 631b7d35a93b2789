"""The admission plugins LimitRanger, DefaultTolerationSeconds, RuntimeClass and ResourceQuota.

Called by the embedded server for manifests. An object with a creationTimestamp has passed the admission of
the cluster that it comes from: it is not changed and not refused, but counts for the quotas of its namespace.
Source, v1.36: `pkg/kubeapiserver/options/plugins.go` (the order),
`plugin/pkg/admission/defaulttolerationseconds`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from berth_sdk.kube_object import KubeObject

from berth_host.cluster.memory.admission.limit_ranges import (
    claim_problems,
    contradictions,
    pod_problems,
    with_defaults,
)
from berth_host.cluster.memory.admission.quotas import Quotas
from berth_host.cluster.memory.admission.runtime_classes import with_runtime_class

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
