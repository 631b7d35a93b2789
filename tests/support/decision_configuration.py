"""A record's `config` -> the configuration of the host that replays it, as the text of a file says it.

Used by `decision_host`, and by tests that serve all default plugins elsewhere.
"""

from __future__ import annotations

import json
from typing import Any, Final

from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.config.loading import load_configuration
from berth_host.plugins.registry import ClassRegistry, points_of_class

Json = dict[str, Any]
PROFILE: Final = "default-scheduler"


def configuration_of(record: Json, emulated_version: str, endpoint: str = "") -> LoadedConfiguration:
    """Return the record's configuration, read from the text of a file; with `endpoint` the second document of
    it says that all default plugins are served there. `emulated_version`: as for `load_configuration`.
    """
    config = record.get("config") or {}
    args = {name: dict(value) for name, value in (config.get("pluginConfig") or {}).items()}
    args.setdefault("DefaultPreemption", {})["minCandidateNodesPercentage"] = 100
    weights = config.get("scoreWeights") or {}
    enabled = [{"name": name, "weight": weight} for name, weight in weights.items()]
    profile = {
        "schedulerName": PROFILE,
        # In the records a pod is bound right after Reserve: no volume is bound, so nothing waits for one.
        "plugins": {"multiPoint": {"enabled": enabled}, "preBind": {"disabled": [{"name": "*"}]}},
        "pluginConfig": [{"name": name, "args": value} for name, value in args.items()],
    }
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "profiles": [profile],
    }
    text = json.dumps(document)
    if endpoint:
        text = f"---\n{text}\n---\n{served_at(endpoint)}"
    return load_configuration(
        text,
        source=str(record.get("name", "record")),
        registered=ClassRegistry().points(),
        feature_gates=config.get("featureGates") or {},
        emulated_version=emulated_version,
    )


def served_at(endpoint: str) -> str:
    """Return a BerthConfiguration: every default plugin that is installed is attached at `endpoint`.

    The deadlines are long: decisions are compared, on machines that may be busy, not times.
    """
    lines = [
        "apiVersion: config.berth.io/v1alpha1",
        "kind: BerthConfiguration",
        "cycleBudget: 60s",
        "plugins:",
    ]
    registry = ClassRegistry()
    for name in registry.names:
        cls = registry.find(name)
        if name in DEFAULT_PLUGINS_BY_NAME and cls is not None:
            points = sorted(points_of_class(name, cls))
            deadlines = ", ".join(f"{point}: {{deadline: 10s}}" for point in points)
            lines.append(
                f'- {{name: {name}, endpoint: "{endpoint}", required: true, points: {{{deadlines}}}}}'
            )
    return "\n".join(lines) + "\n"
