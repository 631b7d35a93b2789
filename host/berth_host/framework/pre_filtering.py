"""PreFilter of all plugins over all nodes: which plugins skip Filter, narrow the nodes down, or reject at
once.

Called by `answers`.
Source: kube-scheduler `framework/runtime/framework.go` (RunPreFilterPlugins), v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from berth_sdk.results import PreFilterResult
from berth_sdk.status import SUCCESS, Code, Status

from berth_host.model.pre_filter_outcome import PreFilterOutcome, go_list
from berth_host.rpc.client import PluginClient
from berth_host.rpc.cycle import Cycle

_REJECTED: Final = (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
"""Pending has no meaning at PreFilter: it counts as an error."""


class PreFiltering:
    """One cycle's PreFilter: answers are taken in order until one ends it."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._skip_filter: set[str] = set()
        self._skip: set[str] = set()
        self._eligible: frozenset[str] | None = None
        self._narrowed: list[tuple[str, frozenset[str]]] = []
        self._rejections: list[Status] = []

    def take(
        self, client: PluginClient, answer: PreFilterResult, *, lasting: bool
    ) -> PreFilterOutcome | None:
        """The answer of the next plugin; not None: it ends PreFilter. `lasting`: a Skip is for the cycle."""
        status = answer.status
        if status.code is Code.SKIP:
            self._skip_filter.add(client.name)
            if lasting:
                self._skip.add(client.name)
        elif status.code in _REJECTED:
            self._rejections.append(status.with_plugin(client.name))
            # After UNSCHEDULABLE the others run on: preemption needs the state that they make.
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return self.outcome()
        elif not status.is_success:
            text = f'running PreFilter plugin "{client.name}": {status.message}'
            return self._ended(PreFilterOutcome(Status(Code.ERROR, (text,), client.name)))
        elif answer.eligible is not None:
            self._narrowed.append((client.name, answer.eligible))
            eligible = answer.eligible if self._eligible is None else self._eligible & answer.eligible
            self._eligible = eligible
            if not eligible:
                nobody = Status.unresolvable(_nobody_left([plugin for plugin, _ in self._narrowed]))
                return self._ended(self._merged(nobody))
        return None

    def outcome(self) -> PreFilterOutcome:
        """The merged result of all answers."""
        return self._ended(self._merged(self._rejections[-1] if self._rejections else SUCCESS))

    def _merged(self, status: Status) -> PreFilterOutcome:
        return PreFilterOutcome(status, self._eligible, tuple(self._narrowed), tuple(self._rejections))

    def _ended(self, outcome: PreFilterOutcome) -> PreFilterOutcome:
        self._cycle.skip_filter = frozenset(self._skip_filter)
        self._cycle.skip = frozenset(self._skip)
        return outcome


def _nobody_left(restricting: Sequence[str]) -> str:
    if len(restricting) == 1:
        return f"node(s) didn't satisfy plugin {restricting[0]}"
    return f"node(s) didn't satisfy plugin(s) {go_list(restricting)} simultaneously"
