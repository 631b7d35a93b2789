"""Loads the manifests of paths into an API server.

Called by the CLI (`simulate`, `why`) and by tests. Objects that others depend on (namespaces, priority and
storage classes) are created first. All others follow in the order of the input, each workload with its pods.
All problems are collected; if there are any, ManifestError is raised and the server is not usable.

Each object that is read from a text keeps its origin. Lists are split into their items. Kinds and versions
are checked. The names of objects of unknown kinds are kept, for a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final

from berth_host.errors.cluster import ConflictError, FieldProblem, ForbiddenError, InvalidError
from berth_host.errors.manifests import ManifestError, ManifestProblem
from berth_host.log.secrets import hider_of
from berth_sdk.kube_object import KubeObject

from berth_sim.cluster.kinds import BY_KIND, kind_of, known_kind
from berth_sim.cluster.server import ApiServer
from berth_sim.cluster.validation.schema import without_unknown
from berth_sim.cluster.versions import as_stored
from berth_sim.manifests import workloads
from berth_sim.manifests.documents import DocumentError, documents_of, line_of
from berth_sim.manifests.files import Source, sources_of

_NOT_RUN: Final = "admission by webhooks and policies is not run: pods are as they are written"
_GROUPS: Final = "groups of pods are not read: their pods are scheduled one by one"
_HINTS: Final[Mapping[str, str]] = {
    "MutatingAdmissionPolicy": _NOT_RUN,
    "MutatingAdmissionPolicyBinding": _NOT_RUN,
    "MutatingWebhookConfiguration": _NOT_RUN,
    "ValidatingAdmissionPolicy": _NOT_RUN,
    "ValidatingAdmissionPolicyBinding": _NOT_RUN,
    "ValidatingWebhookConfiguration": _NOT_RUN,
    "PodGroup": _GROUPS,
    "Workload": _GROUPS,
    "DaemonSet": "its pods follow nodes, and are not simulated",
    "CronJob": "it makes no pods until its time comes: give the Job itself",
    "KubeSchedulerConfiguration": "a configuration is given with --config",
    "BerthConfiguration": "a configuration is given with --config",
}
_CLUSTER: Final = Source("the cluster", "")
_SHOWN_NAMES: Final = 3
_NEAR: Final = 0.8
"""The similarity (0 to 1) from which on a kind counts as a misspelling: Pods, Deploymnet, node."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of an object in the input. `prefix`: its path in the document, such as `items[3]`."""

    source: Source
    document: int
    prefix: str = ""

    def problem(self, path: str, text: str) -> ManifestProblem:
        """Return a problem with one of the object's fields, with its line."""
        full = ".".join(part for part in (self.prefix, path) if part)
        return ManifestProblem(
            file=self.source.name,
            document=self.document,
            line=line_of(self.source.text, self.document, full),
            path=full,
            problem=text,
        )

    def __str__(self) -> str:
        return f"{self.source.name} document {self.document}" + (f" {self.prefix}" if self.prefix else "")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object as written in the input. `expands`: a workload stands for its pods; False: they are in the
    input, as far as they exist.
    """

    origin: Origin
    obj: Mapping[str, Any]
    expands: bool = True

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.obj["kind"])


@dataclass(slots=True)
class Reading:
    """The contents of the texts.

    `left_out`: the names of objects of kinds that are not read, by kind. `remarks`: a sentence for each
    repeated key, and one about unknown fields of a cluster's objects.
    """

    manifests: list[Manifest] = field(default_factory=list)
    problems: list[ManifestProblem] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def take_live(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Put the objects of a cluster before the others, without the fields that are not known here."""
        unknown: set[str] = set()
        found = []
        for obj in objects:
            origin = Origin(_CLUSTER, 1, f"{obj['kind']} {_namespace(obj)}/{_name(obj)}")
            known, fields = without_unknown(known_kind(obj).title, obj)
            unknown |= fields
            found.append(Manifest(origin, known, expands=False))
        self.manifests[:0] = found
        if unknown:
            self.remarks.append(
                f"the cluster has fields that this version of berth does not know, and leaves out:"
                f" {', '.join(sorted(unknown))}"
            )

    @property
    def misspelt(self) -> list[str]:
        """One sentence per unknown kind whose name is similar to a known one."""
        return [
            f"{_names_text(kind, names)} is not a kind: did you mean {near}?"
            for kind, names in sorted(self.left_out.items())
            if (near := _near_kind(kind))
        ]

    @property
    def warnings(self) -> list[str]:
        """One sentence per repeated key, and one per kind that was left out."""
        return self.remarks + [_left_out_text(kind, names) for kind, names in sorted(self.left_out.items())]


