"""`configuration`: the configuration of a life's hosts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
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
    score: {{disabled: [{less}]}}
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
  points:
    filter: {{{{deadline: {{deadline_ms}}ms}}}}
    score: {{{{policy: {{policy}}}}}}
"""
_SCORES: Final = ("ImageLocality", "NodeResourcesBalancedAllocation")
DEADLINES_MS: Final = (100, 250, 1000)
"""The deadlines of Filter that a reload draws."""
_POLICIES: Final = ("Neutral", "Fail")


def configuration(
    plugins: Mapping[str, type], chance: random.Random | None = None, *, has_guard: bool
) -> LoadedConfiguration:
    """Return the configuration of a host. `plugins`: the classes in process, by name.

    `chance`: draws the order of the plugins, the scores that are off, and how long and in which way the host
    waits for the guard, which stays required; None: nothing is drawn.
    """
    names = [*plugins, *([GUARD] if has_guard else ())]
    less: list[str] = []
    deadline_ms, policy = 250, "Neutral"
    if chance is not None:
        chance.shuffle(names)
        less = [name for name in _SCORES if chance.random() < 0.5]
        deadline_ms, policy = chance.choice(DEADLINES_MS), chance.choice(_POLICIES)
    text = _PROFILE.format(names=_listed(names), less=_listed(less))
    served = _SERVED.format(deadline_ms=deadline_ms, policy=policy)
    return load_configuration(
        text + (served if has_guard else ""),
        source="life.yaml",
        registered=ClassRegistry(dict(plugins)).points(),
        feature_gates=GATES,
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"{{name: {name}}}" for name in names)
