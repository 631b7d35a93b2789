"""Read the ops of a case for one workload, as `workload.Step`s: counts resolved, templates read.

An op without a namespace uses `namespace-<index of the op>`, as in scheduler_perf. A count of 0 creates
nothing. The class of each op in `workload` describes its effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from berth_host.config.errors import nearest
from berth_sim.cluster.kinds import BY_KIND

from berth_bench.scheduler_perf.fields import Fields
from berth_bench.scheduler_perf.reading import CaseContext, OpReader
from berth_bench.templates import Template, TemplateError
from berth_bench.workload import (
    ATTEMPTED,
    SCHEDULED,
    AllocateClaims,
    Barrier,
    Churn,
    CreateAny,
    CreateNamespaces,
    CreateNodes,
    CreatePods,
    CreateResourceDriver,
    DeletePods,
    NodeStrategy,
    Op,
    RunPods,
    Sleep,
    StartCollecting,
    Step,
    StopCollecting,
    UpdateAny,
)

DEFAULT_INTERVAL_MS: Final = 500
_LEAST_DEPTH: Final = 2
_DEFAULT_NODE: Final = """\
apiVersion: v1
kind: Node
metadata: {generateName: node-}
status:
  capacity: {pods: "110", cpu: "4", memory: 32Gi}
  phase: Running
  conditions: [{type: Ready, status: "True"}]
"""
_DEFAULT_POD: Final = """\
apiVersion: v1
kind: Pod
metadata: {generateName: pod-}
spec:
  containers:
  - name: pause
    image: registry.k8s.io/pause
    ports: [{containerPort: 80}]
    resources:
      limits: {cpu: 100m, memory: 500Mi}
      requests: {cpu: 100m, memory: 500Mi}
