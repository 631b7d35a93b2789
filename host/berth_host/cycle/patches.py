"""Executes the patches that PreBind and PostFilter plugins ask for, in process and served alike.

Called by the framework (PreBind) and by `evictions` (PostFilter). The relay has checked the form of the
answer. This module checks what needs the cycle: the plugin may change the resources that it declared, and of
the pods only the pod of the cycle. If a call to the API server has no answer, the object is read back: the
patch was applied if the object has the requested values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import NeedKind
from berth_sdk.pod import Pod
from berth_sdk.results import ObjectPatch, PatchAction, PatchOutcome, PatchResult

from berth_host.attempt.call_record import CycleRecord
from berth_host.cache.objects import ObjectStores
from berth_host.cluster.port import ClusterCalls
from berth_host.errors.cluster import ClusterError, ConflictError, NotFoundError
from berth_host.model.clock import Clock, sleep
from berth_host.model.merge_patch import merged
from berth_host.rpc.client import PluginClient

READ_TRIES: Final = 4
FIRST_PAUSE_S: Final = 0.1


class PatchRunner:
    """Applies patches in order; the first that is not APPLIED makes the rest SKIPPED."""

    def __init__(
        self,
        cluster: ClusterCalls,
        clock: Clock,
        stores: ObjectStores,
        created: Callable[[str, bool], None] = lambda resource, failed: None,
    ) -> None:
        """Prepare a runner. `created`: called after each create request, with (resource, whether it
        failed).
        """
        self._cluster = cluster
        self._writes = ObjectWrites(cluster, stores)
        self._clock = clock
        self._created = created

    def refusal(self, client: PluginClient, cycle: CycleRecord, patch: ObjectPatch) -> str:
        """Return why the plugin may not ask for this patch; "" if it may."""
        return _refusal(client, cycle, patch)

    async def apply(
        self, client: PluginClient, cycle: CycleRecord, patches: Sequence[ObjectPatch]
    ) -> list[PatchResult]:
        """Apply the patches and return one result per patch. Raises no ClusterError."""
        results: list[PatchResult] = []
        for patch in patches:
            if results and results[-1].outcome is not PatchOutcome.APPLIED:
                results.append(PatchResult(outcome=PatchOutcome.SKIPPED, ref=patch.ref))
            else:
                results.append(await self._apply_one(client, cycle, patch))
        return results

    async def _apply_one(self, client: PluginClient, cycle: CycleRecord, patch: ObjectPatch) -> PatchResult:
        problem = _refusal(client, cycle, patch)
        if problem:
            return PatchResult(outcome=PatchOutcome.REFUSED, ref=patch.ref, message=problem)
        result = await self._sent(cycle, patch)
        if patch.action is PatchAction.CREATE:
            self._created(patch.resource, result.outcome is not PatchOutcome.APPLIED)
        return result

    async def _sent(self, cycle: CycleRecord, patch: ObjectPatch) -> PatchResult:
        try:
            changed = await self._change(patch)
        except NotFoundError as err:
            return PatchResult(outcome=PatchOutcome.NOT_FOUND, ref=patch.ref, message=str(err))
        except ClusterError as err:
            if isinstance(err, ConflictError) or not err.outcome_known:
                return await self._as_it_is(cycle, patch, err)
            return PatchResult(outcome=PatchOutcome.REFUSED, ref=patch.ref, message=str(err))
        if changed is None:
            return PatchResult(outcome=PatchOutcome.APPLIED, ref=patch.ref)
        return PatchResult(outcome=PatchOutcome.APPLIED, ref=changed.ref, object=changed)

    async def _change(self, patch: ObjectPatch) -> KubeObject | None:
        """Send one change; return the changed object, None after a deletion. Raises ClusterError."""
        if patch.action is PatchAction.CREATE:
            return await self._cluster.create(patch.resource, patch.ref, patch.merge_patch)
        if patch.action is PatchAction.DELETE:
            await self._cluster.delete(patch.resource, patch.ref)
            return None
        return await self._writes.write(patch)

    # --- after a conflict, or without an answer --------------------------------------------------

    async def _as_it_is(self, cycle: CycleRecord, patch: ObjectPatch, err: ClusterError) -> PatchResult:
        """Read the object after `err`, and return whether the patch was applied."""
        unknown = PatchResult(outcome=PatchOutcome.UNKNOWN, ref=patch.ref, message=str(err))
        if patch.action is PatchAction.CREATE and patch.ref.name.endswith("-"):
            return unknown  # only the API server knows the generated name
        try:
            now = await self._read(cycle, patch)
        except ClusterError:
            return unknown
        in_doubt = not isinstance(err, ConflictError)
        if now is None or (patch.action is PatchAction.DELETE and _is_leaving(now)):
            if in_doubt and patch.action is PatchAction.DELETE:
                return PatchResult(outcome=PatchOutcome.APPLIED, ref=patch.ref)
            return PatchResult(outcome=PatchOutcome.NOT_FOUND, ref=patch.ref, message=str(err))
        if in_doubt and patch.action is not PatchAction.DELETE and _says(now.parsed, patch.merge_patch):
            return PatchResult(outcome=PatchOutcome.APPLIED, ref=now.ref, object=now)
        return PatchResult(outcome=PatchOutcome.CONFLICT, ref=patch.ref, object=now, message=str(err))

    async def _read(self, cycle: CycleRecord, patch: ObjectPatch) -> KubeObject | None:
        """Read the object; return None if it is gone. Raises ClusterError after READ_TRIES tries."""
        pause_s = FIRST_PAUSE_S
        # Read any version: the expected version may be the one before the patch.
        ref = replace(patch.ref, resource_version="")
        for _ in range(READ_TRIES - 1):
            try:
                return await self._cluster.get(patch.resource, ref)
            except ClusterError as err:
                if err.outcome_known:
                    raise
            cycle.idle = True
            await sleep(self._clock, pause_s)
            cycle.idle = False
            pause_s *= 2
        return await self._cluster.get(patch.resource, ref)


def _is_leaving(item: KubeObject) -> bool:
    return item.get("metadata.deletionTimestamp") is not None


def _says(now: object, wanted: Mapping[str, Any]) -> bool:
    """Return True if merging `wanted` into `now` would change nothing (RFC 7386)."""
    if not isinstance(now, Mapping):
        return False
    for key, value in wanted.items():
        if value is None:
            if now.get(key) is not None:
                return False
        elif isinstance(value, Mapping):
            if not _says(now.get(key, {}), value):
                return False
        elif now.get(key) != value:
            return False
    return True


def _refusal(client: PluginClient, cycle: CycleRecord, patch: ObjectPatch) -> str:
    if patch.action is PatchAction.UNKNOWN:
        return "the host does not know the patch's action: it knows MERGE, CREATE and DELETE"
    if patch.resource == "pods":
        if not isinstance(cycle.subject, Pod):
            return f"pod {patch.ref.key} is not of this cycle, which is about a group"
        own = cycle.subject.ref
        same = (patch.ref.namespace, patch.ref.name) == (own.namespace, own.name)
        if not same or (patch.ref.uid and patch.ref.uid != own.uid):
            return f"pod {patch.ref.key} is not the pod of this cycle ({own.key})"
        return ""
    declared = {need.resource for need in client.descriptor_in(cycle).needs if need.kind is NeedKind.OBJECT}
    if patch.resource not in declared:
        return f'{patch.resource} is not among the plugin\'s needs: declare Need.objects("{patch.resource}")'
    return ""


REPLACED_WHOLE: Final = frozenset(
    {"persistentvolumes", "persistentvolumeclaims", "resource.k8s.io/resourceclaims"}
)
REMEMBERED: Final = 256
"""The number of the host's own writes whose answers are kept. The oldest are dropped first."""


