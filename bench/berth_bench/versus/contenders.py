"""A contender: a scheduler with its configuration, and optionally a plugin or an extender beside it.

`workloads` selects the contenders of a workload, `yard` starts them. No contender has a limit on requests,
and each sets percentageOfNodesToScore explicitly.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import yaml

from berth_bench.versus.label_rank import LabelRank

UNLIMITED: Final = {"qps": "100000", "burst": "100000"}
"""Fields of clientConnection."""
_ALL_NODES: Final = 100
_SAMPLED: Final = 0
"""kube-scheduler's own sampling: 50 % of 100 nodes down to 5 % of large clusters, but at least 100 nodes."""
_PATIENCE_S: Final = 30


class Beside(Enum):
    """The process beside the scheduler that does Filter and Score."""

    NOTHING = 0
    PLUGIN = 1
    """`LabelRank`, which the host starts."""
    NODE_CACHING_EXTENDER = 2
    """An extender that has cached the nodes, and receives their names."""
    EXTENDER = 3
    """An extender that receives every node with every pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A scheduler that takes turns with others. `percentage`: percentageOfNodesToScore.

    `varies`: the extender ranks the nodes in another way for each pod. `flags`: further flags. `python`: of
    berth and of the plugin beside it; "": this process's.
    """

    name: str
    is_berth: bool
    percentage: int
    beside: Beside = Beside.NOTHING
    varies: bool = False
    flags: tuple[str, ...] = ()
    python: str = ""

    def of(self, python: str) -> Contender:
        """Return this contender, run by the berth of another environment."""
        return replace(self, name=f"{self.name}, {python}", python=python)

    @property
    def extends(self) -> bool:
        """True if an HTTP extender must run."""
        return self.beside in (Beside.NODE_CACHING_EXTENDER, Beside.EXTENDER)

    def configuration(self, extender_url: str = "") -> str:
        """Return the KubeSchedulerConfiguration as YAML, without clientConnection. `extender_url`: the
        extender's address.
        """
        content: dict[str, Any] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "percentageOfNodesToScore": self.percentage,
        }
        if self.beside is Beside.PLUGIN:
            named = {"enabled": [{"name": LabelRank.__name__}]}
            profile = {"schedulerName": "default-scheduler", "plugins": {"filter": named, "score": named}}
            content["profiles"] = [profile]
        if self.extends:
            content["extenders"] = [
                {
                    "urlPrefix": extender_url,
                    "filterVerb": "filter",
                    "prioritizeVerb": "prioritize",
                    "weight": 1,
                    "httpTimeout": f"{_PATIENCE_S}s",
                    "nodeCacheCapable": self.beside is Beside.NODE_CACHING_EXTENDER,
                }
            ]
        return _yaml(content)

    def berth_configuration(self) -> str:
        """Return the BerthConfiguration as YAML, "" for none."""
        if self.beside is not Beside.PLUGIN:
            return ""
        served = f"{LabelRank.__module__}:{LabelRank.__qualname__}"
        plugin = {
            "name": LabelRank.__name__,
            "command": [self.python or sys.executable, "-m", "berth_sdk", "serve", served],
            # Required, because a run without the plugin would be faster for the wrong reason.
            "required": True,
        }
        return _yaml(
            {"apiVersion": "config.berth.io/v1alpha1", "kind": "BerthConfiguration", "plugins": [plugin]}
        )


BERTH: Final = Contender(name="berth", is_berth=True, percentage=_ALL_NODES)
_POD_GROUPS: Final = "--feature-gates=GenericWorkload=true"
BERTH_POD_GROUPS: Final = Contender(name="berth", is_berth=True, percentage=_ALL_NODES, flags=(_POD_GROUPS,))
BERTH_PLUGIN: Final = Contender(
    name="berth, plugin", is_berth=True, percentage=_ALL_NODES, beside=Beside.PLUGIN
)
BERTH_CACHING: Final = Contender(
    name="berth, caching extender", is_berth=True, percentage=_ALL_NODES, beside=Beside.NODE_CACHING_EXTENDER
)
BERTH_EXTENDER: Final = Contender(
    name="berth, extender", is_berth=True, percentage=_ALL_NODES, beside=Beside.EXTENDER
)
KUBE_SCHEDULER: Final = Contender(name="kube-scheduler", is_berth=False, percentage=_SAMPLED)
KUBE_SCHEDULER_POD_GROUPS: Final = Contender(
    name="kube-scheduler", is_berth=False, percentage=_SAMPLED, flags=(_POD_GROUPS,)
)
KUBE_SCHEDULER_CACHING: Final = Contender(
    name="kube-scheduler, caching extender",
    is_berth=False,
    percentage=_ALL_NODES,
    beside=Beside.NODE_CACHING_EXTENDER,
)
KUBE_SCHEDULER_EXTENDER: Final = Contender(
    name="kube-scheduler, extender", is_berth=False, percentage=_ALL_NODES, beside=Beside.EXTENDER
)


def _yaml(content: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(content), sort_keys=False)
