"""Executes the patches that PreBind and PostFilter plugins ask for, in process and remote alike.

Called by the framework. The relay has checked the answer's form; what is checked here
needs the cycle: which objects this plugin may touch, and that its own pod is meant.
"""

from __future__ import annotations

from collections.abc import Sequence

from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import NeedKind
from berth_sdk.results import ObjectPatch, PatchAction, PatchOutcome, PatchResult

from berth_host.errors.cluster import ClusterError, ConflictError, NotFoundError
from berth_host.framework.cycle import Cycle
from berth_host.rpc.client import PluginClient
from berth_host.scheduler.cluster_calls import ClusterCalls


class PatchRunner:
    """Applies patches in order; the first that is not APPLIED makes the rest SKIPPED."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster = cluster

    async def apply(
        self, client: PluginClient, cycle: Cycle, patches: Sequence[ObjectPatch]
    ) -> list[PatchResult]:
        """One result per patch."""
        results: list[PatchResult] = []
        for patch in patches:
            if results and results[-1].outcome is not PatchOutcome.APPLIED:
                results.append(PatchResult(outcome=PatchOutcome.SKIPPED, ref=patch.ref))
            else:
                results.append(await self._apply_one(client, cycle, patch))
        return results

    async def _apply_one(self, client: PluginClient, cycle: Cycle, patch: ObjectPatch) -> PatchResult:
        problem = _refusal(client, cycle, patch)
        if problem:
            return PatchResult(outcome=PatchOutcome.REFUSED, ref=patch.ref, message=problem)
        try:
            changed = await self._change(patch)
        except NotFoundError as err:
            return PatchResult(outcome=PatchOutcome.NOT_FOUND, ref=patch.ref, message=str(err))
        except ConflictError as err:
            return PatchResult(
                outcome=PatchOutcome.CONFLICT,
                ref=patch.ref,
                object=await self._cluster.get(patch.resource, patch.ref),
                message=str(err),
            )
        except ClusterError as err:
            return PatchResult(outcome=PatchOutcome.REFUSED, ref=patch.ref, message=str(err))
        if changed is None:
            return PatchResult(outcome=PatchOutcome.APPLIED, ref=patch.ref)
        return PatchResult(outcome=PatchOutcome.APPLIED, ref=changed.ref, object=changed)

    async def _change(self, patch: ObjectPatch) -> KubeObject | None:
        """The object as it is then; None: it is gone, or on its way."""
        if patch.action is PatchAction.CREATE:
            return await self._cluster.create(patch.resource, patch.ref, patch.merge_patch)
        if patch.action is PatchAction.DELETE:
            await self._cluster.delete(patch.resource, patch.ref)
            return None
        return await self._cluster.patch(
            patch.resource,
            patch.ref,
            patch.merge_patch,
            subresource=patch.subresource,
            expected_resource_version=patch.expected_resource_version,
        )


def _refusal(client: PluginClient, cycle: Cycle, patch: ObjectPatch) -> str:
    if patch.resource == "pods":
        own = cycle.pod.ref
        same = (patch.ref.namespace, patch.ref.name) == (own.namespace, own.name)
        if not same or (patch.ref.uid and patch.ref.uid != own.uid):
            return f"pod {patch.ref.key} is not the pod of this cycle ({own.key})"
        return ""
    declared = {need.resource for need in client.descriptor.state_needs if need.kind is NeedKind.OBJECT}
    if patch.resource not in declared:
        return (
            f"{patch.resource} is not among the plugin's state_needs:"
            f' declare StateNeed.objects("{patch.resource}")'
        )
    return ""
