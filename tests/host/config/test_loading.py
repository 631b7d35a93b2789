"""Loading whole files: the result, which error comes first, and what is said about the rest."""

from __future__ import annotations

import pytest
from berth_host.config.berth.configuration import BerthConfiguration, BerthPlugin
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import (
    default_configuration,
    load_berth_configuration,
    load_configuration,
)
from berth_host.config.rendering import configuration_to_json

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
BERTH = "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"


def test_default_configuration_is_that_of_an_empty_file() -> None:
    assert default_configuration() == load_configuration(HEADER, source="x")


def test_global_fields_come_out_typed_and_in_seconds() -> None:
    scheduler = load_configuration(
        HEADER
        + "percentageOfNodesToScore: 30\npodInitialBackoffSeconds: 2\nclientConnection: {qps: 12.5}\n"
        + "leaderElection: {leaseDuration: 1m, retryPeriod: 500ms}\ndelayCacheUntilActive: true\n",
        source="f",
    ).scheduler
    assert scheduler.percentage_of_nodes_to_score == 30
    assert (scheduler.pod_initial_backoff_s, scheduler.pod_max_backoff_s) == (2, 10)
    assert scheduler.leader_election.lease_duration_s == 60
    assert scheduler.leader_election.retry_period_s == 0.5
    assert scheduler.client_connection.qps == 12.5
    assert scheduler.delay_cache_until_active
    assert scheduler.parallelism == 16


def test_profiles_are_found_by_name() -> None:
    loaded = load_configuration(
        HEADER + "profiles: [{schedulerName: a}, {schedulerName: b, percentageOfNodesToScore: 0}]", source="f"
    )
    found = loaded.profile("b")
    assert found is not None
    assert found.percentage_of_nodes_to_score == 0
    assert "NodeResourcesFit" in found.plugin_names
    assert found.plugins_at("permit") == ()
    assert loaded.profile("c") is None


def test_both_documents_of_one_file_are_read() -> None:
    text = f"{HEADER}---\n{BERTH}cycleBudget: 2s\n"
    assert load_configuration(text, source="f").berth.cycle_budget_s == 2
    assert load_berth_configuration(text, source="f").cycle_budget_s == 2


def test_a_file_of_berth_alone_means_the_default_scheduler() -> None:
    loaded = load_configuration(f"{BERTH}cycleBudget: 2s\n", source="f")
    assert loaded.berth.cycle_budget_s == 2
    assert loaded.profiles == default_configuration().profiles


def test_berth_configuration_may_come_from_another_file_but_not_from_both() -> None:
    other = BerthConfiguration(plugins=(BerthPlugin(name="Gpu", command=("gpu",)),))
    text = HEADER + "profiles: [{plugins: {filter: {enabled: [{name: Gpu}]}}}]"
    loaded = load_configuration(text, source="f", berth=other)
    assert [plugin.name for plugin in loaded.profiles[0].plugins_at("filter")][-1] == "Gpu"
    with pytest.raises(ConfigurationError, match="in another file"):
        load_configuration(f"{text}\n---\n{BERTH}", source="f", berth=other)


def test_other_documents_are_ignored_with_a_warning() -> None:
    loaded = load_configuration(f"{HEADER}---\n{{[\n", source="f")
    assert len(loaded.warnings) == 1
    assert "line 3 is ignored" in loaded.warnings[0]


def test_gates_that_will_go_are_a_warning() -> None:
    assert len(default_configuration(feature_gates={"DRAPrioritizedList": True}).warnings) == 1


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        pytest.param("a: [", "decode", 2, id="no YAML"),
        pytest.param(f"{HEADER}parallelism: 0\nx: 1\n---\n{BERTH}y: 1", "decode", 4, id="decoding first"),
        pytest.param(f"{HEADER}parallelism: 0\n---\n{BERTH}y: 1", "validation", 3, id="then validation"),
        pytest.param(
            f"{HEADER}profiles: [{{plugins: {{bind: {{disabled: [{{name: '*'}}]}}}}}}]\n---\n{BERTH}y: 1",
            "decode",
            7,
            id="then berth's document",
        ),
        pytest.param(
            f"{HEADER}profiles:\n- plugins:\n    bind: {{disabled: [{{name: '*'}}]}}\n---\n{BERTH}",
            "profile",
            5,
            id="profiles last",
        ),
    ],
)
def test_the_first_step_that_fails_is_reported_with_its_line(text: str, kind: str, line: int) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(text, source="f")
    assert (caught.value.kind, caught.value.line) == (kind, line)


