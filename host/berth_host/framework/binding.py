"""PreBindPreFlight, PreBind in groups and rounds, and Bind, for one profile.

Called by `Framework` from the binding cycle. The host executes the patches that PreBind asks for.
Source: kube-scheduler `framework/runtime/framework.go` (RunPreBindPreFlights, RunPreBindPlugins,
RunBindPlugins), v1.36; rounds of patches: the contract's PreBindResponse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from berth_sdk.extension_points import Account
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import BindResult, ObjectPatch, PatchOutcome, PatchResult, PreBindResult
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import ObjectStore

from berth_host.attempt.call_record import CycleRecord
from berth_host.attempt.cycle import POD_DELETED, Cycle
from berth_host.metrics.plugin_work import CLAIMS, PluginWork
from berth_host.model.clock import Clock, sleep
from berth_host.rpc.client import PluginClient

CUT_OFF: Final = Status.error("PreBind was cut off")
"""The status for the watcher of a PreBind that was cancelled."""


class PatchExecutor(Protocol):
    """Checks and applies a plugin's patches in order. After the first failure the others are SKIPPED."""

    def refusal(self, client: PluginClient, cycle: CycleRecord, patch: ObjectPatch) -> str:
        """Return why the plugin may not ask for this patch; "" if it may."""
        ...

    async def apply(
        self, client: PluginClient, cycle: CycleRecord, patches: Sequence[ObjectPatch]
    ) -> list[PatchResult]:
        """Apply the patches; return one result per patch, in order."""
        ...


async def pre_flight(plugins: Sequence[PluginClient], cycle: Cycle, node_name: str) -> tuple[Status, bool]:
    """Ask every PreBind plugin whether it will act; return (status, whether any plugin will act)."""
    will_act = False
    for client in plugins:
        answer = await client.pre_bind_pre_flight(cycle, node_name)
        if answer.status.code is Code.SKIP:
            cycle.skip_pre_bind.add(client.name)
        elif answer.status.is_success:
            will_act = True
        elif answer.status.code is Code.ERROR:
            return Status.error(
                f'running PreBindPreFlight "{client.name}": {answer.status.message}'
            ), will_act
        else:
            return Status.error(
                f'PreBindPreFlight {client.name} returned "{answer.status.code.kube_name}", which is '
                "unsupported. It is supposed to return Success, Skip, or Error status"
            ), will_act
        if answer.allow_parallel:
            cycle.parallel_pre_bind.add(client.name)
    return SUCCESS, will_act


def pre_bind_groups(plugins: Sequence[PluginClient], cycle: Cycle) -> list[list[PluginClient]]:
    """Return the groups of PreBind plugins: consecutive parallel plugins are one group.

    A serial plugin is a group of its own, and separates groups even if it is skipped.
    """
    groups: list[list[PluginClient]] = []
    open_group = False
    for client in plugins:
        if client.name in cycle.parallel_pre_bind:
            if not open_group:
                groups.append([])
                open_group = True
            if client.name not in cycle.skip_pre_bind:
                groups[-1].append(client)
        else:
            open_group = False
            if client.name not in cycle.skip_pre_bind:
                groups.append([client])
    return [group for group in groups if group]


def _written(
    patches: Sequence[ObjectPatch], results: Sequence[PatchResult]
) -> Iterator[tuple[str, ObjectRef]]:
    """Yield the changed objects other than pods, each with its resource. A deletion returns no object."""
    for patch, result in zip(patches, results, strict=False):
        if result.outcome is PatchOutcome.APPLIED and result.object is not None and patch.resource != "pods":
            yield patch.resource, result.ref


