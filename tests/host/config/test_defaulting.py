"""Defaults and the merge of the default plugins into a profile."""

from __future__ import annotations

from berth_host.config.decoding.scheduler_v1 import decode_scheduler
from berth_host.config.default_plugins import DEFAULT_PLUGINS
from berth_host.config.defaulting import DefaultedScheduler, apply_defaults
from berth_host.config.feature_gates import resolve_feature_gates
from berth_host.config.source.documents import read_documents

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def defaulted(text: str = "", **gates: bool) -> DefaultedScheduler:
    root = read_documents(HEADER + text).scheduler
    assert root is not None
    return apply_defaults(
        decode_scheduler(root, is_yaml=True, source="f"),
        resolve_feature_gates(gates, source="f"),
        DEFAULT_PLUGINS,
    )


def multi_point(plugins: str, **gates: bool) -> list[str]:
    profile = defaulted(f"profiles:\n- plugins: {{multiPoint: {plugins}}}", **gates).profiles[0]
    return [f"{ref.name}:{ref.weight}" for ref in profile.plugins["multiPoint"].enabled]


DEFAULTS = [
    f"{plugin.name}:{plugin.weight}"
    for plugin in DEFAULT_PLUGINS
    if plugin.feature_gate in (None, "DynamicResourceAllocation", "NodeDeclaredFeatures")
]


def test_default_profile_has_all_plugins_whose_gates_are_on() -> None:
    assert multi_point("{}") == DEFAULTS
    assert multi_point("{}", GenericWorkload=True) == [*DEFAULTS, "GangScheduling:0"]
    gates = {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True}
    added = ["GangScheduling:0", "TopologyPlacementGenerator:0", "PodGroupPodsCount:1"]
    assert multi_point("{}", **gates) == [*DEFAULTS, *added]


def test_named_default_keeps_its_place_with_the_given_weight() -> None:
    got = multi_point("{enabled: [{name: Mine, weight: 2}, {name: TaintToleration}]}")
    assert got[4] == "TaintToleration:0"
    assert got[-1] == "Mine:2"
    assert len(got) == len(DEFAULTS) + 1


def test_plugin_both_disabled_and_enabled_goes_to_the_end() -> None:
    got = multi_point("{enabled: [{name: NodeName}], disabled: [{name: NodeName}]}")
    assert got[-1] == "NodeName:0"
    assert got.count("NodeName:0") == 1


def test_star_drops_all_defaults() -> None:
    assert multi_point("{enabled: [{name: NodeName}], disabled: [{name: '*'}]}") == ["NodeName:0"]


def test_repeated_name_survives_for_the_framework_to_refuse() -> None:
    got = multi_point("{enabled: [{name: NodeName, weight: 1}, {name: NodeName, weight: 2}]}")
    assert got[2] == "NodeName:2"
    assert got[-1] == "NodeName:1"


def test_weights_of_disabled_entries_are_dropped_and_empty_points_left_out() -> None:
    profile = defaulted("profiles:\n- plugins: {score: {disabled: [{name: X, weight: 3}]}}").profiles[0]
    assert profile.merged_plugins()["score"] == {"disabled": [{"name": "X", "weight": 0}]}
    assert set(profile.merged_plugins()) == {"multiPoint", "score"}


def test_arguments_given_come_first_then_those_of_enabled_plugins_by_name() -> None:
    profile = defaulted(
        "profiles:\n- plugins: {multiPoint: {disabled: [{name: InterPodAffinity}]}}\n"
        "  pluginConfig: [{name: Mine}, {name: VolumeBinding}]"
    ).profiles[0]
    assert [entry.name for entry in profile.plugin_config] == [
        *("Mine", "VolumeBinding", "DefaultPreemption", "DynamicResources", "NodeAffinity"),
        *("NodeResourcesBalancedAllocation", "NodeResourcesFit", "PodTopologySpread"),
    ]
    assert profile.plugin_config[0].args is None


def test_arguments_that_only_berth_has_are_there_only_where_they_are_given() -> None:
    assert "GangScheduling" not in [
        entry.name for entry in defaulted("", GenericWorkload=True).profiles[0].plugin_config
    ]
    given = defaulted("profiles:\n- pluginConfig: [{name: GangScheduling, args: {graceSeconds: 0}}]")
    assert given.profiles[0].plugin_config[0].args == {
        "kind": "GangSchedulingArgs",
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "timeoutSeconds": 300,
        "graceSeconds": 0,
        "repair": "Leave",
        "holdRoom": False,
    }


def test_one_unnamed_profile_gets_the_default_name_two_get_none() -> None:
    assert defaulted("profiles: null").profiles[0].scheduler_name == "default-scheduler"
    assert [profile.scheduler_name for profile in defaulted("profiles: [{}, {}]").profiles] == ["", ""]


def test_contention_profiling_follows_profiling() -> None:
    assert defaulted().config.enable_contention_profiling is True
    assert defaulted("enableProfiling: false").config.enable_contention_profiling is False
    config = defaulted("enableProfiling: false\nenableContentionProfiling: true").config
    assert config.enable_contention_profiling is True


def test_zero_and_empty_mean_the_default_where_go_has_no_pointer() -> None:
    config = defaulted(
        "clientConnection: {qps: 0, burst: 0, contentType: ''}\n"
        "leaderElection: {leaseDuration: 0s, resourceName: '', leaderElect: null}"
    ).config
    assert (config.client_connection.qps, config.client_connection.burst) == (50.0, 100)
    assert config.client_connection.content_type == "application/vnd.kubernetes.protobuf"
    assert config.leader_election.lease_duration_s == 15
    assert config.leader_election.resource_name == "kube-scheduler"
    assert config.leader_election.leader_elect is True