"""


def read_steps(context: CaseContext, items: list[tuple[str, Any]]) -> Iterator[Step]:
    """Yield all ops, in order; a set of pods becomes one op per namespace."""
    for index, (path, raw) in enumerate(items):
        fields = Fields(context.problems, path, f"{context.title}, op {index}", raw)
        opcode = fields.text("opcode", required=True)
        fields.where = f"{fields.where} ({opcode})"
        reader = _READERS.get(opcode)
        if reader is None:
            if opcode:
                meant = nearest(opcode, _READERS)
                cure = f"did you mean {meant}" if meant else f"there are {', '.join(sorted(_READERS))}"
                fields.refuse("opcode", f"{opcode!r} is not known here: {cure}")
            continue
        ops = reader(OpReader(context, fields, index))
        fields.done()
        yield from (Step(title=f"op {index} ({opcode})", op=op) for op in ops)


# --- one reader per opcode -----------------------------------------------------------------------------


def _create_nodes(op: OpReader) -> list[Op]:
    fields = op.fields
    count = op.params.count(fields)
    template = op.template("nodeTemplatePath", typed_as="Node")
    if template is None:
        template = Template(path="the default node", text=_DEFAULT_NODE)
    made = CreateNodes(
        count=count,
        template=template,
        strategy=_node_strategy(fields),
        is_resizable=bool(fields.text("countParam")),
    )
    return [made]


def _node_strategy(fields: Fields) -> NodeStrategy:
    names = ("nodeAllocatableStrategy", "labelNodePrepareStrategy", "uniqueNodeLabelStrategy")
    if sum(name in fields.raw for name in names) > 1:
        fields.refuse("", f"at most one of {', '.join(names)} may be set")
    result = NodeStrategy()
    if (own := fields.child("nodeAllocatableStrategy")) is not None:
        result = _allocatable(own)
        own.done()
    if (own := fields.child("labelNodePrepareStrategy")) is not None:
        key, values = own.text("labelKey", required=True), own.texts("labelValues")
        if not values:
            own.refuse("labelValues", "is required")
        result = NodeStrategy(label_key=key, label_values=values)
        own.done()
    if (own := fields.child("uniqueNodeLabelStrategy")) is not None:
        result = NodeStrategy(label_key=own.text("labelKey", required=True))
        own.done()
    return result


def _allocatable(fields: Fields) -> NodeStrategy:
    volumes: dict[str, int] = {}
    drivers = fields.any("csiNodeAllocatable") or {}
    if not isinstance(drivers, dict):
        fields.refuse("csiNodeAllocatable", "must be a map of drivers")
        drivers = {}
    for driver, raw in drivers.items():
        own = Fields(fields.problems, f"{fields.path}.csiNodeAllocatable.{driver}", fields.where, raw)
        volumes[driver] = own.integer("count")
        own.done()
    return NodeStrategy(
        allocatable={name: str(value) for name, value in (fields.any("nodeAllocatable") or {}).items()},
        csi_allocatable=volumes,
        migrated_plugins=fields.texts("migratedPlugins"),
    )


def _create_namespaces(op: OpReader) -> list[Op]:
    template = op.template("namespaceTemplatePath", typed_as="Namespace")
    prefix = op.fields.text("prefix", required=True)
    return [CreateNamespaces(prefix=prefix, count=op.params.count(op.fields), template=template)]


def _create_pods(op: OpReader) -> list[Op]:
    fields = op.fields
    count = op.params.count(fields)
    if fields.raw.get("countMultiplierParam"):
        count *= op.params.count(fields, name="countMultiplier")
    path = fields.text("podTemplatePath") or op.context.default_pod
    params = op.params.template_params(fields)
    template: Template | None = Template(path="the default pod", text=_DEFAULT_POD)
    if path:
        template = op.template_at("podTemplatePath", path, typed_as="Pod", params=params)
    collects, skips = fields.flag("collectMetrics"), fields.flag("skipWaitToCompletion")
    if collects and skips:
        fields.refuse("collectMetrics", "and skipWaitToCompletion cannot both be true")
    steady = op.params.flag(fields, "steadyState")
    steady_s = fields.seconds_of("duration", op.params.text(fields, "duration"))
    if steady and steady_s <= 0:
        fields.refuse("duration", "must be above 0 with steadyState")
    if steady and skips:
        fields.refuse("steadyState", "and skipWaitToCompletion cannot both be true")
    bound = fields.flag("bound")
    if bound and (collects or steady):
        fields.refuse("bound", "and collectMetrics or steadyState cannot both be true: no pod is scheduled")
    volume = op.template("persistentVolumeTemplatePath", typed_as="PersistentVolume")
    claim = op.template("persistentVolumeClaimTemplatePath", typed_as="PersistentVolumeClaim")
    batch = op.params.count(fields, name="signatureBatchSize", default=int(op.context.signatures))
    if (volume is None) is not (claim is None):
        fields.refuse("", "persistentVolumeTemplatePath and persistentVolumeClaimTemplatePath go together")
    if template is None:
        return []
    made = CreatePods(
        count=count,
        namespace=op.namespace,
        template=template,
        collects_metrics=collects,
        waits=not skips,
        steady_s=steady_s if steady else 0.0,
        volume_template=volume,
        claim_template=claim,
        signature_batch=batch if path else 0,
        bound=bound,
    )
    return [made]


def _run_pods(op: OpReader) -> list[Op]:
    """Read berth's own op."""
    fields = op.fields
    count, per_second = op.params.count(fields), op.params.count(fields, name="podsPerSecond")
    lives_s = fields.seconds_of("lifetime", op.params.text(fields, "lifetime"))
    sample_s = fields.seconds_of("sampleInterval", op.params.text(fields, "sampleInterval"))
    path = fields.text("podTemplatePath") or op.context.default_pod
    template: Template | None = Template(path="the default pod", text=_DEFAULT_POD)
    if path:
        template = op.template_at("podTemplatePath", path, typed_as="Pod")
    for name, value in (("podsPerSecond", per_second), ("lifetime", lives_s), ("sampleInterval", sample_s)):
        if value <= 0:
            fields.refuse(name, "must be above 0")
    if template is None:
        return []
    made = RunPods(
        count=count,
        namespace=op.namespace,
        template=template,
        per_second=per_second,
        lives_s=lives_s,
        sample_s=sample_s,
    )
    return [made]


