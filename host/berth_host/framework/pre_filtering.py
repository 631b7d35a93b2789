"""PreFilter of all plugins over all nodes: which plugins skip Filter, narrow the nodes down, or reject at
once.

Called by `answers`.
Source: kube-scheduler `framework/runtime/framework.go` (RunPreFilterPlugins), v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from berth_sdk.results import PreFilterResult
from berth_sdk.status import SUCCESS, Code, Status

from berth_host.framework.cycle import Cycle
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
PASSED: Final = PreFilterOutcome(SUCCESS)


class PreFiltering:
    """One cycle's PreFilter: answers are taken in order until one ends it."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._skip_filter: set[str] = set()
        self._skip: set[str] = set()
        self._eligible: frozenset[str] | None = None
        self._restricting: list[str] = []
        self._rejected = SUCCESS

    def take(
        self, client: PluginClient, answer: PreFilterResult, *, lasting: bool
    ) -> PreFilterOutcome | None:
        """The answer of the next plugin; not None: it ends PreFilter. `lasting`: a Skip is for the cycle."""
        status = answer.status
        if status.code is Code.SKIP:
            self._skip_filter.add(client.name)
            if lasting:
                self._skip.add(client.name)
        elif status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return self._ended(PreFilterOutcome(status.with_plugin(client.name)))
        elif status.code is Code.UNSCHEDULABLE:
            # The others run on: preemption needs the state that they make.
            self._rejected = status.with_plugin(client.name)
        elif not status.is_success:
            text = f'running PreFilter plugin "{client.name}": {status.message}'
            return self._ended(PreFilterOutcome(Status(Code.ERROR, (text,), client.name)))
        elif answer.eligible is not None:
            self._restricting.append(client.name)
            eligible = answer.eligible if self._eligible is None else self._eligible & answer.eligible
            self._eligible = eligible
            if not eligible:
                nobody = Status.unresolvable(_nobody_left(self._restricting))
                return self._ended(PreFilterOutcome(nobody, eligible, tuple(self._restricting)))
        return None

    def outcome(self) -> PreFilterOutcome:
        """The merged result of all answers."""
        return self._ended(PreFilterOutcome(self._rejected, self._eligible, tuple(self._restricting)))

    def _ended(self, outcome: PreFilterOutcome) -> PreFilterOutcome:
        self._cycle.skip_filter = frozenset(self._skip_filter)
        self._cycle.skip = frozenset(self._skip)
        return outcome


def _nobody_left(restricting: Sequence[str]) -> str:
    if len(restricting) == 1:
        return f"node(s) didn't satisfy plugin {restricting[0]}"
    return f"node(s) didn't satisfy plugin(s) {_go_list(restricting)} simultaneously"


def _go_list(names: Sequence[str]) -> str:
    return f"[{' '.join(sorted(names))}]"
