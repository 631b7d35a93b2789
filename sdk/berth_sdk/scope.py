"""`Scope`: the pods that a plugin concerns.

A plugin declares its scope; the host then calls the plugin about no other pod. Source: the contract's
identity.proto (PodScope).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

EVERY_POD: Final = "every pod"
"""The text of the scope of a plugin that declares none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Conditions on a pod: a pod is inside if it meets each condition that is set. At least one is set.

    `label_selector`: a label selector in Kubernetes' string form (`tier=gpu, team in (a, b)`).
    `annotation_keys`: the pod has one of these annotations. `namespaces`: the pod is in one of them.
    `resources`: a container, an init container or the overhead requests or limits one of them.
    `device_classes`, `storage_classes`: a ResourceClaim, or a PersistentVolumeClaim, of the pod is of one of
    these classes; a claim that the host does not know yet counts as one.

    >>> str(Scope(namespaces=("a", "b"), resources=("example.com/gpu",)))
    'namespaces a, b; resources example.com/gpu'
    """

    label_selector: str = ""
    annotation_keys: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    device_classes: tuple[str, ...] = ()
    storage_classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, list):  # a scope is compared and hashed
                object.__setattr__(self, one.name, tuple(value))

    def __str__(self) -> str:
        """Return the conditions for people."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        said = [
            f"{name.replace('_', ' ')} {value if isinstance(value, str) else ', '.join(value)}"
            for name, value in found.items()
            if value
        ]
        return "; ".join(said) or EVERY_POD


def scope_text(scope: tuple[Scope, ...] | None) -> str:
    """Return a declared scope for people. None: every pod; empty: no pod."""
    if scope is None:
        return EVERY_POD
    return " or ".join(map(str, scope)) or "no pod"
