"""Which pods want a resource: the interest rule of extenders, and of plugins with `scope.resources` or
`managedResources`.

Source: KEP-1819 (ManagedResources), kube-scheduler `pkg/scheduler/extender.go` (IsInterested), v1.36.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from berth_sdk.pod import Pod


def containers_want(pod: Pod, resources: AbstractSet[str]) -> bool:
    """Return True if a container or init container of the pod requests or limits one of `resources`.

    An amount of 0 counts too.
    """
    spec = pod.spec
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            given = container.get("resources") or {}
            if not (
                resources.isdisjoint(given.get("requests") or ())
                and resources.isdisjoint(given.get("limits") or ())
            ):
                return True
    return False
