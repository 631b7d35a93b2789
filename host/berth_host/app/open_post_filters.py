"""What a plugin may ask the host while its PostFilter is open: the others' filters, and preemption.

Made by `Host`; the same for plugins in process (`Backend`) and elsewhere (`handle_server`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from berth_sdk.pod import Pod
from berth_sdk.results import PostFilterResult
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import SUCCESS, Status

from berth_host.framework.what_if import filter_scenarios
from berth_host.handle.backend import NoOpenPostFilterError
from berth_host.scheduler.attempt import Attempt
from berth_host.scheduler.preemption.evaluator import SearchLimits

if TYPE_CHECKING:
    from berth_host.app.host import Host


class OpenPostFilters:
    """`handle.service.FilterRunner`, and the preemption of `handle.HandleBackend`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def run_filters(self, plugin: str, cycle_id: str, scenarios: Sequence[Scenario]) -> list[Status]:
        """Per scenario SUCCESS or the first rejection of the other plugins.

        Raises NoOpenPostFilterError.
        """
        attempt = self._attempt(plugin, cycle_id)
        if not scenarios:
            return []
        cycle = attempt.cycle
        clients = [client for client in attempt.framework.filters_of(cycle) if client.name != plugin]
        found = await filter_scenarios(clients, cycle, Scenarios(cycle.nodes, scenarios))
        return [found.statuses[group] if group else SUCCESS for group in found.groups.tolist()]

    async def evaluate_preemption(
        self, plugin: str, cycle_id: str, percentage: int, absolute: int
    ) -> PostFilterResult:
        """The host's own preemption. Raises NoOpenPostFilterError."""
        attempt = self._attempt(plugin, cycle_id)
        limits = SearchLimits(percentage, absolute) if percentage or absolute else None
        found = await self._host.evaluator.evaluate(attempt.framework, attempt.cycle, limits)
        return found.result()

    def _attempt(self, plugin: str, cycle_id: str) -> Attempt:
        attempt = self._host.scheduler.in_cycle
        if attempt is not None and attempt.has_cycle:
            context = attempt.cycle.context
            if context.cycle_id == cycle_id and plugin in context.open_post_filters:
                return attempt
        raise NoOpenPostFilterError(f"no PostFilter of {plugin} is open in cycle {cycle_id}")


class PodsAndEvictions:
    """`scheduler.preemption.evaluator.PodsAndPreemptions`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def current(self, pod: Pod) -> Pod | None:
        """The newest record of a pod; None: it is gone."""
        found = self._host.objects.pod(pod.key)
        return found if found is not None and found.uid == pod.uid else None

    def is_preempting(self, uid: str) -> bool:
        """Whether victims of the pod are being evicted."""
        return uid in self._host.evictions.preempting
