"""The types of patches of the cluster port."""

from __future__ import annotations

from enum import StrEnum


class PatchType(StrEnum):
    """The type of a patch; the value is the content type of the request."""

    MERGE = "application/merge-patch+json"
    """RFC 7386: a list replaces the list."""
    STRATEGIC = "application/strategic-merge-patch+json"
    """Kubernetes' own: conditions are merged by type. Not for custom resources."""
