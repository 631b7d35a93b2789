"""priorityClassName -> priority and preemptionPolicy.

Called by `Admission.admit` for every new pod. Source: `plugin/pkg/admission/priority/admission.go`, v1.36.
Deviates: a pod without a class keeps its own priority, and a missing class is no error for a pod with its own
priority; dumps of running clusters, and tests, have both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_sdk.kube_object import KubeObject

from berth_host.errors.cluster import FieldProblem

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
        """Moves with every change: the answers of `resolve` hold until then."""

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

    def resolve(self, spec: dict[str, Any]) -> tuple[dict[str, Any], list[FieldProblem]]:
        """The spec with priority and preemptionPolicy, and the problems with its class."""
        name = spec.get("priorityClassName") or ""
        said = spec.get("priority")
        if not name and said is None:
            name = self._global_default()
        if not name:
            return self._completed(spec, "", said or 0, DEFAULT_PREEMPTION_POLICY), []
        found = self._classes.get(name)
        if found is None:
            if said is not None:
                return self._completed(spec, name, said, DEFAULT_PREEMPTION_POLICY), []
            cure = f"add it, or use {', '.join(sorted(self._classes))}"
            text = f"no PriorityClass named {name!r} is there: {cure}"
            return spec, [FieldProblem("spec.priorityClassName", text)]
        value, policy = found
        return self._completed(spec, name, value, policy), self._contradictions(spec, name, value, policy)

    def _global_default(self) -> str:
        # Several at once can only come from a race; the lowest one counts then.
        defaults = sorted(self._global_defaults, key=lambda name: (self._classes[name][0], name))
        return defaults[0] if defaults else ""

    @staticmethod
    def _completed(spec: dict[str, Any], name: str, value: int, policy: str) -> dict[str, Any]:
        completed = spec | {"priority": value}
        if name:
            completed["priorityClassName"] = name
        if not completed.get("preemptionPolicy"):
            completed["preemptionPolicy"] = policy
        return completed

    @staticmethod
    def _contradictions(spec: Mapping[str, Any], name: str, value: int, policy: str) -> list[FieldProblem]:
        problems = []
        if spec.get("priority") not in (None, value):
            problems.append(
                FieldProblem(
                    "spec.priority",
                    f"{spec['priority']} is not the {value} of PriorityClass {name!r}: leave one of them out",
                )
            )
        if spec.get("preemptionPolicy") not in (None, "", policy):
            problems.append(
                FieldProblem(
                    "spec.preemptionPolicy",
                    f"{spec['preemptionPolicy']} is not the {policy} of PriorityClass {name!r}:"
                    " leave one of them out",
                )
            )
        return problems