def test_berths_document_is_read_although_the_first_has_errors() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(f"{HEADER}parallelism: 0\n---\n{BERTH}y: 1", source="f")
    assert [finding.line for finding in caught.value.findings] == [3, 7]
    assert caught.value.kind == "validation"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param(f"{HEADER}parallelism: 0\n---\n{BERTH}y: [1\n", [3, 8], id="berth's"),
        pytest.param(f"{HEADER}a: '\n---\n{BERTH}y: 1\n", [4, 7], id="the first"),
        pytest.param(f"{HEADER}a: [1\n---\n{BERTH}y: [1\n", [4, 8], id="both"),
        pytest.param(f"{HEADER}a: [1\n---\nb: 1\n---\n{BERTH}", [4], id="nothing wrong with berth's"),
        pytest.param(f"{BERTH}a: [1\n", [4], id="berth's alone"),
    ],
)
def test_a_document_that_is_no_yaml_hides_nothing_of_the_other(text: str, lines: list[int]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(text, source="f")
    assert [finding.line for finding in caught.value.findings] == lines


def test_rendered_configuration_has_the_four_parts() -> None:
    shown = configuration_to_json(default_configuration())
    assert set(shown) == {"config", "profiles", "berth", "warnings"}
    assert isinstance(shown["profiles"], list)
    first = shown["profiles"][0]
    assert isinstance(first, dict)
    assert "frameworkPluginConfig" not in first


def test_key_material_is_not_printed() -> None:
    text = HEADER + "extenders: [{tlsConfig: {serverName: s, keyData: Zm9v}}]"
    assert "foo" not in repr(load_configuration(text, source="f").scheduler)


def test_version_without_pod_groups_schedules_none_and_says_so() -> None:
    gates = {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True}
    old = default_configuration(feature_gates=gates, emulated_version="1.36")
    assert not any(old.gates.is_enabled(gate) for gate in gates)
    assert (
        "feature gate GenericWorkload: pod groups are scheduled as in 1.37 or not at all" in old.warnings[-1]
    )
    for version in ("", "1.37"):
        loaded = default_configuration(feature_gates=gates, emulated_version=version)
        assert all(loaded.gates.is_enabled(gate) for gate in gates)
        assert loaded.warnings == ()


def test_list_of_plugins_that_a_version_does_not_have_is_an_unknown_field_there() -> None:
    text = HEADER + "profiles: [{plugins: {podGroupPostFilter: {disabled: [{name: DynamicResources}]}}}]\n"
    with pytest.raises(ConfigurationError, match=r'unknown field "profiles\[0\].plugins.podGroupPostFilter"'):
        load_configuration(text, source="f", emulated_version="1.36")
    (profile,) = load_configuration(text, source="f").profiles
    assert [plugin.name for plugin in profile.plugins["podGroupPostFilter"]] == ["DefaultPreemption"]


def test_lists_of_pod_groups_are_expanded_from_multi_point() -> None:
    gates = {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True}
    (profile,) = default_configuration(feature_gates=gates).profiles
    listed = {point: [one.name for one in plugins] for point, plugins in profile.plugins.items()}
    assert listed["podGroupPostFilter"] == ["DynamicResources", "DefaultPreemption"]
    assert listed["placementGenerate"] == ["TopologyPlacementGenerator"]
    assert listed["placementScore"] == ["NodeResourcesFit", "PodGroupPodsCount"]
    assert listed["placementFeasible"] == ["GangScheduling"]
    assert {one.weight for one in profile.plugins["placementScore"]} == {1}


def test_profile_has_one_plugin_that_generates_placements() -> None:
    text = (
        HEADER
        + "profiles: [{schedulerName: racks, plugins: {placementGenerate: {enabled: [{name: Racks}]}}}]\n"
    )
    gates = {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True}
    registered = {"Racks": frozenset({"placementGenerate"})}
    wanted = 'at most one placement generate plugin is allowed for profile with scheduler name "racks"'
    with pytest.raises(ConfigurationError, match=wanted):
        load_configuration(text, source="f", feature_gates=gates, registered=registered)


def test_volume_binding_scores_by_the_default_shape_where_its_gate_is_on() -> None:
    shape = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    for version, wanted in (("", shape), ("1.37", shape), ("1.36", None)):
        (profile,) = default_configuration(emulated_version=version).profiles
        args = profile.plugin_args["VolumeBinding"]
        assert isinstance(args, dict)
        assert args.get("shape") == wanted
