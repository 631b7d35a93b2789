"""Manifests of pods and nodes, as users write them -> records, as the API server would store them.

Made by `app.asked_host` for the questions. A pod that is asked about passes the defaults and checks
of an `Admission`, as the API server's would change the answer: tolerations, priorities of the cluster's
classes, requests.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

import orjson
from berth_sdk import chance
from berth_sdk.errors import ObjectError
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod

from berth_host.cluster.port import ClusterPort
from berth_host.errors.cluster import ClusterError
from berth_host.errors.endpoints import QuestionError
from berth_host.model.clock import Clock
from berth_host.questions.questions import Manifest

PRIORITY_CLASSES: Final = "scheduling.k8s.io/priorityclasses"
LIST_S: Final = 5.0
"""Seconds (real time) that a question waits for the cluster's PriorityClasses."""
_NAMED: Final = 5
_READ_OF_CLASS: Final = ("value", "globalDefault", "preemptionPolicy")
_KEPT: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")
_SAME: Final = ("namespace", "labels", "annotations", "ownerReferences")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?")


class AdmittingServer(Protocol):
    """An API server of one question, which has no objects at first."""

    def create(self, obj: dict[str, Any], /) -> KubeObject:
        """Return the object as it is stored, with its defaults. Raises ClusterError if it is refused."""
        ...

    def has_priority_class(self, name: str) -> bool:
        """Return True if a PriorityClass of this name was created, or is one of the system's."""
        ...


Admission: TypeAlias = Callable[[float], AdmittingServer]
"""Makes the server that admits the manifests of one question, at a time in Unix seconds."""


@dataclass(frozen=True, slots=True)
class Classes:
    """The PriorityClasses of a cluster, for the pods of a question. The two of the system need not be there.

    `problem`: why they could not be read, with the cure; "": they were, or no pod of the question needs them.
    """

    items: Sequence[KubeObject] = ()
    problem: str = ""


async def read_classes(cluster: ClusterPort, manifests: Sequence[Manifest]) -> Classes:
    """Return the PriorityClasses, if a manifest has no `spec.priority`.

    The host does not watch them, as the API server resolves them for every pod that is created.
    """
    if all(_knows_priority(manifest) for manifest in manifests):
        return Classes()
    try:
        async with asyncio.timeout(LIST_S):
            return Classes(await cluster.list(PRIORITY_CLASSES, "", {}))
    except (ClusterError, TimeoutError) as err:
        why = str(err) or f"no answer within {LIST_S:g} s"
        cure = "give spec.priority, or let the scheduler list priorityclasses"
        return Classes(problem=f"the cluster's PriorityClasses cannot be read: {why}; {cure}")


def _knows_priority(manifest: Manifest) -> bool:
    spec = manifest.get("spec")
    return not isinstance(spec, Mapping) or spec.get("priority") is not None


NO_CLASSES: Final = Classes()


