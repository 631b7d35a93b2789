"""Sets priority and preemptionPolicy of a pod from its priorityClassName.

Called by `Admission.admit` for every new pod. Source: `plugin/pkg/admission/priority/admission.go`, v1.36.
A pod that may have passed admission before, such as one of a cluster dump, keeps its own priority.
"""

from __future__ import annotations

from typing import Any, Final

from berth_sdk.kube_object import KubeObject

from berth_host.errors.cluster import FieldProblem

Json = dict[str, Any]
DEFAULT_PREEMPTION_POLICY: Final = "PreemptLowerPriority"
_SYSTEM: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class PriorityClasses:
    """The PriorityClasses by name, with the two that every cluster has."""

    def __init__(self) -> None:
        self._classes: dict[str, tuple[int, str]] = {
            name: (value, DEFAULT_PREEMPTION_POLICY) for name, value in _SYSTEM.items()
        }
        self._global_defaults: set[str] = set()
        self.version = 0
        """The number of changes; results of `admitted` are valid for one version."""

    def keep(self, obj: KubeObject) -> None:
        """Store a new or changed class."""
        self.version += 1
        name = obj.ref.name
        policy = obj.get("preemptionPolicy") or DEFAULT_PREEMPTION_POLICY
        self._classes[name] = (int(obj.get("value", 0)), policy)
        if obj.get("globalDefault"):
            self._global_defaults.add(name)
        else:
            self._global_defaults.discard(name)

    def drop(self, name: str) -> None:
        """Remove a deleted class; a system class gets its built-in value again."""
        self.version += 1
        self._classes.pop(name, None)
        self._global_defaults.discard(name)
        if name in _SYSTEM:
            self._classes[name] = (_SYSTEM[name], DEFAULT_PREEMPTION_POLICY)

    def __contains__(self, name: str) -> bool:
        return name in self._classes

    def admitted(self, spec: Json, *, is_new: bool) -> tuple[Json, list[FieldProblem], str]:
        """Return the spec with priority and preemptionPolicy, the problems and the refusal ("": none).

        Problems are values of the pod that contradict its class; a missing class is refused. `is_new`: the
        pod has not passed admission before. Any other pod keeps its own priority if its class is missing or
        not set.
        """
        said = None if is_new else spec.get("priority")
        name = spec.get("priorityClassName") or ("" if said is not None else self._global_default())
        found = self._classes.get(name) if name else None
        if found is not None:
            value, policy = found
        elif name and said is None:
            return spec, [], f"no PriorityClass with name {name} was found"
        else:
            value, policy = said or 0, DEFAULT_PREEMPTION_POLICY
            spec = spec if is_new else {**spec, "preemptionPolicy": spec.get("preemptionPolicy") or policy}
            policy = policy if is_new else spec["preemptionPolicy"]
        return self._completed(spec, name, value, policy), _contradictions(spec, value, policy), ""

    def _global_default(self) -> str:
        # Several global defaults can exist only after a race; the lowest one counts.
        defaults = sorted(self._global_defaults, key=lambda name: (self._classes[name][0], name))
        return defaults[0] if defaults else ""

    @staticmethod
    def _completed(spec: Json, name: str, value: int, policy: str) -> Json:
        completed = spec | {"priority": value}
        if name:
            completed["priorityClassName"] = name
        if not completed.get("preemptionPolicy"):
            completed["preemptionPolicy"] = policy
        return completed


def _contradictions(spec: Json, value: int, policy: str) -> list[FieldProblem]:
    said = {
        "priority": ("the integer value of priority", value),
        "preemptionPolicy": ("the string value of PreemptionPolicy", policy),
    }
    return [
        FieldProblem(
            f"spec.{name}",
            f"{what} ({spec[name]}) must not be provided in pod spec; priority admission controller computed "
            f"{computed} from the given PriorityClass name: leave it out, or name the class that has it",
        )
        for name, (what, computed) in said.items()
        if spec.get(name) not in (None, "", computed)
    ]