def read(sources: Sequence[Source]) -> Reading:
    """Read all objects of all texts."""
    reading = Reading()
    for source in sources:
        number = 0
        try:
            for number, (document, repeated) in enumerate(documents_of(source.text), start=1):
                reading.remarks += [_repeated_text(source, number, key, line) for key, line in repeated]
                if document is not None:
                    _take(reading, Origin(source, number), document)
        except DocumentError as err:
            reading.problems.append(
                ManifestProblem(file=source.name, document=number + 1, line=err.line, problem=err.problem)
            )
    return reading


def _repeated_text(source: Source, document: int, key: str, line: int) -> str:
    where = f"line {line}" if line else f"document {document}"
    return f"{source.name}: {where}: key {key!r} appears twice: the last one counts; remove the other"


def _take(reading: Reading, origin: Origin, obj: Any) -> None:
    if not isinstance(obj, dict):
        text = "is not a Kubernetes object: a map with apiVersion, kind and metadata"
        reading.problems.append(origin.problem("", text))
        return
    kind = obj.get("kind")
    if isinstance(kind, str) and kind.endswith("List") and "items" in obj:
        for item_origin, item in _items(reading, origin, obj):
            _take(reading, item_origin, item)
        return
    problem = _kind_problem(obj)
    foreign = "" if problem is not None else _foreign_name(obj)
    if problem is None and not foreign:
        problem = _version_problem(obj)
    if problem is not None:
        reading.problems.append(origin.problem(*problem))
    elif (known := kind_of(obj)) is not None and not foreign:
        reading.manifests.append(Manifest(origin, as_stored(known, obj)))
    else:
        metadata = obj.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        names = [str(metadata[key]) for key in ("namespace", "name") if metadata.get(key)]
        reading.left_out.setdefault(foreign or str(kind), []).append("/".join(names) or str(origin))


def _items(reading: Reading, origin: Origin, obj: Mapping[str, Any]) -> Iterator[tuple[Origin, Any]]:
    items = obj["items"]
    prefix = f"{origin.prefix}.items" if origin.prefix else "items"
    if not isinstance(items, list):
        if items is not None:
            reading.problems.append(origin.problem("items", "must be a list of objects"))
        return
    # Items of a typed list (NodeList) do not repeat the list's kind.
    item_kind = str(obj["kind"]).removesuffix("List")
    implied = {"apiVersion": obj.get("apiVersion"), "kind": item_kind} if item_kind else {}
    for i, item in enumerate(items):
        yield (
            Origin(origin.source, origin.document, f"{prefix}[{i}]"),
            implied | item if isinstance(item, dict) else item,
        )


