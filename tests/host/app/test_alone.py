"""A Framework without a scheduler."""

from __future__ import annotations

import pytest
from berth_host.app import FrameworkAlone, PluginLoadError
from berth_host.config.loading import load_configuration
from berth_sdk.pod import Pod
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeView
from berth_sdk.testing import make_node, make_pod
from support.hosts import enabling


class OnlyEven:
    """Likes nodes whose name ends in an even digit."""

    def filter(self, state: object, pod: Pod, node: NodeView) -> Status:
        return Status.success() if int(node.name[-1]) % 2 == 0 else Status.unresolvable("odd")


async def test_each_node_shape_gets_its_own_answer() -> None:
    alone = FrameworkAlone()
    alone.add_node(make_node("n0", cpu="1"))
    alone.add_node(make_node("n1", cpu="4"))
    verdicts = await alone.fits(make_pod("web", cpu="2"))
    assert verdicts["n1"].is_success
    assert (verdicts["n0"].plugin, verdicts["n0"].message) == ("NodeResourcesFit", "Insufficient cpu")


async def test_pods_on_a_node_and_promised_to_it_count() -> None:
    alone = FrameworkAlone()
    alone.add_node(make_node("n0", cpu="2"))
    alone.add_pod(make_pod("old", cpu="1", node="n0"))
    pod = make_pod("web", cpu="1")
    assert (await alone.fits(pod))["n0"].is_success
    promised = make_pod("first", cpu="1", nominated="n0", priority=5)
    assert (await alone.fits(pod, [promised]))["n0"].message == "Insufficient cpu"


async def test_own_plugins_take_part() -> None:
    text = enabling(["OnlyEven"])
    configuration = load_configuration(text, source="x", registered={"OnlyEven": frozenset({"filter"})})
    alone = FrameworkAlone(configuration, plugins={"OnlyEven": OnlyEven})
    for i in range(2):
        alone.add_node(make_node(f"n{i}"))
    verdicts = await alone.fits(make_pod("web"))
    assert verdicts["n0"].is_success
    assert verdicts["n1"] == Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("odd",), "OnlyEven")


async def test_rejection_by_pre_filter_holds_for_every_node() -> None:
    class Never:
        def pre_filter(self, state: object, pod: Pod, nodes: object) -> Status:
            return Status.unresolvable("never")

        def filter(self, state: object, pod: Pod, node: NodeView) -> Status:
            return Status.success()

    text = enabling(["Never"])
    registered = {"Never": frozenset({"preFilter", "filter"})}
    alone = FrameworkAlone(
        load_configuration(text, source="x", registered=registered), plugins={"Never": Never}
    )
    alone.add_node(make_node("n0"))
    assert (await alone.fits(make_pod("web")))["n0"].message == "never"


def test_profile_that_does_not_exist_is_named() -> None:
    with pytest.raises(KeyError, match="nobody"):
        FrameworkAlone(scheduler_name="nobody")


def test_plugin_in_another_process_is_refused_with_the_cure() -> None:
    more = (
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        "plugins:\n- name: Far\n  endpoint: unix:///run/far.sock\n  points: {filter: {deadline: 100ms}}\n"
    )
    configuration = load_configuration(enabling(["Far"], more), source="x")
    with pytest.raises(PluginLoadError, match="no attachments"):
        FrameworkAlone(configuration)
