"""Which plugins exist: default ones, registered ones, those of BerthConfiguration."""

from __future__ import annotations

import pytest
from berth_host.config.berth.points import FailurePolicy
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_configuration
from berth_sdk.gang_policy import GangPolicy, Repair

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
BERTH = "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"


def load(profile: str, plugin: str, **registered: frozenset[str]) -> LoadedConfiguration:
    text = f"{HEADER}profiles:\n- plugins: {profile}\n{BERTH}plugins:\n- {plugin}\n"
    return load_configuration(text, source="f.yaml", registered=registered)


def points_of(loaded: LoadedConfiguration, name: str) -> set[str]:
    plugins = loaded.profiles[0].plugins
    return {point for point, listed in plugins.items() if any(p.name == name for p in listed)}


EVERYWHERE = "{multiPoint: {enabled: [{name: Gpu}]}}"
GPU = "{name: Gpu, endpoint: 'unix:///run/gpu.sock'"


def test_multi_point_stands_for_every_point_until_the_plugin_says_its_own() -> None:
    loaded = load(EVERYWHERE, GPU + "}")
    points = points_of(loaded, "Gpu")
    assert {"preEnqueue", "preFilter", "filter", "score", "reserve", "permit", "preBind", "bind"} <= points
    # The order of the queue is one plugin's, and not taken from it unasked.
    assert "queueSort" not in points
    assert any("known when it is attached" in warning for warning in loaded.warnings)


def test_points_at_which_a_profile_enables_it_count_too() -> None:
    assert points_of(load("{permit: {enabled: [{name: Gpu}]}}", GPU + "}"), "Gpu") == {"permit"}


def test_registered_points_beat_the_file() -> None:
    loaded = load(EVERYWHERE, GPU + ", points: {filter: {}}}", Gpu=frozenset({"reserve"}))
    assert points_of(loaded, "Gpu") == {"reserve"}
    assert loaded.warnings == ()


def test_points_that_the_file_names_add_to_those_of_the_profile() -> None:
    loaded = load("{permit: {enabled: [{name: Gpu}]}}", GPU + ", points: {simulateFilter: {}}}")
    assert points_of(loaded, "Gpu") == {"permit"}


def test_plugin_in_no_profile_is_named() -> None:
    assert any("is enabled in no profile" in warning for warning in load("{}", GPU + "}").warnings)


def test_name_in_handle_permit_that_no_profile_enables_is_named_with_the_one_that_was_meant() -> None:
    both = "{multiPoint: {enabled: [{name: Gpu}, {name: Gang}]}}"
    gang = "}\n- {name: Gang, endpoint: 'unix:///run/gang.sock'}"
    loaded = load(both, GPU + ", handle: {permit: [Gnag, Gang]}" + gang)
    assert [warning for warning in loaded.warnings if "handle.permit" in warning] == [
        'plugin "Gpu": handle.permit names "Gnag", which no profile enables at permit: it holds no pods'
        ' (did you mean "Gang"?)'
    ]


def test_deadline_beyond_the_cycle_budget_is_named() -> None:
    loaded = load(EVERYWHERE, GPU + ", points: {filter: {deadline: 5s}, preBind: {deadline: 60s}}}")
    assert sum("longer than cycleBudget" in warning for warning in loaded.warnings) == 1


def test_default_plugin_is_served_only_if_the_file_names_it() -> None:
    with pytest.raises(ConfigurationError, match="a plugin named NodeName already exists"):
        load_configuration(HEADER, source="f", registered={"NodeName": frozenset({"filter"})})
    loaded = load("{}", GPU.replace("Gpu", "NodeName") + "}")
    assert points_of(loaded, "NodeName") == {"preFilter", "filter"}


def test_registered_point_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean filter"):
        load_configuration(HEADER, source="f", registered={"Gpu": frozenset({"filtr"})})


def test_names_that_do_nothing_are_named() -> None:
    text = HEADER + (
        "profiles:\n- plugins:\n    filter: {disabled: [{name: NodeNam}]}\n"
        "    multiPoint: {disabled: [{name: NodePorts}]}\n"
        "  pluginConfig: [{name: NodePorts, args: {x: 1}}, {name: NodeAffinty, args: {x: 1}}]\n"
    )
    assert load_configuration(text, source="f").warnings == (
        'profiles[0].plugins.filter.disabled: there is no plugin "NodeNam" to disable '
        '(did you mean "NodeName"?)',
        'profiles[0].pluginConfig[0]: the profile does not enable "NodePorts", its args are not used',
        'profiles[0].pluginConfig[1]: the profile does not enable "NodeAffinty", its args are not used '
        '(did you mean "NodeAffinity"?)',
    )


def test_multi_point_enables_a_served_plugin_at_the_points_of_groups_that_may_have_several() -> None:
    loaded = load("{multiPoint: {enabled: [{name: Gpu}]}}", GPU + "}")
    points = points_of(loaded, "Gpu")
    assert {"placementFeasible", "placementScore", "podGroupPostFilter"} <= points
    assert not {"placementGenerate", "queueSort"} & points


def test_policy_of_placement_feasible_stands_in_berths_configuration() -> None:
    settings = GPU + ", points: {placementFeasible: {policy: Ignore, deadline: 1s}}}"
    loaded = load("{multiPoint: {enabled: [{name: Gpu}]}}", settings)
    (plugin,) = loaded.berth.plugins
    assert plugin.points["placementFeasible"].policy is FailurePolicy.IGNORE


COSCHEDULING = {"Coscheduling": frozenset({"permit"})}


def test_settings_of_groups_are_read_where_only_coscheduling_is_enabled() -> None:
    args = "  pluginConfig: [{name: GangScheduling, args: {graceSeconds: 5, repair: Evict}}]\n"
    enabled = "profiles:\n- plugins: {permit: {enabled: [{name: Coscheduling}]}}\n" + args
    loaded = load_configuration(HEADER + enabled, source="f", registered=COSCHEDULING)
    assert loaded.warnings == ()
    want = GangPolicy(grace_s=5.0, repair=Repair.EVICT)
    assert loaded.profiles[0].gang_policy == want
    told = loaded.profiles[0].plugin_args["Coscheduling"]
    assert isinstance(told, dict)
    policy = told["gangPolicy"]
    assert isinstance(policy, dict)
    assert GangPolicy.of(policy) == want
    without = load_configuration(f"{HEADER}profiles:\n- schedulerName: a\n{args}", source="f")
    assert without.warnings == (
        'profiles[0].pluginConfig[0]: the profile does not enable "GangScheduling", its args are not used',
    )
    assert load_configuration(HEADER, source="f").profiles[0].gang_policy == GangPolicy()
