"""`ClaimController`: the resource claim controller of the embedded cluster.

Run by `berth simulate`, `why` and `bench`, and by tests. Without this controller a pod that names a
ResourceClaimTemplate never gets its claim. It is also the garbage collector of claims:

    a pod that names a template         gets a claim of that template, named in the pod's status
    a pod that was deleted or finished  is removed from the consumers of its claims
    a claim without consumers           loses its allocation
    the claim of a deleted pod          is deleted

With the gate DRAWorkloadResourceClaims, a PodGroup gets and loses claims as a pod does. A pod whose entry
equals an entry of its group gets the name of the group's claim instead of a claim of its own.

Source: `pkg/controller/resourceclaim/controller.go`, v1.37.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from berth_host.cluster.port import WatchEvent
from berth_host.errors.cluster import ClusterError
from berth_host.log import get_logger
from berth_sdk.kube_object import KubeObject, ObjectRef

from berth_sim.cluster.server import ApiServer

log = get_logger()

CLAIMS: Final = "resource.k8s.io/resourceclaims"
GROUPS: Final = "scheduling.k8s.io/podgroups"
GROUP_API: Final = "scheduling.k8s.io"
GROUP_CLAIMS_GATE: Final = "DRAWorkloadResourceClaims"
"""The feature gate by which PodGroups have claims."""
TEMPLATES: Final = "resource.k8s.io/resourceclaimtemplates"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
_POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
_LONGEST_BASE: Final = 57
"""The longest prefix of a generated name, with its last hyphen; the name has at most 63 characters."""
_DONE: Final = ("Succeeded", "Failed")
Json = dict[str, Any]


class ClaimController:
    """The controller, started within an event loop.

    It acts in a later turn of the loop after a change, never inside the change.
    """

    def __init__(self, server: ApiServer, *, of_groups: bool = False) -> None:
        """`of_groups`: PodGroups have claims (the gate DRAWorkloadResourceClaims)."""
        self._server = server
        self._of_groups = of_groups
        self._pending: deque[Callable[[], None]] = deque()
        self._waiting: dict[str, list[ObjectRef]] = {}
        """The pods that were created before their template, by template (`namespace/name`)."""
        self._waiting_groups: dict[str, list[ObjectRef]] = {}
        """The groups that were created before their template, likewise."""
        self._early_members: dict[str, list[ObjectRef]] = {}
        """The pods that were created before their group, by group (`namespace/name`)."""
        # Most clusters have no claims; deleted pods then need no work.
        self._has_seen_claims = False
        self._turn_is_due = False
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Handle all existing pods and claims, and every change from now on."""
        self._unsubscribe = self._server.store.subscribe(self._see)
        for group in self._server.list(GROUPS) if self._of_groups else ():
            self._group_changed(group)
        for pod in self._server.list("pods"):
            self._pod_came(pod)
        for claim in self._server.list(CLAIMS):
            self._has_seen_claims = True
            self._claim_changed(claim)
        self._turn()

    def stop(self) -> None:
        """Stop creating and releasing claims."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._unsubscribe = None
        self._pending.clear()

    @property
    def is_idle(self) -> bool:
        """True if every change seen so far is handled."""
        return not self._pending and not self._turn_is_due

    def _see(self, event: WatchEvent) -> None:
        old, new = event.old, event.new
        if event.kind == "Pod":
            if new is not None and old is None:
                self._pod_came(new)
            elif self._has_seen_claims:
                if new is None:
                    self._pod_went(old)
                elif old is not None and _is_done(new) and not _is_done(old):
                    self._pod_went(new)
        elif event.kind == "ResourceClaim" and new is not None:
            self._has_seen_claims = True
            self._claim_changed(new)
        elif event.kind == "ResourceClaimTemplate" and new is not None:
            for ref in self._waiting.pop(new.ref.key, ()):
                self._do(self._make_claims, ref)
            for ref in self._waiting_groups.pop(new.ref.key, ()):
                self._do(self._make_group_claims, ref)
        elif event.kind == "PodGroup" and self._of_groups:
            self._group_event(old, new)
        if self._pending and not self._turn_is_due:
            self._turn_is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _pod_came(self, pod: KubeObject) -> None:
        if any(entry.get("resourceClaimTemplateName") for entry in _entries(pod)) and not _is_done(pod):
            self._do(self._make_claims, pod.ref)

    def _group_event(self, old: KubeObject | None, new: KubeObject | None) -> None:
        if new is not None and _is_of_kubernetes(new):
            self._group_changed(new)
        elif old is not None and new is None and _is_of_kubernetes(old):
            for name in _claim_names(old):
                self._do(self._review, ObjectRef(name=name, namespace=old.ref.namespace))

    def _group_changed(self, group: KubeObject) -> None:
        """Make the claims of a group, then let its members have them."""
        if not _is_of_kubernetes(group):
            return
        for ref in self._early_members.pop(group.ref.key, ()):
            self._do(self._make_claims, ref)
        if not _entries(group):
            return
        self._do(self._make_group_claims, group.ref)
        for pod in self._server.list("pods"):
            if pod.ref.namespace == group.ref.namespace and _group_of(pod) == group.ref.name:
                self._pod_came(pod)

    def _pod_went(self, pod: KubeObject | None) -> None:
        if pod is not None:
            for name in _claim_names(pod):
                self._do(self._review, ObjectRef(name=name, namespace=pod.ref.namespace))

    def _claim_changed(self, claim: KubeObject) -> None:
        """Review a claim that is being deleted, or whose reservation came after its pod was deleted."""
        leaves = claim.get("metadata.deletionTimestamp") is not None
        if leaves or len(self._consumers(claim)) < len(claim.get("status.reservedFor") or ()):
            self._do(self._review, claim.ref)

    def _do(self, action: Callable[[ObjectRef], None], ref: ObjectRef) -> None:
        def act() -> None:
            try:
                action(ref)
            except ClusterError as err:
                log.warning("claim.not_settled", object=ref.key, error=str(err))

        self._pending.append(act)

    def _turn(self) -> None:
        self._turn_is_due = False
        while self._pending:
            self._pending.popleft()()

    # --- claims of templates -----------------------------------------------------------------------

    def _make_claims(self, ref: ObjectRef) -> None:
        pod = self._server.get("pods", ref)
        if pod is None:
            return
        group_name = _group_of(pod) if self._of_groups else ""
        group = None
        if group_name:
            group = self._server.get(GROUPS, ObjectRef(name=group_name, namespace=ref.namespace))
            if group is None:
                self._early_members.setdefault(f"{ref.namespace}/{group_name}", []).append(ref)
                return
        known = {item["name"]: item for item in pod.get("status.resourceClaimStatuses") or ()}
        made: list[Json] = []
        for entry in _entries(pod):
            name = entry.get("resourceClaimTemplateName")
            if not name or entry["name"] in known:
                continue
            if group is not None and _is_shared(entry, group):
                claim_name = _names_made(group).get(entry["name"])
                if claim_name:
                    made.append({"name": entry["name"], "resourceClaimName": claim_name})
                continue
            made.extend(self._made(pod, entry, self._waiting))
        if made:
            status = {"resourceClaimStatuses": [*known.values(), *made]}
            self._server.patch("pods", ref, {"status": status}, subresource="status")

    def _make_group_claims(self, ref: ObjectRef) -> None:
        group = self._server.get(GROUPS, ref)
        if group is None:
            return
        known = {item["name"]: item for item in group.get("status.resourceClaimStatuses") or ()}
        made: list[Json] = []
        for entry in _entries(group):
            if entry.get("resourceClaimTemplateName") and entry["name"] not in known:
                made.extend(self._made(group, entry, self._waiting_groups))
        if made:
            status = {"resourceClaimStatuses": [*known.values(), *made]}
            self._server.patch(GROUPS, ref, {"status": status}, subresource="status")

    def _made(
        self, owner: KubeObject, entry: Mapping[str, Any], waiting: dict[str, list[ObjectRef]]
    ) -> Iterator[Json]:
        """Make the claim of one entry, and yield its entry of the status; note who waits for the template."""
        key = ObjectRef(name=entry["resourceClaimTemplateName"], namespace=owner.ref.namespace)
        template = self._server.get(TEMPLATES, key)
        if template is None:
            waiting.setdefault(key.key, []).append(owner.ref)
            return
        claim = self._server.create(_claim_of(owner, entry["name"], template))
        yield {"name": entry["name"], "resourceClaimName": claim.ref.name}

    # --- claims that are used no more --------------------------------------------------------------

    def _review(self, ref: ObjectRef) -> None:
        """Remove deleted consumers; without any, free the claim, and delete it if its pod was deleted."""
        claim = self._server.get(CLAIMS, ref)
        if claim is None:
            return
        reserved = claim.get("status.reservedFor") or []
        consumers = self._consumers(claim)
        leaves = claim.get("metadata.deletionTimestamp") is not None
        if len(consumers) < len(reserved) or (leaves and not consumers):
            status: Json = {"reservedFor": consumers or None}
            if not consumers:
                status["allocation"] = None
            claim = self._server.patch(CLAIMS, claim.ref, {"status": status}, subresource="status")
        finalizers = claim.get("metadata.finalizers") or []
        if FINALIZER in finalizers and not consumers and (reserved or leaves):
            left = [name for name in finalizers if name != FINALIZER]
            self._server.patch(CLAIMS, claim.ref, {"metadata": {"finalizers": left or None}})
        if not leaves and self._is_orphaned(claim) and self._server.get(CLAIMS, claim.ref) is not None:
            self._server.delete(CLAIMS, claim.ref)

    def _consumers(self, claim: KubeObject) -> list[Json]:
        """Return the entries of `reservedFor` that are still valid; an entry of an unknown kind always is."""
        return [one for one in claim.get("status.reservedFor") or () if self._still_uses(claim, one)]

    def _still_uses(self, claim: KubeObject, consumer: Mapping[str, Any]) -> bool:
        api, resource = consumer.get("apiGroup") or "", consumer.get("resource")
        ref = ObjectRef(
            name=consumer.get("name") or "", namespace=claim.ref.namespace, uid=consumer.get("uid") or ""
        )
        if self._of_groups and (api, resource) == (GROUP_API, "podgroups"):
            return self._server.get(GROUPS, ref) is not None
        if api or resource != "pods":
            return True
        pod = self._server.get("pods", ref)
        return pod is not None and not _is_done(pod)

    def _is_orphaned(self, claim: KubeObject) -> bool:
        """Return True if the pod or group that the claim was created for was deleted or has finished."""
        for owner in claim.get("metadata.ownerReferences") or ():
            resource = {"Pod": "pods", "PodGroup": GROUPS}.get(owner.get("kind") or "")
            if resource is not None and owner.get("controller"):
                ref = ObjectRef(
                    name=owner.get("name") or "",
                    namespace=claim.ref.namespace,
                    uid=owner.get("uid") or "",
                )
                found = self._server.get(resource, ref)
                return found is None or (resource == "pods" and _is_done(found))
        return False


def _entries(item: KubeObject) -> list[Mapping[str, Any]]:
    """Return the claims in the spec of a pod or of a group."""
    entries: list[Mapping[str, Any]] = (item.parsed.get("spec") or {}).get("resourceClaims") or []
    return entries


def _is_done(pod: KubeObject) -> bool:
    return (pod.parsed.get("status") or {}).get("phase") in _DONE


def _is_of_kubernetes(group: KubeObject) -> bool:
    """Return False for a PodGroup of coscheduling."""
    return group.api_version.startswith(f"{GROUP_API}/")


def _group_of(pod: KubeObject) -> str:
    """Return the name of the pod's PodGroup; "" for none."""
    return pod.get("spec.schedulingGroup.podGroupName") or ""


