"""PreBind: writes the assumed changes, then waits for the controllers. One `Reservation` per cycle.

The writes are merge patches that the host executes. Each is conditional on the version that was decided on,
so that no other change is lost. The plugin reads the controllers' work from the objects, once a second.

Source: `pkg/scheduler/framework/plugins/volumebinding/binder.go` (AssumePodVolumes, BindPodVolumes,
checkBindings), v1.36.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from berth_sdk.clocks import monotonic_s
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.results import MAX_PATCHES, ObjectPatch, PatchOutcome, PatchResult, PreBindResult
from berth_sdk.slices import Work
from berth_sdk.status import SUCCESS, Status

from berth_plugins.objects.records import Records
from berth_plugins.volumes.csi_migration import IN_TREE, TranslationError, csi_affinity
from berth_plugins.volumes.csi_nodes import CsiNode
from berth_plugins.volumes.records import (
    BOUND_BY_CONTROLLER,
    CLAIMS,
    CSI_NODES,
    SELECTED_NODE,
    VOLUMES,
    Claim,
    Volume,
)
from berth_plugins.volumes.volume_binding.assuming import Assumed, AssumeError

POLL_S: Final = 1.0
MAX_TOKEN_BYTES: Final = 4096
TOO_LARGE: Final = b"{}"
"""The token of a reservation whose own token would be too large."""


@dataclass(slots=True)
class Reservation:
    """The objects assumed for one pod on one node: volumes with their claims, and claims to provision.

    `is_new`: the volume did not name the claim before. Both records are as they will be once written.
    """

    node_name: str
    bindings: list[tuple[Volume, Claim, bool]] = field(default_factory=list)
    provisions: list[Claim] = field(default_factory=list)
    written: dict[tuple[str, str], str] = field(default_factory=dict)
    """The versions after this plugin's writes, by resource and key."""
    asked: list[ObjectPatch] = field(default_factory=list)
    left: list[ObjectPatch] | None = None
    """The writes that may not be done yet; None: PreBind has not begun."""
    since_s: float | None = None
    waited_s: float = 0.0

    @property
    def token(self) -> bytes:
        """The token from which another process can restore the reservation."""
        if len(self.bindings) + len(self.provisions) > MAX_TOKEN_BYTES:
            return TOO_LARGE
        document = {
            "node": self.node_name,
            "volumes": [
                [one.ref.name, one.ref.resource_version, claim.ref.namespace, claim.ref.name]
                for one, claim, _ in self.bindings
            ],
            "claims": [[one.ref.namespace, one.ref.name] for one in self.provisions],
        }
        raw = json.dumps(document, separators=(",", ":")).encode()
        return raw if len(raw) <= MAX_TOKEN_BYTES else TOO_LARGE

    def patches(self) -> Work[list[ObjectPatch]]:
        """Return all writes of the reservation, each object once: two volumes of a pod may use one claim.
        Yields after each object.
        """
        distinct: dict[tuple[str, str], ObjectPatch] = {}
        for volume, claim, is_new in self.bindings:
            if is_new:
                patch = _volume_patch(volume, claim)
                distinct[patch.resource, patch.ref.key] = patch
            yield
        for claim in self.provisions:
            patch = _claim_patch(claim, self.node_name)
            distinct[patch.resource, patch.ref.key] = patch
            yield
        return list(distinct.values())


def _volume_patch(volume: Volume, claim: Claim) -> ObjectPatch:
    ref = claim.ref
    patch: dict[str, Any] = {
        "spec": {
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": ref.namespace,
                "name": ref.name,
                "uid": ref.uid,
                "resourceVersion": ref.resource_version,
            }
        }
    }
    if volume.bound_by_controller:
        patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
    return _patch(VOLUMES, volume.ref, patch)


def _claim_patch(claim: Claim, node_name: str) -> ObjectPatch:
    return _patch(CLAIMS, claim.ref, {"metadata": {"annotations": {SELECTED_NODE: node_name}}})


def _patch(resource: str, ref: ObjectRef, patch: dict[str, Any]) -> ObjectPatch:
    version = ref.resource_version
    return ObjectPatch(resource=resource, ref=ref, merge_patch=patch, expected_resource_version=version)


