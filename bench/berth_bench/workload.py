"""A workload as values: its ops on the cluster, one by one. All counts and paths are resolved.

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
    """The values that an op adds to the nodes of its template. At most one field is set.

    `label_values`: values of `label_key`, in turn, one per node; empty with a key: a different value for each
    node. `allocatable`: quantities; `csi_allocatable`: volumes by driver, and `migrated_plugins`, in the
    node's CSINode.
    """

    label_key: str = ""
    label_values: tuple[str, ...] = ()
    allocatable: Labels = field(default_factory=dict)
    csi_allocatable: Mapping[str, int] = field(default_factory=dict)
    migrated_plugins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNodes:
    """Create nodes. `is_resizable`: the count is a parameter in the file, so `--nodes` may change it."""

    count: int
    template: Template
    strategy: NodeStrategy = NodeStrategy()
    is_resizable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNamespaces:
    """Create namespaces `<prefix>-0` and so on."""

    prefix: str
    count: int
    template: Template | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePods:
    """Create pods. `waits`: wait until all of them have a node. `steady_s`: above 0, each pod that has its
    node is deleted and replaced, for this time in seconds. `signature_batch`: above 0, so many pods after
    each other share a value of the label `signature`. `bound`: the pods have nodes from the beginning, the
    nodes in turn (berth's own).
    """

    count: int
    namespace: str
    template: Template
    collects_metrics: bool = False
    waits: bool = True
    steady_s: float = 0.0
    volume_template: Template | None = None
    claim_template: Template | None = None
    signature_batch: int = 0
    bound: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPods:
    """Create pods at a rate, measure them, and delete each `lives_s` seconds after it was bound; wait until
    all have ended. berth's own op.

    `sample_s`: seconds between two samples of what the process holds.
    """

    count: int
    namespace: str
    template: Template
    per_second: int
    lives_s: float
    sample_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAny:
    """Create objects of any kind. `namespace` "" for kinds without one."""

    count: int
    namespace: str
    template: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAny:
    """Replace objects, or a `subresource` of them, and their status if the template has one.

    `per_second` 0: all at once.
    """

    count: int
    namespace: str
    template: Template
    per_second: int = 0
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateResourceDriver:
    """Publish the devices of a DRA driver: a ResourceSlice for each node whose name matches the pattern
    `nodes` (`scheduler-perf-dra-*`), and wait until the scheduler has them.
    """

    driver: str
    nodes: str
    devices_per_node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateClaims:
    """Allocate every ResourceClaim that has no allocation, without a user. `namespace` "": all namespaces."""

    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePods:
    """Delete pods. `per_second` 0: all at once; `waits`: the next op begins after the deletion."""

    namespace: str
    labels: Labels = field(default_factory=dict)
    per_second: int = 0
    waits: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """Create objects beside the other ops until the workload ends. `recreates`: create and delete `number`
    objects of each template in turn; otherwise only create, `number` times, 0: without end.
    """

    recreates: bool
    number: int
    interval_s: float
    namespace: str
    templates: tuple[Template, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """Wait for the pods that earlier ops did not wait for. `namespaces` empty: all namespaces."""

    namespaces: tuple[str, ...] = ()
    labels: Labels = field(default_factory=dict)
    stage: str = SCHEDULED


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """Wait for a time."""

    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCollecting:
    """Begin to measure the pods of these namespaces and labels."""

    namespaces: tuple[str, ...]
    labels: Labels = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCollecting:
    """End the measured part of the workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateObjects:
    """Create complete manifests in their order: nodes, or pods that are measured and waited for."""

    manifests: tuple[Mapping[str, Any], ...]


Op = (
    CreateNodes
    | CreateNamespaces
    | CreatePods
    | RunPods
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
    """An op and its place, for messages: `op 2 (createPods)`."""

    title: str
    op: Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload. `name`: as the user writes it (`CASE/WORKLOAD`). `threshold`: pods/s, or None.

    `config`: a KubeSchedulerConfiguration that the workload names, "" for none. `notes`: parts of its file
    that have no effect. `gpu_resource`: the resource whose share in use is reported, "" for none. `source`:
    the file of the workload. `feature_gates`: gates of the scheduler.
    `declared_features`: features that every node declares and every pod with pod-level resources needs.
    `remote`: plugins that run in processes of their own, as for `--remote`. `as_kept`: pods are completed to
    what an API server keeps (`pods_as_kept`).
    """

    name: str
    steps: tuple[Step, ...]
    threshold: float | None = None
    config: str = ""
    notes: tuple[str, ...] = ()
    gpu_resource: str = ""
    source: str = ""
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    declared_features: tuple[str, ...] = ()
    remote: tuple[str, ...] = ()
    as_kept: bool = False
