"""PodGroups of coscheduling for tests: their manifest, and configurations with the plugin Coscheduling."""

from __future__ import annotations

from typing import Any

COSCHEDULING_PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {enabled: [{name: Coscheduling}]}
    queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: "*"}]}
"""
"""A configuration that enables the plugin at all of its points."""
_POINTS = ("preEnqueue", "queueSort", "queueingHints", "preFilter", "placementFeasible", "permit")


def served_coscheduling(endpoint: str) -> str:
    """Return a BerthConfiguration, to append to a configuration: the plugin is served at `endpoint`.

    The deadlines are long: decisions are compared, on machines that may be busy, not times.
    """
    deadlines = ", ".join(f"{point}: {{deadline: 10s}}" for point in _POINTS)
    return (
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\nplugins:\n"
        f"- {{name: Coscheduling, endpoint: '{endpoint}', required: true, points: {{{deadlines}}}}}\n"
    )


def their_group(name: str, **spec: Any) -> dict[str, Any]:
    """Return the manifest of a PodGroup of scheduling.x-k8s.io/v1alpha1."""
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
