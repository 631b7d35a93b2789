"""Resource names -> which of them scheduling counts, and which may be ignored by configuration.

Source: `pkg/scheduler/util/utils.go` (IsScalarResourceName) and `pkg/apis/core/v1/helper/helpers.go`,
v1.36.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from berth_sdk.selectors import is_label_key

PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
"""The resources that every node has, by the names of its allocatable map."""

_QUOTA_PREFIX: Final = "requests."


@lru_cache(maxsize=4096)
def is_extended(name: str) -> bool:
    """A resource of a device plugin or of an administrator, such as `nvidia.com/gpu`."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_QUOTA_PREFIX):
        return False
    # Quotas name it with this prefix, and must be able to.
    return is_label_key(_QUOTA_PREFIX + name)


@lru_cache(maxsize=4096)
def is_scalar(name: str) -> bool:
    """Counted per node beside cpu, memory and ephemeral storage; other names are not scheduled by."""
    return (
        is_extended(name)
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in name
    )


def is_counted(name: str) -> bool:
    """A resource that a node's totals have."""
    return name in PLAIN or is_scalar(name)
