"""Building profiles: extenders, construction, one queue order for all."""

from __future__ import annotations

import pytest
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.errors import ConfigurationError
from berth_host.config.loading import load_configuration

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
SORT = {"MySort": frozenset({"queueSort"})}


def load(text: str) -> LoadedConfiguration:
    return load_configuration(HEADER + text, source="f.yaml", registered=SORT)


def failure(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(text)
    assert caught.value.kind == "profile"
    return caught.value.text


IGNORING = "extenders: [{managedResources: [{name: a.b/c, ignoredByScheduler: true}, {name: a.b/d}]}]\n"


def test_resources_that_extenders_ignore_replace_those_of_the_file() -> None:
    profile = load(
        IGNORING + "profiles:\n- pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [x/y]}}]"
    ).profiles[0]
    args = profile.plugin_args["NodeResourcesFit"]
    assert isinstance(args, dict)
    assert args["ignoredResources"] == ["a.b/c"]
    shown = {config.name: config.args for config in profile.plugin_config}["NodeResourcesFit"]
    assert isinstance(shown, dict)
    assert shown["ignoredResources"] == ["x/y"]


def test_resources_that_extenders_leave_to_nobody_are_a_warning() -> None:
    left = "managedResources: [{name: a.b/c, ignoredByScheduler: true}, {name: a.b/d}]"
    counted = f"extenders: [{{filterVerb: f, {left}}}]\n"
    assert load(counted).warnings == ()
    assert load(counted.replace("filterVerb: f", "prioritizeVerb: p, weight: 1")).warnings == (
        "extenders[0] has no filterVerb: nobody counts a.b/c, because NodeResourcesFit does not check it "
        "(ignoredByScheduler)",
    )
    assert load(counted.replace("filterVerb: f", "filterVerb: f, ignorable: true")).warnings == (
        "extenders[0] is ignorable: while it fails, nobody counts a.b/c, because NodeResourcesFit does not "
        "check it (ignoredByScheduler)",
    )
    args = "profiles:\n- pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [x/y, a.b/c]}}]"
    assert load(counted + args).warnings == (
        "profiles[0]: NodeResourcesFit checks x/y, because the resources with ignoredByScheduler of the "
        "extenders replace its ignoredResources",
    )


def test_ignored_resources_need_the_arguments_of_fit() -> None:
    text = "profiles:\n- plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}"
    assert "can't find NodeResourcesFitArgs" in failure(IGNORING + text)


def test_extenders_that_may_be_ignored_are_asked_last() -> None:
    text = "extenders: [{urlPrefix: a, ignorable: true}, {urlPrefix: b}, {urlPrefix: c, httpTimeout: 2s}]"
    extenders = load(text).scheduler.extenders_in_turn
    assert [(e.url_prefix, e.http_timeout_s) for e in extenders] == [("b", 5), ("c", 2), ("a", 5)]


def test_arguments_of_fit_are_checked_only_where_it_is_built() -> None:
    config = "pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Best}}}]"
    assert failure(f"profiles:\n- {config}").startswith(
        "f.yaml:4: profiles[0].pluginConfig[0].args.scoringStrategy.type: "
    )
    load(f"profiles:\n- {config}\n  plugins: {{multiPoint: {{disabled: [{{name: NodeResourcesFit}}]}}}}")


def test_arguments_of_plugins_that_are_not_enabled_are_not_handed_out() -> None:
    profile = load("profiles:\n- pluginConfig: [{name: Nowhere, args: {a: 1}}]").profiles[0]
    assert "Nowhere" not in profile.plugin_args
    assert "Nowhere" in [config.name for config in profile.plugin_config]


def test_all_profiles_sort_alike() -> None:
    mine = "plugins: {multiPoint: {disabled: [{name: PrioritySort}], enabled: [{name: MySort}]}}"
    text = f"profiles:\n- schedulerName: a\n- schedulerName: b\n  {mine}"
    assert 'different queue sort plugins for profile "b": "MySort", first: "PrioritySort"' in failure(text)
    both = f"profiles:\n- schedulerName: a\n  {mine}\n  pluginConfig: [{{name: MySort, args: {{x: 1}}}}]\n"
    both += f"- schedulerName: b\n  {mine}"
    assert "different queue sort plugin args" in failure(both)


def test_no_plugin_has_the_name_under_which_extenders_reject() -> None:
    profiles = "profiles:\n- plugins: {filter: {enabled: [{name: Extender}]}}\n"
    own = {"Extender": frozenset({"filter"})}
    load_configuration(HEADER + profiles, source="f.yaml", registered=own)
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(
            f"{HEADER}{profiles}extenders: [{{urlPrefix: a}}]", source="f.yaml", registered=own
        )
    assert caught.value.text.startswith("f.yaml:4: profiles[0].plugins.filter.enabled: ")
    assert "give the plugin another name, or remove extenders" in caught.value.text