def _create_pod_sets(op: OpReader) -> list[Op]:
    count = op.params.count(op.fields)
    prefix = op.fields.text("namespacePrefix", required=True)
    inner = op.fields.child("createPodsOp")
    if inner is None:
        op.fields.refuse("createPodsOp", "is required")
        return []
    if inner.text("opcode") != "createPods":
        inner.refuse("opcode", "must be createPods")
    ops = _create_pods(OpReader(op.context, inner, op.index))
    inner.done()
    return [
        replace(made, namespace=f"{prefix}-{i}")
        for i in range(count)
        for made in ops
        if isinstance(made, CreatePods)
    ]


def _create_any(op: OpReader) -> list[Op]:
    template = op.template("templatePath", required=True)
    namespace, count = op.fields.text("namespace"), op.params.count(op.fields, default=1)
    if template is None or not _scope_is_right(op, template, namespace):
        return []
    return [CreateAny(count=count, namespace=namespace, template=template)]


def _update_any(op: OpReader) -> list[Op]:
    template = op.template("templatePath", required=True)
    namespace, count = op.fields.text("namespace"), op.params.count(op.fields, default=1)
    per_second = op.fields.integer("updatePerSecond")
    subresources = op.fields.texts("subresources")
    if template is None or not _scope_is_right(op, template, namespace):
        return []
    known = ("status", "resize") if template.object_at(0, 1)["kind"] == "Pod" else ("status",)
    if len(subresources) > 1 or not set(subresources) <= set(known):
        op.fields.refuse("subresources", f"must be absent, or a list of one: {' or '.join(known)}")
    made = UpdateAny(
        count=count,
        namespace=namespace,
        template=template,
        per_second=per_second,
        subresource="".join(subresources),
    )
    return [made]


def _scope_is_right(op: OpReader, template: Template, namespace: str) -> bool:
    """Return True if the namespace fits the kind: set for namespaced kinds only. A wrong template was
    reported before.
    """
    try:
        kind = BY_KIND.get(str(template.object_at(0, 1)["kind"]))
    except TemplateError:
        return False
    if kind is None:
        return False
    if kind.namespaced and not namespace:
        op.fields.refuse("namespace", f"is required: a {kind.kind} is in a namespace")
    elif namespace and not kind.namespaced:
        op.fields.refuse("namespace", f"must be absent: a {kind.kind} is in no namespace")
    return kind.namespaced is bool(namespace)


def _create_claims(op: OpReader) -> list[Op]:
    template = op.template("templatePath", typed_as="ResourceClaim", required=True)
    namespace, count = op.fields.text("namespace", required=True), op.params.count(op.fields)
    return [] if template is None else [CreateAny(count=count, namespace=namespace, template=template)]


def _create_pod_groups(op: OpReader) -> list[Op]:
    template = op.template("templatePath", typed_as="PodGroup", required=True)
    namespace, count = op.fields.text("namespace", required=True), op.params.count(op.fields)
    return [] if template is None else [CreateAny(count=count, namespace=namespace, template=template)]


def _create_composite_pod_groups(op: OpReader) -> list[Op]:
    """Read an op that creates trees of CompositePodGroups, one level after the other. It counts the PodGroups
    below them, for the ops after it.
    """
    fields, params = op.fields, op.params
    depth, count = params.count(fields, name="depth"), params.count(fields, name="rootCount")
    inner = params.count(fields, name="childrenCompositePodGroupsPerCPG", default=0)
    leaves = params.count(fields, name="childrenPodGroupsPerCPG")
    namespace = fields.text("namespace", required=True)
    if depth < _LEAST_DEPTH:
        fields.refuse("depth", f"must be at least {_LEAST_DEPTH}, a root and its pod groups, and is {depth}")
        return []
    ops: list[Op] = []
    for level in range(1, depth):
        count *= 1 if level == 1 else inner
        children = leaves if level == depth - 1 else inner
        template = op.template(
            "templatePath",
            typed_as="CompositePodGroup",
            required=True,
            computed={"Level": level, "ParentLevel": level - 1, "ParentIndex": 0, "ChildrenCount": children},
        )
        if template is None:
            return []
        template = replace(template, per_parent=0 if level == 1 else inner)
        ops.append(CreateAny(count=count, namespace=namespace, template=template))
    params.compute("podGroupsCount", count * leaves)
    params.compute("parentLevel", depth - 1)
    return ops


