"""One scenario -> a verdict, for a plugin without `filter_scenarios`. Used by `plugin_runtime`.

Clones the cycle's state, tells the plugin which pods leave and which come, then asks its Filter about
the changed node. Source: kube-scheduler `framework/runtime/framework.go`
(RunPreFilterExtensionAddPod, RunPreFilterExtensionRemovePod), v1.36.
"""

from __future__ import annotations

from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.pod import Pod
from berth_sdk.runtime.answers import Steps
from berth_sdk.runtime.convert import Answers
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Status
from berth_sdk.tables import NodeView


def scenario_verdict(
    plugin: Any, read: Answers, state: CycleState, pod: Pod, which: tuple[Scenarios, int]
) -> Steps[Status]:
    """The verdict on scenario `which[1]` of `which[0]`."""
    scenarios, i = which
    state = state.clone()
    view = _changed_node(scenarios, i)
    for method, changes in (("remove_pod", scenarios.removed), ("add_pod", scenarios.added)):
        change = getattr(plugin, method, None)
        if change is None:
            continue
        for other in changes.pods(i):
            status = read.status(method, (yield change(state, pod, other, view)))
            if not status.is_success:
                word = "AddPod" if method == "add_pod" else "RemovePod"
                return Status.error(f"running {word} on PreFilter plugin: {status.message}")
    if callable(getattr(plugin, "filter_nodes", None)):
        answer = yield plugin.filter_nodes(state, pod, scenarios.nodes.take([i]))
        return read.filter_nodes(answer, 1).verdicts.status(0)
    return read.status("filter", (yield plugin.filter(state, pod, view)))


def _changed_node(scenarios: Scenarios, i: int) -> NodeView:
    """The node as it would be; without its pods where the plugin did not declare them."""
    return scenarios.nodes.node(i) if scenarios.nodes.known_pods is None else scenarios.view(i)
