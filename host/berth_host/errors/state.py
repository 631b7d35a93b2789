"""Errors of cache and snapshot about refused steps. The tree is drawn in `berth_host.errors`."""

from __future__ import annotations

from berth_host.errors import HostError


class InvariantError(HostError):
    """Two things that must agree contradict each other; the text names both. A bug, or a broken feed."""


class CacheError(HostError):
    """A step that the state of the pod or node in the cache does not allow; nothing was changed."""
