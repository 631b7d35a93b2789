"""PreFilter of all plugins over all nodes: who skips Filter, who narrows the nodes down, who says no at once.

Called by `Framework`. Where every answer is kept for equal pods, so is what all of them came to.
Source: kube-scheduler `framework/runtime/framework.go` (RunPreFilterPlugins), v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from berth_sdk.status import SUCCESS, Code, Status

from berth_host.framework.cycle import Cycle
from berth_host.framework.equal_pods import EqualPods
from berth_host.rpc.client import PluginClient


@dataclass(frozen=True, slots=True)
class PreFilterOutcome:
    """`eligible`: the only nodes left, or None for all; `restricting`: the plugins that narrowed.

    `status` is SUCCESS, a rejection (signed by its plugin, or by none when several plugins left no node
    together), or an error.
    """

    status: Status
    eligible: frozenset[str] | None = None
    restricting: tuple[str, ...] = ()

    @property
    def absent(self) -> Status:
        """The status of the nodes that were not asked about."""
        if self.eligible is None:
            return _ABSENT
        return Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(self.restricting))}]")


_ABSENT = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
_PASSED = PreFilterOutcome(SUCCESS)


async def pre_filter(
    clients: tuple[PluginClient, ...], cycle: Cycle, equal_pods: EqualPods
) -> PreFilterOutcome:
    """Ask them in order; Skip takes a plugin out of this cycle's Filter."""
    known = cycle.known = equal_pods.of(cycle)
    if known is not None and known.pre_filtered is not None and known.pre_filtered[0] is clients:
        _, cycle.skip_filter, cycle.skip = known.pre_filtered
        return _PASSED
    all_kept = known is not None
    skip_filter: set[str] = set()
    eligible: frozenset[str] | None = None
    restricting: list[str] = []
    rejected = SUCCESS
    for client in clients:
        answer = None if known is None else known.pre_filters.get(client.name)
        if answer is None:
            answer = await client.pre_filter(cycle.context, cycle.nodes)
            if known is None or not equal_pods.keep_pre_filter(known, client, cycle, answer):
                all_kept = False
        status = answer.status
        if status.code is Code.SKIP:
            skip_filter.add(client.name)
            cycle.skip_filter = frozenset(skip_filter)
            cycle.skip = cycle.skip_filter & equal_pods.lasting
        elif status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return PreFilterOutcome(status.with_plugin(client.name))
        elif status.code is Code.UNSCHEDULABLE:
            # The others run on: preemption needs the state that they make.
            rejected = status.with_plugin(client.name)
        elif not status.is_success:
            text = f'running PreFilter plugin "{client.name}": {status.message}'
            return PreFilterOutcome(Status(Code.ERROR, (text,), client.name))
        elif answer.eligible is not None:
            restricting.append(client.name)
            eligible = answer.eligible if eligible is None else eligible & answer.eligible
            if not eligible:
                return PreFilterOutcome(
                    Status.unresolvable(_nobody_left(restricting)), eligible, tuple(restricting)
                )
    if known is not None and all_kept:
        # Only SUCCESS and SKIP are kept, and nothing that narrows.
        known.pre_filtered = clients, cycle.skip_filter, cycle.skip
    return PreFilterOutcome(rejected, eligible, tuple(restricting))


def _nobody_left(restricting: Sequence[str]) -> str:
    if len(restricting) == 1:
        return f"node(s) didn't satisfy plugin {restricting[0]}"
    return f"node(s) didn't satisfy plugin(s) {_go_list(restricting)} simultaneously"


def _go_list(names: Sequence[str]) -> str:
    return f"[{' '.join(sorted(names))}]"
