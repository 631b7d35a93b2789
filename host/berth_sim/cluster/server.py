"""`ApiServer`: an in-memory API server with create, read, update, patch, bind and delete.

Used by the host through `cluster.MemoryCluster`, and directly by the manifest loader and by tests, which act
as all other clients. Calls are synchronous; changes reach the store's subscribers inside the call.
Source: apiserver `registry/generic/registry/store.go`, `pkg/registry/core/pod/{strategy,storage/storage}.go`.
Differs: a missing namespace is created. There is no kubelet, so a deleted pod without finalizers is removed
at once. There are no controllers other than `volume_controller` and `claim_controller`, which callers may
run.
A binding is made as with ClearingNominatedNodeNameAfterBinding (v1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from berth_host.errors.cluster import ConflictError, FieldProblem, InvalidError, NotFoundError
from berth_host.model.clock import Clock
from berth_host.model.merge_patch import merged
from berth_host.model.patch_type import PatchType
from berth_sdk.kube_object import LAST_APPLIED, JsonObject, KubeObject, ObjectRef
from berth_sdk.rfc3339 import format_time

from berth_sim.cluster import answers, strategic_merge
from berth_sim.cluster.admission import Admission
from berth_sim.cluster.admission.gatekeeping import READ, Gatekeeping, is_new_for_certain
from berth_sim.cluster.admission.pod import new_pod_status
from berth_sim.cluster.admission.service_accounts import ServiceAccounts
from berth_sim.cluster.event_log import EventLog
from berth_sim.cluster.kinds import BY_RESOURCE, NAMESPACE, POD, Kind, kind_of
from berth_sim.cluster.resize import resize_problems, resized
from berth_sim.cluster.store import ObjectStore
from berth_sim.cluster.validation import own_problems, problems_of, status_problems
from berth_sim.cluster.validation.fields import Problems, check_object_name
from berth_sim.cluster.validation.schema import with_zero_values
from berth_sim.cluster.versions import as_stored, as_version

_BINDING: Final = Kind("v1", "Binding", "pods")


def bound(pod: KubeObject, node_name: str, now: str) -> dict[str, Any]:
    """Return the bound pod.

    Raises ConflictError if the pod cannot be bound (bound, terminating or gated), and InvalidError for an
    invalid node name.
    """
    problems = Problems()
    check_object_name(problems, node_name, "target.name")
    if problems.found:
        raise answers.invalid(_BINDING, pod.ref.key, pod.ref.name, problems.found)
    parsed = pod.parsed
    spec = parsed["spec"]
    if parsed["metadata"].get("deletionTimestamp") is not None:
        raise answers.cannot_bind(POD, pod.ref, "is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise answers.cannot_bind(POD, pod.ref, f'is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise answers.cannot_bind(POD, pod.ref, "has non-empty .spec.schedulingGates")
    status = dict(parsed.get("status") or {})
    status.pop("nominatedNodeName", None)
    status["conditions"] = _with_scheduled(status.get("conditions") or [], now)
    return {**parsed, "spec": {**spec, "nodeName": node_name}, "status": status}


def _with_scheduled(conditions: list[dict[str, Any]], now: str) -> list[dict[str, Any]]:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    types = [condition.get("type") for condition in conditions]
    if "PodScheduled" not in types:
        return [*conditions, scheduled]
    place = types.index("PodScheduled")
    if conditions[place].get("status") == "True":
        scheduled["lastTransitionTime"] = conditions[place].get("lastTransitionTime") or now
    return [*conditions[:place], scheduled, *conditions[place + 1 :]]


_SERVER_FIELDS: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
Object = dict[str, Any]


class ApiServer:
    """An API server that stores objects after defaulting, admission and validation.

    Attributes: store, events.
    """

    def __init__(
        self,
        clock: Clock,
        gatekeeping: Gatekeeping | None = None,
        service_accounts: ServiceAccounts | None = None,
    ) -> None:
        """Create an empty server. `gatekeeping`: admission plugins that may refuse objects, or None.
        `service_accounts`: gives new pods a volume with a token; None: they get none.
        """
        self._clock = clock
        self._gatekeeping = gatekeeping
        self._service_accounts = service_accounts
        self._admission = Admission()
        self._finalized: set[tuple[str, str]] = set()
        self.store = ObjectStore()
        self.events = EventLog()

    # --- reading ---------------------------------------------------------------------------------

    def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        """Return an object; None if it does not exist or its uid differs from `ref.uid`."""
        kind = _kind(resource)
        found = self.store.get(kind, kind.key(ref.namespace, ref.name))
        return None if found is not None and ref.uid and found.ref.uid != ref.uid else found

    def list(self, resource: str, namespace: str | None = None) -> list[KubeObject]:
        """Return the objects of a resource, or of one namespace, in the order of their creation."""
        objects = self.store.of(_kind(resource))
        return objects if namespace is None else [obj for obj in objects if obj.ref.namespace == namespace]

    # --- writing ---------------------------------------------------------------------------------

    def create(self, obj: JsonObject, *, restore: bool = False) -> KubeObject:
        """Store a new object with its defaults. `restore`: keep uid, times and status, as from a backup.

        Raises ConflictError if the name is taken, InvalidError with every problem, and ForbiddenError if an
        admission plugin refuses the object.
        """
        kind = _kind_of(obj)
        obj = as_stored(kind, obj)
        problems = problems_of(kind, obj)
        if problems:
            # Nulls are rare, so only an object with problems is copied.
            filled = with_zero_values(kind.title, obj)
            problems = problems if filled == obj else problems_of(kind, filled)
            obj = filled
        if problems:
            metadata = obj.get("metadata")
            name = metadata.get("name") if isinstance(metadata, Mapping) else ""
            raise answers.invalid(kind, str(name), str(name), problems)
        refusal = ""
        is_new = self._gatekeeping is not None and is_new_for_certain(obj)
        if self._gatekeeping is not None:
            obj, refusal = self._gatekeeping.completed(kind.title, dict(obj))
        prepared = self._prepared(kind, obj, restore)
        admitted, problems, own_refusal = self._admission.admit(kind.title, prepared, is_new=is_new)
        refusal = own_refusal or refusal
        metadata = admitted["metadata"]
        key = kind.key(metadata.get("namespace") or "", metadata["name"])
        if problems:
            raise answers.invalid(kind, key, metadata["name"], problems)
        if self.store.get(kind, key) is not None:
            raise answers.already_exists(kind, key, metadata["name"])
        if self._gatekeeping is not None:
            created = {**admitted, "metadata": {**metadata, "creationTimestamp": _created(obj)}}
            if not refusal and (wrong := self._gatekeeping.contradictions(kind.title, created)):
                raise answers.contradictory(kind, key, metadata["name"], wrong)
            refusal = refusal or self._gatekeeping.refusal(kind.title, created)
        if refusal:
            raise answers.forbidden(kind, key, metadata["name"], refusal)
        if kind.namespaced:
            self._ensure_namespace(metadata["namespace"])
        if kind is POD and self._service_accounts is not None and not restore:
            # The last step, so that equal pods share the spec that the steps before it make.
            admitted = {**admitted, "spec": self._service_accounts.completed(admitted["spec"])}
        return self._stored(kind, key, admitted)

    def has_priority_class(self, name: str) -> bool:
        """Return True if there is a PriorityClass of that name; two exist in every cluster."""
        return name in self._admission.priorities

    def create_named(self, resource: str, ref: ObjectRef, content: Mapping[str, Any]) -> KubeObject:
        """Store a new object of a resource; a name that ends in "-" is completed. Raises as `create`."""
        kind = _kind(resource)
        name = "generateName" if ref.name.endswith("-") else "name"
        metadata = {**(content.get("metadata") or {}), name: ref.name}
        if kind.namespaced:
            metadata["namespace"] = ref.namespace
        return self.create(
            {**content, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        )

    def update(self, obj: JsonObject, *, subresource: str = "") -> KubeObject:
        """Replace an object, or only its status (`subresource` "status") or a pod's resources ("resize").

        Raises ConflictError if metadata.resourceVersion or metadata.uid is set and is not the current one,
        NotFoundError, and InvalidError with every problem.
        """
        kind = _kind_of(obj)
        ref = KubeObject.of(obj).ref
        if not ref.name:
            problem = FieldProblem("metadata.name", "name must be provided")
            raise answers.invalid(kind, "", "", [problem])
        current = self._current(kind, ref)
        self._check_version(kind, current, ref.resource_version)
        wanted = with_zero_values(kind.title, as_stored(kind, obj))
        wanted["metadata"] = {k: v for k, v in wanted["metadata"].items() if k != "managedFields"}
        return self._replace(kind, current, wanted, subresource)

    def patch(
        self,
        resource: str,
        ref: ObjectRef,
        patch: Mapping[str, Any],
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        expected_resource_version: str = "",
        api_version: str = "",
    ) -> KubeObject:
        """Apply a patch; return the patched object. `api_version`: the version in which the patch is written;
        "": the stored one. Raises as `update`.
        """
        kind = _kind(resource)
        current = self._current(kind, ref)
        said = str((patch.get("metadata") or {}).get("resourceVersion") or "")
        for version in (expected_resource_version, said):
            self._check_version(kind, current, version)
        old = current.parsed
        if api_version:
            old = as_version(kind, old, api_version)
        if patch_type is PatchType.MERGE:
            wanted = merged(old, patch)
        else:
            try:
                wanted = strategic_merge.merged(kind.title, old, patch)
            except strategic_merge.PatchError as err:
                problems = [FieldProblem("", str(err))]
                raise InvalidError(kind.resource, ref.key, problems, server_message=str(err)) from err
        return self._replace(kind, current, dict(as_stored(kind, wanted)), subresource)

    def bind(self, ref: ObjectRef, node_name: str) -> KubeObject:
        """Bind a pod to a node, as the `pods/binding` subresource does."""
        current = self._current(POD, ref)
        return self._stored(POD, current.ref.key, bound(current, node_name, self._now()))

    def delete(self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None) -> None:
        """Delete an object; one with finalizers is marked, and removed after the last finalizer."""
        kind = _kind(resource)
        current = self._current(kind, ref, answers.other_object_to_delete)
        key = current.ref.key
        if (kind.resource, key) not in self._finalized:
            self._gone(kind, current)
        elif current.get("metadata.deletionTimestamp") is None:
            metadata = dict(current.parsed["metadata"])
            metadata["deletionTimestamp"] = self._now()
            metadata["deletionGracePeriodSeconds"] = grace_period_s or 0
            if metadata.get("generation"):
                metadata["generation"] += 1
            self._stored(kind, key, dict(current.parsed) | {"metadata": metadata})

    # --- steps -----------------------------------------------------------------------------------

    def _prepared(self, kind: Kind, obj: JsonObject, restore: bool) -> Object:
        given = obj.get("metadata") or {}
        version = self.store.next_version()
        metadata = dict(given)
        metadata.pop("managedFields", None)
        annotations = metadata.get("annotations")
        if annotations and LAST_APPLIED in annotations:
            metadata["annotations"] = {k: v for k, v in annotations.items() if k != LAST_APPLIED}
        if not metadata.get("name"):
            metadata["name"] = f"{metadata['generateName']}{version:05x}"
        if kind.namespaced:
            metadata["namespace"] = metadata.get("namespace") or "default"
        else:
            metadata.pop("namespace", None)
        # Unique, and equal in every run: the counter in the form of a version 4 UUID.
        fresh = {"uid": f"00000000-0000-4000-8000-{version:012x}", "creationTimestamp": self._now()}
        metadata["generation"] = 1
        if restore:
            metadata |= {key: value for key, value in fresh.items() if not metadata.get(key)}
        else:
            metadata |= fresh
            metadata.pop("deletionTimestamp", None)
        prepared = {**obj, "metadata": metadata}
        if not restore and not kind.keeps_status:
            prepared.pop("status", None)
        if kind is POD:
            prepared["status"] = new_pod_status(prepared, fresh["creationTimestamp"])
        return prepared

    def _replace(self, kind: Kind, current: KubeObject, wanted: Object, subresource: str) -> KubeObject:
        old = dict(current.parsed)
        if subresource == "status":
            new = old | {"status": wanted.get("status") or {}}
        elif subresource == "resize" and kind is POD:
            new = resized(old, wanted)
        elif subresource:
            known = "status or resize" if kind is POD else "status"
            problem = FieldProblem("", f"subresource {subresource!r} is not known: use {known}")
            raise InvalidError(kind.resource, current.ref.key, [problem])
        else:
            new = wanted | ({"status": old["status"]} if "status" in old else {})
            if "status" not in old:
                new.pop("status", None)
            self._keep_server_fields(kind, old, new)
        new = self._admission.admit_update(kind.title, old, new)
        if new == old:
            return current
        if subresource == "status":
            problems = status_problems(kind, old, new)
        elif subresource:
            own = {key: value for key, value in new.items() if key != "status"}
            problems = problems_of(kind, own) or resize_problems(old, new)
        else:
            problems = own_problems(kind, old, new)
        if problems:
            raise answers.invalid(kind, current.ref.key, current.ref.name, problems)
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            self._gone(kind, current)
            return KubeObject.of(new)
        if new.get("spec") != old.get("spec"):
            generation = int(new["metadata"].get("generation") or 0) + 1
            new = new | {"metadata": new["metadata"] | {"generation": generation}}
        return self._stored(kind, current.ref.key, new)

    @staticmethod
    def _keep_server_fields(kind: Kind, old: Object, new: Object) -> None:
        said, kept = new.get("metadata") or {}, old["metadata"]
        changed = [
            key for key in ("name", "namespace", "uid") if said.get(key) and said[key] != kept.get(key)
        ]
        if changed:
            problems = [FieldProblem(f"metadata.{key}", "cannot be changed") for key in changed]
            raise answers.invalid(kind, str(kept["name"]), str(kept["name"]), problems)
        metadata = {key: value for key, value in said.items() if key not in _SERVER_FIELDS}
        metadata |= {key: kept[key] for key in _SERVER_FIELDS if key in kept}
        metadata["resourceVersion"] = kept["resourceVersion"]
        new["metadata"] = metadata
        new["apiVersion"], new["kind"] = old["apiVersion"], old["kind"]

    def _stored(self, kind: Kind, key: str, obj: Object) -> KubeObject:
        stored = self.store.put(kind, key, obj)
        # Recorded now: at deletion, reading finalizers would parse an object that may be stored as bytes.
        if obj["metadata"].get("finalizers"):
            self._finalized.add((kind.resource, key))
        else:
            self._finalized.discard((kind.resource, key))
        if kind is POD:
            return stored
        if self._gatekeeping is not None and kind.title in READ:
            self._gatekeeping.keep(stored)
        if kind.kind == "PriorityClass":
            self._admission.priorities.keep(stored)
        elif kind.kind == "StorageClass":
            self._admission.storage_classes.keep(stored)
        return stored

    def _gone(self, kind: Kind, current: KubeObject) -> None:
        key = current.ref.key
        self.store.remove(kind, key)
        self._finalized.discard((kind.resource, key))
        if kind.kind == "PriorityClass":
            self._admission.priorities.drop(key)
        elif kind.kind == "StorageClass":
            self._admission.storage_classes.drop(key)
        if self._gatekeeping is not None:
            self._gatekeeping.quotas.release(kind.title, key)
            if kind.title in READ:
                self._gatekeeping.drop(current)

    def _current(
        self,
        kind: Kind,
        ref: ObjectRef,
        refusal: Callable[[Kind, ObjectRef, str], ConflictError] = answers.other_object,
    ) -> KubeObject:
        found = self.store.get(kind, kind.key(ref.namespace, ref.name))
        if found is None:
            raise answers.not_found(kind, ref)
        if ref.uid and ref.uid != found.ref.uid:
            raise refusal(kind, found.ref, ref.uid)
        return found

    @staticmethod
    def _check_version(kind: Kind, current: KubeObject, expected: str) -> None:
        if expected and expected != current.ref.resource_version:
            raise answers.modified(kind, current.ref, expected)

    def _ensure_namespace(self, name: str) -> None:
        if self.store.get(NAMESPACE, name) is None:
            self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def _now(self) -> str:
        return format_time(self._clock.now_s())


def _kind_of(obj: JsonObject) -> Kind:
    kind = kind_of(obj)
    if kind is None or not kind.has_version(str(obj.get("apiVersion"))):
        raise InvalidError(str(obj.get("kind")), "", [FieldProblem("kind", "is not kept here")])
    return kind


def _created(obj: JsonObject) -> Any:
    return (obj.get("metadata") or {}).get("creationTimestamp")


def _kind(resource: str) -> Kind:
    kind = BY_RESOURCE.get(resource)
    if kind is None:
        raise NotFoundError(resource, "", f"no such resource; there are {', '.join(sorted(BY_RESOURCE))}")
    return kind
