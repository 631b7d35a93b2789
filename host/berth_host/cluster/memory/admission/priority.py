"""priorityClassName -> priority and preemptionPolicy.

Called by `Admission.admit` for every new pod. Source: `plugin/pkg/admission/priority/admission.go`, v1.36.
A pod that may have passed admission before, as one in the dump of a cluster, keeps its own priority.
"""

from __future__ import annotations

from typing import Any, Final

from berth_sdk.kube_object import KubeObject

from berth_host.errors.cluster import FieldProblem

Json = dict[str, Any]
DEFAULT_PREEMPTION_POLICY: Final = "PreemptLowerPriority"
_SYSTEM: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class PriorityClasses:
    """The classes by name, with the two that every cluster has."""

    def __init__(self) -> None:
        self._classes: dict[str, tuple[int, str]] = {
            name: (value, DEFAULT_PREEMPTION_POLICY) for name, value in _SYSTEM.items()
        }
        self._global_defaults: set[str] = set()
        self.version = 0
        """Moves with every change: the answers of `admitted` hold until then."""

    def keep(self, obj: KubeObject) -> None:
        """A class was added or changed."""
        self.version += 1
        name = obj.ref.name
        policy = obj.get("preemptionPolicy") or DEFAULT_PREEMPTION_POLICY
        self._classes[name] = (int(obj.get("value", 0)), policy)
        if obj.get("globalDefault"):
            self._global_defaults.add(name)
        else:
            self._global_defaults.discard(name)

    def drop(self, name: str) -> None:
        """A class was deleted."""
        self.version += 1
        self._classes.pop(name, None)
        self._global_defaults.discard(name)
        if name in _SYSTEM:
            self._classes[name] = (_SYSTEM[name], DEFAULT_PREEMPTION_POLICY)

    def __contains__(self, name: str) -> bool:
        return name in self._classes

    def admitted(self, spec: Json, *, is_new: bool) -> tuple[Json, list[FieldProblem], str]:
        """Return the spec with priority and preemptionPolicy, the problems with its own ones, and the refusal
        for a class that is missing ("": none).

        `is_new`: the pod has passed no admission before. Another pod keeps the priority that it says, without
        a class or with one that is missing.
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
        # Several at once can only come from a race; the lowest one counts then.
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