class Binder:
    """Assumes, writes and waits. `timeout_s`: how long controllers may take."""

    def __init__(
        self, handle: Handle, claims: Assumed[Claim], volumes: Assumed[Volume], timeout_s: float
    ) -> None:
        self._handle = handle
        self._claims = claims
        self._volumes = volumes
        self._timeout_s = timeout_s
        self._csi_nodes = Records(handle, CSI_NODES, CsiNode.of)

    # --- Reserve -----------------------------------------------------------------------------------

    def promise(
        self,
        cycle_id: str,
        made: Reservation,
        matches: Sequence[tuple[Claim, Volume]],
        provisions: Sequence[Claim],
    ) -> Work[None]:
        """Assume these volumes for the pod, so that no other pod gets them, and enter them into `made`.

        Yields after each claim. Raises AssumeError, with nothing assumed.
        """
        try:
            for claim, volume in matches:
                reserved = volume.reserved_for(claim)
                # A volume that another pod assumed for the same claim is held by this pod, too.
                written = self._volumes.written.get(volume.ref.name)
                is_new = reserved != volume or written is None or written.reserved_for(claim) != written
                if is_new:
                    self._volumes.assume(cycle_id, reserved)
                made.bindings.append((reserved, claim, is_new))
                yield
            for claim in provisions:
                selected = replace(claim, selected_node=made.node_name)
                self._claims.assume(cycle_id, selected)
                made.provisions.append(selected)
                yield
        except AssumeError:
            yield from self.give_back(cycle_id, made)
            raise

    def give_back(self, cycle_id: str, made: Reservation) -> Work[None]:
        """Give the assumed objects back. Written objects stay as they are. Yields after each object."""
        for volume, _, _ in made.bindings:
            self._volumes.give_back(cycle_id, volume.ref.name)
            yield
        for claim in made.provisions:
            self._claims.give_back(cycle_id, claim.ref.name, claim.ref.namespace)
            yield

    def take_up(self, cycle_id: str, token: bytes) -> Reservation | None:
        """Restore a reservation that another process made. None: the token does not suffice."""
        try:
            document = json.loads(token)
            made = Reservation(str(document["node"]))
            for name, version, *key in document["volumes"]:
                volume, claim = self._volumes.latest(name), self._claims.latest(key[1], key[0])
                if volume is None or claim is None:
                    return None
                reserved = volume.reserved_for(claim)
                # The version of the decision: a volume that changed since then must not be overwritten.
                reserved = replace(reserved, ref=replace(reserved.ref, resource_version=version))
                made.bindings.append((reserved, claim, reserved.claim_ref != volume.claim_ref))
            for namespace, name in document["claims"]:
                claim = self._claims.latest(name, namespace)
                if claim is None:
                    return None
                made.provisions.append(replace(claim, selected_node=made.node_name))
            for reserved, _, is_new in made.bindings:
                if is_new:
                    self._volumes.assume(cycle_id, reserved)
            for claim in made.provisions:
                self._claims.assume(cycle_id, claim)
        except (ValueError, KeyError, TypeError, AssumeError):
            return None
        return made

    # --- PreBind -----------------------------------------------------------------------------------

    def write(self, made: Reservation, patched: Sequence[PatchResult]) -> Work[PreBindResult | None]:
        """Return the next patches. None: everything is written. ERROR when a patch was not applied.

        What another pod with the same claim has written meanwhile counts as written. Yields after each
        object.
        """
        for patch, result in zip(made.asked, patched, strict=False):
            is_there = result.outcome is PatchOutcome.CONFLICT and _has(result.object, patch)
            if result.outcome is not PatchOutcome.APPLIED and not is_there:
                text = result.message or f"{patch.resource} {patch.ref.key}: {result.outcome.name}"
                return PreBindResult(Status.error(text))
            made.written[patch.resource, patch.ref.key] = result.ref.resource_version
        if made.left is None:
            made.left = yield from made.patches()
        asked: list[ObjectPatch] = []
        looked_at = 0
        for patch in made.left:
            yield
            looked_at += 1
            key = patch.resource, patch.ref.key
            if key in made.written:
                continue
            present = self._present(patch)
            if present is not None and _has(present, patch):
                made.written[key] = present.ref.resource_version
                continue
            asked.append(patch)
            if len(asked) == MAX_PATCHES:
                break
        made.asked, made.left = asked, [*asked, *made.left[looked_at:]]
        return PreBindResult(SUCCESS, tuple(asked)) if asked else None

    def _present(self, patch: ObjectPatch) -> KubeObject | None:
        """Return the object of a patch as the watch shows it."""
        return self._handle.objects(patch.resource).get(patch.ref.name, patch.ref.namespace)

    def wait(self, made: Reservation, *, gone: str = "") -> Work[PreBindResult]:
        """Return SUCCESS once every claim is bound; else ask for another round, until the timeout. Yields
        after each claim.

        `gone`: the name of the pod if it was deleted, which is an ERROR; else empty.
        """
        now_s = monotonic_s()
        is_first = made.since_s is None
        since_s = made.since_s = now_s if made.since_s is None else made.since_s
        if gone or not is_first:
            try:
                if (yield from self._is_done(made, gone)):
                    return PreBindResult(SUCCESS)
            except _BindingError as err:
                return PreBindResult(Status.error(f"binding volumes: {err}"))
        if made.waited_s + POLL_S > self._timeout_s or now_s - since_s + POLL_S > self._timeout_s:
            return PreBindResult(Status.error("binding volumes: context deadline exceeded"))
        made.waited_s += POLL_S
        return PreBindResult(SUCCESS, ask_again_after_s=POLL_S)

    def _is_done(self, made: Reservation, gone: str) -> Work[bool]:
        """Return True if controllers have bound everything. Yields after each claim. Raises _BindingError
        when they will not.
        """
        node = self._handle.snapshot().node_named(made.node_name)
        if node is None:
            raise _BindingError(f'failed to get node "{made.node_name}": node "{made.node_name}" not found')
        if gone:
            raise _BindingError(f'pod does not exist any more: pod "{gone}" not found')
        record = self._csi_nodes.get(made.node_name)
        where = _Where(made.node_name, node.labels, record.migrated if record is not None else frozenset())
        for volume, claim, _ in made.bindings:
            if not (yield from self._is_bound(made, volume, claim, where)):
                return False
            yield
        for claim in made.provisions:
            if not (yield from self._is_provisioned(made, claim, where)):
                return False
            yield
        return True

    def _is_bound(self, made: Reservation, volume: Volume, claim: Claim, where: _Where) -> Work[bool]:
        now = self._volumes.written.get(volume.ref.name)
        if now is None:
            raise _BindingError(f"failed to check binding: {self._volumes.missing(volume.ref.name)}")
        claim_now = self._claims.written.get(claim.ref.name, claim.ref.namespace)
        if claim_now is None:
            missing = self._claims.missing(claim.ref.name, claim.ref.namespace)
            raise _BindingError(f"failed to check binding: {missing}")
        if self._is_behind(made, VOLUMES, now.ref):
            return False
        yield from where.check(now)
        if now.claim_ref is None or not now.claim_ref.uid:
            raise _BindingError(f'ClaimRef got reset for pv "{now.ref.name}"')
        return claim_now.is_fully_bound

    def _is_provisioned(self, made: Reservation, claim: Claim, where: _Where) -> Work[bool]:
        now = self._claims.written.get(claim.ref.name, claim.ref.namespace)
        if now is None:
            missing = self._claims.missing(claim.ref.name, claim.ref.namespace)
            raise _BindingError(f"failed to check provisioning pvc: {missing}")
        if self._is_behind(made, CLAIMS, now.ref):
            return False
        if not now.has_annotations:
            raise _BindingError(f'selectedNode annotation reset for PVC "{claim.ref.name}"')
        if now.selected_node != made.node_name:
            # A provisioner that cannot provision removes the annotation: the pod must try another node.
            raise _BindingError(f'provisioning failed for PVC "{claim.ref.name}"')
        if now.volume_name:
            volume = self._volumes.written.get(now.volume_name)
            if volume is None:
                return False  # the volume will appear, or the claim will be unbound
            yield from where.check(volume)
        return now.is_fully_bound

    @staticmethod
    def _is_behind(made: Reservation, resource: str, ref: ObjectRef) -> bool:
        """Return True if the watched object is older than this plugin's write."""
        ours = made.written.get((resource, ref.key), "")
        seen = ref.resource_version
        return ours.isdecimal() and seen.isdecimal() and int(seen) < int(ours)


