"""Which pods want a resource: the interest rule of extenders, and of plugins with `scope.resources` or
`managedResources`.

Source: KEP-1819 (ManagedResources), kube-scheduler `pkg/scheduler/extender.go` (IsInterested), v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from berth_sdk.pod import Pod


def wants_one_of(resources: Sequence[str]) -> Callable[[Pod], bool]:
    """Return the test whether a pod wants one of `resources`, in a container or as its overhead."""
    wanted = frozenset(resources)
    return lambda pod: not wanted.isdisjoint(pod.requests) or containers_want(pod, wanted)


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
