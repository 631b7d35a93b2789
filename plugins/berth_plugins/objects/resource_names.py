"""Resource names -> the resources that scheduling counts, and those that the configuration may ignore.

Source: `pkg/scheduler/util/utils.go` (IsScalarResourceName) and `pkg/apis/core/v1/helper/helpers.go`, v1.36.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from berth_sdk.selectors import is_label_key

PLAIN: Final = ("cpu", "memory", "ephemeral-storage")
"""The resources that every node has, by their names in allocatable."""

_QUOTA_PREFIX: Final = "requests."


@lru_cache(maxsize=4096)
def is_extended(name: str) -> bool:
    """Return True for a resource of a device plugin or of an administrator, such as `nvidia.com/gpu`."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_QUOTA_PREFIX):
        return False
    # Quotas put this prefix before the name, and the result must be a valid name too.
    return is_label_key(_QUOTA_PREFIX + name)


@lru_cache(maxsize=4096)
def is_scalar(name: str) -> bool:
    """Return True for a resource that is counted per node beside cpu, memory and ephemeral storage.
    Scheduling ignores other names.
    """
    return (
        is_extended(name)
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in name
    )


def is_counted(name: str) -> bool:
    """Return True for a resource that a node's totals have."""
    return name in PLAIN or is_scalar(name)
