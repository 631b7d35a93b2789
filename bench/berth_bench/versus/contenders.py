"""A contender: a scheduler with its configuration, and optionally a plugin, an extender or a shadow
beside it.

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

from berth_bench.versus.go_plugin import DECLARED, UNDECLARED, GoPlugin
from berth_bench.versus.label_rank import LabelRank, NodeRank, RowRank

UNLIMITED: Final = {"qps": "100000", "burst": "100000"}
"""Fields of clientConnection."""
_ALL_NODES: Final = 100
_SAMPLED: Final = 0
"""kube-scheduler's own sampling: 50 % of 100 nodes down to 5 % of large clusters, but at least 100 nodes."""
_PATIENCE_S: Final = 30


class Beside(Enum):
    """The process beside the scheduler: one that does Filter and Score, or a shadow."""

    NOTHING = 0
    PLUGIN = 1
    """`Contender.plugin`, which the host starts as a child."""
    GO_PLUGIN = 4
    """`Contender.go_plugin`, which the host starts as a child."""
    NODE_CACHING_EXTENDER = 2
    """An extender that has cached the nodes, and receives their names."""
    EXTENDER = 3
    """An extender that receives every node with every pod."""
    SHADOW = 5
    """A berth with `--shadow`, which decides the same pods and writes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A scheduler that takes turns with others. `percentage`: percentageOfNodesToScore.

    `plugin`: the class that filters and scores, for a contender with a plugin in Python; None: it has none.
    Without `Beside.PLUGIN` the class runs in the scheduler's process. `go_plugin`: that of a contender with a
    plugin in Go. `varies`: the extender ranks the nodes
    in another way for each pod. `flags`: further flags. `python`: of berth and of the plugin beside it; "":
    this process's.
    """

    name: str
    is_berth: bool
    percentage: int
    beside: Beside = Beside.NOTHING
    plugin: type[LabelRank] | None = None
    go_plugin: GoPlugin | None = None
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

    @property
    def plugin_name(self) -> str:
        """The name of the plugin; empty for a contender without one."""
        if self.go_plugin is not None:
            return self.go_plugin.name
        return "" if self.plugin is None else self.plugin.__name__

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
        if self.plugin_name:
            named = {"enabled": [{"name": self.plugin_name}]}
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
        if not self.plugin_name:
            return ""
        # Required, because a run without the plugin would be faster for the wrong reason.
        plugin: dict[str, Any] = {"name": self.plugin_name, "required": True}
        if self.go_plugin is not None:
            plugin["command"] = [str(self.go_plugin.program)]
        elif self.plugin is not None:
            cls = f"{self.plugin.__module__}:{self.plugin.__qualname__}"
            if self.beside is Beside.PLUGIN:
                plugin["command"] = [self.python or sys.executable, "-m", "berth_sdk", "serve", cls]
            else:
                plugin["inProcess"] = cls
        return _yaml(
            {"apiVersion": "config.berth.io/v1alpha1", "kind": "BerthConfiguration", "plugins": [plugin]}
        )


BERTH: Final = Contender(name="berth", is_berth=True, percentage=_ALL_NODES)
_POD_GROUPS: Final = "--feature-gates=GenericWorkload=true"
BERTH_POD_GROUPS: Final = Contender(name="berth", is_berth=True, percentage=_ALL_NODES, flags=(_POD_GROUPS,))
BERTH_PLUGIN: Final = Contender(
    name="berth, plugin", is_berth=True, percentage=_ALL_NODES, beside=Beside.PLUGIN, plugin=LabelRank
)
BERTH_BY_NODE: Final = replace(BERTH_PLUGIN, name="berth, plugin by node", plugin=NodeRank)
BERTH_BY_NODE_INSIDE: Final = replace(BERTH_BY_NODE, name="berth, by node in process", beside=Beside.NOTHING)
BERTH_BY_ROW: Final = replace(BERTH_PLUGIN, name="berth, plugin by row", plugin=RowRank)
BERTH_BY_ROW_INSIDE: Final = replace(BERTH_BY_ROW, name="berth, by row in process", beside=Beside.NOTHING)
BERTH_GO: Final = Contender(
    name="berth, Go plugin",
    is_berth=True,
    percentage=_ALL_NODES,
    beside=Beside.GO_PLUGIN,
    go_plugin=UNDECLARED,
)
BERTH_GO_BY_NODE: Final = replace(BERTH_GO, name="berth, Go plugin by node", go_plugin=DECLARED)
BERTH_CACHING: Final = Contender(
    name="berth, caching extender", is_berth=True, percentage=_ALL_NODES, beside=Beside.NODE_CACHING_EXTENDER
)
BERTH_EXTENDER: Final = Contender(
    name="berth, extender", is_berth=True, percentage=_ALL_NODES, beside=Beside.EXTENDER
)
SHADOW: Final = replace(BERTH, name="shadow", flags=("--shadow",))
BERTH_SHADOWED: Final = replace(BERTH, name="berth, shadow beside", beside=Beside.SHADOW)
KUBE_SCHEDULER: Final = Contender(name="kube-scheduler", is_berth=False, percentage=_SAMPLED)
KUBE_SCHEDULER_SHADOWED: Final = replace(
    KUBE_SCHEDULER, name="kube-scheduler, shadow beside", beside=Beside.SHADOW
)
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
