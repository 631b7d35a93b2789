"""`DeviceWait`: one PreBind of DynamicResources, watched for how long it waits for binding conditions.

Made for `binding.PreBindRunner`, which tells it. The plugin writes its claims by patches, then is asked
again until every condition holds: from its first answer without a patch on it waits.
Source: kube-scheduler `plugins/dynamicresources/dynamicresources.go` (PreBind), v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.results import ObjectPatch, PatchResult, PreBindResult
from berth_sdk.status import Status
from berth_sdk.tables import ObjectStore

from berth_host.metrics.plugin_work import CLAIMS, PluginWork

PLUGIN: Final = "DynamicResources"


class DeviceWaits:
    """Makes a DeviceWait for every PreBind that may need one.

    `claims`: the ResourceClaims as the watch shows them; `now_s`: monotonic seconds.
    """

    def __init__(self, work: PluginWork, claims: ObjectStore, now_s: Callable[[], float]) -> None:
        self._work = work
        self._claims = claims
        self._now_s = now_s

    def watched(self, plugin: str, pod: Pod) -> DeviceWait | None:
        """The watcher of a PreBind that begins; None for other plugins."""
        return DeviceWait(self._work, self._claims, pod, self._now_s) if plugin == PLUGIN else None


class DeviceWait:
    """One PreBind."""

    def __init__(self, work: PluginWork, claims: ObjectStore, pod: Pod, now_s: Callable[[], float]) -> None:
        self._work = work
        self._claims = claims
        self._pod = pod
        self._now_s = now_s
        self._began_s: float | None = None
        self._written: dict[str, KubeObject] = {}

    def answered(self, answer: PreBindResult) -> None:
        """The plugin answered one round, without an error."""
        if not answer.patches and self._began_s is None:
            self._began_s = self._now_s()

    def patched(self, patches: Sequence[ObjectPatch], results: Sequence[PatchResult]) -> None:
        """The outcomes of a round's patches."""
        for patch, result in zip(patches, results, strict=True):
            if patch.resource == CLAIMS and result.object is not None:
                self._written[result.object.ref.name] = result.object

    def ended(self, status: Status) -> None:
        """PreBind is over."""
        result = _result(status)
        if self._began_s is None:
            if result not in ("failure", "timeout"):
                return  # it did not come to waiting
            self._began_s = self._now_s()
        seconds = self._now_s() - self._began_s
        self._work.devices_ended(self._pod.scheduler_name, result, seconds, self._own_claims())

    def _own_claims(self) -> Iterator[Mapping[str, Any]]:
        for name in dict.fromkeys([*self._written, *_names(self._pod)]):
            # The written object may be newer than the watched one, and has the allocation.
            claim = self._written.get(name) or self._claims.get(name, self._pod.namespace)
            if claim is not None:
                yield claim.parsed


def _names(pod: Pod) -> Iterator[str]:
    """The claims that the pod names; which claim a template became, its status says."""
    if pod.object is None:
        return
    for field in ("spec.resourceClaims", "status.resourceClaimStatuses"):
        for one in pod.object.get(field) or ():
            if name := one.get("resourceClaimName"):
                yield str(name)


def _result(status: Status) -> str:
    if status.is_success:
        return "success"
    if " binding failed: " in status.message:
        return "failure"
    return "timeout" if status.message.endswith(" binding timeout") else "error"
