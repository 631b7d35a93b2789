"""The workloads of `berth bench versus`: pods on plain nodes in ten zones.

Called by the command and by `yard`. The first contender of a workload is berth; the ratios are to each of the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from berth_bench.pods_as_kept import as_created
from berth_bench.versus import contenders
from berth_bench.versus.contenders import Contender
from berth_bench.versus.label_rank import CLOSED, RANK
from berth_bench.versus.objects import Json, node, pod, pod_group

APPS: Final = 60
PODS: Final = 3000
RUNNING: Final = "running"
_HOST: Final = "kubernetes.io/hostname"
_MILLI_CPU: Final = 100
_RANKS: Final = 11
_CLOSED_OF: Final = 10
"""One of this many nodes is closed."""
_ZONE: Final = "topology.kubernetes.io/zone"
_ZONES: Final = 10
_SKEW: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """One workload. For the pod of a number, `spec`: further fields; `milli_cpu`: its request; `labels`.

    `gang`: the number of pods that start together, as a PodGroup; 0: no pod is in a group. `running`: pods
    that run on the nodes before any scheduler starts, in the namespace RUNNING. `arrives`: the pods are
    created while the scheduler works; otherwise they exist before it starts. `small`: the pods have only the
    fields that scheduling reads; otherwise they are as a controller creates them.
    """

    name: str
    nodes: int
    pods: int = PODS
    contenders: tuple[Contender, ...] = (contenders.BERTH, contenders.KUBE_SCHEDULER)
    spec: Callable[[int], dict[str, Any]] = lambda _: {}
    milli_cpu: Callable[[int], int] = lambda _: _MILLI_CPU
    labels: Callable[[int], dict[str, str]] = lambda _: {"app": "app-0"}
    gang: int = 0
    running: int = 0
    arrives: bool = False
    small: bool = False

    def resized(self, nodes: int | None, pods: int | None, running: int | None = None) -> Versus:
        """Return the workload with other numbers; None: unchanged."""
        return replace(
            self,
            nodes=nodes or self.nodes,
            pods=pods or self.pods,
            running=self.running if running is None else running,
        )

    def with_other_berth(self, python: str) -> Versus:
        """Return the workload with one more contender, the second: the first one, run by another Python."""
        first, *others = self.contenders
        return replace(self, contenders=(first, first.of(python), *others))

    def manifests(self, prefix: str, count: int) -> Iterator[Json]:
        """Yield `count` pods, named PREFIX-0 and so on."""
        for number in range(count):
            content = pod(f"{prefix}-{number}", f"{self.milli_cpu(number)}m", **self.spec(number))
            if self.gang:
                content["spec"]["schedulingGroup"] = {"podGroupName": f"{prefix}-{number // self.gang}"}
            content["metadata"]["labels"] = self.labels(number)
            yield content if self.small else as_created(content)

    def groups(self, prefix: str, count: int) -> Iterator[Json]:
        """Yield the PodGroups of `count` pods, named PREFIX-0 and so on. The last one may be smaller."""
        if self.gang:
            for number, first in enumerate(range(0, count, self.gang)):
                yield pod_group(f"{prefix}-{number}", min(self.gang, count - first))


def node_manifests(count: int) -> Iterator[Json]:
    """Yield the nodes of all workloads: one in ten is closed to `LabelRank`, which ranks the others."""
    for number in range(count):
        labels = {_ZONE: f"zone-{number % _ZONES}", RANK: str(number % _RANKS)}
        # Not by the last digit, which selects the zone.
        if number // _ZONES % _CLOSED_OF == 0:
            labels[CLOSED] = "true"
        yield node(f"node-{number}", "32", **labels)


def running_manifests(count: int, nodes: int, *, small: bool = False) -> Iterator[Json]:
    """Yield pods that have a node already, spread evenly over the nodes of `node_manifests`: of 60 apps.

    `small`: as for `Versus`.
    """
    for number in range(count):
        content = pod(f"running-{number}", f"{_MILLI_CPU}m", nodeName=f"node-{number % nodes}")
        content["metadata"] |= {"namespace": RUNNING, "labels": _of_apps(number)}
        yield content if small else as_created(content)


def _app(number: int) -> str:
    return f"app-{number % APPS}"


def _of_apps(number: int) -> dict[str, str]:
    return {"app": _app(number)}


def _of_sixty_kinds(number: int) -> int:
    return _MILLI_CPU + number % APPS - APPS // 2


def _of_its_own(number: int) -> dict[str, str]:
    return {"app": "app-0", "statefulset.kubernetes.io/pod-name": f"app-{number}"}


def _spread(number: int) -> dict[str, Any]:
    constraint = {
        "maxSkew": _SKEW,
        "topologyKey": _ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": _app(number)}},
    }
    return {"topologySpreadConstraints": [constraint]}


def _apart(number: int) -> dict[str, Any]:
    term = {"topologyKey": _HOST, "labelSelector": {"matchLabels": {"app": _app(number)}}}
    preferred = [{"weight": 1, "podAffinityTerm": term}]
    return {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def _in_two_zones(_: int) -> dict[str, Any]:
    expression = {"key": _ZONE, "operator": "In", "values": ["zone-1", "zone-2"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


WORKLOADS: Final = (
    Versus(name="Plain/1000Nodes", nodes=1000),
    Versus(name="Plain/5000Nodes", nodes=5000),
    Versus(name="SixtyKinds/5000Nodes", nodes=5000, labels=_of_apps, milli_cpu=_of_sixty_kinds),
    Versus(name="OwnLabels/5000Nodes", nodes=5000, labels=_of_its_own),
    Versus(name="ZoneSpread/5000Nodes", nodes=5000, labels=_of_apps, spec=_spread),
    Versus(name="AntiAffinity/5000Nodes", nodes=5000, labels=_of_apps, spec=_apart),
    Versus(name="NodeAffinity/5000Nodes", nodes=5000, spec=_in_two_zones),
    Versus(
        name="RemotePlugin/5000Nodes",
        nodes=5000,
        contenders=(contenders.BERTH_PLUGIN, contenders.KUBE_SCHEDULER_CACHING, contenders.KUBE_SCHEDULER),
    ),
    Versus(
        name="DeclaredByNode/5000Nodes",
        nodes=5000,
        contenders=(contenders.BERTH_BY_NODE, contenders.BERTH_BY_NODE_INSIDE, contenders.KUBE_SCHEDULER),
    ),
    Versus(
        name="DeclaredByRow/5000Nodes",
        nodes=5000,
        contenders=(contenders.BERTH_BY_ROW, contenders.BERTH_BY_ROW_INSIDE, contenders.KUBE_SCHEDULER),
    ),
    Versus(
        name="DeclaredInGo/5000Nodes",
        nodes=5000,
        contenders=(
            contenders.BERTH_GO_BY_NODE,
            contenders.BERTH_BY_NODE_INSIDE,
            contenders.KUBE_SCHEDULER,
        ),
    ),
    Versus(
        name="RemoteInGo/5000Nodes",
        nodes=5000,
        contenders=(contenders.BERTH_GO, contenders.KUBE_SCHEDULER),
    ),
    Versus(
        name="RemotePlugin/1000NodesSent",
        nodes=1000,
        pods=500,
        contenders=(contenders.BERTH_PLUGIN, contenders.KUBE_SCHEDULER_EXTENDER),
    ),
    Versus(
        name="Extender/5000Nodes",
        nodes=5000,
        pods=1000,
        contenders=(contenders.BERTH_CACHING, contenders.KUBE_SCHEDULER_CACHING),
    ),
    Versus(
        name="Extender/5000NodesVarying",
        nodes=5000,
        pods=1000,
        contenders=(
            replace(contenders.BERTH_CACHING, varies=True),
            replace(contenders.KUBE_SCHEDULER_CACHING, varies=True),
        ),
    ),
    Versus(
        name="Extender/5000NodesSent",
        nodes=5000,
        pods=100,
        contenders=(contenders.BERTH_EXTENDER, contenders.KUBE_SCHEDULER_EXTENDER),
    ),
    Versus(
        name="PodGroups/5000Nodes",
        nodes=5000,
        pods=5000,
        contenders=(contenders.BERTH_POD_GROUPS, contenders.KUBE_SCHEDULER_POD_GROUPS),
        gang=50,
    ),
    Versus(
        name="Shadow/5000Nodes",
        nodes=5000,
        contenders=(
            contenders.BERTH,
            contenders.BERTH_SHADOWED,
            contenders.KUBE_SCHEDULER,
            contenders.KUBE_SCHEDULER_SHADOWED,
        ),
        arrives=True,
    ),
    Versus(name="Restart/5000Nodes", nodes=5000, pods=200, running=100_000),
    Versus(name="Restart/20000Nodes", nodes=20_000, pods=200, running=200_000),
)


def chosen(names: Sequence[str]) -> list[Versus]:
    """Return these workloads in the order of WORKLOADS; all without a name. Raises KeyError for an unknown
    name.
    """
    for name in names:
        if name not in {workload.name for workload in WORKLOADS}:
            raise KeyError(name)
    return [workload for workload in WORKLOADS if not names or workload.name in names]