def _profile(op: OpReader) -> list[Op]:
    """Read the start or the end of a CPU profile, which `--profile` takes instead."""
    for name in ("type", "filePath"):
        op.fields.text(name)
    return []


def _create_driver(op: OpReader) -> list[Op]:
    made = CreateResourceDriver(
        driver=op.fields.text("driverName", required=True),
        nodes=op.fields.text("nodes", required=True),
        devices_per_node=op.params.count(op.fields, name="maxClaimsPerNode"),
    )
    return [made]


def _allocate_claims(op: OpReader) -> list[Op]:
    return [AllocateClaims(namespace=op.fields.text("namespace"))]


def _delete_pods(op: OpReader) -> list[Op]:
    fields = op.fields
    made = DeletePods(
        namespace=fields.text("namespace", required=True),
        labels=fields.labels("labelSelector"),
        per_second=fields.integer("deletePodsPerSecond"),
        waits=not fields.flag("skipWaitToCompletion"),
    )
    return [made]


def _churn(op: OpReader) -> list[Op]:
    fields = op.fields
    mode, number = fields.text("mode", required=True), fields.integer("number")
    if mode not in ("create", "recreate"):
        fields.refuse("mode", f"must be create or recreate, and is {mode!r}")
    elif mode == "recreate" and not number:
        fields.refuse("number", "must be above 0 with mode recreate")
    paths = fields.texts("templatePaths")
    if not paths:
        fields.refuse("templatePaths", "is required")
    templates = [op.template_at("templatePaths", path) for path in paths]
    interval_ms = fields.integer("intervalMilliseconds") or DEFAULT_INTERVAL_MS
    made = Churn(
        recreates=mode == "recreate",
        number=number,
        interval_s=interval_ms / 1000,
        namespace=op.namespace,
        templates=tuple(template for template in templates if template is not None),
    )
    return [made]


def _barrier(op: OpReader) -> list[Op]:
    fields = op.fields
    stage = op.params.value(fields, "stageRequirement", SCHEDULED)
    if stage not in (SCHEDULED, ATTEMPTED):
        fields.refuse("stageRequirement", f"must be {SCHEDULED} or {ATTEMPTED}, and is {stage!r}")
    labels = fields.labels("labelSelector")
    return [Barrier(namespaces=fields.texts("namespaces"), labels=labels, stage=stage)]


def _sleep(op: OpReader) -> list[Op]:
    return [Sleep(duration_s=op.fields.seconds_of("duration", op.params.text(op.fields, "duration")))]


def _start_collecting(op: OpReader) -> list[Op]:
    op.fields.text("name")  # upstream appends it to the workload's name; berth prints one line
    namespaces = op.fields.texts("namespaces")
    if not namespaces:
        op.fields.refuse("namespaces", "is required")
    return [StartCollecting(namespaces=namespaces, labels=op.fields.labels("labelSelector"))]


def _stop_collecting(op: OpReader) -> list[Op]:
    return [StopCollecting()]


_READERS: Final[Mapping[str, Callable[[OpReader], list[Op]]]] = {
    "createNodes": _create_nodes,
    "createNamespaces": _create_namespaces,
    "createPods": _create_pods,
    "runPods": _run_pods,
    "createPodSets": _create_pod_sets,
    "createAny": _create_any,
    "updateAny": _update_any,
    "createResourceClaims": _create_claims,
    "createPodGroups": _create_pod_groups,
    "createCompositePodGroups": _create_composite_pod_groups,
    "createResourceDriver": _create_driver,
    "allocResourceClaims": _allocate_claims,
    "deletePods": _delete_pods,
    "churn": _churn,
    "barrier": _barrier,
    "sleep": _sleep,
    "startCollectingMetrics": _start_collecting,
    "stopCollectingMetrics": _stop_collecting,
    "startCollectingProfile": _profile,
    "stopCollectingProfile": _profile,
}