class ManifestReader:
    """Reads the manifests of one question. Pods that differ in their names alone, as those of one controller,
    are checked once. `admission`: admits them; None: none can be read.
    """

    def __init__(self, clock: Clock, admission: Admission | None, classes: Classes = NO_CLASSES) -> None:
        self._admission = admission
        self._now_s = clock.now_s()
        self._classes = classes
        self._known: dict[bytes, Mapping[str, Any]] = {}

    @property
    def problem(self) -> str:
        """Why the PriorityClasses could not be read, with the cure; "": nothing is missing."""
        return self._classes.problem

    def node(self, manifest: Manifest) -> Node:
        """Return the node of a template; its name counts for nothing. Raises QuestionError."""
        if (manifest.get("apiVersion"), manifest.get("kind")) != ("v1", "Node"):
            raise QuestionError("the template must be a Node: an object with apiVersion: v1 and kind: Node")
        metadata, spec, status = (manifest.get(name) or {} for name in ("metadata", "spec", "status"))
        if not all(isinstance(part, Mapping) for part in (metadata, spec, status)):
            raise QuestionError("metadata, spec and status of the node must be maps")
        if not status.get("allocatable"):
            status = {**status, "allocatable": status.get("capacity") or {}}
        if not status["allocatable"]:
            raise QuestionError(
                "the node has neither status.allocatable nor status.capacity: no pod fits on it"
            )
        written = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "template",
                **{name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)},
            },
            "spec": spec,
            "status": status,
        }
        try:
            return Node.from_object(self._server(0.0).create(written))
        except (ClusterError, ObjectError) as err:
            raise QuestionError(str(err)) from err

    def pod(self, manifest: Manifest, scheduler_name: str = "") -> Pod:
        """Return the pod with a new random uid and without a node. Raises QuestionError with every problem.

        A pod of a cluster may be given as it is: its node, its status and its times are left out.
        `scheduler_name`: its profile; "": its own.
        """
        written = self._written(manifest, scheduler_name)
        metadata = written["metadata"]
        name = metadata.get("name")
        same = {field: metadata.get(field) for field in _SAME}
        try:
            key = orjson.dumps((same, written["spec"]))
        except TypeError as err:
            raise QuestionError(f"the pod cannot be written as JSON: {err}") from err
        stored = self._known.get(key)
        if stored is None or not isinstance(name, str) or not _NAME.fullmatch(name):
            stored = self._known[key] = self._stored(written).parsed
        else:
            stored = {**stored, "metadata": {**stored["metadata"], "name": name}}
        return replace(Pod.from_object(KubeObject.of(stored)), uid=chance.new_uid())

    def _written(self, manifest: Manifest, scheduler_name: str) -> dict[str, Any]:
        if (manifest.get("apiVersion"), manifest.get("kind")) != ("v1", "Pod"):
            raise QuestionError("the question must be a Pod: an object with apiVersion: v1 and kind: Pod")
        metadata, spec = manifest.get("metadata"), manifest.get("spec")
        if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
            raise QuestionError("the pod needs metadata and spec, each of them a map")
        kept = {name: metadata[name] for name in _KEPT if name in metadata}
        if "name" not in kept and isinstance(metadata.get("generateName"), str):
            kept["name"] = f"{metadata['generateName']}x"
        spec = {name: value for name, value in spec.items() if name != "nodeName"}
        if scheduler_name:
            spec["schedulerName"] = scheduler_name
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": "default", **kept},
            "spec": spec,
        }

    def _stored(self, written: dict[str, Any]) -> KubeObject:
        server = self._server(self._now_s)
        for item in self._classes.items:
            server.create(_class(item))
        try:
            return server.create(written)
        except ClusterError as err:
            named = written["spec"].get("priorityClassName")
            unknown = isinstance(named, str) and not server.has_priority_class(named)
            raise QuestionError(f"{err}{self._cure(str(named)) if unknown else ''}") from err

    def _server(self, now_s: float) -> AdmittingServer:
        """Return the server that admits a manifest. Raises QuestionError if there is none."""
        if self._admission is None:
            raise QuestionError(
                "manifests cannot be read here: give an admission to HostOptions or FrameworkAlone"
            )
        return self._admission(now_s)

    def _cure(self, named: str) -> str:
        """Return what to do about a class that is unknown."""
        if self._classes.problem:
            return f"; {self._classes.problem}"
        names = sorted(item.ref.name for item in self._classes.items)
        near = difflib.get_close_matches(named, names, n=3) or names[:_NAMED]
        there = f"the classes are {', '.join(near)}" if near else "there are only those of the system"
        return f"; {there}: name one of them, or give spec.priority"


def _class(item: KubeObject) -> dict[str, Any]:
    fields = {name: value for name in _READ_OF_CLASS if (value := item.get(name)) is not None}
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": item.ref.name},
        "value": 0,
        **fields,
    }