class PreBindRunner:
    """Runs the groups in sequence, each plugin until it asks for no further round. The first failure
    counts.
    """

    def __init__(
        self,
        executor: PatchExecutor,
        clock: Clock,
        watch: Callable[[PluginClient, Pod], DeviceWait | None] = lambda client, pod: None,
    ) -> None:
        """Prepare a runner. `watch`: returns the watcher of a plugin's rounds, or None."""
        self.executor = executor
        self._clock = clock
        self._watch = watch

    async def run(self, plugins: Sequence[PluginClient], cycle: Cycle, node_name: str) -> Status:
        """Run PreBind; return SUCCESS, a rejection (which names its plugin), or an error."""
        for group in pre_bind_groups(plugins, cycle):
            status = await self._run_group(group, cycle, node_name)
            if not status.is_success:
                return status
            if cycle.pod_deleted:
                return Status.error(POD_DELETED)
        return SUCCESS

    async def _run_group(self, group: list[PluginClient], cycle: Cycle, node_name: str) -> Status:
        if len(group) == 1:
            return await self._one(group[0], cycle, node_name)  # only a larger group needs tasks
        tasks = [asyncio.ensure_future(self._one(client, cycle, node_name)) for client in group]
        try:
            for done in asyncio.as_completed(tasks):
                status = await done
                if not status.is_success:
                    return status
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return SUCCESS

    async def _one(self, client: PluginClient, cycle: Cycle, node_name: str) -> Status:
        watching = self._watch(client, cycle.pod)
        if watching is None:
            return await self._rounds(client, cycle, node_name, None)
        status = CUT_OFF
        try:
            status = await self._rounds(client, cycle, node_name, watching)
        finally:
            watching.ended(status)
        return status

    async def _rounds(
        self, client: PluginClient, cycle: Cycle, node_name: str, watching: DeviceWait | None
    ) -> Status:
        patched: list[PatchResult] = []
        part = cycle.part(client.name)
        while True:
            is_last = cycle.pod_deleted
            answer = await client.pre_bind(cycle, node_name, patched)
            if answer.status.is_rejected:
                return answer.status.with_plugin(client.name)
            if not answer.status.is_success:
                return Status(
                    Code.ERROR,
                    (f'running PreBind plugin "{client.name}": {answer.status.message}',),
                    client.name,
                )
            if is_last:
                return Status.error(POD_DELETED)
            if watching is not None:
                watching.answered(answer)
            patched = []
            if answer.patches:
                part.is_between_rounds = True
                try:
                    patched = await self.executor.apply(client, cycle, answer.patches)
                finally:
                    part.is_between_rounds = False
                cycle.written += tuple(_written(answer.patches, patched))
                if watching is not None:
                    watching.patched(answer.patches, patched)
                if answer.is_done(patched):
                    return SUCCESS
            elif answer.ask_again_after_s is None:
                return SUCCESS
            if answer.ask_again_after_s is not None and not cycle.pod_deleted:
                await self._pause(client, cycle, answer.ask_again_after_s)

    async def _pause(self, client: PluginClient, cycle: Cycle, duration_s: float) -> None:
        """Wait for the plugin's next round, or until the pod is deleted."""
        cycle.idle = True
        part = cycle.part(client.name)
        part.is_between_rounds = True
        part.pause = done = asyncio.get_running_loop().create_future()
        try:
            await sleep(self._clock, duration_s, done)
        finally:
            part.is_between_rounds, part.pause = False, None
            cycle.idle = False  # also after a cancellation: the cycle is then undone


async def run_bind(plugins: Sequence[PluginClient], cycle: Cycle, node_name: str) -> tuple[str, BindResult]:
    """Return (plugin, answer) of the first Bind plugin that does not skip; the answer is SKIP if all do."""
    for client in plugins:
        answer = await client.bind(cycle, node_name)
        if answer.status.code is Code.SKIP:
            continue
        if answer.status.is_success:
            return client.name, answer
        if answer.status.is_rejected:
            return client.name, BindResult(answer.status.with_plugin(client.name))
        return client.name, BindResult(
            Status(
                Code.ERROR,
                (f'running Bind plugin "{client.name}": {answer.status.message}',),
                client.name,
            )
        )
    return "", BindResult(Status.skip())


class DeviceWaits:
    """The factory of a DeviceWait for every PreBind of a plugin of devices.

    `claims`: the ResourceClaims as the watch shows them; `now_s`: monotonic seconds.
    """

    def __init__(self, work: PluginWork, claims: ObjectStore, now_s: Callable[[], float]) -> None:
        self._work = work
        self._claims = claims
        self._now_s = now_s

    def watched(self, client: PluginClient, pod: Pod) -> DeviceWait | None:
        """Return the watcher for a PreBind of a plugin of devices; None for other plugins."""
        if Account.DEVICES not in client.descriptor.accounts:
            return None
        return DeviceWait(self._work, self._claims, pod, self._now_s)


class DeviceWait:
    """The wait for devices in one PreBind, which is measured (`PluginWork`)."""

    def __init__(self, work: PluginWork, claims: ObjectStore, pod: Pod, now_s: Callable[[], float]) -> None:
        self._work = work
        self._claims = claims
        self._pod = pod
        self._now_s = now_s
        self._began_s: float | None = None
        self._written: dict[str, KubeObject] = {}

    def answered(self, answer: PreBindResult) -> None:
        """Note the answer of one round without an error: an answer without patches begins the wait.

        A pause before further patches was no wait for devices: another pod was writing a shared claim.
        """
        if answer.patches:
            self._began_s = None
        elif self._began_s is None:
            self._began_s = self._now_s()

    def patched(self, patches: Sequence[ObjectPatch], results: Sequence[PatchResult]) -> None:
        """Note the claims that the patches of a round have written."""
        for patch, result in zip(patches, results, strict=True):
            if patch.resource == CLAIMS and result.object is not None:
                self._written[result.object.ref.name] = result.object

    def ended(self, status: Status) -> None:
        """PreBind is over."""
        result = _result(status)
        if self._began_s is None:
            if result not in ("failure", "timeout"):
                return  # the plugin did not wait
            self._began_s = self._now_s()
        seconds = self._now_s() - self._began_s
        self._work.devices_ended(self._pod.scheduler_name, result, seconds, self._own_claims())

    def _own_claims(self) -> Iterator[Mapping[str, Any]]:
        for name in dict.fromkeys([*self._written, *claim_names(self._pod)]):
            # The written object has the allocation, and may be newer than the watched object.
            claim = self._written.get(name) or self._claims.get(name, self._pod.namespace)
            if claim is not None:
                yield claim.parsed


def claim_names(pod: Pod) -> Iterator[str]:
    """Yield the names of the pod's claims. The pod's status names the claims made from templates."""
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
