"""The plugins to call at a point. The same plugins are the identical tuple, by which kept answers are
found.
"""

from __future__ import annotations

from berth_host.framework.asked import Asked
from berth_host.framework.score_table import WeightedPlugin
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import SUCCESS, Status
from support.relays import local_client, make_cycle

FILTER = ExtensionPoint.FILTER
GPU, PLAIN = (make_cycle(pod) for pod in (Pod(name="g", labels={"gpu": "1"}), Pod(name="p")))


class Always:
    """A plugin that is called about every pod."""

    def filter(self, state: CycleState, pod: Pod, node: Node) -> Status:
        return SUCCESS


class OnGpus(Always):
    """A plugin that is called only about pods in its scope."""


ALWAYS = local_client(Always())
ON_GPUS = local_client(OnGpus(), scope=lambda pod: "gpu" in pod.labels)


def asked() -> Asked:
    return Asked({FILTER: [WeightedPlugin(ON_GPUS), WeightedPlugin(ALWAYS)]})


def test_a_plugin_is_asked_about_the_pods_in_its_scope_in_order() -> None:
    some = asked()
    assert some.about(GPU, FILTER) == (ON_GPUS, ALWAYS)
    assert some.about(PLAIN, FILTER) == (ALWAYS,)
    assert some.about(PLAIN, ExtensionPoint.SCORE) == ()


def test_plugin_that_skips_is_left_out() -> None:
    some = asked()
    assert some.about(GPU, FILTER, frozenset({"Always", "Elsewhere"})) == (ON_GPUS,)
    assert some.about(PLAIN, FILTER, frozenset({"Always"})) == ()


def test_same_plugins_are_the_identical_tuple() -> None:
    some = asked()
    for skip in (frozenset[str](), frozenset({"Always"})):
        for cycle in (GPU, PLAIN):
            assert some.about(cycle, FILTER, skip) is some.about(cycle, FILTER, frozenset(skip))
    assert some.about(GPU, FILTER) is some.at(FILTER)
