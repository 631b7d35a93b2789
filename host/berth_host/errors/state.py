"""Errors of cache and snapshot. `berth_host.errors` has the whole tree."""

from __future__ import annotations

from berth_host.errors import HostError


class InvariantError(HostError):
    """A contradiction in the host's state: a bug, or a broken watch. The text names both sides."""


class CacheError(HostError):
    """A step that the state of the pod or node in the cache does not allow. Nothing was changed."""
