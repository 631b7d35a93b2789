"""Features that only a benchmark's nodes declare and only its pods need, for NodeDeclaredFeatures.

`running` runs a workload within `known`, as scheduler_perf does: while a workload of nodedeclaredfeatures
runs, the plugin knows `Feature1` and so on, and every pod with pod-level resources needs all of them. Source:
`test/integration/scheduler_perf/nodedeclaredfeatures/node_declared_features_test.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from berth_host.plugins.registry import ClassRegistry

PLUGIN: Final = "NodeDeclaredFeatures"
PARAMETER: Final = "numNodeDeclaredFeatures"


def names(count: int) -> tuple[str, ...]:
    """Return `Feature1` and so on, in the order in which a kubelet lists them."""
    return tuple(sorted(f"Feature{number}" for number in range(1, count + 1)))


@contextmanager
def known(features: Sequence[str]) -> Iterator[None]:
    """Make these features the only ones that the plugin of this process knows, until the block ends. An empty
    list changes nothing.
    """
    plugin = ClassRegistry().find(PLUGIN) if features else None
    before = getattr(plugin, "features", None)
    if plugin is None or before is None:
        yield
        return
    plugin.features = dict.fromkeys(features, _has_resources)  # type: ignore[attr-defined]  # checked above
    try:
        yield
    finally:
        plugin.features = before  # type: ignore[attr-defined]  # checked above


def _has_resources(spec: Mapping[str, Any]) -> bool:
    return spec.get("resources") is not None
