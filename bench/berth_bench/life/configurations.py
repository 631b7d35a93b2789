"""`configuration`: the configuration of a life's hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.plugins.registry import ClassRegistry

from berth_bench.life.guard import GUARD
from berth_bench.life.served_world import ENDPOINT

GATES: Final = {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True}
_PROFILE: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {{enabled: [{names}]}}
  pluginConfig:
  - name: VolumeBinding
    args: {{bindTimeoutSeconds: 60}}
"""
_SERVED: Final = f"""\
---
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins:
- name: {GUARD}
  endpoint: {ENDPOINT}
"""


def configuration(plugins: Mapping[str, type], *, has_guard: bool) -> LoadedConfiguration:
    """Return the configuration of a host. `plugins`: the classes in process, by name."""
    names = [*plugins, *([GUARD] if has_guard else ())]
    text = _PROFILE.format(names=", ".join(f"{{name: {name}}}" for name in names))
    return load_configuration(
        text + (_SERVED if has_guard else ""),
        source="life.yaml",
        registered=ClassRegistry(dict(plugins)).points(),
        feature_gates=GATES,
    )
