"""All default plugins together: their descriptors agree with the table of default plugins."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.config.loading import default_configuration
from berth_host.queue.registrations import REJECTING_POINTS
from berth_plugins.default_binder import DefaultBinder
from berth_plugins.taint_toleration import TaintToleration
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.results import BindResult
from berth_sdk.runtime.descriptor import EARLY, Descriptor, describe
from berth_sdk.status import SUCCESS
from berth_sdk.testing import make_node, make_pod, make_table
from support.asking import Ask, Plug, filter_now

OTHERS = {"Coscheduling"}
"""Plugins of other projects that berth has as well."""
DESCRIPTORS = {
    entry.name: describe(entry.load())
    for entry in entry_points(group="berth.plugins")
    if entry.value.startswith("berth_plugins.") and entry.name not in OTHERS
}
each_plugin = pytest.mark.parametrize("descriptor", DESCRIPTORS.values(), ids=DESCRIPTORS.keys())


def test_all_default_plugins_exist() -> None:
    assert set(DESCRIPTORS) == {
        "SchedulingGates",
        "PrioritySort",
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "PodTopologySpread",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "NodeResourcesBalancedAllocation",
        "DefaultPreemption",
        "ImageLocality",
        "InterPodAffinity",
        "DefaultBinder",
        "DynamicResources",
        "NodeDeclaredFeatures",
        "GangScheduling",
        "TopologyPlacementGenerator",
        "PodGroupPodsCount",
    }


@each_plugin
def test_class_name_is_the_registered_name(descriptor: Descriptor) -> None:
    assert DESCRIPTORS[descriptor.name] is descriptor


@each_plugin
def test_extension_points_equal_those_of_kube_scheduler(descriptor: Descriptor) -> None:
    want = DEFAULT_PLUGINS_BY_NAME[descriptor.name].points
    # A configuration has no points of these names: they come with score and placementScore.
    normalizing = {ExtensionPoint.NORMALIZE_SCORE, ExtensionPoint.NORMALIZE_PLACEMENT_SCORE}
    points = set(descriptor.points) - normalizing
    assert {point.config_name for point in points} == want


@each_plugin
def test_no_event_action_is_declared_twice(descriptor: Descriptor) -> None:
    pairs = [(interest.resource, word) for interest in descriptor.events or () for word in interest.actions]
    assert len(pairs) == len(set(pairs))


def test_only_plugins_that_reject_nothing_register_no_events() -> None:
    rejecting = REJECTING_POINTS | {"postFilter"}
    for descriptor in DESCRIPTORS.values():
        rejects = bool(rejecting & {point.config_name for point in descriptor.points})
        assert bool(descriptor.events) == rejects, descriptor.name


@pytest.mark.parametrize("name", ["NodeResourcesFit", "TaintToleration", "NodeAffinity"])
def test_all_up_to_score_may_come_in_one_round_trip(name: str) -> None:
    assert DESCRIPTORS[name].normalization in EARLY


async def test_the_host_posts_the_binding(ask: Ask) -> None:
    got = await ask.bind(Plug(DefaultBinder), make_pod("web"), "node-1")
    assert got == BindResult(SUCCESS, host_binds=True)


def test_plugins_get_gates_that_differ_from_their_default() -> None:
    gate = "TaintTolerationComparisonOperators"
    assert "TaintToleration" not in default_configuration().profiles[0].plugin_args
    told = default_configuration(feature_gates={gate: True}).profiles[0].plugin_args["TaintToleration"]
    assert told == {"featureGates": {gate: True}}
    tainted = make_table([make_node("a", taints=["level=7:NoSchedule"])])
    pod = make_pod("web", tolerations=[{"key": "level", "operator": "Lt", "value": "8"}])
    assert isinstance(told, dict)
    assert filter_now(Plug(TaintToleration, told), pod, tainted) == [SUCCESS]


@each_plugin
def test_every_default_plugin_declares_depends_on(descriptor: Descriptor) -> None:
    assert descriptor.depends_on is not None