class ObjectWrites:
    """Writes of objects, as PUT where kube-scheduler uses PUT, else as PATCH. `stores`: the watched
    objects.
    """

    def __init__(self, cluster: ClusterCalls, stores: ObjectStores) -> None:
        self._cluster = cluster
        self._stores = stores
        self._answers: dict[str, KubeObject] = {}

    async def write(self, patch: ObjectPatch) -> KubeObject:
        """Apply a patch and return the changed object. Raises ClusterError."""
        base = await self._base(patch)
        if base is None:
            return await self._cluster.patch(
                patch.resource,
                patch.ref,
                patch.merge_patch,
                subresource=patch.subresource,
                expected_resource_version=patch.expected_resource_version,
            )
        content = merged(base.parsed, patch.merge_patch)
        answer = await self._cluster.update(patch.resource, content, subresource=patch.subresource)
        self._remember(answer)
        return answer

    async def _base(self, patch: ObjectPatch) -> KubeObject | None:
        """Return the object at the version that the patch expects; None if the patch must be sent as PATCH.

        None also if the object has a newer version: the API server then answers with a conflict.
        """
        version, ref = patch.expected_resource_version, patch.ref
        if not version or patch.resource not in REPLACED_WHOLE:
            return None
        known = self._stores.of_resource(patch.resource).get(ref.name, ref.namespace)
        if known is None or known.ref.resource_version != version:
            known = self._answers.pop(known.ref.uid if known is not None else ref.uid, known)
        if known is None or known.ref.resource_version != version:
            known = await self._cluster.get(patch.resource, replace(ref, resource_version=""))
        if known is None or known.ref.resource_version != version:
            return None
        return known if not ref.uid or ref.uid == known.ref.uid else None

    def _remember(self, answer: KubeObject) -> None:
        self._answers[answer.ref.uid] = answer
        if len(self._answers) > REMEMBERED:
            del self._answers[next(iter(self._answers))]