def _kind_problem(obj: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return path and text of a problem with apiVersion or kind; None without one."""
    for key in ("apiVersion", "kind"):
        value = obj.get(key)
        if not isinstance(value, str) or not value:
            return key, "is required, such as apiVersion: v1 and kind: Pod"
    return None


def _foreign_name(obj: Mapping[str, Any]) -> str:
    """Return kubectl's name for a kind of a group outside Kubernetes, such as Service.serving.knative.dev.

    Empty for kinds of Kubernetes' own groups.
    """
    kind, (group, slash, _) = obj["kind"], obj["apiVersion"].partition("/")
    is_foreign = bool(slash) and "." in group and not group.endswith("k8s.io") and kind not in _HINTS
    return f"{kind}.{group}" if is_foreign else ""


def _version_problem(obj: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return path and text of a problem with the apiVersion of a known kind; None without one."""
    known = kind_of(obj)
    if known is not None and not known.has_version(obj["apiVersion"]):
        return "apiVersion", f"{obj['apiVersion']!r} has no {known.kind} here: use {known.api_version}"
    return None


def _left_out_text(kind: str, names: list[str]) -> str:
    near = _near_kind(kind)
    unread = f"there is no such kind; did you mean {near}?" if near else "scheduling does not read this kind"
    return f"left out {_names_text(kind, names)}: {_HINTS.get(kind, unread)}"


def _near_kind(kind: str) -> str:
    """Return the known kind with a similar name, ignoring case (pod, Pods, Deploymnet); "" for none."""
    if kind in _HINTS:
        return ""
    by_lower = {known.lower(): known for known in BY_KIND}
    near = get_close_matches(kind.lower(), by_lower, n=1, cutoff=_NEAR)
    return by_lower[near[0]] if near else ""


def _names_text(kind: str, names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"{kind} {shown}{more}"


_FIRST: Final = ("Namespace", "PriorityClass", "StorageClass", "RuntimeClass", "LimitRange", "ResourceQuota")
_FINISHED: Final = ("Succeeded", "Failed")
_SHOWN: Final = 3
"""The most pods or namespaces that a warning names."""
_ENFORCED: Final = "pod-security.kubernetes.io/enforce"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load.

    `pod_keys`: `namespace/name` of every pod, in order. `owners`: the workloads, as
    `Deployment/namespace/name`, of the pods that were made for them. `finished_count`: the number of finished
    pods, which were left out. `gaps`: signs that the input is incomplete or misspelt, one sentence each.
    """

    pod_keys: tuple[str, ...]
    owners: Mapping[str, str]
    finished_count: int
    warnings: tuple[str, ...]
    gaps: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    """The API server's messages about pods that an admission plugin refused, by `namespace/name`."""


def load(
    paths: Sequence[str],
    server: ApiServer,
    read_stdin: Callable[[], str],
    live: Iterable[Mapping[str, Any]] = (),
    *,
    move_pods: bool = False,
    needs_pods: bool = True,
) -> Loaded:
    """Load files, folders and standard input (`-`) into `server`. Raises ManifestError with all problems.

    `live`: objects of a cluster, which come first. `move_pods`: take the pods that can move off their nodes
    (`workloads.moved`). `needs_pods` False: input with nodes and without pods has no gap.
    """
    sources, problems = sources_of(paths, read_stdin)
    reading = read(sources)
    reading.take_live(live)
    if move_pods:
        reading.manifests = [replace(one, obj=workloads.moved(one.obj)) for one in reading.manifests]
    loader = _Loader(server, reading.manifests)
    for manifest in sorted(reading.manifests, key=_rank):
        loader.add(manifest)
    problems += reading.problems + loader.problems
    if problems:
        order = {source.name: i for i, source in enumerate(sources)}
        problems.sort(key=lambda problem: (order.get(problem.file, -1), problem.document, problem.line))
        shown = hider_of(*(source.text for source in sources))
        raise ManifestError([replace(problem, problem=shown(problem.problem)) for problem in problems])
    gaps = (*_emptiness(server, loader, needs_pods), *reading.misspelt, *_without_their_node(server))
    warnings = (
        *(*reading.warnings, *loader.warnings),
        *(*_own_priorities(loader.own_priorities), *(_pod_security(server) if sources else ())),
    )
    return Loaded(
        tuple(loader.pod_keys), loader.owners, loader.finished_count, warnings, gaps, loader.refused
    )


def _emptiness(server: ApiServer, loader: _Loader, needs_pods: bool) -> Iterator[str]:
    if not loader.pod_keys and not loader.finished_count:
        if not server.list("nodes"):
            yield "the input has neither a pod nor a node"
        elif needs_pods:
            yield "the input has no pod"
    elif not server.list("nodes"):
        yield "the input has no node"


def _own_priorities(keys: Sequence[str]) -> Iterator[str]:
    if keys:
        yield (
            f"kept the priority of pod {_some(keys)}: an API server refuses a new pod with spec.priority "
            "that no PriorityClass gives it"
        )


def _pod_security(server: ApiServer) -> Iterator[str]:
    restricted = [
        namespace.ref.name
        for namespace in server.list("namespaces")
        if (namespace.get("metadata.labels") or {}).get(_ENFORCED) in ("baseline", "restricted")
    ]
    if restricted:
        yield (
            f"admission by PodSecurity is not run: pods that namespace {_some(restricted)} would refuse by "
            f"its label {_ENFORCED} are scheduled"
        )


def _some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _without_their_node(server: ApiServer) -> Iterator[str]:
    nodes = {node.ref.name for node in server.list("nodes")}
    for pod in server.list("pods"):
        name = str(pod.get("spec.nodeName") or "")
        if name and name not in nodes:
            yield f"pod {pod.ref.key} is bound to node {name}, which is not in the input"


def _rank(manifest: Manifest) -> int:
    return _FIRST.index(manifest.kind) if manifest.kind in _FIRST else len(_FIRST)


class _Loader:
    def __init__(self, server: ApiServer, manifests: Sequence[Manifest]) -> None:
        self._server = server
        self._dependents = _Dependents(manifests)
        self._origins: dict[tuple[str, str], Origin] = {}
        self._owner_of_uid: dict[str, str] = {}
        self._reported: set[tuple[int, str, str]] = set()
        self.problems: list[ManifestProblem] = []
        self.pod_keys: list[str] = []
        self.owners: dict[str, str] = {}
        self.finished_count = 0
        self.refused: dict[str, str] = {}
        self.warnings: list[str] = []
        self.own_priorities: list[str] = []

    def add(self, manifest: Manifest) -> None:
        """Create the object, and the objects that its controller would create."""
        if manifest.kind == "Pod" and _phase(manifest.obj) in _FINISHED:
            self.finished_count += 1
            return
        stored = self._create(manifest.origin, manifest.obj)
        if stored is not None and manifest.expands and manifest.kind in workloads.WORKLOADS:
            self._expand(manifest.origin, stored)

    def _expand(self, origin: Origin, workload: KubeObject) -> None:
        owner = f"{workload.kind}/{workload.ref.key}"
        maker, name = workload, workload.ref.name
        if workload.kind == "Deployment":
            if self._dependents.of(workload, "ReplicaSet"):
                return  # The input contains the Deployment's ReplicaSets.
            made = self._create(origin, workloads.replica_set_of(workload.parsed), from_template=True)
            if made is None:
                return
            maker = made
        mine = self._dependents.of(workload, "Pod")
        there = {_name(pod) for pod in mine if _phase(pod) not in _FINISHED}
        succeeded = sum(_phase(pod) == "Succeeded" for pod in mine)
        pods = workloads.pods_of(maker.parsed, name, there, succeeded)
        if workload.kind == "StatefulSet":
            for claim in workloads.claims_of(workload.parsed, [_name(pod) for pod in pods]):
                if not self._dependents.has("PersistentVolumeClaim", claim):
                    self._create(origin, claim, from_template=True)
        for pod in pods:
            made = self._create(origin, pod, from_template=True)
            key = f"{_namespace(pod)}/{_name(pod)}"
            if made is not None or key in self.refused:
                self.owners[key] = owner

    def _create(
        self, origin: Origin, obj: Mapping[str, Any], *, from_template: bool = False
    ) -> KubeObject | None:
        kind = known_kind(obj)
        uid = _metadata(obj).get("uid")
        if isinstance(uid, str) and uid in self._owner_of_uid:
            text = f"{uid!r} is the uid of {self._owner_of_uid[uid]} too: remove it"
            self._report(origin, FieldProblem("metadata.uid", text))
            return None
        try:
            stored = self._server.create(obj, restore=True)
        except ConflictError as err:
            first = self._origins.get((kind.title, err.key))
            where = f", first in {first}" if first is not None else ""
            text = f"{kind.kind} {err.key} appears twice{where}: remove or rename one"
            self._report(origin, FieldProblem("metadata.name", text))
            return None
        except ForbiddenError as err:
            if kind.kind == "Pod":
                self.refused[err.key] = str(err)
                self.pod_keys.append(err.key)
            else:
                self.warnings.append(f"{kind.kind} {err.key} is not created: {err}")
            return None
        except InvalidError as err:
            for problem in err.problems:
                self._report(origin, _in_template(problem) if from_template else problem)
            return None
        self._origins[(kind.title, stored.ref.key)] = origin
        self._owner_of_uid[stored.ref.uid] = f"{kind.kind} {stored.ref.key}"
        if kind.kind == "Pod":
            self.pod_keys.append(stored.ref.key)
            if self._has_own_priority(obj):
                self.own_priorities.append(stored.ref.key)
        return stored

    def _has_own_priority(self, pod: Mapping[str, Any]) -> bool:
        """Return True if a pod that may be new has a priority without a known class."""
        spec = pod.get("spec") or {}
        is_pending = not spec.get("nodeName") and not _metadata(pod).get("creationTimestamp")
        if not is_pending or not spec.get("priority"):
            return False
        return not self._server.has_priority_class(str(spec.get("priorityClassName") or ""))

    def _report(self, origin: Origin, problem: FieldProblem) -> None:
        # All pods of a template have the same problem: report it once.
        identity = (id(origin), problem.path, problem.problem)
        if identity not in self._reported:
            self._reported.add(identity)
            self.problems.append(origin.problem(problem.path, problem.problem))


class _Dependents:
    """The objects of the input by their owner; the output of `kubectl get all -o yaml` has such objects."""

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        self._by_owner: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
        self._named: set[tuple[str, str, str]] = set()
        for manifest in manifests:
            namespace, name = _namespace(manifest.obj), _name(manifest.obj)
            self._named.add((manifest.kind, namespace, name))
            for owner in _metadata(manifest.obj).get("ownerReferences") or ():
                if isinstance(owner, dict) and owner.get("controller"):
                    key = (manifest.kind, namespace, str(owner.get("kind")), str(owner.get("name")))
                    self._by_owner.setdefault(key, []).append(manifest.obj)

    def of(self, owner: KubeObject, kind: str) -> list[Mapping[str, Any]]:
        """Return the objects of `kind` in the input that `owner` controls."""
        return self._by_owner.get((kind, owner.ref.namespace, owner.kind, owner.ref.name), [])

    def has(self, kind: str, obj: Mapping[str, Any]) -> bool:
        """Return True if the input has an object of this kind, namespace and name."""
        return (kind, _namespace(obj), _name(obj)) in self._named


def _metadata(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _name(obj: Mapping[str, Any]) -> str:
    return str(_metadata(obj).get("name") or "")


def _namespace(obj: Mapping[str, Any]) -> str:
    return str(_metadata(obj).get("namespace") or "default")


def _phase(obj: Mapping[str, Any]) -> str:
    status = obj.get("status")
    return str(status.get("phase") or "") if isinstance(status, dict) else ""


def _in_template(problem: FieldProblem) -> FieldProblem:
    path = f"spec.template.{problem.path}" if problem.path.startswith("spec.") else problem.path
    return FieldProblem(path, problem.problem)
