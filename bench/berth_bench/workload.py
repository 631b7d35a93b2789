"""A workload as values: what is done to the cluster, op by op. All counts and paths are resolved.

Made by `scheduler_perf`, `openb` and `own`; carried out by `running`, in another process, so everything here
can be pickled. The ops and their fields are scheduler_perf's
(`test/integration/scheduler_perf/operations.go`, v1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from berth_bench.templates import Template

SCHEDULED: Final = "Scheduled"
ATTEMPTED: Final = "Attempted"
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStrategy:
    """The addition of a node to its template. At most one is set.

    `label_values`: of `label_key`, in turn, one per node; empty with a key: a value of its own for each.
    `allocatable`: quantities; `csi_allocatable`: volumes by driver and `migrated_plugins`, in its CSINode.
    """

    label_key: str = ""
    label_values: tuple[str, ...] = ()
    allocatable: Labels = field(default_factory=dict)
    csi_allocatable: Mapping[str, int] = field(default_factory=dict)
    migrated_plugins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNodes:
    """`is_resizable`: the file has the count as a parameter, so `--nodes` may change it."""

    count: int
    template: Template
    strategy: NodeStrategy = NodeStrategy()
    is_resizable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNamespaces:
    """`<prefix>-0` and so on."""

    prefix: str
    count: int
    template: Template | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePods:
    """`waits`: until all of them have a node. `steady_s`: above 0, instead of creating `count` pods and
    waiting, each pod that has its node is deleted and replaced, for so long.
    """

    count: int
    namespace: str
    template: Template
    collects_metrics: bool = False
    waits: bool = True
    steady_s: float = 0.0
    volume_template: Template | None = None
    claim_template: Template | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAny:
    """Objects of any kind. `namespace` "" for kinds without one."""

    count: int
    namespace: str
    template: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAny:
    """Replace objects, or a `subresource` of them, and their status where the template has one.

    `per_second` 0: all at once.
    """

    count: int
    namespace: str
    template: Template
    per_second: int = 0
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateResourceDriver:
    """Publish the devices of a DRA driver: a ResourceSlice for each node whose name fits the pattern `nodes`
    (`scheduler-perf-dra-*`), and wait until the scheduler has them.
    """

    driver: str
    nodes: str
    devices_per_node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateClaims:
    """Allocate every ResourceClaim that is not, though no pod uses it. `namespace` "": everywhere."""

    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePods:
    """Delete the pods that are there. `per_second` 0: all at once; `waits`: the next op comes after it."""

    namespace: str
    labels: Labels = field(default_factory=dict)
    per_second: int = 0
    waits: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """Goes on beside the other ops until the workload is over. `recreates`: in turn `number` objects of each
    template are created and deleted; otherwise created only, `number` times, 0: without end.
    """

    recreates: bool
    number: int
    interval_s: float
    namespace: str
    templates: tuple[Template, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """Wait for the pods that earlier ops did not wait for. `namespaces` empty: everywhere."""

    namespaces: tuple[str, ...] = ()
    labels: Labels = field(default_factory=dict)
    stage: str = SCHEDULED


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """Do nothing for a while."""

    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCollecting:
    """From here on the pods of these namespaces are measured."""

    namespaces: tuple[str, ...]
    labels: Labels = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCollecting:
    """Up to here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateObjects:
    """Ready manifests: nodes, or pods that are measured and waited for, in their order."""

    manifests: tuple[Mapping[str, Any], ...]


Op = (
    CreateNodes
    | CreateNamespaces
    | CreatePods
    | CreateAny
    | UpdateAny
    | CreateResourceDriver
    | AllocateClaims
    | DeletePods
    | Churn
    | Barrier
    | Sleep
    | StartCollecting
    | StopCollecting
    | CreateObjects
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An op and where it stands, for messages: `op 2 (createPods)`."""

    title: str
    op: Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`name`: as the user writes it (`CASE/WORKLOAD`). `threshold`: pods/s, or None.

    `config`: a KubeSchedulerConfiguration that the workload itself names, "" for none. `notes`: what of its
    file has no effect here. `gpu_resource`: the resource whose share in use is worth saying, "" for none.
    `source`: the file that it stands in. `later_thresholds`: pods/s by the later version that asks for them.
    `declared_features`: every node declares them, and every pod with resources of its own, beside those of
    its containers, needs them.
    """

    name: str
    steps: tuple[Step, ...]
    threshold: float | None = None
    config: str = ""
    notes: tuple[str, ...] = ()
    gpu_resource: str = ""
    source: str = ""
    later_thresholds: Mapping[str, float] = field(default_factory=dict)
    declared_features: tuple[str, ...] = ()