def _has(item: KubeObject | None, patch: ObjectPatch) -> bool:
    """Return True if the object is the one of the patch, and has what the patch writes."""
    if item is None or item.ref.uid != patch.ref.uid:
        return False
    if patch.resource == CLAIMS:
        node = patch.merge_patch["metadata"]["annotations"][SELECTED_NODE]
        return bool((item.get("metadata.annotations") or {}).get(SELECTED_NODE) == node)
    return bool((item.get("spec.claimRef") or {}).get("uid") == patch.merge_patch["spec"]["claimRef"]["uid"])


class _BindingError(Exception):
    """The binding failed and must start again."""


@dataclass(frozen=True, slots=True)
class _Where:
    """The node of the pod."""

    name: str
    labels: Any
    migrated: frozenset[str]

    def check(self, volume: Volume) -> Work[None]:
        """Raise _BindingError for a volume that the node cannot reach. Yields after each term."""
        affinity = yield from volume.affinity.read()
        plugin = IN_TREE.get(volume.source)
        if plugin is not None and plugin.is_on and plugin.name in self.migrated:
            try:
                affinity = yield from csi_affinity(volume)
            except TranslationError as err:
                raise _BindingError(f"failed to translate pv to csi: could not translate pv: {err}") from err
        if affinity is not None and not (yield from affinity.matches_in_steps(self.labels, "")):
            raise _BindingError(
                f'pv "{volume.ref.name}" node affinity doesn\'t match node "{self.name}":'
                " no matching NodeSelectorTerms"
            )