def _is_shared(entry: Mapping[str, Any], group: KubeObject) -> bool:
    """Return True if an entry of a pod's spec stands in the spec of its group, too."""
    keys = ("name", "resourceClaimName", "resourceClaimTemplateName")
    return any(all(one.get(key) == entry.get(key) for key in keys) for one in _entries(group))


def _names_made(group: KubeObject) -> dict[str, str]:
    """Return the claims that were made for a group, by their names in its spec."""
    made = group.get("status.resourceClaimStatuses") or ()
    return {one["name"]: one.get("resourceClaimName") or "" for one in made}


def _claim_names(pod: KubeObject) -> Iterator[str]:
    """Yield the claims of a pod or group: from its spec, from templates, and for extended resources."""
    for entry in _entries(pod):
        if entry.get("resourceClaimName"):
            yield entry["resourceClaimName"]
    status = pod.parsed.get("status") or {}
    for item in status.get("resourceClaimStatuses") or ():
        if item.get("resourceClaimName"):
            yield item["resourceClaimName"]
    extended = status.get("extendedResourceClaimStatus") or {}
    if extended.get("resourceClaimName"):
        yield extended["resourceClaimName"]


def _claim_of(item: KubeObject, entry: str, template: KubeObject) -> Json:
    """Return the claim, owned by a pod or a group, for one entry of its resourceClaims."""
    given = template.get("spec.metadata") or {}
    owner = {
        "apiVersion": item.api_version or "v1",
        "kind": item.kind,
        "name": item.ref.name,
        "uid": item.ref.uid,
        "controller": True,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": _base_name(item.ref.name, entry),
            "namespace": item.ref.namespace,
            "annotations": {**(given.get("annotations") or {}), _POD_CLAIM: entry},
            **({"labels": given["labels"]} if given.get("labels") else {}),
            "ownerReferences": [owner],
        },
        "spec": template.get("spec.spec") or {},
    }


def _base_name(pod: str, entry: str) -> str:
    """Return `<pod>-<entry>-`; both names are cut in proportion if the whole is too long."""
    length = len(pod) + len(entry) + 2
    if length > _LONGEST_BASE:
        # The two hyphens count too.
        room = _LONGEST_BASE - 2
        kept = max(1, len(pod) * room // length)
        pod, entry = pod[:kept], entry[: room - kept]
    return f"{pod}-{entry}-"
